"""KernelBench level 2, problem 9: a linear layer, minus a number, times a number, relu."""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        subtract_value: float,
        multiply_value: float,
        on_cpu: tilewright.OnCpu = "move",
    ) -> None:
        super().__init__()
        self.linear = tilewright.nn.Linear(in_features, out_features, on_cpu=on_cpu)
        self.linear.activation = [("add", -subtract_value), ("mul", multiply_value), "relu"]

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)
