"""KernelBench level 2, problem 86: a linear layer, divided by a number, gelu."""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(self, input_size: int, output_size: int, divisor: float, on_cpu: tilewright.OnCpu = "move") -> None:
        super().__init__()
        self.linear = nn.Linear(input_size, output_size)
        self.steps: tilewright.Activation = [("mul", 1.0 / divisor), "gelu"]
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return tilewright.linear(x, self.linear.weight, self.linear.bias, self.steps, on_cpu=self.on_cpu)
