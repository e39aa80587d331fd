"""KernelBench level 2, problem 18: a linear layer, summed over each row; then maximum, mean and logsumexp of one element."""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(self, in_features: int, out_features: int, on_cpu: tilewright.OnCpu = "move") -> None:
        super().__init__()
        self.linear = tilewright.nn.Linear(in_features, out_features, on_cpu=on_cpu)

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        y = torch.sum(y, dim=1, keepdim=True)
        y = torch.amax(y, dim=1, keepdim=True)
        y = torch.mean(y, dim=1, keepdim=True)
        # Of rows of one element, which all sums of exponentials up to each place are, too: by one kernel, where torch.logsumexp takes nine.
        return torch.logcumsumexp(torch.logcumsumexp(y, dim=1), dim=1)
