"""KernelBench level 2, problem 28: a linear layer, each row normalized, plus a matrix, times it."""

import tilewright
import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        on_cpu: tilewright.OnCpu = "move",
    ) -> None:
        super().__init__()
        self.bmm = tilewright.nn.Linear(in_features, out_features, on_cpu=on_cpu)
        self.eps = eps

    @torch.no_grad()
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = self.bmm(x)
        # The norm of an image of one channel and one row is that of the row.
        z = F.layer_norm(z, z.shape[-1:], eps=self.eps)
        return z.add_(y).mul_(y)
