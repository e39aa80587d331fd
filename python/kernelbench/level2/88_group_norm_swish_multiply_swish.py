"""KernelBench level 2, problem 88: a linear layer, group norm, swish, times a vector, swish.

torch's kernels take long for the norm of many short groups that lie one behind the other in memory. So the product is transposed: a row for each
channel, and the groups' elements one below the other. The result has that layout, too.
"""

import tilewright
import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    #: The product is that of the weight and the transposed input.
    by_columns = True

    def __init__(
        self,
        in_features: int,
        out_features: int,
        num_groups: int,
        multiply_weight_shape: tuple[int, ...],
        on_cpu: tilewright.OnCpu = "move",
    ) -> None:
        super().__init__()
        self.gemm = tilewright.nn.Linear(in_features, out_features, on_cpu=on_cpu)
        self.group_norm = nn.GroupNorm(num_groups, out_features)
        self.multiply_weight = nn.Parameter(torch.randn(multiply_weight_shape))
        self.on_cpu: tilewright.OnCpu = on_cpu

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias, norm = self.gemm.bias.unsqueeze(1), self.group_norm
        y = tilewright.addmm(bias, self.gemm.operand(x), x.mT, on_cpu=self.on_cpu)
        groups = y.unflatten(0, (norm.num_groups, -1))
        variance, mean = torch.var_mean(groups, dim=1, correction=0, keepdim=True)
        factor = torch.rsqrt(variance + norm.eps)
        # (mean - y) · factor, so the channels' factors are subtracted, too.
        y = torch.addcmul(mean * factor, groups, factor, value=-1).flatten(0, 1)
        y = torch.addcmul(norm.bias.unsqueeze(1), y, norm.weight.unsqueeze(1), value=-1)
        y = F.silu(y, inplace=True) * self.multiply_weight.unsqueeze(1)
        return F.silu(y, inplace=True).mT
