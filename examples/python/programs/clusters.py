"""Principal components and k-means of points in many dimensions, compared with float64.

    python clusters.py
    python clusters.py --device cpu --points 300 --dimensions 20 --clusters 7 --components 4
"""

from __future__ import annotations

import argparse

import torch
from common import OURS, TF32, TORCH, WAYS, Program, relative


def components(x: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Variances and directions, by the covariance matrix."""
    x = x - x.mean(0)
    variances, directions = torch.linalg.eigh(x.mT @ x / (len(x) - 1))
    return variances[-count:], directions[:, -count:]


def k_means(x: torch.Tensor, centers: torch.Tensor, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Lloyd's algorithm: the center that each point is nearest to, and the centers."""
    squares = x.square().sum(1, keepdim=True)
    nearest = torch.zeros(len(x), dtype=torch.long, device=x.device)
    for _ in range(steps):
        # The point's own square makes no difference to which is nearest.
        nearest = torch.addmm(centers.square().sum(1), x, centers.mT, alpha=-2).argmin(1)
        sums = torch.zeros_like(centers).index_add_(0, nearest, x)
        counts = torch.bincount(nearest, minlength=len(centers)).unsqueeze(1)
        centers = torch.where(counts > 0, sums / counts.clamp_min(1), centers)
    return nearest, centers


def sum_of_squares(x: torch.Tensor, nearest: torch.Tensor, centers: torch.Tensor) -> float:
    return sum((part.double() - centers.double()[near]).square().sum().item() for part, near in zip(x.split(1 << 16), nearest.split(1 << 16), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=200_000)
    parser.add_argument("--dimensions", type=int, default=1024)
    parser.add_argument("--clusters", type=int, default=4096)
    parser.add_argument("--components", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8)
    program = Program("principal components and k-means", parser)
    options = program.options
    torch.manual_seed(1)
    # Clusters around centers that lie near a subspace, away from the origin: as data are that nobody has centered.
    basis = torch.randn(options.components, options.dimensions, device=program.device)
    centers = torch.randn(options.clusters, options.components, device=program.device) @ basis / options.components**0.5 + 3
    x = centers[torch.randint(options.clusters, (options.points,), device=program.device)]
    x = x + 0.5 * torch.randn(options.points, options.dimensions, device=program.device)

    exact_variances, exact_directions = components(x.double(), options.components)
    errors: dict[str, tuple[float, float]] = {}
    for way in WAYS:
        with program.way(way):
            variances, directions = components(x, options.components)
        # The part of the directions that is not in the right subspace.
        outside = directions.double() - exact_directions @ (exact_directions.mT @ directions.double())
        errors[way] = relative(variances, exact_variances), outside.norm().item() / options.components**0.5
        program.note(what="components", way=way, variances=errors[way][0], subspace=errors[way][1])
    program.check("variances, beside torch's fp32", errors[OURS][0], 3 * errors[TORCH][0] + 1e-6)
    program.check("subspace, beside torch's fp32", errors[OURS][1], 3 * errors[TORCH][1] + 1e-6)
    for way, passed in program.in_turns(lambda: components(x, options.components)).items():
        program.note(what="components", way=way, seconds=passed)

    first = x[:: len(x) // options.clusters][: options.clusters].clone()
    exact_nearest, exact_centers = k_means(x.double(), first.double(), options.steps)
    best = sum_of_squares(x, exact_nearest, exact_centers)
    elsewhere: dict[str, float] = {}
    for way in WAYS:
        with program.way(way):
            nearest, found = k_means(x, first, options.steps)
        elsewhere[way] = (nearest != exact_nearest).double().mean().item()
        program.note(what="k-means", way=way, elsewhere=elsewhere[way], squares=sum_of_squares(x, nearest, found) / best - 1)
    program.check("points in other clusters, beside torch's fp32", elsewhere[OURS], 3 * elsewhere[TORCH] + 10 / len(x))
    program.note(what="k-means", elsewhere_tf32=elsewhere[TF32])
    for way, passed in program.in_turns(lambda: k_means(x, first, options.steps)).items():
        program.note(what="k-means", way=way, seconds=passed)
    program.end()


if __name__ == "__main__":
    main()
