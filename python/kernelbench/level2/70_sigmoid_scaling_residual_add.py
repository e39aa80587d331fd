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
        self.gemm = tilewright.nn.Linear(input_size, hidden_size, on_cpu=on_cpu)
        self.scaling_factor = scaling_factor

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.gemm(x)
        return torch.add(y, torch.sigmoid(y), alpha=self.scaling_factor)
