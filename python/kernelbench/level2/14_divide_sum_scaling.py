"""KernelBench level 2, problem 14: a product, divided by two, summed over each row, times a number."""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self, input_size: int, hidden_size: int, scaling_factor: float, on_cpu: tilewright.OnCpu = "move"
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden_size, input_size))
        self.scaling_factor = scaling_factor
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = tilewright.linear(x, self.weight, scale=0.5, on_cpu=self.on_cpu)
        return torch.sum(y, dim=1, keepdim=True) * self.scaling_factor
