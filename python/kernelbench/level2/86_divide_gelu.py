"""KernelBench level 2, problem 86: a linear layer, divided by a number, gelu."""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(self, input_size: int, output_size: int, divisor: float, on_cpu: tilewright.OnCpu = "move") -> None:
        super().__init__()
        self.linear = tilewright.nn.Linear(input_size, output_size, on_cpu=on_cpu)
        self.linear.activation = [("mul", 1.0 / divisor), "gelu"]

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)
