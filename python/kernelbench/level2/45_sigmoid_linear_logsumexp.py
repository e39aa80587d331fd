"""KernelBench level 2, problem 45: a linear layer, sigmoid, another linear layer, logsumexp of each row."""

import tilewright
import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    def __init__(
        self, input_size: int, hidden_size: int, output_size: int, on_cpu: tilewright.OnCpu = "move"
    ) -> None:
        super().__init__()
        self.linear1 = nn.Linear(input_size, hidden_size)
        self.linear2 = nn.Linear(hidden_size, output_size)
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = tilewright.linear(x, self.linear1.weight, self.linear1.bias, "sigmoid", on_cpu=self.on_cpu)
        x = tilewright.linear(x, self.linear2.weight, self.linear2.bias, on_cpu=self.on_cpu)
        # log(sum(exp(x))) is x - log_softmax(x) at any place of a row: one kernel, where torch.logsumexp takes nine.
        return x[:, 0] - F.log_softmax(x, dim=1)[:, 0]
