"""KernelBench level 2, problem 40: a linear layer, times a number, plus what was before that."""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self, in_features: int, out_features: int, scaling_factor: float, on_cpu: tilewright.OnCpu = "move"
    ) -> None:
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        # x times a number, plus x.
        self.steps: tilewright.Activation = ("mul", scaling_factor + 1.0)
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return tilewright.linear(x, self.matmul.weight, self.matmul.bias, self.steps, on_cpu=self.on_cpu)
