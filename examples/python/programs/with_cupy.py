"""Linear algebra by CuPy, as it is and with `libtilewright_cublas.so` in front of cuBLAS.

    cargo build -p tilewright-cublas --release
    python with_cupy.py --library target/release/libtilewright_cublas.so
    python with_cupy.py --try --size 64       # without a GPU, by NumPy: only that the cases run
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from typing import Any

import hooked

REPEATS = 3


def cases(options: argparse.Namespace) -> None:
    xp: Any = importlib.import_module("numpy" if options.try_ else "cupy")
    n = options.size
    random = xp.random.default_rng(1)

    def normal(*shape: int) -> Any:
        return random.standard_normal(shape, dtype=xp.float32)

    def covariance(x: Any) -> Any:
        x = x - x.mean(axis=0)
        return x.T @ x / (len(x) - 1)

    def polar(a: Any) -> Any:
        """The orthogonal matrix nearest to one, by Newton's and Schulz's iteration: nothing but products."""
        for _ in range(12):
            a = 1.5 * a - 0.5 * (a @ (a.T @ a))
        return a

    def low_rank(a: Any, sketch: Any) -> Any:
        """The largest singular values, by a random sketch and two power iterations."""
        basis, _ = xp.linalg.qr(a @ sketch)
        for _ in range(2):
            basis, _ = xp.linalg.qr(a.T @ basis)
            basis, _ = xp.linalg.qr(a @ basis)
        return xp.linalg.svd(basis.T @ a, compute_uv=False)

    def exponential(a: Any) -> Any:
        """Taylor's series of a part of the matrix, and squares of it."""
        a = a / 2**6
        term = total = xp.eye(len(a), dtype=a.dtype)
        for i in range(1, 9):
            term = term @ a / i
            total = total + term
        for _ in range(6):
            total = total @ total
        return total

    def solve(a: Any, b: Any) -> Any:
        return xp.linalg.solve(a, b)

    def least_squares(a: Any, b: Any) -> Any:
        """By the normal equations, as programs for many observations do it."""
        factor = xp.linalg.cholesky(a.T @ a)
        return xp.linalg.solve(factor.T, xp.linalg.solve(factor, a.T @ b))

    half, few = n // 2, max(n // 32, 4)
    orthogonal, _ = xp.linalg.qr(normal(half, half).astype(xp.float64))
    scales = xp.linspace(0.6, 1.4, half)
    near_orthogonal = (orthogonal * scales).astype(xp.float32)
    decay = (1.0 / (1 + xp.arange(half, dtype=xp.float64) / few) ** 2).astype(xp.float32)
    tall = (normal(n, half) * decay) @ orthogonal.astype(xp.float32)
    found: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
        (f"covariance of {8 * n} in {half}", covariance, (normal(8 * n, half) + 1,)),
        (f"polar factor, {half}", polar, (near_orthogonal,)),
        (f"singular values, {n} x {half}, {few}", low_rank, (tall, normal(half, few))),
        (f"exponential, {half}", exponential, (normal(half, half) / half**0.5,)),
        (f"equations, {n}", solve, (normal(n, n) + xp.float32(2 * n**0.5) * xp.eye(n, dtype=xp.float32), normal(n, few))),
        (f"least squares, {4 * n} x {half}", least_squares, (normal(4 * n, half), normal(4 * n, few))),
    ]
    for name, function, operands in found:
        exact = function(*(operand.astype(xp.float64) for operand in operands))
        result = function(*operands)
        error = float(xp.linalg.norm(result - exact) / xp.linalg.norm(exact))
        times: list[float] = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            result = function(*operands)
            # What is brought here has been computed.
            float(result.ravel()[0])
            times.append((time.perf_counter() - start) * 1e3)
        hooked.show(name, error, sorted(times)[REPEATS // 2])


if __name__ == "__main__":
    hooked.main("CuPy", cases, size=8192)
