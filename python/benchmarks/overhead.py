"""What a call costs besides the kernel: microseconds of the CPU for each, on products that the GPU finishes sooner.

    python overhead.py

For each function it queues many products of 64x64x64 without waiting between them, several times, and prints the fastest: the
others were disturbed. The GPU is measured too, by events around a captured graph of as many products, to show which of the two
is the slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import tilewright
import torch
import torch.nn.functional as F

CALLS = 2000
REPEATS = 15
SIZE = 64


def cpu_microseconds(call: Callable[[], object]) -> float:
    """The time until a call returns."""
    times: list[float] = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append(time.perf_counter() - start)
        torch.cuda.synchronize()
    return min(times) / CALLS * 1e6


def gpu_microseconds(call: Callable[[], object]) -> float:
    """The time of a product on the GPU, one behind the other."""
    count = 200
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    times: list[float] = []
    for _ in range(REPEATS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return min(times) / count


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU here that torch can use")
    a, b = torch.rand(SIZE, SIZE, device="cuda"), torch.rand(SIZE, SIZE, device="cuda")
    out, bias = torch.empty(SIZE, SIZE, device="cuda"), torch.rand(SIZE, device="cuda")
    functions: dict[str, Callable[[], object]] = {
        "tilewright.matmul": lambda: tilewright.matmul(a, b),
        "tilewright.matmul(out=)": lambda: tilewright.matmul(a, b, out=out),
        "tilewright.matmul(fp32-strict)": lambda: tilewright.matmul(a, b, precision="fp32-strict"),
        "tilewright.linear(bias)": lambda: tilewright.linear(a, b, bias),
        "tilewright.linear(bias, gelu)": lambda: tilewright.linear(a, b, bias, "gelu"),
        "torch.ops.tilewright.matmul": lambda: torch.ops.tilewright.matmul(a, b),
        "torch.matmul": lambda: torch.matmul(a, b),
        "torch.matmul(out=)": lambda: torch.matmul(a, b, out=out),
        "F.linear(bias)": lambda: F.linear(a, b, bias),
        "F.gelu(F.linear(bias))": lambda: F.gelu(F.linear(a, b, bias)),
    }
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, tilewright {tilewright.__version__}")
    print(f"{SIZE}x{SIZE}x{SIZE}, no derivatives; us for each call\n")
    print(f"{'':32}{'CPU':>8}{'GPU':>8}")
    with torch.no_grad():
        for name, call in functions.items():
            call()
            print(f"{name:32}{cpu_microseconds(call):8.2f}{gpu_microseconds(call):8.2f}")


if __name__ == "__main__":
    main()
