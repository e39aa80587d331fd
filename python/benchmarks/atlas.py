"""The shapes of the atlas by torch.matmul and by tilewright.matmul, in turns, in one process.

    tilewright bench --suite atlas --list --json shapes.json
    python atlas.py shapes.json --json times.json

float32 throughout: torch may not use TF32. A ratio is torch's time divided by ours. Both are measured as `tilewright bench` does:
between events, with the GPU busy before the first one, so that the host is ahead; short products in batches; on operands that are
not in the cache. Operands are views of three tensors that are filled once.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

try:
    import torch
except ImportError:
    raise SystemExit("torch is not installed: pip install torch, where there is a GPU") from None
try:
    import tilewright
except ImportError:
    raise SystemExit("tilewright is not installed: cargo xtask wheels builds it, in target/wheels") from None

#: What is shorter than this, in milliseconds, is timed in batches, of about so many milliseconds and at most so many launches.
BATCH_BELOW_MS, BATCH_MS, MOST_LAUNCHES = 0.05, 0.5, 256
#: The time that the host gets for queuing each launch, in milliseconds.
QUEUE_MS = 0.02
#: What measuring a shape may take, in milliseconds, and the fewest and the most runs of each contestant.
BUDGET_MS, FEWEST_RUNS, MOST_RUNS = 150.0, 5, 30
#: More than twice the L2 cache of any GPU: what is read before each run, and what the sets of a shape need not exceed together.
FLUSHED_BYTES = 256 * 2**20
#: What sets begin at a multiple of, in elements.
ALIGNMENT = 64
#: A ratio below this is counted.
SLOWER = 0.97

Shape = dict[str, Any]
Call = Callable[[int], object]
OPERANDS = ("a", "b", "c")


def distance(operand: dict[str, int], batch: int) -> int:
    """From one set of an operand to the next, in elements."""
    last = (operand["rows"] - 1) * operand["row_stride"] + (operand["cols"] - 1) * operand["col_stride"]
    last += (batch - 1) * operand["batch_stride"] + operand["offset"]
    return (last // ALIGNMENT + 1) * ALIGNMENT


def sets_of(shape: Shape) -> int:
    """As many sets as are not in the cache together, and no more than the launches of a batch."""
    size = 4 * sum(distance(shape[name], shape["batch"]) for name in OPERANDS)
    return max(1, min(MOST_LAUNCHES, FLUSHED_BYTES // size + 1))


def elements_for(shapes: list[Shape]) -> dict[str, int]:
    """The elements that each operand needs for all shapes."""
    return {name: max(sets_of(shape) * distance(shape[name], shape["batch"]) for shape in shapes) for name in OPERANDS}


def views(memory: torch.Tensor, operand: dict[str, int], batch: int, count: int) -> list[torch.Tensor]:
    """The sets of an operand: matrices, or batches of them."""
    extents, strides = [operand["rows"], operand["cols"]], [operand["row_stride"], operand["col_stride"]]
    if batch > 1:
        extents, strides = [batch, *extents], [operand["batch_stride"], *strides]
    step = distance(operand, batch)
    return [memory.as_strided(extents, strides, number * step + operand["offset"]) for number in range(count)]


class Clock:
    """Takes times on the GPU."""

    def __init__(self) -> None:
        self.flushed = torch.rand(FLUSHED_BYTES // 4, device="cuda")
        self.factor = torch.rand(1024, 1024, device="cuda")
        self.product = torch.rand(1024, 1024, device="cuda")
        # The first time has the start of cuBLAS in it.
        self.busy_ms = [self.run(lambda _: self.multiply(), 100, 0, busy=False) for _ in range(2)][1]

    def multiply(self) -> None:
        """Queues work that leaves the caches nearly alone."""
        torch.matmul(self.factor, self.factor, out=self.product)

    def run(self, call: Call, launches: int, first: int, *, busy: bool = True) -> float:
        """The milliseconds of a launch, on sets from `first` on."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.flushed.sum()
        for _ in range(math.ceil(QUEUE_MS * launches / self.busy_ms) if busy else 0):
            self.multiply()
        start.record()
        for number in range(launches):
            call(first + number)
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / launches


def measure(clock: Clock, calls: dict[str, Call]) -> dict[str, float]:
    """The median of each call in milliseconds, in turns."""
    rough: dict[str, float] = {}
    for name, call in calls.items():
        call(0)
        rough[name] = statistics.median(clock.run(call, 1, number) for number in range(3))
    launches = {
        name: 1 if ms >= BATCH_BELOW_MS else min(MOST_LAUNCHES, math.ceil(BATCH_MS / max(ms, 1e-4)))
        for name, ms in rough.items()
    }
    turn_ms = sum(count * (rough[name] + QUEUE_MS) for name, count in launches.items())
    runs = min(MOST_RUNS, max(FEWEST_RUNS, int(BUDGET_MS / turn_ms)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(runs):
        for name, call in calls.items():
            times[name].append(clock.run(call, launches[name], turn * launches[name]))
    return {name: statistics.median(of_call) for name, of_call in times.items()}


def measure_shape(clock: Clock, memory: dict[str, torch.Tensor], shape: Shape) -> dict[str, float]:
    """The times of torch and of ours for a shape."""
    count, batch = sets_of(shape), int(shape["batch"])
    a, b, c = (views(memory[name], shape[name], batch, count) for name in OPERANDS)

    def by_torch(number: int) -> object:
        at = number % count
        return torch.matmul(a[at], b[at], out=c[at])

    def by_tilewright(number: int) -> object:
        at = number % count
        return tilewright.matmul(a[at], b[at], out=c[at])

    return measure(clock, {"torch": by_torch, "tilewright": by_tilewright})


def geometric_mean(ratios: list[float]) -> float:
    """The geometric mean of at least one ratio."""
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))


def summary(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each class comes to."""
    classes: dict[str, list[float]] = {}
    for result in results:
        ratios = classes.setdefault(result["class"], [])
        if "ratio" in result:
            ratios.append(result["ratio"])
    return [
        {
            "class": name,
            "compared": len(ratios),
            "mean": geometric_mean(ratios) if ratios else None,
            "least": min(ratios) if ratios else None,
            "slower": sum(ratio < SLOWER for ratio in ratios),
        }
        for name, ratios in classes.items()
    ]


def read_shapes(path: Path, names: list[str]) -> list[tuple[str, Shape]]:
    """The shapes of a list, each with its class."""
    try:
        listed: Any = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"cannot read {path}: {error}") from None
    try:
        schema = (listed["schema"], listed["schema_version"])
    except (KeyError, TypeError):
        schema = None
    if schema != ("tilewright-atlas-shapes", 1):
        raise SystemExit(f"{path} is no list of shapes: tilewright bench --suite atlas --list --json FILE writes one")
    classes: list[dict[str, Any]] = listed["classes"]
    known = [of_class["name"] for of_class in classes]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"{path} has no class {', '.join(unknown)}: it has {', '.join(known)}")
    wanted = [of_class for of_class in classes if not names or of_class["name"] in names]
    shapes = [(of_class["name"], shape) for of_class in wanted for shape in of_class["shapes"]]
    if not shapes:
        raise SystemExit(f"{path} has no shapes")
    return shapes


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("shapes", type=Path, help="the list, of tilewright bench --suite atlas --list --json FILE")
    one_class = "only this class; may be repeated"
    parser.add_argument("--class", dest="classes", action="append", default=[], metavar="NAME", help=one_class)
    parser.add_argument("--limit-seconds", type=float, default=math.inf, metavar="SECONDS", help="stop after so many seconds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the times as JSON")
    options = parser.parse_args()
    shapes = read_shapes(options.shapes, options.classes)
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU here that torch can use")
    torch.backends.cuda.matmul.allow_tf32 = False
    begin, results = time.monotonic(), list[dict[str, Any]]()
    device = torch.cuda.get_device_name()
    print(f"{device}, torch {torch.__version__}, tilewright {tilewright.__version__}; ratio: torch's time divided by ours\n")
    try:
        with torch.no_grad():
            elements = elements_for([shape for _, shape in shapes])
            memory = {name: torch.rand(count, device="cuda").mul_(2).sub_(1) for name, count in elements.items()}
            clock = Clock()
            for name, shape in shapes:
                if time.monotonic() - begin > options.limit_seconds:
                    break
                result: dict[str, Any] = {"class": name, **shape}
                try:
                    times = measure_shape(clock, memory, shape)
                except (RuntimeError, tilewright.Error) as error:
                    result["not_run"] = str(error).partition("\n")[0]
                    print(f"{name:16}{shape['id']:44} not run: {result['not_run']}")
                else:
                    ratio = times["torch"] / times["tilewright"]
                    result.update(torch_ms=times["torch"], tilewright_ms=times["tilewright"], ratio=ratio)
                    print(f"{name:16}{shape['id']:44}{times['tilewright']:10.5f}{times['torch']:10.5f}{ratio:8.2f}")
                results.append(result)
    except KeyboardInterrupt:
        print("interrupted")
    classes = summary(results)
    means = [of_class["mean"] for of_class in classes if of_class["mean"] is not None]
    mean = statistics.fmean(means) if means else None
    print(f"\n{'class':16}{'ratios':>8}{'mean':>8}{'least':>8}  below {SLOWER}")
    for of_class in classes:
        figures = "".join(f"{of_class[key]:8.2f}" if of_class[key] is not None else f"{'-':>8}" for key in ("mean", "least"))
        print(f"{of_class['class']:16}{of_class['compared']:8}{figures}{of_class['slower']:8}")
    if mean is not None:
        print(f"mean of the classes' means: {mean:.3f}")
    left_out = len(shapes) - len(results)
    if left_out:
        print(f"{left_out} shapes were left out")
    if options.json:
        report = {
            "schema": "tilewright-atlas-torch",
            "schema_version": 1,
            "device": device,
            "torch": torch.__version__,
            "tilewright": tilewright.__version__,
            "mean": mean,
            "classes": classes,
            "left_out": left_out,
            "results": results,
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
