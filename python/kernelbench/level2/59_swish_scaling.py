"""KernelBench level 2, problem 59: a linear layer, swish, times a number."""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self, in_features: int, out_features: int, scaling_factor: float, on_cpu: tilewright.OnCpu = "move"
    ) -> None:
        super().__init__()
        self.matmul = tilewright.nn.Linear(in_features, out_features, on_cpu=on_cpu)
        self.matmul.activation = ["silu", ("mul", scaling_factor)]

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.matmul(x)
