"""A Gaussian process: a kernel matrix of points, solved by conjugate gradients and by Cholesky's method, compared with float64.

    python gaussian_process.py
    python gaussian_process.py --device cpu --points 200 --tests 40 --right-hand-sides 5

The smaller the noise, the worse the condition, and the more of the rounding of products comes through. Kernel values are made of a
product (|x|² + |y|² − 2·x·y), the gradients' steps multiply the kernel matrix with several right-hand sides at once. Where gpytorch is
installed, its exact model is trained some steps and predicts, too; all that it knows of Tilewright is nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import warnings
from typing import Any

import torch
from common import OURS, TORCH, WAYS, Program, relative


def kernel(x: torch.Tensor, y: torch.Tensor, length: float) -> torch.Tensor:
    squares = x.square().sum(1).unsqueeze(1) + y.square().sum(1) - 2 * (x @ y.mT)
    return torch.exp(squares.clamp_min(0) / (-2 * length * length))


def conjugate_gradients(a: torch.Tensor, b: torch.Tensor, steps: int) -> torch.Tensor:
    """a⁻¹·b for several columns b, each with steps of its own."""
    x, rest = torch.zeros_like(b), b.clone()
    direction, squares = rest.clone(), rest.square().sum(0)
    for _ in range(steps):
        along = a @ direction
        size = squares / (direction * along).sum(0)
        # A column that is solved divides zero by zero.
        size = torch.where(torch.isfinite(size), size, 0)
        x, rest = x + size * direction, rest - size * along
        following = rest.square().sum(0)
        direction = rest + torch.where(squares > 0, following / squares, 0) * direction
        squares = following
    return x


def predict(x: torch.Tensor, y: torch.Tensor, tests: torch.Tensor, length: float, noise: float, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The means at other points by conjugate gradients, and by Cholesky's method."""
    a = kernel(x, x, length)
    a.diagonal().add_(noise)
    between = kernel(tests, x, length)
    by_steps = between @ conjugate_gradients(a, y, steps)
    factor, failed = torch.linalg.cholesky_ex(a)
    by_factor = between @ torch.cholesky_solve(y, factor)
    return by_steps, by_factor if not failed.any() else torch.full_like(by_steps, torch.nan)


def with_gpytorch(program: Program, x: torch.Tensor, y: torch.Tensor, tests: torch.Tensor, values: torch.Tensor) -> None:
    import gpytorch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def train_and_predict(x: torch.Tensor, y: torch.Tensor, tests: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)
        likelihood = gpytorch.likelihoods.GaussianLikelihood().to(x)
        model = Model(x, y, likelihood).to(x)
        model.covar_module.base_kernel.lengthscale = program.options.length
        model.train(), likelihood.train()
        optimizer = torch.optim.Adam(model.parameters(), 0.05)
        loss = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        # Above this size it takes conjugate gradients by itself.
        with gpytorch.settings.max_cholesky_size(min(800, len(x) // 2)), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(program.options.training):
                optimizer.zero_grad()
                (-loss(model(x), y)).backward()
                optimizer.step()
            model.eval(), likelihood.eval()
            with torch.no_grad():
                return model(tests).mean

    exact = train_and_predict(x.double(), y.double(), tests.double())
    off: dict[str, float] = {}
    for way in WAYS:
        with program.way(way):
            try:
                seconds = program.seconds(lambda: train_and_predict(x, y, tests))
                found = train_and_predict(x, y, tests)
            except Exception as error:  # noqa: BLE001: TF32 may make a matrix that is not positive definite
                program.note(what="gpytorch", way=way, failed=f"{type(error).__name__}: {str(error).splitlines()[0]}")
                off[way] = float("inf")
                continue
        off[way] = relative(found, exact)
        program.note(what="gpytorch", way=way, from_float64=off[way], from_truth=relative(found, values), seconds=seconds)
    program.check("gpytorch's prediction, beside torch's fp32", off[OURS], 5 * off[TORCH] + 1e-3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=16384)
    parser.add_argument("--tests", type=int, default=2048)
    parser.add_argument("--dimensions", type=int, default=16)
    parser.add_argument("--right-hand-sides", type=int, default=256)
    parser.add_argument("--length", type=float, default=3.0)
    parser.add_argument("--steps", type=int, default=500, help="of conjugate gradients")
    parser.add_argument("--noise", type=float, nargs="*", default=[1.0, 1e-1, 1e-2])
    parser.add_argument("--training", type=int, default=10, help="steps of gpytorch's training")
    program = Program("a Gaussian process", parser)
    options = program.options
    torch.manual_seed(1)
    x = torch.randn(options.points, options.dimensions, device=program.device)
    tests = torch.randn(options.tests, options.dimensions, device=program.device)
    # Several functions of the same points.
    weights = torch.randn(options.dimensions, options.right_hand_sides, device=program.device) / options.dimensions**0.5
    y, values = torch.sin(x @ weights), torch.sin(tests @ weights)
    for noise in options.noise:
        exact_steps, exact_factor = predict(x.double(), y.double(), tests.double(), options.length, noise, options.steps)
        off: dict[str, list[float]] = {}
        for way in WAYS:
            with program.way(way):
                by_steps, by_factor = predict(x, y, tests, options.length, noise, options.steps)
            off[way] = [relative(by_steps, exact_steps), relative(by_factor, exact_factor)]
            program.note(what=f"noise {noise}", way=way, steps=off[way][0], cholesky=off[way][1], steps_from_truth=relative(by_steps, values))
        for how, ours, torchs in zip(("steps", "Cholesky"), off[OURS], off[TORCH], strict=True):
            program.check(f"noise {noise}, {how}, beside torch's fp32", ours, 5 * torchs + 1e-6)
    noise = options.noise[0]
    for way, passed in program.in_turns(lambda: predict(x, y, tests, options.length, noise, options.steps), rounds=2).items():
        program.note(what="both predictions", way=way, seconds=passed)
    if importlib.util.find_spec("gpytorch") is None:
        print("gpytorch is not installed")
    else:
        count = min(options.points, 8192)
        with_gpytorch(program, x[:count], y[:count, 0].contiguous(), tests, values[:, 0])
    program.end()


if __name__ == "__main__":
    main()
