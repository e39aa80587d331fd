"""torch, CuPy and JAX with and without `libtilewright_cublas.so` in front of cuBLAS: errors against float64, times, and what was taken.

    cargo build -p tilewright-cublas --release
    python preload.py target/release/libtilewright_cublas.so
    python preload.py target/release/libtilewright_cublas.so --only torch --size 8192

Each library multiplies in processes of its own: one as it is, one with the library in `LD_PRELOAD`, and one that is told to write a line for each
call, by which calls are counted. Times are those of eight calls one after the other, and the wait for the last, divided by eight. A case whose error is larger than
twice that of cuBLAS, and than 3e-7, ends the run with exit code 1, and so does one that should change nothing and does. What is not
installed is left out, and said so.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

REPEATS = 10
CALLS = 8
# Relative to the Frobenius norm of the product.
ALLOWED_ERROR = 3e-7
# Cases that have to have the same bits with and without the library.
UNCHANGED = "unchanged: "


def median_ms(run: Callable[[], object], wait: Callable[[], object]) -> float:
    """The time of a call, after calls that load kernels."""
    for _ in range(3):
        run()
    wait()
    times: list[float] = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(CALLS):
            run()
        wait()
        times.append((time.perf_counter() - start) * 1e3 / CALLS)
    return sorted(times)[len(times) // 2]


def show(case: str, error: float, ms: float, checksum: float = 0.0) -> None:
    print(json.dumps({"case": case, "error": error, "ms": ms, "checksum": checksum}), flush=True)


def times_transposed(a: Any, b: Any) -> Any:
    return a @ b.T


def transposed_times(a: Any, b: Any) -> Any:
    return a.T @ b


def linear_relu(bias: Any, a: Any, b: Any) -> Any:
    """cuBLASLt's epilogue, in torch."""
    torch: Any = importlib.import_module("torch")
    return torch._addmm_activation(bias, a, b) if a.dtype == torch.float32 else torch.relu(bias + a @ b)


def linear_gelu(bias: Any, a: Any, b: Any) -> Any:
    torch: Any = importlib.import_module("torch")
    if a.dtype == torch.float32:
        return torch._addmm_activation(bias, a, b, use_gelu=True)
    return torch.nn.functional.gelu(bias + a @ b, approximate="tanh")


def with_torch(size: int) -> None:
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(1)
    wait = torch.cuda.synchronize

    def error(result: Any, exact: Any) -> float:
        return float(torch.linalg.norm(result.double() - exact) / torch.linalg.norm(exact))

    def matrix(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda")

    a, b, bias = matrix(size, size), matrix(size, size), matrix(size)
    cases: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
        ("A·B", torch.matmul, (a, b)),
        ("A·Bᵀ", times_transposed, (a, b)),
        ("Aᵀ·B", transposed_times, (a, b)),
        ("A·B + C", torch.addmm, (matrix(size, size), a, b)),
        ("linear layer with bias", torch.nn.functional.linear, (a, b, bias)),
        ("bias and relu", linear_relu, (bias, a, b)),
        ("bias and gelu", linear_gelu, (bias, a, b)),
        ("16 products of 1024³", torch.bmm, (matrix(16, 1024, 1024), matrix(16, 1024, 1024))),
        ("matrix times vector", torch.mv, (a, matrix(size))),
        ("odd sizes", torch.matmul, (matrix(1001, 2003), matrix(2003, 1501))),
        ("64³", torch.matmul, (matrix(64, 64), matrix(64, 64))),
    ]
    for name, function, operands in cases:
        result, exact = function(*operands), function(*(operand.double() for operand in operands))
        show(name, error(result, exact), median_ms(lambda f=function, o=operands: f(*o), wait))
    exact = a.double() @ b.double()
    # What is captured runs again with the same memory.
    graph, out = torch.cuda.CUDAGraph(), torch.empty_like(a)
    torch.matmul(a, b, out=out)
    with torch.cuda.graph(graph):
        torch.matmul(a, b, out=out)
    out.zero_()
    graph.replay()
    show("CUDA graph", error(out, exact), median_ms(graph.replay, wait))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        result = a @ b
    torch.cuda.current_stream().wait_stream(stream)
    show("another stream", error(result, exact), 0.0)
    # What is not asked to be as accurate as fp32 is cuBLAS's.
    for name, dtype in [("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp64", torch.float64)]:
        result = a.to(dtype) @ b.to(dtype)
        show(f"{UNCHANGED}{name}", error(result, exact), 0.0, float(result.double().sum()))
    torch.backends.cuda.matmul.allow_tf32 = True
    result = a @ b
    show(f"{UNCHANGED}TF32", error(result, exact), 0.0, float(result.double().sum()))


def with_cupy(size: int) -> None:
    cupy: Any = importlib.import_module("cupy")
    random = cupy.random.default_rng(1)

    def matrix(*shape: int) -> Any:
        return random.standard_normal(shape, dtype=cupy.float32)

    a, b = matrix(size, size), matrix(size, size)
    cases: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
        ("A·B", cupy.matmul, (a, b)),
        ("A·Bᵀ", times_transposed, (a, b)),
        ("Aᵀ·B by columns", transposed_times, (cupy.asfortranarray(a), b)),
        ("16 products of 1024³", cupy.matmul, (matrix(16, 1024, 1024), matrix(16, 1024, 1024))),
        ("matrix times vector", cupy.matmul, (a, matrix(size))),
    ]
    for name, function, operands in cases:
        result, exact = function(*operands), function(*(operand.astype(cupy.float64) for operand in operands))
        error = float(cupy.linalg.norm(result - exact) / cupy.linalg.norm(exact))
        show(name, error, median_ms(lambda f=function, o=operands: f(*o), cupy.cuda.Device().synchronize))


def with_jax(size: int) -> None:
    jax: Any = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    jnp: Any = importlib.import_module("jax.numpy")
    keys = jax.random.split(jax.random.key(1), 4)

    def matrix(key: Any, *shape: int) -> Any:
        return jax.random.normal(key, shape, dtype=jnp.float32)

    def product(a: Any, b: Any) -> Any:
        return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)

    def product_with_transposed(a: Any, b: Any) -> Any:
        return product(a, b.T)

    def several(a: Any, b: Any) -> Any:
        return product(product(a, b), product(b, a)) + product(a, a)

    a, b = matrix(keys[0], size, size), matrix(keys[1], size, size)
    batch = (matrix(keys[2], 16, 1024, 1024), matrix(keys[3], 16, 1024, 1024))
    cases: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
        ("A·B", product, (a, b)),
        ("A·Bᵀ", product_with_transposed, (a, b)),
        ("16 products of 1024³", product, batch),
        # Several in one program, which XLA may make a command buffer of.
        ("four in one program", several, (a / size, b / size)),
    ]
    for name, function, operands in cases:
        compiled = jax.jit(function)
        result, exact = compiled(*operands), compiled(*(operand.astype(jnp.float64) for operand in operands))
        error = float(jnp.linalg.norm(result - exact) / jnp.linalg.norm(exact))
        last: list[Any] = [None]

        def call(compiled: Any = compiled, operands: tuple[Any, ...] = operands, last: list[Any] = last) -> None:
            last[0] = compiled(*operands)

        show(name, error, median_ms(call, lambda last=last: last[0].block_until_ready()))


LIBRARIES: dict[str, Callable[[int], None]] = {"torch": with_torch, "cupy": with_cupy, "jax": with_jax}


def run(name: str, size: int, preload: str | None, verbose: bool = False) -> tuple[dict[str, dict[str, Any]], str]:
    """The cases of a library in a process of its own, by name, and what it said in the end."""
    environment = dict(os.environ)
    if preload is not None:
        environment |= {"LD_PRELOAD": preload, "TILEWRIGHT_VERBOSE": "1" if verbose else "0"}
    command = [sys.executable, __file__, "--child", name, "--size", str(size)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise SystemExit(f"{name}, {'as it is' if preload is None else 'with the library'}:\n{process.stderr}")
    cases = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    last = [line for line in process.stderr.splitlines() if line.startswith("TILEWRIGHT at the end")]
    return {case["case"]: case for case in cases}, "\n".join(last)


def compare(name: str, size: int, preload: str) -> bool:
    """Whether all is well."""
    before, _ = run(name, size, None)
    after, _ = run(name, size, preload)
    _, counts = run(name, size, preload, verbose=True)
    print(f"\n{name}: {counts}")
    print(f"{'case':32} {'cuBLAS ms':>10} {'with ms':>10} {'times':>6} {'cuBLAS error':>13} {'error':>10}")
    well = True
    for case, old in before.items():
        new = after[case]
        times = f"{old['ms'] / new['ms']:6.2f}" if new["ms"] > 0 else "     -"
        right = new["error"] <= max(2 * old["error"], ALLOWED_ERROR)
        if case.startswith(UNCHANGED):
            right = new["checksum"] == old["checksum"] and new["error"] == old["error"]
        note = "" if right else "  WRONG"
        print(f"{case:32} {old['ms']:10.4f} {new['ms']:10.4f} {times} {old['error']:13.2e} {new['error']:10.2e}{note}")
        well &= right
    if "calls taken" not in counts or " 0 calls taken" in counts:
        print(f"no call of {name} was taken")
        well = False
    return well


def main() -> None:
    parser = argparse.ArgumentParser(description="torch, CuPy and JAX with libtilewright_cublas.so in front of cuBLAS")
    parser.add_argument("library", nargs="?", help="the path of libtilewright_cublas.so")
    parser.add_argument("--only", choices=list(LIBRARIES), help="this one alone")
    parser.add_argument("--size", type=int, default=4096, help="rows and columns of the square matrices")
    parser.add_argument("--child", choices=list(LIBRARIES), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        LIBRARIES[arguments.child](arguments.size)
        return
    if arguments.library is None or not os.path.exists(arguments.library):
        parser.error(f"there is no library {arguments.library}")
    chosen = [arguments.only] if arguments.only else list(LIBRARIES)
    installed = [name for name in chosen if importlib.util.find_spec(name) is not None]
    for name in chosen:
        if name not in installed:
            print(f"{name} is not installed")
    if not installed or not all([compare(name, arguments.size, os.path.abspath(arguments.library)) for name in installed]):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
