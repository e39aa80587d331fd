"""KernelBench level 2, problem 37: a linear layer, swish, plus a vector, group norm."""

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
        self.matmul = nn.Linear(in_features, out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.group_norm = nn.GroupNorm(num_groups, out_features)
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = tilewright.linear(x, self.matmul.weight, self.matmul.bias, ["silu", ("add", self.bias)], on_cpu=self.on_cpu)
        return self.group_norm(y)
