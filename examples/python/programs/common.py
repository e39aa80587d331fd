"""What the programs share: three ways to compute products, times, checks, and the JSON."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import tilewright
import torch

TORCH, TF32, OURS = "torch fp32", "torch TF32", "tilewright"
WAYS = (TORCH, TF32, OURS)


class Program:
    """A program's options, and what it finds."""

    def __init__(self, description: str, parser: argparse.ArgumentParser | None = None) -> None:
        parser = parser or argparse.ArgumentParser()
        parser.description = description
        parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: our kernels on the executor, for small sizes")
        parser.add_argument("--json", help="write all numbers to this file")
        self.options = parser.parse_args()
        self.device = torch.device(self.options.device)
        self.lines: list[dict[str, Any]] = []
        self.wrong: list[str] = []
        name = torch.cuda.get_device_name() if self.device.type == "cuda" else "CPU executor"
        self.about = f"{description}: {name}, torch {torch.__version__}, tilewright {tilewright.__version__}"
        print(self.about, flush=True)

    @contextmanager
    def way(self, name: str) -> Generator[None]:
        """Computes torch's products in one of the three ways."""
        torch.backends.cuda.matmul.allow_tf32 = name == TF32
        try:
            if name != OURS:
                yield
            elif self.device.type == "cuda":
                with tilewright.enabled():
                    yield
            else:
                # For tests: what the switch does for the CPU is no part of the package's surface.
                from tilewright import _switch

                with _switch.enabled("fp32", only_faster=False, device="cpu"):
                    yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def seconds(self, run: Callable[[], object]) -> float:
        self.wait()
        start = time.perf_counter()
        run()
        self.wait()
        return time.perf_counter() - start

    def in_turns(self, run: Callable[[], object], rounds: int = 3, ways: tuple[str, ...] = WAYS) -> dict[str, float]:
        """The median time of each way in seconds; the first turn is for warming up."""
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds + 1):
            for way in ways:
                with self.way(way):
                    times[way].append(self.seconds(run))
        return {way: statistics.median(passed[1:]) for way, passed in times.items()}

    def note(self, **values: Any) -> None:
        self.lines.append(values)
        shown = [f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in values.items() if not isinstance(value, list)]
        print("  " + ", ".join(shown), flush=True)

    def check(self, what: str, value: float, allowed: float) -> None:
        """Ends the program with an error, at its end, if this is too large, or no number."""
        right = value <= allowed
        if not right:
            self.wrong.append(what)
        self.note(check=what, value=value, allowed=allowed, right=right)

    def end(self) -> None:
        if self.options.json:
            with open(self.options.json, "w", encoding="utf-8") as file:
                json.dump({"about": self.about, "options": vars(self.options), "lines": self.lines}, file, indent=2)
        if self.wrong:
            raise SystemExit(f"wrong: {', '.join(self.wrong)}")


def relative(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The error relative to the Frobenius norm."""
    return (torch.linalg.norm(found.double() - exact.double()) / torch.linalg.norm(exact.double())).item()
