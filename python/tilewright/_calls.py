"""What the functions of the package have in common."""

from __future__ import annotations

import sys
from typing import Any

from tilewright._errors import ArgumentError
from tilewright._steps import number

__all__ = ["asked", "is_compiling"]


def asked(precision: str, tolerance: float | None, guarantee: float | None) -> Any:
    """What takes the place of a precision."""
    if not isinstance(precision, str) or precision != "fp32" or (tolerance is not None and guarantee is not None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError("precision, tolerance and guarantee are different ways to say how accurate a product has to be: name one")
    name, error = ("tolerance", tolerance) if tolerance is not None else ("guarantee", guarantee)
    return f"{name}={number('how large an error may be', name, error)}"


def is_compiling() -> bool:
    """Whether torch.compile looks at the call, and should find the operator."""
    torch = sys.modules.get("torch")
    # It lacks its parts while another thread imports it.
    return torch is not None and hasattr(torch, "compiler") and torch.compiler.is_compiling()
