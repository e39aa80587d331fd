"""KernelBench level 2, problem 70: a linear layer, its sigmoid times a number, plus itself."""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self, input_size: int, hidden_size: int, scaling_factor: float, on_cpu: tilewright.OnCpu = "move"
    ) -> None:
        super().__init__()
        self.gemm = nn.Linear(input_size, hidden_size)
        self.scaling_factor = scaling_factor
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = tilewright.linear(x, self.gemm.weight, self.gemm.bias, on_cpu=self.on_cpu)
        return torch.add(y, torch.sigmoid(y), alpha=self.scaling_factor)
