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
        self.matmul = nn.Linear(in_features, out_features)
        self.add_value = nn.Parameter(torch.randn(add_value_shape))
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps: tilewright.Activation = [("add", self.add_value), "silu", "tanh", "gelu", ("hardtanh", -1.0, 1.0)]
        return tilewright.linear(x, self.matmul.weight, self.matmul.bias, steps, on_cpu=self.on_cpu)
