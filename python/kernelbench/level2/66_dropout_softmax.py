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
        self.matmul = nn.Linear(in_features, out_features)
        self.dropout = nn.Dropout(dropout_p)
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = tilewright.linear(x, self.matmul.weight, self.matmul.bias, on_cpu=self.on_cpu)
        return torch.softmax(self.dropout(y), dim=1)
