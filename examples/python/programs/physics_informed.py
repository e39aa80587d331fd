"""A physics-informed network: it learns the solution of an equation from the equation alone, whose derivatives are those of the network.

    python physics_informed.py
    python physics_informed.py --device cpu --width 16 --points 64 --steps 3

−u″ − v″ = f on a square, u = 0 on its border, with f such that u = sin(a·πx)·sin(b·πy) is the solution. Second derivatives of the network
are products upon products, and the loss is their difference from f: what is rounded in them is learned. A step is trained by Adam. Each way
begins with the same weights and points; how far the solution is from the right one is the end of it.
"""

from __future__ import annotations

import argparse
import math

import torch
from common import OURS, TORCH, WAYS, Program
from torch import nn


def network(width: int, layers: int) -> nn.Sequential:
    parts: list[nn.Module] = [nn.Linear(2, width), nn.Tanh()]
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.Tanh()]
    return nn.Sequential(*parts, nn.Linear(width, 1))


def solution(model: nn.Module, points: torch.Tensor) -> torch.Tensor:
    """Zero on the border, whatever the network says."""
    x, y = points[:, :1], points[:, 1:]
    return 16 * x * (1 - x) * y * (1 - y) * model(points)


def exact(points: torch.Tensor) -> torch.Tensor:
    return torch.sin(math.pi * points[:, :1]) * torch.sin(2 * math.pi * points[:, 1:])


def loss_of(model: nn.Module, points: torch.Tensor) -> torch.Tensor:
    points = points.detach().requires_grad_()
    u = solution(model, points)
    (first,) = torch.autograd.grad(u.sum(), points, create_graph=True)
    second = sum(torch.autograd.grad(first[:, i].sum(), points, create_graph=True)[0][:, i : i + 1] for i in range(2))
    return (second + 5 * math.pi**2 * exact(points)).square().mean()


def train(program: Program, dtype: torch.dtype) -> tuple[nn.Module, list[float]]:
    options = program.options
    torch.manual_seed(1)
    model = network(options.width, options.layers).to(program.device)
    points = torch.rand(options.steps, options.points, 2, generator=torch.Generator().manual_seed(2)).to(program.device, dtype)
    model = model.to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), options.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    losses: list[torch.Tensor] = []
    for step in range(options.steps):
        optimizer.zero_grad()
        loss = loss_of(model, points[step])
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    return model, torch.stack(losses).tolist()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--points", type=int, default=8192, help="in each step")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--skip-exact", action="store_true", help="do not train in float64, too")
    program = Program("a physics-informed network", parser)
    axis = torch.linspace(0, 1, 101, dtype=torch.float64, device=program.device)
    grid = torch.cartesian_prod(axis, axis)
    torch.manual_seed(3)
    at_random = network(program.options.width, program.options.layers).to(program.device)

    # What one way computes of the same network: gradients of the loss, which no training has spread yet.
    def gradients(dtype: torch.dtype) -> torch.Tensor:
        model = network(program.options.width, program.options.layers).to(program.device, dtype)
        model.load_state_dict(at_random.state_dict())
        points = torch.rand(program.options.points, 2, generator=torch.Generator().manual_seed(4)).to(program.device, dtype)
        loss_of(model, points).backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])

    right = gradients(torch.float64)
    off: dict[str, float] = {}
    for way in WAYS:
        with program.way(way):
            off[way] = ((gradients(torch.float32).double() - right).norm() / right.norm()).item()
        program.note(what="gradients of the loss", way=way, from_float64=off[way])
    program.check("gradients, beside torch's fp32", off[OURS], 3 * off[TORCH] + 1e-6)

    runs: list[tuple[str, torch.dtype]] = [(way, torch.float32) for way in WAYS]
    if not program.options.skip_exact:
        runs.append(("float64", torch.float64))
    ends: dict[str, float] = {}
    for way in WAYS:
        with program.way(way):
            loss_of(at_random, torch.rand(program.options.points, 2, device=program.device)).backward()  # loads kernels
    for way, dtype in runs:
        with program.way(way):
            found: list[tuple[nn.Module, list[float]]] = []
            seconds = program.seconds(lambda dtype=dtype: found.append(train(program, dtype)))
            model, losses = found[0]
        with torch.no_grad():
            ends[way] = (solution(model.double(), grid) - exact(grid)).norm().item() / exact(grid).norm().item()
        program.note(what="training", way=way, error_of_the_solution=ends[way], last_loss=losses[-1], seconds=seconds, losses=losses)
    program.check("error of the solution, beside torch's fp32", ends[OURS], 3 * ends[TORCH] + 1e-3)
    program.end()


if __name__ == "__main__":
    main()
