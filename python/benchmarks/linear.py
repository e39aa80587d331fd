"""What a bias and an activation cost behind a product, and what a weight gains that is packed once: `linear` beside the product alone, and beside torch,
in turns.

    python linear.py

Milliseconds, medians of events around each call, with the L2 cache flushed before it; what is called "cost" is how much longer
`linear` takes than `matmul` does. "packed" is `linear` with bias and gelu and a `PackedMatrix`, "of it" its part of the time of the one that packs for itself.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import tilewright
import torch
import torch.nn.functional as F

ROUNDS = 10
TRIALS = 10
FLUSHED_BYTES = 256 * 2**20
#: m, n, k.
SIZES = [
    (4096, 4096, 4096),
    (2048, 2048, 2048),
    (1024, 8192, 8192),
    (16384, 4096, 4096),
    (32768, 4096, 1024),
    (128, 32768, 32768),
    (128, 16384, 16384),
    (4096, 4096, 64),
    (16384, 16384, 64),
    (64, 4096, 4096),
]


def milliseconds(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median time of each, taken in turns."""
    flushed = torch.empty(FLUSHED_BYTES // 4, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(ROUNDS + 1):
        for name, call in calls.items():
            for _ in range(TRIALS):
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                flushed.fill_(1.0)
                start.record()
                call()
                end.record()
                torch.cuda.synchronize()
                if turn > 0:
                    times[name].append(start.elapsed_time(end))
    return {name: statistics.median(of) for name, of in times.items()}


def measure(m: int, n: int, k: int) -> dict[str, float]:
    """The times of one size."""
    x, w, bias = torch.rand(m, k, device="cuda"), torch.rand(n, k, device="cuda"), torch.rand(n, device="cuda")
    product, packed = torch.empty(m, n, device="cuda"), tilewright.PackedMatrix(w)
    return milliseconds(
        {
            "product": lambda: tilewright.matmul(x, w.mT, out=product),
            "bias": lambda: tilewright.linear(x, w, bias, out=product),
            "bias+gelu": lambda: tilewright.linear(x, w, bias, "gelu", out=product),
            "packed": lambda: tilewright.linear(x, packed, bias, "gelu", out=product),
            "in two": lambda: F.gelu(tilewright.matmul(x, w.mT, out=product).add_(bias)),
            "torch": lambda: F.gelu(F.linear(x, w, bias)),
        }
    )


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU here that torch can use")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, tilewright {tilewright.__version__}\n")
    with torch.no_grad():
        for place, (m, n, k) in enumerate(SIZES):
            times = measure(m, n, k)
            if place == 0:
                print(f"{'m x n x k':20}" + "".join(f"{name:>12}" for name in times) + f"{'cost':>9}{'of it':>8}{'to torch':>10}")
            cost, gain = times["bias+gelu"] / times["product"] - 1, times["torch"] / times["packed"]
            part = times["packed"] / times["bias+gelu"]
            print(f"{f'{m} x {n} x {k}':20}" + "".join(f"{time:12.4f}" for time in times.values()) + f"{cost:9.1%}{part:8.1%}{gain:10.2f}")


if __name__ == "__main__":
    main()
