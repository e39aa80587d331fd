"""KernelBench level 1, problem 8: extents that are multiples of nothing."""

from collections.abc import Callable

import tilewright
import torch

M, K, N = 8205, 2949, 5921


class Model(torch.nn.Module):
    """By torch."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return torch.matmul(A, B)


class ModelNew(torch.nn.Module):
    """By tilewright."""

    def __init__(self, on_cpu: tilewright.OnCpu = "move") -> None:
        super().__init__()
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return tilewright.matmul(A, B, on_cpu=self.on_cpu)


def get_inputs(random: Callable[..., torch.Tensor] = torch.rand) -> list[torch.Tensor]:
    return [random(M, K), random(K, N)]


def get_init_inputs() -> list[object]:
    return []
