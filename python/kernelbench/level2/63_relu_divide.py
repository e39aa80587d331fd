"""KernelBench level 2, problem 63: a linear layer, relu, divided by a number."""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self, in_features: int, out_features: int, divisor: float, on_cpu: tilewright.OnCpu = "move"
    ) -> None:
        super().__init__()
        self.linear = tilewright.nn.Linear(in_features, out_features, on_cpu=on_cpu)
        self.linear.activation = ["relu", ("mul", 1.0 / divisor)]

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)
