"""KernelBench level 2, problem 94: a linear layer, plus a vector, hardtanh, mish, group norm."""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias_shape: tuple[int, ...],
        num_groups: int,
        on_cpu: tilewright.OnCpu = "move",
    ) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.groupnorm = nn.GroupNorm(num_groups=num_groups, num_channels=out_features)
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = tilewright.linear(x, self.gemm.weight, self.gemm.bias, [("add", self.bias), "hardtanh", "mish"], on_cpu=self.on_cpu)
        return self.groupnorm(y)
