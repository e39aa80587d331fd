"""KernelBench level 2, problem 68: a linear layer, the smaller of it and a number, minus that number."""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self, in_features: int, out_features: int, constant: float, on_cpu: tilewright.OnCpu = "move"
    ) -> None:
        super().__init__()
        self.linear = tilewright.nn.Linear(in_features, out_features, on_cpu=on_cpu)
        self.constant = nn.Parameter(torch.tensor(constant))
        # min(x, c) - c and min(x - c, 0) are the same bits: where x is smaller both are x - c, otherwise both are 0.
        self.linear.activation = [("add", self.constant, -1.0), ("clamp", None, 0.0)]

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)
