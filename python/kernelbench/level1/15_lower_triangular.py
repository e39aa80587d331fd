"""KernelBench level 1, problem 15: the product of two lower triangular matrices, which is one too."""

from collections.abc import Callable

import tilewright
import torch

N = 4096


class Model(torch.nn.Module):
    """By torch."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return torch.tril(torch.matmul(A, B))


class ModelNew(torch.nn.Module):
    """By tilewright."""

    def __init__(self, on_cpu: tilewright.OnCpu = "move") -> None:
        super().__init__()
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return tilewright.matmul(A, B, part="lower", on_cpu=self.on_cpu)


def get_inputs(random: Callable[..., torch.Tensor] = torch.rand) -> list[torch.Tensor]:
    return [torch.tril(random(N, N)), torch.tril(random(N, N))]


def get_init_inputs() -> list[object]:
    return []
