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
        self.linear1 = tilewright.nn.Linear(input_size, hidden_size, on_cpu=on_cpu)
        self.linear2 = tilewright.nn.Linear(hidden_size, output_size, on_cpu=on_cpu)
        self.linear1.activation = "sigmoid"

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear1(x)
        x = self.linear2(x)
        # log(sum(exp(x))) is x - log_softmax(x) at any place of a row: one kernel, where torch.logsumexp takes nine.
        return x[:, 0] - F.log_softmax(x, dim=1)[:, 0]
