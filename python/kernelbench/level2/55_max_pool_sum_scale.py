"""KernelBench level 2, problem 55: a linear layer, the maximum of neighbours, summed over each row, times a number."""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        kernel_size: int,
        scale_factor: float,
        on_cpu: tilewright.OnCpu = "move",
    ) -> None:
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.max_pool = nn.MaxPool1d(kernel_size)
        self.scale_factor = scale_factor
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = tilewright.linear(x, self.matmul.weight, self.matmul.bias, on_cpu=self.on_cpu)
        y = self.max_pool(y.unsqueeze(1)).squeeze(1)
        return torch.sum(y, dim=1) * self.scale_factor
