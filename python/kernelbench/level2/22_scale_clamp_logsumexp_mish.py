"""KernelBench level 2, problem 22: a linear layer, scaled, plus itself, clamped; logsumexp of each row, times its mish."""

import tilewright
import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        scale_factor: float,
        clamp_min: float,
        clamp_max: float,
        on_cpu: tilewright.OnCpu = "move",
    ) -> None:
        super().__init__()
        self.matmul = tilewright.nn.Linear(input_size, hidden_size, on_cpu=on_cpu)
        # x + x is x times two.
        self.matmul.activation = [("mul", scale_factor), ("mul", 2.0), ("clamp", clamp_min, clamp_max)]

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.matmul(x)
        # log(sum(exp(y))) is y - log_softmax(y) at any place of a row: one kernel, where torch.logsumexp takes nine.
        y = y[:, :1] - F.log_softmax(y, dim=1)[:, :1]
        return y * F.mish(y)
