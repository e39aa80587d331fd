"""KernelBench level 2, problem 97: a linear layer, batch norm, plus a number, divided by a number, swish."""

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
        bn_eps: float = 1e-5,
        bn_momentum: float = 0.1,
        bias_shape: tuple[int, ...] = (1,),
        divide_value: float = 1.0,
        on_cpu: tilewright.OnCpu = "move",
    ) -> None:
        super().__init__()
        self.matmul = tilewright.nn.Linear(in_features, out_features, on_cpu=on_cpu)
        self.bn = nn.BatchNorm1d(out_features, eps=bn_eps, momentum=bn_momentum)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.divide_value = divide_value

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.matmul(x)
        # The norm has a factor and a summand for each channel anyway: the bias and the division are a part of them.
        divided = {"weight": self.bn.weight / self.divide_value, "bias": (self.bn.bias + self.bias) / self.divide_value}
        return F.silu(torch.func.functional_call(self.bn, divided, y), inplace=True)
