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
        self.gemm = tilewright.nn.Linear(in_features, out_features, bias=False, on_cpu=on_cpu)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.gemm.activation = [("add", self.bias), "relu"]

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gemm(x)
