"""KernelBench level 2, problem 75: a linear layer, group norm, the minimum of each row, plus a vector."""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        num_groups: int,
        bias_shape: tuple[int, ...],
        on_cpu: tilewright.OnCpu = "move",
    ) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.group_norm = nn.GroupNorm(num_groups, out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = tilewright.linear(x, self.gemm.weight, self.gemm.bias, on_cpu=self.on_cpu)
        return torch.min(self.group_norm(y), dim=1, keepdim=True)[0] + self.bias
