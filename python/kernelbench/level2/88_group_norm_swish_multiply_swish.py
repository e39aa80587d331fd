"""KernelBench level 2, problem 88: a linear layer, group norm, swish, times a vector, swish."""

import tilewright
import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        num_groups: int,
        multiply_weight_shape: tuple[int, ...],
        on_cpu: tilewright.OnCpu = "move",
    ) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.group_norm = nn.GroupNorm(num_groups, out_features)
        self.multiply_weight = nn.Parameter(torch.randn(multiply_weight_shape))
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = tilewright.linear(x, self.gemm.weight, self.gemm.bias, on_cpu=self.on_cpu)
        return F.silu(F.silu(self.group_norm(y)) * self.multiply_weight)
