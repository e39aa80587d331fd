"""KernelBench level 2, problem 14: a product, divided by two, summed over each row, times a number."""

import tilewright
import torch
from torch import nn


class ModelNew(tilewright.nn.Linear):
    """By tilewright: a layer whose weight is drawn otherwise."""

    def __init__(
        self, input_size: int, hidden_size: int, scaling_factor: float, on_cpu: tilewright.OnCpu = "move"
    ) -> None:
        super().__init__(input_size, hidden_size, bias=False, activation=("mul", 0.5), on_cpu=on_cpu, device="meta")
        self.weight = nn.Parameter(torch.randn(hidden_size, input_size))
        self.scaling_factor = scaling_factor

    @torch.no_grad()
    def forward(self, input: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        return torch.sum(super().forward(input, residual), dim=1, keepdim=True) * self.scaling_factor
