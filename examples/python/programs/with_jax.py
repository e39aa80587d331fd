"""Products and training by JAX, as it is and with `libtilewright_cublas.so` in front of cuBLAS.

    cargo build -p tilewright-cublas --release
    python with_jax.py --library target/release/libtilewright_cublas.so
    python with_jax.py --try --size 64        # without a GPU: only that the cases run

XLA writes products of its own by Triton, unless it is told to leave them to cuBLAS; and it takes TF32, unless the highest precision is asked
for. Both are said here in the way that any program may say them.
"""

from __future__ import annotations

import argparse
import importlib
import os
import time
from collections.abc import Callable
from typing import Any

import hooked

REPEATS = 5
ENVIRONMENT = {
    "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_enable_triton_gemm=false".strip(),
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "JAX_DEFAULT_MATMUL_PRECISION": "highest",
}


def cases(options: argparse.Namespace) -> None:
    jax: Any = importlib.import_module("jax")
    jnp: Any = importlib.import_module("jax.numpy")
    jax.config.update("jax_enable_x64", True)
    n = options.size

    def normal(seed: int, *shape: int) -> Any:
        return jax.random.normal(jax.random.key(seed), shape, dtype=jnp.float32)

    def measure(name: str, function: Callable[..., Any], operands: tuple[Any, ...], repeats: int = REPEATS) -> None:
        compiled = jax.jit(function)
        exact = compiled(*jax.tree.map(lambda operand: operand.astype(jnp.float64), operands))
        result = jax.block_until_ready(compiled(*operands))
        error = float(jnp.linalg.norm(result - exact) / jnp.linalg.norm(exact))
        del exact
        times: list[float] = []
        for _ in range(repeats):
            start = time.perf_counter()
            jax.block_until_ready(compiled(*operands))
            times.append((time.perf_counter() - start) * 1e3)
        hooked.show(name, error, sorted(times)[repeats // 2])

    measure(f"product, {n}", lambda a, b: a @ b, (normal(1, n, n), normal(2, n, n)))
    measure(f"product with transposed, {n}", lambda a, b: a @ b.T, (normal(1, n, n), normal(2, n, n)))
    size = max(n // 8, 8)
    measure(f"32 products, {size}", lambda a, b: jnp.einsum("bij,bjk->bik", a, b), (normal(3, 32, size, size), normal(4, 32, size, size)))
    measure(f"Gram matrix and its factor, {n // 2}", lambda a: jnp.linalg.cholesky(a.T @ a / len(a)), (normal(5, 2 * n, n // 2),))

    # A network learns what another one does; every step is a line of the loss curve.
    width, batch, steps = n // 4, n // 2, 100 if n >= 1024 else 5
    sizes = [width, width, width, width]

    def parameters(seed: int) -> list[Any]:
        return [normal(seed + i, rows, columns) / rows**0.5 for i, (rows, columns) in enumerate(zip(sizes, sizes[1:], strict=False))]

    def network(weights: list[Any], x: Any) -> Any:
        for weight in weights[:-1]:
            x = jnp.tanh(x @ weight)
        return x @ weights[-1]

    def train(weights: list[Any], teacher: list[Any], x: Any) -> Any:
        target = network(teacher, x)

        def step(weights: list[Any], _: None) -> tuple[list[Any], Any]:
            loss, gradients = jax.value_and_grad(lambda weights: jnp.mean((network(weights, x) - target) ** 2))(weights)
            # Python's number keeps the type of the weights.
            return [weight - width * 0.05 * gradient for weight, gradient in zip(weights, gradients, strict=True)], loss

        _, losses = jax.lax.scan(step, weights, None, length=steps)
        return losses

    measure(f"losses of {steps} steps, width {width}", train, (parameters(10), parameters(20), normal(30, batch, width)), repeats=3)


if __name__ == "__main__":
    hooked.main("JAX", cases, size=8192, environment=ENVIRONMENT)
