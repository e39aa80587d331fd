"""KernelBench level 2, problem 30: a linear layer, group norm, hardtanh."""

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
        hardtanh_min: float,
        hardtanh_max: float,
        on_cpu: tilewright.OnCpu = "move",
    ) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.group_norm = nn.GroupNorm(num_groups, out_features)
        self.hardtanh = nn.Hardtanh(min_val=hardtanh_min, max_val=hardtanh_max)
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = tilewright.linear(x, self.gemm.weight, self.gemm.bias, on_cpu=self.on_cpu)
        return self.hardtanh(self.group_norm(y))
