"""KernelBench level 1, problem 1: the product of two square matrices."""

from collections.abc import Callable

import tilewright
import torch

N = 4096


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
    return [random(N, N), random(N, N)]


def get_init_inputs() -> list[object]:
    return []
