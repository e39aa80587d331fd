"""KernelBench level 2, problem 39: a linear layer, times a vector, batch norm."""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        scale_shape: tuple[int, ...],
        eps: float = 1e-5,
        momentum: float = 0.1,
        on_cpu: tilewright.OnCpu = "move",
    ) -> None:
        super().__init__()
        self.gemm = tilewright.nn.Linear(in_features, out_features, on_cpu=on_cpu)
        self.scale = nn.Parameter(torch.randn(scale_shape))
        self.bn = nn.BatchNorm1d(out_features, eps=eps, momentum=momentum)
        self.gemm.activation = ("mul", self.scale)

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bn(self.gemm(x))
