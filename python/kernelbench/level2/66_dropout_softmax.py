"""KernelBench level 2, problem 66: a linear layer, dropout, softmax of each row."""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self, in_features: int, out_features: int, dropout_p: float, on_cpu: tilewright.OnCpu = "move"
    ) -> None:
        super().__init__()
        self.matmul = tilewright.nn.Linear(in_features, out_features, on_cpu=on_cpu)
        self.dropout = nn.Dropout(dropout_p)

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.matmul(x)
        return torch.softmax(self.dropout(y), dim=1)
