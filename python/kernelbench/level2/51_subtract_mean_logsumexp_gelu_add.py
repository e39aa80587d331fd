"""KernelBench level 2, problem 51: a linear layer, minus a vector; mean and logsumexp of each row, gelu, plus the input."""

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
        self.gemm = tilewright.nn.Linear(in_features, out_features, bias=bias, on_cpu=on_cpu)
        self.subtract = nn.Parameter(torch.randn(out_features))
        self.gemm.activation = ("add", self.subtract, -1.0)

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.gemm(x)
        y = torch.mean(y, dim=1, keepdim=True)
        # Of rows of one element, which all sums of exponentials up to each place are, too: by one kernel, where torch.logsumexp takes nine.
        y = torch.logcumsumexp(y, dim=1)
        return F.gelu(y) + x
