"""KernelBench level 2, problem 64: a linear layer, logsumexp of each row, leaky relu twice, gelu twice."""

import tilewright
import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, on_cpu: tilewright.OnCpu = "move"
    ) -> None:
        super().__init__()
        self.linear = tilewright.nn.Linear(in_features, out_features, bias=bias, on_cpu=on_cpu)

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        # log(sum(exp(y))) is y - log_softmax(y) at any place of a row: one kernel, where torch.logsumexp takes nine.
        y = y[:, :1] - F.log_softmax(y, dim=1)[:, :1]
        y = F.leaky_relu(F.leaky_relu(y, 0.01), 0.01)
        return F.gelu(F.gelu(y))
