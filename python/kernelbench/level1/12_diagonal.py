"""KernelBench level 1, problem 12: a diagonal matrix, given by its diagonal, by a matrix.

Until January 2026 the reference was `torch.diag(A) @ B`, a full product, against which anything is fast.
"""

from collections.abc import Callable

import tilewright
import torch

N = 4096


class Model(torch.nn.Module):
    """By torch."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return A.unsqueeze(1) * B


class ModelNew(torch.nn.Module):
    """By tilewright."""

    def __init__(self, on_cpu: tilewright.OnCpu = "move") -> None:
        super().__init__()
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return tilewright.scale(B, rows=A, on_cpu=self.on_cpu)


def get_inputs(random: Callable[..., torch.Tensor] = torch.rand) -> list[torch.Tensor]:
    return [random(N), random(N, N)]


def get_init_inputs() -> list[object]:
    return []
