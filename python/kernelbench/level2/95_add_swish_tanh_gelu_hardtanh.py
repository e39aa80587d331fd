"""KernelBench level 2, problem 95: a linear layer, plus a vector, swish, tanh, gelu, hardtanh."""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self, in_features: int, out_features: int, add_value_shape: tuple[int, ...], on_cpu: tilewright.OnCpu = "move"
    ) -> None:
        super().__init__()
        self.matmul = tilewright.nn.Linear(in_features, out_features, on_cpu=on_cpu)
        self.add_value = nn.Parameter(torch.randn(add_value_shape))
        self.matmul.activation = [("add", self.add_value), "silu", "tanh", "gelu", ("hardtanh", -1.0, 1.0)]

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.matmul(x)
