"""Measurements as a table, as Markdown and as JSON, and what of them is as it should be."""

from __future__ import annotations

import json
import math
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from measure import (
    COMPILED,
    CORRECTNESS_TRIALS,
    EAGER,
    FLUSHED_BYTES,
    OURS,
    ROUNDS,
    SEED,
    TOLERANCE,
    UNPACKED,
    WARM_UPS,
    Measurement,
)
from problems import (
    ERROR_OF_FEW,
    ERROR_OF_MANY,
    KERNELBENCH,
    LEVELS,
    MANY_TERMS,
    WANTED_SHARE_OF_WRITING,
    Level,
    Problem,
)


@dataclass(frozen=True)
class Failure:
    """What became of a problem that could not be measured."""

    error: str


@dataclass(frozen=True)
class Outcome:
    """A problem and what came out."""

    problem: Problem
    result: Measurement | Failure

    @property
    def checks(self) -> dict[str, bool]:
        """What is wanted of this problem, and whether it is so. A number that is none is never as wanted."""
        if isinstance(self.result, Failure):
            return {"measured": False}
        result, share = self.result, self.result.share_of_writing
        checks = {
            "correct": result.agreed == result.compared,
            "speed-up": result.speed_up >= self.problem.wanted,
            "error": result.error <= self.error_bound,
        }
        return checks if share is None else checks | {"share of writing": share >= WANTED_SHARE_OF_WRITING}

    @property
    def error_bound(self) -> float:
        """What our error may be: what the problem allows, or torch's if that is larger."""
        assert isinstance(self.result, Measurement)
        # In this order, an error of torch's that is not a number is no bound.
        return max(self.problem.error_bound, self.result.torch_error)


@dataclass(frozen=True)
class Environment:
    """Where and with what it was measured."""

    gpu: str
    driver: str
    torch: str
    cuda: str
    tilewright: str
    date: str
    trials: int


#: How many of the best are left out of a second geometric mean, which no single problem carries.
BEST = 5


def level_of(outcomes: Sequence[Outcome]) -> Level:
    """The level that these are problems of."""
    return LEVELS[outcomes[0].problem.level]


def speed_ups(outcomes: Sequence[Outcome]) -> list[float] | None:
    """All speed-ups over torch, the least first, if all problems of the level were measured."""
    ratios = [outcome.result.speed_up for outcome in outcomes if isinstance(outcome.result, Measurement)]
    return sorted(ratios) if outcomes and len(ratios) == len(level_of(outcomes).problems) else None


def geometric_mean(outcomes: Sequence[Outcome], without_best: int = 0) -> float | None:
    """Of the speed-ups over torch, if all problems there are were measured."""
    ratios = speed_ups(outcomes)
    return None if ratios is None else statistics.geometric_mean(ratios[: len(ratios) - without_best])


def geometric_mean_unpacked(outcomes: Sequence[Outcome]) -> float | None:
    """Of the speed-ups with weights that each call packs, if all problems there are were measured so."""
    results = [outcome.result for outcome in outcomes if isinstance(outcome.result, Measurement)]
    ratios = [ratio for result in results if (ratio := result.speed_up_unpacked) is not None]
    return statistics.geometric_mean(ratios) if ratios and len(ratios) == len(level_of(outcomes).problems) else None


def is_as_wanted(outcomes: Sequence[Outcome]) -> bool:
    """Whether every check of every problem is met, and the geometric mean of the speed-ups, if there is one."""
    mean = geometric_mean(outcomes)
    all_met = all(all(outcome.checks.values()) for outcome in outcomes)
    return all_met and (mean is None or mean >= level_of(outcomes).wanted_mean)


HEADER = (
    *("problem", "shape", "kernel", "torch ms", "compile ms", "ours ms", "spread", "to torch", "wanted", "unpacked ms", "unpacked to torch", "to compile"),
    *("of writing", "agree", "difference", "error", "torch's", "bound"),
)
#: The columns with text, which begins at the left.
TEXT = 3


def table(outcomes: Sequence[Outcome]) -> str:
    """All problems, as a table that is Markdown and can be read as it is."""
    rows = [list(HEADER), *(_row(outcome) for outcome in outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    sides = [str.ljust if column < TEXT else str.rjust for column in range(len(HEADER))]
    lines = ["| " + " | ".join(side(cell, width) for side, cell, width in zip(sides, row, widths)) + " |" for row in rows]
    rule = [("-" * (width + 2)) if column < TEXT else ("-" * (width + 1) + ":") for column, width in enumerate(widths)]
    return "\n".join([lines[0], "|" + "|".join(rule) + "|", *lines[1:]])


def summary(outcomes: Sequence[Outcome]) -> str:
    """What the table comes to: the geometric mean, what is not as wanted, and what failed."""
    level, mean, ratios = level_of(outcomes), geometric_mean(outcomes), speed_ups(outcomes)
    if mean is None or ratios is None:
        lines = [f"No geometric mean: it is that of all {len(level.problems)} problems."]
    else:
        goal = " met" if mean >= level.mean_goal else ""
        is_met, wanted = _verdict(mean >= level.wanted_mean), level.wanted_mean
        lines = [f"Geometric mean of the speed-ups over torch: {mean:.3f}, {is_met} {wanted}, goal {level.mean_goal}{goal}."]
        rest = geometric_mean(outcomes, BEST)
        lines.append(f"Without the {BEST} best: {rest:.3f}. The least: {ratios[0]:.3f}.")
    if (unpacked := geometric_mean_unpacked(outcomes)) is not None:
        lines.append(f"With weights that each call packs, the geometric mean is {unpacked:.3f}.")
    met = sum(all(outcome.checks.values()) for outcome in outcomes)
    lines += [f"{met} of {len(outcomes)} problems are as wanted.", ""]
    for outcome in outcomes:
        if isinstance(outcome.result, Failure):
            lines.append(f"- {outcome.problem.name} FAILED: {outcome.result.error}")
        elif missed := [name for name, is_met in outcome.checks.items() if not is_met]:
            lines.append(f"- {outcome.problem.name} NOT MET: {', '.join(missed)}")
    return "\n".join(lines).rstrip()


def markdown(outcomes: Sequence[Outcome], environment: Environment) -> str:
    """The whole report."""
    e = environment
    return f"""# {e.gpu}, {e.date[:10]}: KernelBench {level_of(outcomes).what}

tilewright {e.tilewright}, torch {e.torch} (CUDA {e.cuda}), driver {e.driver}, {e.date}. Problems and method
are those of KernelBench {KERNELBENCH}.

Times are medians of {e.trials} trials in milliseconds, with the interquartile range of ours as the spread. Each trial is
a call between two CUDA events, after {FLUSHED_BYTES >> 20} MiB were written so that the L2 cache has nothing of use. Those
who are compared take turns in {min(ROUNDS, e.trials)} rounds, each with {WARM_UPS} calls to warm up and one trial that is left out.
torch computes float32 as it does by default, without TF32; "compile" is torch.compile as it is by default.

"agree" counts the trials, each with other inputs of torch.rand, whose results torch.allclose takes for equal at an
absolute and a relative tolerance of {TOLERANCE:g}, and in how many of the others it does not take the result in float64 for
torch's either; "difference" is the largest of two elements. The errors are relative
to float64 in the Frobenius norm, of inputs uniform in [-1, 1]; the bound is the larger of torch's own error and of
{ERROR_OF_FEW:g} for sums of less than {MANY_TERMS} terms, {ERROR_OF_MANY:g} for others. "of writing" is how much ours
reaches of the speed of the fastest way found to write as many bytes. "to torch" and "to compile" are ratios of medians,
above 1 where ours is faster.{_of_weights(outcomes)}

{table(outcomes)}

{summary(outcomes)}
"""


def _of_weights(outcomes: Sequence[Outcome]) -> str:
    """How level 2's weights get to tensor cores."""
    if level_of(outcomes).number != 2:
        return ""
    return """ The weights of a model stay the same, and are packed
for tensor cores once, by the second of the calls to warm up (`tilewright.nn.Linear`); "unpacked" is ours with weights that each call packs."""


def as_json(outcomes: Sequence[Outcome], environment: Environment) -> str:
    """Everything, with every trial."""
    document = {
        "environment": asdict(environment),
        "method": {
            "kernelbench": KERNELBENCH,
            "seed": SEED,
            "warm_ups": WARM_UPS,
            "rounds": ROUNDS,
            "flushed_bytes": FLUSHED_BYTES,
            "correctness_trials": CORRECTNESS_TRIALS,
            "tolerance": TOLERANCE,
        },
        "level": level_of(outcomes).number,
        "geometric_mean": geometric_mean(outcomes),
        f"geometric_mean_without_the_{BEST}_best": geometric_mean(outcomes, BEST),
        "geometric_mean_unpacked": geometric_mean_unpacked(outcomes),
        "least_speed_up": min(speed_ups(outcomes) or [], default=None),
        "wanted_geometric_mean": level_of(outcomes).wanted_mean,
        "as_wanted": is_as_wanted(outcomes),
        "problems": [_entry(outcome) for outcome in outcomes],
    }
    return json.dumps(_without_infinities(document), indent=2, allow_nan=False) + "\n"


def write(file: Path, text: str) -> None:
    """Writes a file as a whole or not at all."""
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        # A temporary file is its owner's alone; this one is to have the rights of any other.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise


def _row(outcome: Outcome) -> list[str]:
    problem, result = outcome.problem, outcome.result
    if isinstance(result, Failure):
        return [problem.name, problem.shape, "FAILED", *[""] * (len(HEADER) - TEXT)]
    checks, share, over_compiled = outcome.checks, result.share_of_writing, result.speed_up_over_compiled
    unpacked = result.speed_up_unpacked
    writing = "" if share is None else f"{share:.1%} {_verdict(checks['share of writing'])} {WANTED_SHARE_OF_WRITING:.0%}"
    agreed = f"{result.agreed} of {result.compared}"
    if result.out_of_reach:
        agreed += f" (float64 neither in {result.out_of_reach})"
    return [
        problem.name,
        problem.shape,
        result.kernel,
        _milliseconds(result.times[EAGER].median),
        _milliseconds(result.times[COMPILED].median) if COMPILED in result.times else "",
        _milliseconds(result.times[OURS].median),
        f"{result.times[OURS].spread:.4f}",
        f"{result.speed_up:.3f}",
        f"{_verdict(checks['speed-up'])} {problem.wanted:.2f}",
        "" if unpacked is None else _milliseconds(result.times[UNPACKED].median),
        "" if unpacked is None else f"{unpacked:.3f}",
        "" if over_compiled is None else f"{over_compiled:.3f}",
        writing,
        agreed if checks["correct"] else f"NOT MET {agreed}",
        f"{result.largest_difference:.1e}",
        f"{result.error:.1e}",
        f"{result.torch_error:.1e}",
        f"{_verdict(checks['error'])} {outcome.error_bound:.1e}",
    ]


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "NOT MET"


def _milliseconds(time: float) -> str:
    return f"{time:.4f}" if time < 10 else f"{time:.3f}"


def _entry(outcome: Outcome) -> dict[str, Any]:
    problem, result = outcome.problem, outcome.result
    entry: dict[str, Any] = {
        "number": problem.number,
        "name": problem.name,
        "shape": problem.shape,
        "terms": problem.terms,
        "wanted_speed_up": problem.wanted,
        "checks": outcome.checks,
    }
    if isinstance(result, Failure):
        return entry | {"failure": result.error}
    times = {
        name: {
            "median_ms": times.median,
            "mean_ms": times.mean,
            "spread_ms": times.spread,
            "fastest_ms": min(times.trials),
            "trials_ms": times.trials,
        }
        for name, times in result.times.items()
    }
    return entry | {
        "kernel": result.kernel,
        "times": times,
        "speed_up": result.speed_up,
        "speed_up_by_means": result.times[EAGER].mean / result.times[OURS].mean,
        "speed_up_unpacked": result.speed_up_unpacked,
        "speed_up_over_compiled": result.speed_up_over_compiled,
        "share_of_writing": result.share_of_writing,
        "agreed": result.agreed,
        "compared": result.compared,
        "out_of_reach": result.out_of_reach,
        "largest_difference": result.largest_difference,
        "error": result.error,
        "torch_error": result.torch_error,
        "error_bound": outcome.error_bound,
    }


def _without_infinities(value: Any) -> Any:
    """The same, with text in place of numbers that JSON has none for."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _without_infinities(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_without_infinities(item) for item in cast("list[Any]", value)]
    return value
