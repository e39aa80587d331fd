"""What the switch costs and gains: torch alone and torch with the switch on, in turns in one process.

    python switch.py [--json FILE]

Three questions, each answered by medians of as many measurements of the one as of the other:

    calls    microseconds of the CPU until a call returns, for calls that are passed on and calls that are taken, without waiting
    layers   milliseconds of a step (forwards, backwards, and the optimizer) of a network of layers 64 wide, where nothing can be gained
    models   the same of larger networks, with what the switch has taken
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tilewright

# `python/typings` declares no more of torch than the package uses.
torch: Any = importlib.import_module("torch")

ROUNDS = 15


def switched(on: bool, only_faster: bool = True) -> AbstractContextManager[None]:
    return tilewright.enabled(only_faster=only_faster) if on else nullcontext()


def in_turns(measure: Callable[[], float], only_faster: bool = True) -> tuple[float, float]:
    """The medians without and with the switch."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS + 1):
        for on in (False, True):
            with switched(on, only_faster):
                times[on].append(measure())
    # The first of each was for warming up.
    return statistics.median(times[0][1:]), statistics.median(times[1][1:])


def microseconds_of_calls(call: Callable[[], object], calls: int = 500) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    passed = time.perf_counter() - start
    torch.cuda.synchronize()
    return passed / calls * 1e6


def milliseconds_of_steps(step: Callable[[], object], steps: int = 20) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps * 1e3


def training(widths: list[int], rows: int) -> Callable[[], object]:
    """A step of a network of layers of these widths."""
    layers: list[Any] = []
    for width, following in zip(widths, widths[1:], strict=False):
        layers += [torch.nn.Linear(width, following), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(rows, widths[0], device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description="What the switch costs and gains.")
    parser.add_argument("--json", help="write all numbers to this file")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU here that torch can use")
    versions = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, tilewright {tilewright.__version__}"
    print(versions)
    rows: list[dict[str, Any]] = []

    def show(question: str, what: str, unit: str, off: float, on: float) -> None:
        products = tilewright.stats()
        calls = sum(product.calls for product in products.taken)
        passed_on = sum(products.passed_on.values())
        rows.append(
            {"question": question, "what": what, "unit": unit, "torch": off, "switch": on, "taken": calls, "passed_on": passed_on}
        )
        print(f"{question:8}{what:40}{off:10.3f}{on:10.3f} {unit}  {off / on:7.3f}  taken {calls}, to torch {passed_on}")
        tilewright.reset_stats()

    print(f"{'':48}{'torch':>10}{'switch':>10}     times torch")
    small = torch.randn(64, 64, device="cuda")
    batch = torch.randn(8, 64, 64, device="cuda")
    half = small.half()
    large = torch.randn(1024, 1024, device="cuda")
    out = torch.empty(1024, 1024, device="cuda")
    calls: list[tuple[str, bool, Callable[[], object]]] = [
        ("mm 64, passed on", True, lambda: torch.mm(small, small)),
        ("addmm 64, passed on", True, lambda: torch.addmm(small, small, small)),
        ("bmm 8 of 64, passed on", True, lambda: torch.bmm(batch, batch)),
        ("mm 64 of float16, passed on", True, lambda: torch.mm(half, half)),
        ("mm 64, taken", False, lambda: torch.mm(small, small)),
        ("addmm 64, taken", False, lambda: torch.addmm(small, small, small)),
        ("mm 1024, taken", False, lambda: torch.mm(large, large)),
        ("mm.out 1024, taken", False, lambda: torch.mm(large, large, out=out)),
    ]
    tilewright.reset_stats()
    with torch.no_grad():
        for what, only_faster, call in calls:
            # Few calls, so that the GPU's queue never is full.
            show("calls", what, "us", *in_turns(lambda call=call: microseconds_of_calls(call), only_faster))
    for count, rows_of_x in ((8, 128), (8, 1024), (32, 256)):
        step = training([64] * (count + 1), rows_of_x)
        show("layers", f"{count} layers of 64, {rows_of_x} rows", "ms", *in_turns(lambda step=step: milliseconds_of_steps(step)))
    for width, rows_of_x in ((512, 1024), (1024, 4096), (4096, 4096)):
        step = training([width] * 5, rows_of_x)
        show("models", f"4 layers of {width}, {rows_of_x} rows", "ms", *in_turns(lambda step=step: milliseconds_of_steps(step)))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"versions": versions, "rows": rows}, file, indent=2)


if __name__ == "__main__":
    main()
