"""KernelBench level 2, problem 12: a linear layer, times a number, leaky relu."""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        multiplier: float,
        negative_slope: float,
        on_cpu: tilewright.OnCpu = "move",
    ) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.steps: tilewright.Activation = [("mul", multiplier), ("leaky_relu", negative_slope)]
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return tilewright.linear(x, self.gemm.weight, self.gemm.bias, self.steps, on_cpu=self.on_cpu)
