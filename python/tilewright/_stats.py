"""What the switch has done, as `tilewright.stats` gives it. Nothing here needs torch."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright import _native

__all__ = ["Stats", "TakenProduct", "reset_stats", "stats"]


@dataclass(frozen=True)
class TakenProduct:
    """A product that was taken from torch, and how often."""

    operator: str
    """Torch's operator, such as `addmm.out`."""
    m: int
    n: int
    k: int
    batch: int
    """How many products of m x k and k x n matrices a call computes. All sizes are 0 where more than 4096 products were counted."""
    precision: str
    kernel: str
    """The kernel that multiplies."""
    calls: int
    predicted_ms: float | None
    """What a call should take, in milliseconds; none on the CPU executor."""
    torch_ms: float | None
    """What it should take by instructions for float32, which torch uses unless TF32 is allowed."""

    @property
    def saved_ms(self) -> float:
        """The time that all calls together should have saved. It is predicted, not measured."""
        if self.predicted_ms is None or self.torch_ms is None:
            return 0.0
        return self.calls * (self.torch_ms - self.predicted_ms)


@dataclass(frozen=True)
class Stats:
    """What the switch has done in this process since it began, or since `reset_stats`."""

    taken: tuple[TakenProduct, ...]
    passed_on: dict[str, int]
    """How many calls went to torch, for each reason."""
    failure: str | None
    """The last failure, for which a call went to torch."""

    @property
    def saved_ms(self) -> float:
        """The time that all calls together should have saved, in milliseconds. It is predicted, not measured."""
        return sum(product.saved_ms for product in self.taken)

    def __str__(self) -> str:
        lines = [f"{'operator':13}{'m':>7}{'n':>7}{'k':>7}{'batch':>7}  {'calls':>8}{'saved ms':>10}  precision, kernel"]
        for it in self.taken:
            sizes = f"{it.m:7}{it.n:7}{it.k:7}{it.batch:7}"
            lines.append(f"{it.operator:13}{sizes}  {it.calls:8}{it.saved_ms:10.3f}  {it.precision}, {it.kernel}")
        lines += [f"to torch, {calls} calls: {reason}" for reason, calls in self.passed_on.items()]
        if self.failure is not None:
            lines.append(f"the last failure: {self.failure}")
        return "\n".join(lines)


def stats() -> Stats:
    """What the switch has done: see `tilewright.stats`."""
    rows, passed_on, failure = _native.switch_records()
    taken = [
        TakenProduct(operator, *sizes, precision, kernel, calls, *(times or (None, None)))
        for operator, sizes, precision, kernel, calls, times in rows
    ]
    return Stats(tuple(taken), dict(passed_on), failure)


def reset_stats() -> None:
    """Counts from zero again: see `tilewright.reset_stats`."""
    _native.switch_reset()
