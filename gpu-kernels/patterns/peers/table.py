"""Operations beside what PyTorch, cuDNN and CUB have for the same work, on one GPU: lines of JSON, and a table in Markdown.

    cargo build --release
    nvcc -std=c++20 -O3 -arch=native -o cub peers/cub.cu
    python3 peers/table.py --patterns target/release/patterns --cub ./cub --out table

Each case is measured by `patterns bench`, which compares every element with the reference before, and its peer before and after that, as
`bench` measures: buffers in turns that together exceed twice the second-level cache, launches one after the other between two events,
several of them where one is too short, all queued before the first one ends. PyTorch multiplies without TF32, and cuDNN tries all its
algorithms. `--seed` adds cases of random sizes, for which nothing is tuned. Cases that `table.jsonl` has already are passed over, so a
run that was cut short goes on.

The error is the largest of all elements of a case, and its part of what the operation's bound allows. Bits are those of the small cases, by
`patterns agreement`: how many elements of how many have the same ones on this GPU and on the executor.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

Launch = Callable[[], object]

# Of each operation, the cases that its results tell of. The order of sizes is that of `patterns list`.
CASES: dict[str, list[tuple[int, ...]]] = {
    "sum": [(1 << 20,), ((1 << 28) + 3,)],
    "inclusive-scan": [(1 << 20,), ((1 << 28) + 5,)],
    "histogram": [(1 << 24,), (1 << 28,)],
    "radix-sort": [(1 << 20,), (1 << 24,)],
    "transpose": [(1, 16384, 16384), (64, 1000, 1003), (4096, 128, 64), (1, 3, 20_000_001), (16384, 32, 32)],
    "softmax": [(1048576, 128), (131072, 1000), (16384, 4096), (4096, 50257), (8, 10_000_000), (1048576, 33), (262144, 257)],
    "layer-norm": [(262144, 768), (65536, 1023), (16384, 4096), (4096, 16384)],
    "layer-norm-backward": [(262144, 768), (65536, 1023), (16384, 4096), (4096, 16384)],
    "top-k": [(65536, 256, 32), (32768, 512, 64), (64, 1_000_000, 10), (4096, 50257, 50)],
    "n-body": [(65536,)],
    "philox-words": [(1 << 28, 0)],
    "philox-uniform": [(1 << 28, 0)],
    "philox-normal": [(1 << 28, 0)],
    "gemm-stream-k": [(1536, 1536, 8192, 132), (4096, 4096, 4096, 132), (1536, 1536, 8191, 132)],
    "conv2d": [
        (32, 28, 28, 256, 256, 3, 3, 1, 1, 1, 1),
        (32, 224, 224, 3, 64, 7, 7, 2, 3, 1, 1),
        (32, 56, 56, 64, 256, 1, 1, 1, 0, 1, 1),
    ],
    "conv2d-bf16": [
        (32, 28, 28, 256, 256, 3, 3, 1, 1, 1, 1),
        (32, 56, 56, 64, 64, 3, 3, 1, 1, 1, 1),
        (32, 14, 14, 256, 256, 3, 3, 1, 1, 1, 1),
        (64, 56, 56, 128, 128, 3, 3, 1, 1, 1, 1),
        (32, 28, 28, 48, 192, 3, 3, 2, 1, 1, 1),
        (4, 100, 100, 72, 144, 3, 3, 1, 1, 1, 1),
        (32, 224, 224, 3, 64, 7, 7, 2, 3, 1, 1),
        (32, 56, 56, 64, 256, 1, 1, 1, 0, 1, 1),
        (32, 45, 49, 256, 160, 1, 1, 1, 0, 1, 1),
        (32, 56, 56, 24, 144, 1, 1, 1, 0, 1, 1),
        (32, 28, 28, 256, 256, 3, 3, 1, 1, 1, 8),
        (32, 56, 56, 256, 256, 3, 3, 1, 1, 1, 16),
    ],
    "attention": [(32, 2048, 2048, 64, 0), (32, 2048, 2048, 64, 1), (16, 2048, 2048, 128, 0), (16, 2048, 2048, 128, 1)],
    "attention-bf16": [(32, 4096, 4096, 64, 0), (32, 4096, 4096, 64, 1), (16, 4096, 4096, 128, 0), (16, 4096, 4096, 128, 1)],
}

NAMES: dict[str, str] = {
    **dict.fromkeys(["sum", "inclusive-scan", "radix-sort", "n-body"], "n"),
    "histogram": "words",
    "transpose": "batch rows cols",
    **dict.fromkeys(["softmax", "layer-norm", "layer-norm-backward"], "rows cols"),
    "top-k": "rows cols k",
    **dict.fromkeys(["philox-words", "philox-uniform", "philox-normal"], "n offset"),
    "gemm-stream-k": "m n k workers",
    **dict.fromkeys(["conv2d", "conv2d-bf16"], "n h w c filters r s stride padding dilation groups"),
    **dict.fromkeys(["attention", "attention-bf16"], "heads queries keys size causal"),
}

OF_CUB = ["sum", "inclusive-scan", "histogram", "radix-sort"]

# Operations of a second by tensor cores, as the data sheet of the H200 (SXM) has them: bf16, and TF32 for three products each.
TENSOR_RATES: dict[str, float] = {
    **dict.fromkeys(["conv2d-bf16", "attention-bf16"], 989.4e12),
    **dict.fromkeys(["gemm-stream-k", "conv2d", "attention"], 494.7e12 / 3),
}


def drawn(seed: int) -> dict[str, list[tuple[int, ...]]]:
    """Cases of random sizes, two of most operations."""
    rng = random.Random(seed)

    def between(low: int, high: int) -> int:
        """As many numbers of each magnitude."""
        return round(low * (high / low) ** rng.random())

    def matrix(elements: int, low: int, high: int) -> tuple[int, int]:
        cols = between(low, high)
        return max(1, elements // cols), cols

    def layer() -> tuple[int, ...]:
        image, groups = (rng.randint(10, 100), rng.randint(10, 100)), rng.choice([1, 1, 1, 2, 13])
        channels, filters = (8 * rng.randint(2, 40), 8 * rng.randint(2, 48)) if groups == 1 else (32 * groups, 16 * groups)
        taps = rng.choice([1, 3, 3])
        # The reference shall not take minutes.
        images = 20_000_000_000 // (image[0] * image[1] * channels // groups * filters * taps * taps)
        return min(max(images, 1), 32), *image, channels, filters, taps, taps, 1, taps // 2, 1, groups

    def heads() -> tuple[int, ...]:
        length = between(1000, 4096)
        return rng.randint(8, 32), length, length, rng.choice([64, 128]), rng.randint(0, 1)

    def two(case: Callable[[], tuple[int, ...]]) -> list[tuple[int, ...]]:
        return [case(), case()]

    return {
        "sum": two(lambda: (between(1 << 20, 1 << 28),)),
        "inclusive-scan": two(lambda: (between(1 << 20, 1 << 28),)),
        "histogram": two(lambda: (between(1 << 21, 1 << 27),)),
        "radix-sort": two(lambda: (between(1 << 20, 1 << 25),)),
        "transpose": [(1, *matrix(between(1 << 22, 1 << 27), 64, 8192)), (64, *matrix(1 << 18, 16, 2048))],
        "softmax": two(lambda: matrix(between(1 << 24, 1 << 27), 32, 16384)),
        "layer-norm": two(lambda: matrix(between(1 << 24, 1 << 27), 64, 16384)),
        "layer-norm-backward": two(lambda: matrix(between(1 << 24, 1 << 27), 64, 16384)),
        "top-k": two(lambda: (*matrix(between(1 << 23, 1 << 27), 100, 100_000), rng.randint(1, 64))),
        "gemm-stream-k": two(lambda: (between(512, 2048), between(512, 2048), between(4096, 10_000), 132)),
        "conv2d": two(layer),
        "conv2d-bf16": [case for _ in range(4) for case in two(layer)],
        "attention": two(heads),
        "attention-bf16": two(heads),
    }


def quantile(ordered: list[float], part: float) -> float:
    place = part * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def times(launches: int, runs: int, sets: list[Launch], turn: list[int], asleep_us: float) -> list[float]:
    """The times of launches in microseconds, of so many runs of so many launches each. The GPU sleeps before each run."""
    events = []
    for _ in range(runs):
        # Cycles of a clock of at most 2 GHz.
        torch.cuda._sleep(int(2000 * asleep_us))
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(launches):
            turn[0] += 1
            sets[turn[0] % len(sets)]()
        end.record()
        events.append((begin, end))
    torch.cuda.synchronize()
    return sorted(1e3 * begin.elapsed_time(end) / launches for begin, end in events)


def measured(make: Callable[[], Launch], bytes_of_set: int, runs: int) -> tuple[float, float]:
    """Median and interquartile range of a launch on the GPU, in microseconds."""
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    count = min(max(-(-2 * cache // max(bytes_of_set, 1)), 1), 63) + 1
    sets, turn = [make() for _ in range(count)], [0]
    for launch in sets:
        launch()
    torch.cuda.synchronize()
    # Where the host needs longer for a call than the GPU, the GPU sleeps until all calls of a run are queued.
    host = []
    for i in range(10):
        begin = time.perf_counter()
        sets[i % count]()
        host.append((time.perf_counter() - begin) * 1e6)
    torch.cuda.synchronize()
    host_us = min(host)
    estimate = max(times(1, 5, sets, turn, 2 * host_us)[2], 0.1)
    launches = min(max(int(500 / estimate), 1), 256) if estimate < 50 else 1
    asleep_us = 1.5 * host_us * launches + 20 if estimate < 2 * host_us else 0
    times(launches, min(max(int(3e5 / (estimate * launches)), 3), 1000), sets, turn, asleep_us)
    ordered = times(launches, runs, sets, turn, asleep_us)
    return quantile(ordered, 0.5), quantile(ordered, 0.75) - quantile(ordered, 0.25)


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def of_torch(operation: str, sizes: tuple[int, ...]) -> tuple[str, Callable[[], Launch], int] | None:
    """The name of PyTorch's operation, what makes a launch of it with buffers of its own, and how many bytes these have."""
    dtype = torch.bfloat16 if operation.endswith("bf16") else torch.float32
    if operation == "sum":
        (n,) = sizes

        def make() -> Launch:
            x = rand(n)
            return lambda: torch.sum(x)

        return "sum", make, 4 * n
    if operation == "transpose":

        def make() -> Launch:
            x, y = rand(*sizes), torch.empty(sizes[0], sizes[2], sizes[1], device="cuda")
            return lambda: y.copy_(x.transpose(1, 2))

        return "copy_ of the transposed", make, 8 * sizes[0] * sizes[1] * sizes[2]
    if operation == "softmax":

        def make() -> Launch:
            x, y = rand(*sizes), torch.empty(*sizes, device="cuda")
            return lambda: torch.softmax(x, -1, out=y)

        return "softmax", make, 8 * sizes[0] * sizes[1]
    if operation == "layer-norm":

        def make() -> Launch:
            x, gamma, beta = rand(*sizes), rand(sizes[1]), rand(sizes[1])
            return lambda: torch.native_layer_norm(x, [sizes[1]], gamma, beta, 1e-5)

        return "native_layer_norm", make, 8 * sizes[0] * sizes[1]
    if operation == "layer-norm-backward":

        def make() -> Launch:
            x, dy, gamma, beta = rand(*sizes), rand(*sizes), rand(sizes[1]), rand(sizes[1])
            _, mean, rstd = torch.native_layer_norm(x, [sizes[1]], gamma, beta, 1e-5)
            wanted = [True, True, True]
            return lambda: torch.ops.aten.native_layer_norm_backward(dy, x, [sizes[1]], mean, rstd, gamma, beta, wanted)

        return "native_layer_norm_backward", make, 12 * sizes[0] * sizes[1]
    if operation == "top-k":
        rows, cols, k = sizes

        def make() -> Launch:
            x = rand(rows, cols)
            return lambda: torch.topk(x, k, dim=-1)

        return "topk", make, 4 * rows * cols
    if operation.startswith("philox"):
        n = sizes[0]
        kind = {"philox-words": "random_", "philox-uniform": "uniform_", "philox-normal": "normal_"}[operation]

        def make() -> Launch:
            y = torch.empty(n, device="cuda", dtype=torch.int32 if kind == "random_" else torch.float32)
            if kind == "random_":
                return lambda: y.random_(-(1 << 31), None)
            return getattr(y, kind)

        return kind, make, 4 * n
    if operation == "gemm-stream-k":
        m, n, k, _ = sizes

        def make() -> Launch:
            a, b = rand(m, k), rand(n, k)
            return lambda: F.linear(a, b)

        return "linear", make, 4 * (m * k + n * k + m * n)
    if operation.startswith("conv2d"):
        n, h, w, c, filters, r, s, stride, padding, dilation, groups = sizes

        def make() -> Launch:
            x = rand(n, c, h, w, dtype=dtype).to(memory_format=torch.channels_last)
            weights = rand(filters, c // groups, r, s, dtype=dtype).to(memory_format=torch.channels_last)
            return lambda: F.conv2d(x, weights, None, stride, padding, dilation, groups)

        y = n * filters * (h // stride) * (w // stride)
        return "conv2d", make, dtype.itemsize * (n * c * h * w + y)
    if operation.startswith("attention"):
        heads, queries, keys, size, causal = sizes

        def make() -> Launch:
            q, k, v = (rand(1, heads, count, size, dtype=dtype) for count in (queries, keys, keys))
            return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal))

        return "scaled_dot_product_attention", make, dtype.itemsize * heads * size * 2 * (queries + keys)
    return None


def peers(operation: str, sizes: tuple[int, ...], cub: Path, runs: int) -> dict[str, tuple[float, float]]:
    """Median and interquartile range of each peer, in microseconds."""
    found = {}
    if (peer := of_torch(operation, sizes)) is not None:
        name, make, size = peer
        found[name] = measured(make, size, runs)
        torch.cuda.empty_cache()
    if operation in OF_CUB:
        printed = subprocess.run([cub, operation, str(sizes[0]), str(runs)], check=True, capture_output=True, text=True)
        median, spread = printed.stdout.split()
        found["CUB"] = (float(median), float(spread))
    return found


def agreement(patterns: Path, operation: str) -> dict:
    """How many elements of the small cases have the same bits on the GPU and on the executor."""
    command = [patterns, "agreement", "--op", operation, "--json"]
    printed = subprocess.run(command, capture_output=True, text=True)
    if printed.returncode != 0:
        sys.exit(f"{operation}: {printed.stdout}{printed.stderr}")
    # Its name is a part of those of others.
    return next(line for line in map(json.loads, printed.stdout.splitlines()) if line["operation"] == operation)


def bits(agreed: dict | None) -> str:
    if agreed is None:
        return ""
    same, elements = agreed["same_bits"], agreed["elements"]
    # Where fast functions are used, which each GPU computes in its own way.
    need = "" if agreed["has_to_be_same"] else ", need not"
    return (f"all of {elements:,}" if same == elements else f"{same:,} of {elements:,}") + need


def row(line: dict, agreed: dict | None = None) -> str:
    """The line of a case in the table. Of several peers, the fastest."""
    ours, least = line["ours"], line["ours"]["least"]
    before, after = line["before"], line["after"]
    mine = 1e3 * ours["median_ms"]
    ms = max(least["ms"] if least else 0, 1e3 * ours["operations"] / TENSOR_RATES.get(line["operation"], float("inf")))
    share = 100 * ms / ours["median_ms"]
    drawn_mark = " ¹" if line["drawn"] else ""
    peer = "| none | | "
    if before:
        name = min(before, key=lambda name: min(before[name][0], after[name][0]))
        (first, spread), (second, spread_after) = before[name], after[name]
        peer = f"| {name} | {first:.4g}, {second:.4g} ± {max(spread, spread_after):.1f} | {(first + second) / 2 / mine:.2f}"
    accuracy = ours["accuracy"]
    error = f"{accuracy['error']:.1e}, {100 * accuracy['part_of_bound']:.0f} %"
    return (
        f"| {line['operation']} | {line['sizes']}{drawn_mark} | {mine:.4g} ± {1e3 * ours['spread_ms']:.1f} | {share:.0f} % "
        f"{peer} | {error} | {bits(agreed)} |"
    )


def resolved(path: str) -> Path:
    """A program by its place, which `cub` alone would not be."""
    return Path(path).resolve()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patterns", type=resolved, required=True, help="the program")
    parser.add_argument("--cub", type=resolved, required=True, help="cub.cu, built")
    parser.add_argument("--out", type=Path, default=Path("table"), help="where table.jsonl and table.md go")
    parser.add_argument("--op", action="append", help="only this operation; may be repeated")
    parser.add_argument("--seed", type=int, help="cases of random sizes from this seed, too")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after so many seconds")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    args.out.mkdir(parents=True, exist_ok=True)
    lines_of, begin = args.out / "table.jsonl", time.monotonic()
    lines = [json.loads(line) for line in lines_of.read_text().splitlines()] if lines_of.exists() else []
    done = {(line["operation"], line["sizes"]) for line in lines}
    more = drawn(args.seed) if args.seed is not None else {}
    missing = []
    for operation, cases in CASES.items():
        if args.op and operation not in args.op:
            continue
        for sizes, is_drawn in [(case, False) for case in cases] + [(case, True) for case in more.get(operation, [])]:
            text = ",".join(f"{name}={size}" for name, size in zip(NAMES[operation].split(), sizes, strict=True))
            if (operation, text) in done:
                continue
            if time.monotonic() - begin > args.seconds:
                missing.append(f"{operation} {text}")
                continue
            before = peers(operation, sizes, args.cub, args.runs)
            command = [args.patterns, "bench", "--op", operation, "--sizes", text, "--runs", str(args.runs), "--json"]
            printed = subprocess.run(command, capture_output=True, text=True)
            if printed.returncode != 0:
                sys.exit(f"{operation} {text}: {printed.stdout}{printed.stderr}")
            after = peers(operation, sizes, args.cub, args.runs)
            line = {"operation": operation, "sizes": text, "drawn": is_drawn, "ours": json.loads(printed.stdout)}
            line |= {"before": before, "after": after}
            lines.append(line)
            with lines_of.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(row(line), f" {time.monotonic() - begin:.0f} s", flush=True)
    # Those of an earlier run, too.
    agreed = {operation: agreement(args.patterns, operation) for operation in dict.fromkeys(line["operation"] for line in lines)}
    (args.out / "agreement.json").write_text(json.dumps(list(agreed.values()), indent=1) + "\n")
    head = "| operation | sizes | µs | share | peer | µs | peer / ours | error | same bits |\n|---|---|---|---|---|---|---|---|---|\n"
    (args.out / "table.md").write_text(head + "".join(row(line, agreed[line["operation"]]) + "\n" for line in lines))
    if missing:
        print(f"not measured: {'; '.join(missing)}")


if __name__ == "__main__":
    main()
