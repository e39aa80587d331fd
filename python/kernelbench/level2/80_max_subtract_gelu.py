"""KernelBench level 2, problem 80: a linear layer, the maximum of each row, minus its own mean, gelu.

The mean of one element is that element, so the result is zero, whatever the product is. It is computed all the same.
"""

import tilewright
import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(self, in_features: int, out_features: int, max_dim: int, on_cpu: tilewright.OnCpu = "move") -> None:
        super().__init__()
        self.gemm = tilewright.nn.Linear(in_features, out_features, on_cpu=on_cpu)
        self.max_dim = max_dim

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.gemm(x)
        y = torch.amax(y, dim=self.max_dim, keepdim=True)
        return F.gelu(y - y.mean(dim=1, keepdim=True))
