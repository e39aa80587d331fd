"""KernelBench level 1, problem 5: a matrix by a number."""

from collections.abc import Callable

import tilewright
import torch

M, N = 65536, 16384


class Model(torch.nn.Module):
    """By torch."""

    def forward(self, A: torch.Tensor, s: float) -> torch.Tensor:
        return A * s


class ModelNew(torch.nn.Module):
    """By tilewright."""

    def __init__(self, on_cpu: tilewright.OnCpu = "move") -> None:
        super().__init__()
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, A: torch.Tensor, s: float) -> torch.Tensor:
        return tilewright.scale(A, s, on_cpu=self.on_cpu)


def get_inputs(random: Callable[..., torch.Tensor] = torch.rand) -> list[torch.Tensor | float]:
    return [random(M, N), 3.14]


def get_init_inputs() -> list[object]:
    return []
