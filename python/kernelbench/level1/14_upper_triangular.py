"""KernelBench level 1, problem 14: the product of two upper triangular matrices, which is one too."""

from collections.abc import Callable

import tilewright
import torch

N = 4096


class Model(torch.nn.Module):
    """By torch."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return torch.triu(torch.matmul(A, B))


class ModelNew(torch.nn.Module):
    """By tilewright."""

    def __init__(self, on_cpu: tilewright.OnCpu = "move") -> None:
        super().__init__()
        self.on_cpu: tilewright.OnCpu = on_cpu

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return tilewright.matmul(A, B, part="upper", on_cpu=self.on_cpu)


def get_inputs(random: Callable[..., torch.Tensor] = torch.rand) -> list[torch.Tensor]:
    return [torch.triu(random(N, N)), torch.triu(random(N, N))]


def get_init_inputs() -> list[object]:
    return []
