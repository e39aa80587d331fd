"""What is done behind a product, as the native half and torch's operator take it: text. `python/src/fused.rs` has its grammar."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, cast

from tilewright._errors import ArgumentError, OperandTypeError

__all__ = ["addition", "encode"]

#: The steps by their names, and the numbers that each takes, with what they are where they are left out.
_NUMBERS: dict[str, tuple[float | None, ...]] = {
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


def addition(factor: float, name: str) -> str:
    """The sum with so many times the tensor that the caller calls by this name."""
    return f"add {float(factor)} {name}"


def encode(activation: Any) -> tuple[list[str], list[Any]]:
    """An `activation`, as `tilewright.linear` takes it: its steps, and the tensors that they read."""
    steps: list[str] = []
    operands: list[Any] = []
    if activation is None:
        return steps, operands
    given: Sequence[Any] = cast("list[Any]", activation) if isinstance(activation, list) else [activation]
    for step in given:
        words = (step,) if isinstance(step, str) else cast("tuple[Any, ...]", step) if isinstance(step, tuple) else ()
        if not words or not isinstance(words[0], str):
            raise ArgumentError(f"activation has a step {step!r}: expected a name, or a tuple of a name and its numbers")
        steps.append(_step(words[0], words[1:], operands))
    return steps, operands


def _step(name: str, values: tuple[Any, ...], operands: list[Any]) -> str:
    if name in _NUMBERS:
        defaults = _NUMBERS[name]
        if len(values) > len(defaults):
            raise ArgumentError(f"activation: {name} takes {len(defaults)} numbers, and {len(values)} are given")
        # None is what torch calls no bound of a clamp.
        given = [default if value is None else value for value, default in zip(values, defaults)]
        return " ".join([name, *(str(_number(name, number)) for number in [*given, *defaults[len(values) :]])])
    if name == "gelu":
        kind = values[0] if len(values) == 1 else "none" if not values else None
        if kind not in ("none", "tanh"):
            raise ArgumentError(f'activation: gelu is given {values!r}: expected nothing, "none" or "tanh"')
        return "gelu" if kind == "none" else "gelu_tanh"
    if name == "mul" and len(values) == 1:
        if isinstance(values[0], Real):
            return f"scale {_number(name, values[0])}"
        operands.append(values[0])
        return "multiply operand_of_mul"
    if name == "add" and len(values) in (1, 2):
        factor = _number(name, values[1]) if len(values) == 2 else 1.0
        if isinstance(values[0], Real):
            return f"offset {factor * _number(name, values[0])}"
        operands.append(values[0])
        return addition(factor, "operand_of_add")
    if name in _OTHERS:
        raise ArgumentError(f"activation: {name} is given {len(values)} values: see help(tilewright.linear)")
    raise ArgumentError(f"activation has a step {name!r}: expected one of {', '.join(sorted([*_NUMBERS, *_OTHERS]))}")


def _number(name: str, value: Any) -> float:
    if not isinstance(value, Real):
        raise OperandTypeError(f"activation: {name} is given {value!r} where it takes a number of Python")
    return float(value)
