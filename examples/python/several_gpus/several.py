"""What the examples share: a process for each GPU, the switch, measuring in turns, and errors against float64.

torchrun starts a process for each GPU. Each has the same seed, so that all make the same whole matrices and keep their parts of them:

    torchrun --standalone --nproc-per-node 2 sharded_products.py

With `--device cpu` the processes have no GPU, and Tilewright's kernels run on its CPU executor: slow, for small sizes, to see that the
results are right.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import tilewright
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

#: The largest error of an element, as a part of the sum of the magnitudes of its terms, that a product "as accurate as fp32" may have.
ALLOWED_ERROR = 1e-6


@dataclass
class Several:
    """This process among the others."""

    options: argparse.Namespace
    rank: int
    count: int
    device: torch.device
    mesh: DeviceMesh
    lines: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        if self.rank == 0:
            print(text, flush=True)

    def note(self, **values: Any) -> None:
        """A line of the JSON."""
        self.lines.append(values)

    def check(self, what: str, value: float, allowed: float) -> None:
        """Notes what is wrong in any process; `end` makes it the exit code."""
        worst = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(worst, dist.ReduceOp.MAX)
        right = worst.item() <= allowed  # also false for NaN
        if not right:
            self.wrong.append(what)
        self.say(f"  {what}: {worst.item():.2e}, allowed {allowed:.1e}{'' if right else '  WRONG'}")
        self.note(check=what, value=worst.item(), allowed=allowed, right=right)

    def switched(self, on: bool) -> AbstractContextManager[None]:
        """Torch's products by Tilewright, or as they are."""
        if not on:
            return nullcontext()
        if self.device.type == "cpu":
            # For tests: what the switch does for the CPU is no part of the package's surface.
            from tilewright import _switch

            return _switch.enabled("fp32", only_faster=False, device="cpu")
        return tilewright.enabled()

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def milliseconds(self, run: Callable[[], object], calls: int) -> float:
        """The wall-clock time of a call, one behind the other, in the slowest process."""
        dist.barrier()
        self.wait()
        start = time.perf_counter()
        for _ in range(calls):
            run()
        self.wait()
        passed = torch.tensor([(time.perf_counter() - start) / calls * 1e3], device=self.device)
        dist.all_reduce(passed, dist.ReduceOp.MAX)
        return passed.item()

    def in_turns(self, what: str, ways: dict[str, tuple[bool, Callable[[], object]]]) -> None:
        """Prints the median time of each way. They take turns, because a GPU changes its clocks with its temperature and power."""
        times: dict[str, list[float]] = {name: [] for name in ways}
        rounds, calls = self.options.rounds, self.options.calls
        for round_ in range(rounds + 1):
            for name, (on, run) in ways.items():
                with self.switched(on):
                    passed = self.milliseconds(run, calls if round_ else 2)
                if round_:  # the first was for warming up
                    times[name].append(passed)
        for name, passed in times.items():
            median = statistics.median(passed)
            self.say(f"  {name:44} {median:9.3f} ms")
            self.note(what=what, way=name, milliseconds=median, all=passed)

    def end(self) -> None:
        if self.rank == 0 and self.options.json:
            about = {"device": name_of(self.device), "count": self.count, "torch": torch.__version__, "tilewright": tilewright.__version__}
            with open(self.options.json, "w", encoding="utf-8") as file:
                json.dump({"about": about, "options": vars(self.options), "lines": self.lines}, file, indent=2)
        if self.wrong:
            self.say(f"wrong: {', '.join(self.wrong)}")
        dist.barrier()
        dist.destroy_process_group()
        if self.device.type == "cpu":
            # One of some ends of a process with gloo is an abort, by threads of its own that DTensor's collectives leave behind.
            sys.stdout.flush()
            os._exit(bool(self.wrong))
        if self.wrong:
            raise SystemExit(1)


def name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU executor"


def start(parser: argparse.ArgumentParser) -> Several:
    """Reads the options, and joins the other processes."""
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: on the executor, for small sizes")
    parser.add_argument("--json", help="write all numbers to this file")
    parser.add_argument("--rounds", type=int, default=7, help="turns of measuring")
    parser.add_argument("--calls", type=int, default=10, help="calls in a turn")
    options = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("start this by torchrun: torchrun --standalone --nproc-per-node 2 …")
    if options.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        device = torch.device("cuda", torch.cuda.current_device())
        dist.init_process_group("nccl", device_id=device)
    else:
        torch.set_num_threads(1)
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    # TF32 would be faster, and a thousand times less accurate: neither side may use it.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(20261126)
    several = Several(options, dist.get_rank(), dist.get_world_size(), device, init_device_mesh(options.device, (dist.get_world_size(),)))
    several.say(f"{several.count} x {name_of(device)}, torch {torch.__version__}, tilewright {tilewright.__version__}")
    return several


def largest_error(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, rows: int = 64) -> float:
    """The largest error of an element of `c = a·b`, as a part of the sum of the magnitudes of its terms, in some of its rows."""
    chosen = torch.linspace(0, a.shape[0] - 1, min(rows, a.shape[0]), device=a.device).long()
    a64, b64 = a[chosen].double(), b.double()
    errors = (c[chosen].double() - a64 @ b64).abs() / (a64.abs() @ b64.abs()).clamp_min(torch.finfo(torch.float32).tiny)
    return errors.max().item()


def largest_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """Between two tensors, as a part of the largest element; NaN if there is one."""
    return ((one - other).abs().max() / other.abs().max().clamp_min(1e-30)).item()
