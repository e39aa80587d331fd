"""KernelBench level 2, problem 76: a product, plus a vector, relu."""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self, in_features: int, out_features: int, bias_shape: tuple[int, ...], on_cpu: tilewright.OnCpu = "move"
    ) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return tilewright.linear(x, self.gemm.weight, self.bias, "relu", on_cpu=self.on_cpu)
