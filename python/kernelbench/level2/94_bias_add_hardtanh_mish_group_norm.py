"""KernelBench level 2, problem 94: a linear layer, plus a vector, hardtanh, mish, group norm.

torch's kernels take long for the norm of many short groups that lie one behind the other in memory. So the product is transposed: a row for each
channel, and the groups' elements one below the other. The result has that layout, too.
"""

import tilewright
import torch
from torch import nn


class ModelNew(nn.Module):
    """By tilewright."""

    #: The product is that of the weight and the transposed input.
    by_columns = True

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias_shape: tuple[int, ...],
        num_groups: int,
        on_cpu: tilewright.OnCpu = "move",
    ) -> None:
        super().__init__()
        self.gemm = tilewright.nn.Linear(in_features, out_features, on_cpu=on_cpu)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.groupnorm = nn.GroupNorm(num_groups=num_groups, num_channels=out_features)
        self.on_cpu: tilewright.OnCpu = on_cpu

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps: tilewright.Activation = [("add", self.bias.unsqueeze(1)), "hardtanh", "mish"]
        bias, norm = self.gemm.bias.unsqueeze(1), self.groupnorm
        y = tilewright.addmm(bias, self.gemm.operand(x), x.mT, activation=steps, on_cpu=self.on_cpu)
        groups = y.unflatten(0, (norm.num_groups, -1))
        variance, mean = torch.var_mean(groups, dim=1, correction=0, keepdim=True)
        factor = torch.rsqrt(variance + norm.eps)
        # (mean - y) · factor, so the channels' factors are subtracted, too.
        y = torch.addcmul(mean * factor, groups, factor, value=-1).flatten(0, 1)
        return torch.addcmul(norm.bias.unsqueeze(1), y, norm.weight.unsqueeze(1), value=-1).mT
