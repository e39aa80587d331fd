"""KernelBench level 2, problem 29: a linear layer, mish, mish."""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(self, in_features: int, out_features: int, on_cpu: tilewright.OnCpu = "move") -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return tilewright.linear(x, self.linear.weight, self.linear.bias, ["mish", "mish"], on_cpu=self.on_cpu)
