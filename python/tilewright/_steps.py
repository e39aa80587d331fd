"""What is done behind a product, as the native half and torch's operator take it: text. `python/src/fused.rs` has its grammar."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, cast

from tilewright._errors import ArgumentError, OperandTypeError

__all__ = ["Steps", "number"]

#: The steps by their names, and the numbers that each takes, with what they are where they are left out.
_NUMBERS: dict[str, tuple[float, ...]] = {
    "relu": (),
    "leaky_relu": (0.01,),
    "sigmoid": (),
    "silu": (),
    "tanh": (),
    "mish": (),
    "hardtanh": (-1.0, 1.0),
    "clamp": (float("-inf"), float("inf")),
}
_OTHERS = ("gelu", "add", "mul")


class Steps:
    """What is done behind a product, in this order."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.numbers: list[float] = []
        self.operands: list[Any] = []

    @property
    def text(self) -> str:
        """All steps."""
        return ";".join(self.names)

    def add(self, name: str, operand: Any, factor: float = 1.0) -> None:
        """And then the sum with so many times a tensor, which the caller calls by this name."""
        self.names.append(f"add {name}")
        self.numbers.append(factor)
        self.operands.append(operand)

    def activation(self, activation: Any) -> None:
        """And then an `activation`, as `tilewright.linear` takes it."""
        if activation is None:
            return
        given: Sequence[Any] = cast("list[Any]", activation) if isinstance(activation, list) else [activation]
        for step in given:
            words = (step,) if isinstance(step, str) else cast("tuple[Any, ...]", step) if isinstance(step, tuple) else ()
            if not words or not isinstance(words[0], str):
                raise ArgumentError(f"activation has a step {step!r}: expected a name, or a tuple of a name and its numbers")
            self._step(words[0], words[1:])

    def _step(self, name: str, values: tuple[Any, ...]) -> None:
        if name in _NUMBERS:
            defaults = _NUMBERS[name]
            if len(values) > len(defaults):
                raise ArgumentError(f"activation: {name} takes {len(defaults)} numbers, and {len(values)} are given")
            self.names.append(name)
            for place, default in enumerate(defaults):
                # None is what torch calls no bound of a clamp.
                value = values[place] if place < len(values) else None
                self.numbers.append(default if value is None else number("activation", name, value))
            if name in ("hardtanh", "clamp"):
                self._check_bounds(name, *self.numbers[-2:])
        elif name == "gelu":
            kind = values[0] if len(values) == 1 else "none" if not values else None
            if not isinstance(kind, str) or kind not in ("none", "tanh"):
                raise ArgumentError(f'activation: gelu is given {values!r}: expected nothing, "none" or "tanh"')
            self.names.append("gelu" if kind == "none" else "gelu_tanh")
        elif name == "mul" and len(values) == 1:
            if _is_number(values[0]):
                self.names.append("scale")
                self.numbers.append(number("activation", name, values[0]))
            else:
                self.names.append("multiply operand_of_mul")
                self.operands.append(values[0])
        elif name == "add" and len(values) in (1, 2):
            factor = number("activation", name, values[1]) if len(values) == 2 else 1.0
            if _is_number(values[0]):
                self.names.append("offset")
                self.numbers.append(factor * number("activation", name, values[0]))
            else:
                self.add("operand_of_add", values[0], factor)
        elif name in _OTHERS:
            raise ArgumentError(f"activation: {name} is given {len(values)} values: see help(tilewright.linear)")
        else:
            known = ", ".join(sorted([*_NUMBERS, *_OTHERS]))
            raise ArgumentError(f"activation has a step {name!r}: expected one of {known}")

    def _check_bounds(self, name: str, least: float, most: float) -> None:
        # What torch does with a NaN, kernels do not; bounds of hardtanh that are the wrong way round, torch refuses.
        if least != least or most != most or (name == "hardtanh" and least > most):
            raise ArgumentError(f"activation: {name} has the bounds {least} and {most}: expected numbers, the least one first")


def number(of: str, what: str, value: Any) -> float:
    """A number of Python. Not a tensor: its number may be in a GPU's memory, and its derivative would be lost."""
    if not _is_number(value):
        raise OperandTypeError(f"{of}: {what} is given {value!r} where it takes a number of Python")
    try:
        return float(value)
    except OverflowError:
        raise ArgumentError(f"{of}: {what} is a number beyond all of float's: pass one of those, such as math.inf") from None


def _is_number(value: Any) -> bool:
    # Most are one of these two; asking the abstract class takes several times as long.
    return type(value) is float or type(value) is int or isinstance(value, Real)
