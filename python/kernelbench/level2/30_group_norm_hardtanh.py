"""KernelBench level 2, problem 30: a linear layer, group norm, hardtanh."""

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
        num_groups: int,
        hardtanh_min: float,
        hardtanh_max: float,
        on_cpu: tilewright.OnCpu = "move",
    ) -> None:
        super().__init__()
        self.gemm = tilewright.nn.Linear(in_features, out_features, on_cpu=on_cpu)
        self.group_norm = nn.GroupNorm(num_groups, out_features)
        self.hardtanh_min, self.hardtanh_max = hardtanh_min, hardtanh_max

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.gemm(x)
        # Groups are rows of their own: torch's layer norm is one kernel, and its group norm a slow one for images of one element.
        norm = self.group_norm
        groups = y.unflatten(1, (norm.num_groups, -1))
        y = F.layer_norm(groups, groups.shape[2:], eps=norm.eps).flatten(1)
        return F.hardtanh(torch.addcmul(norm.bias, y, norm.weight), self.hardtanh_min, self.hardtanh_max, inplace=True)
