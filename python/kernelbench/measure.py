"""What is measured of a problem: whether the results agree, how long they take, how accurate they are.

The first two are done as KernelBench does them. The package's `README.md` tells what is different, and why.
"""

from __future__ import annotations

import copy
import gc
import math
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import tilewright
import torch
from problems import Problem

SEED = 42
CORRECTNESS_TRIALS = 5
#: KernelBench's tolerance for float32, absolute and relative.
TOLERANCE = 1e-4
WARM_UPS = 3
#: In how many turns the trials are taken.
ROUNDS = 5
#: More than the L2 cache of any GPU.
FLUSHED_BYTES = 256 * 2**20
#: How much memory a part of a result in float64 may take, with what it is computed from.
PART_BYTES = 2**30

#: How the times of a problem are called.
EAGER, COMPILED, OURS, WRITING = "torch eager", "torch.compile", "tilewright", "writing"
#: Ours with weights that each call packs, where they are packed once otherwise.
UNPACKED = "tilewright, packed in each call"


@dataclass(frozen=True)
class Times:
    """Milliseconds of a call, trial by trial."""

    trials: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.trials)

    @property
    def mean(self) -> float:
        """What KernelBench reports."""
        return statistics.fmean(self.trials)

    @property
    def spread(self) -> float:
        """The interquartile range."""
        if len(self.trials) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.trials, n=4, method="inclusive")
        return third - first


@dataclass(frozen=True)
class Measurement:
    """What was measured of a problem."""

    #: By whom: `EAGER`, `OURS`, perhaps `COMPILED`, and ways of `WRITING` where the problem is compared with them.
    times: dict[str, Times]
    #: How many of the correctness trials agreed with torch, and the largest difference of elements in any of them.
    agreed: int
    largest_difference: float
    #: The errors against float64, relative in the Frobenius norm, of inputs uniform in [-1, 1].
    error: float
    torch_error: float
    #: What `tilewright.explain` says, or nothing.
    kernel: str = ""
    #: How many correctness trials there were.
    compared: int = CORRECTNESS_TRIALS
    #: In how many of those that did not agree the result in float64 does not agree with torch either.
    out_of_reach: int = 0

    @property
    def speed_up(self) -> float:
        """Over torch as it is called without compiling, by medians."""
        return self.times[EAGER].median / self.times[OURS].median

    @property
    def speed_up_unpacked(self) -> float | None:
        """Over torch without compiling, where each call packs its weights, if that was measured."""
        return self.times[EAGER].median / self.times[UNPACKED].median if UNPACKED in self.times else None

    @property
    def speed_up_over_compiled(self) -> float | None:
        """Over torch.compile, if that was measured."""
        return self.times[COMPILED].median / self.times[OURS].median if COMPILED in self.times else None

    @property
    def share_of_writing(self) -> float | None:
        """How fast it is, as a part of the fastest way to write as many bytes."""
        writing = [times.median for name, times in self.times.items() if name.startswith(WRITING)]
        return min(writing) / self.times[OURS].median if writing else None


def seed(number: int) -> None:
    """Makes all random numbers that follow the same in each run."""
    torch.manual_seed(number)


def signed(*shape: int) -> torch.Tensor:
    """Uniform in [-1, 1]: sums in which terms cancel, whose errors do not hide behind a large sum."""
    return torch.rand(*shape).mul_(2).sub_(1)


def measure(
    problem: Problem,
    trials: int,
    compiled: bool,
    device: str,
    kernelbench: Path | None = None,
    unpacked: bool = False,
) -> Measurement:
    """Measures a problem on a GPU; if it is `unpacked`, also with weights that each call packs."""
    module = problem.load(kernelbench)
    with torch.no_grad():
        agreed, difference, out_of_reach = correctness(module, device)
        error, torch_error = errors(problem, module, device)
        release()

        model, new = _models(module, {}, device)
        seed(SEED)
        inputs = make_inputs(module, device)
        calls: dict[str, Callable[[], object]] = {EAGER: lambda: model(*inputs), OURS: lambda: new(*inputs)}
        if compiled:
            fast = torch.compile(model)
            calls[COMPILED] = lambda: fast(*inputs)
        if unpacked and any(isinstance(part, tilewright.nn.Linear) for part in new.modules()):
            calls[UNPACKED] = lambda: without_packed_weights(new)(*inputs)
        if problem.writes:
            calls |= ways_of_writing(torch.empty_like(new(*inputs)))
        times = take_turns(calls, trials, cuda_block(device))
        kernel = kernel_of(problem, new, inputs)
    return Measurement(times, agreed, difference, error, torch_error, kernel, out_of_reach=out_of_reach)


def make_inputs(module: ModuleType, device: str, *random: Callable[..., torch.Tensor]) -> list[Any]:
    """The inputs, made where they are used: 2³¹ random numbers take the CPU longer than all products together."""
    with torch.device(device):
        return module.get_inputs(*random)


def correctness(module: ModuleType, device: str, **options: Any) -> tuple[int, float, int]:
    """In how many trials, each with other inputs, the models agree, and the largest difference of two elements.

    Then in how many of the others not even the right result agrees, that of the model in float64: where a large sum follows a product, what
    torch's product is off by is more than the tolerance.
    """
    model, new = _models(module, options, device)
    seed(SEED)
    seeds = [int(torch.randint(0, 2**32 - 1, (1,)).item()) for _ in range(CORRECTNESS_TRIALS)]
    agreed, largest, out_of_reach = 0, 0.0, 0
    with torch.no_grad():
        for number in seeds:
            seed(number)
            inputs = make_inputs(module, device)
            # The same again before each, so that what drops elements by chance drops the same ones.
            seed(number)
            expected = model(*inputs)
            seed(number)
            agrees, difference = compare(expected, new(*inputs))
            agreed += agrees
            largest = _larger(largest, difference)
            if not agrees:
                seed(number)
                exact = copy.deepcopy(model).double()(*[_double(value) for value in inputs])
                out_of_reach += not compare(expected, exact.to(expected.dtype))[0]
            del expected, inputs
    return agreed, largest, out_of_reach


def compare(expected: torch.Tensor, actual: torch.Tensor) -> tuple[bool, float]:
    """Whether KernelBench takes the second for the first, and the largest difference of two elements."""
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        have, need = (f"{tuple(tensor.shape)} of {tensor.dtype}" for tensor in (actual, expected))
        raise ValueError(f"the result is {have}, and that of torch {need}")
    agrees, largest = True, 0.0
    for start, length in _parts(expected.shape[0], expected.numel() * 8):
        ours, theirs = actual.narrow(0, start, length), expected.narrow(0, start, length)
        agrees = agrees and torch.allclose(theirs, ours, rtol=TOLERANCE, atol=TOLERANCE)
        largest = _larger(largest, float((theirs - ours).abs().max()))
    return agrees, largest


def errors(problem: Problem, module: ModuleType, device: str, **options: Any) -> tuple[float, float]:
    """Our error and torch's against float64, relative in the Frobenius norm, of inputs uniform in [-1, 1]."""
    model, new = _models(module, options, device)
    seed(SEED)
    with torch.no_grad():
        inputs = make_inputs(module, device, signed)
        for each in (model, new):
            _keep_everything(each)
        if problem.level == 2:
            # It leaves weights as they are, and what follows has them packed.
            new(*inputs)
        results = new(*inputs), model(*inputs)
        del new
        squares = [0.0, 0.0]
        total = 0.0
        for start, length, reference in exact_parts(problem, model, inputs, results[1]):
            total += float(reference.square().sum())
            for place, result in enumerate(results):
                part = result.narrow(0, start, length) - reference
                squares[place] += float(part.square_().sum())
                del part
    # Of a result that is zero, whatever the inputs are, errors are absolute.
    ours, theirs = ((square / (total or 1.0)) ** 0.5 for square in squares)
    return ours, theirs


def exact_parts(
    problem: Problem, model: torch.nn.Module, inputs: Sequence[Any], result: torch.Tensor
) -> Iterator[tuple[int, int, torch.Tensor]]:
    """What the model makes of the inputs in float64, by parts of the first extent: where each begins, its length, and it."""
    # Not of the model itself, which is used on; parameters and buffers are float32 as they are.
    model, cut = copy.deepcopy(model).double(), problem.cut
    whole = [_double(value) if cut is None or cut[place] is None else value for place, value in enumerate(inputs)]
    if cut is None:
        yield 0, result.shape[0], model(*whole)
        return
    size = 8 * (result.numel() + sum(value.numel() for value, along in zip(inputs, cut) if along is not None))
    for start, length in _parts(result.shape[0], size):
        values = [
            value if along is None else _double(value.narrow(along, start, length)) for value, along in zip(whole, cut)
        ]
        yield start, length, model(*values)


def take_turns(
    calls: dict[str, Callable[[], object]], trials: int, block: Callable[[Callable[[], object], int], list[float]]
) -> dict[str, Times]:
    """As many trials of each call, by `block`, which takes several one after the other.

    A GPU at its limit of power changes its clocks all the time: what takes turns has the same clocks.
    """
    rounds = min(ROUNDS, trials)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds):
        count = trials // rounds + (turn < trials % rounds)
        for name, call in calls.items():
            times[name] += block(call, count)
    return {name: Times(values) for name, values in times.items()}


def cuda_block(device: str) -> Callable[[Callable[[], object], int], list[float]]:
    """Times calls as KernelBench does: each alone, between two events, with nothing of use in the L2 cache."""
    flushed = torch.empty(FLUSHED_BYTES // 8, dtype=torch.int64, device=device)

    def block(call: Callable[[], object], count: int) -> list[float]:
        for _ in range(WARM_UPS):
            call()
            torch.cuda.synchronize()
        torch.cuda.empty_cache()
        times: list[float] = []
        # The first trial has to get memory from the driver, and is left out.
        for trial in range(count + 1):
            torch.cuda.synchronize()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            # While the GPU writes this, the CPU queues the call: its own time is not seen.
            flushed.fill_(42)
            start.record()
            call()
            end.record()
            torch.cuda.synchronize()
            if trial > 0:
                times.append(start.elapsed_time(end))
        return times

    return block


def without_packed_weights(model: torch.nn.Module) -> torch.nn.Module:
    """The model as it is at its first call: then it packs no weight to be kept."""
    for part in model.modules():
        if isinstance(part, tilewright.nn.Linear):
            part.unpack()
    return model


def ways_of_writing(tensor: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Ways to write as many bytes as a tensor has and nothing else."""
    doubles = tensor.flatten()[: tensor.numel() // 2 * 2].view(torch.float64)
    return {
        f"{WRITING} by zero_": lambda: tensor.zero_(),
        f"{WRITING} by fill_": lambda: tensor.fill_(1.5),
        f"{WRITING} by fill_ of float64": lambda: doubles.fill_(1.5),
    }


def kernel_of(problem: Problem, model: torch.nn.Module, inputs: Sequence[Any], **options: Any) -> str:
    """The kernel that `tilewright.explain` names for the product, or nothing where it is not to be asked."""
    if problem.level == 1:
        if problem.operands is None:
            return ""
        operands = problem.operands(*inputs)
    else:
        # The first matrix among the parameters is what the input is multiplied by.
        weight = next(parameter for parameter in model.parameters() if parameter.ndim == 2).detach()
        # Or the transposed input is what the matrix is multiplied by.
        operands = (weight, inputs[0].mT) if getattr(model, "by_columns", False) else (inputs[0], weight.mT)
    text = tilewright.explain(*operands, part=problem.part, **options)
    found = re.search(r"^ *kernel +(\S+)", text, re.MULTILINE)
    return found[1] if found else "?"


def release() -> None:
    """Gives back what nothing uses any more."""
    torch.compiler.reset()
    gc.collect()
    torch.cuda.empty_cache()


def _models(module: ModuleType, options: dict[str, Any], device: str) -> tuple[Any, Any]:
    """The two models, made by the same arguments and after the same seed."""
    models: list[Any] = []
    for kind, keywords in ((module.Model, {}), (module.ModelNew, options)):
        seed(SEED)
        arguments = module.get_init_inputs()
        seed(SEED)
        # Made where they are used, as the inputs are.
        with torch.device(device):
            models.append(kind(*arguments, **keywords).to(device))
    return models[0], models[1]


def _keep_everything(model: torch.nn.Module) -> None:
    """Ends what drops elements by chance: in float64 it would drop others."""
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.eval()


def _larger(a: float, b: float) -> float:
    """The larger of two numbers, where what is not a number is larger than all others."""
    return a if a >= b or math.isnan(a) else b


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) else value


def _parts(extent: int, size: int) -> Iterator[tuple[int, int]]:
    """Start and length of parts of an extent, whose whole takes this many bytes."""
    length = max(1, extent * PART_BYTES // max(size, 1))
    for start in range(0, extent, length):
        yield start, min(length, extent - start)
