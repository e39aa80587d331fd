"""What the functions of the package have in common."""

from __future__ import annotations

import sys
from typing import Any

from tilewright._errors import ArgumentError

__all__ = ["asked", "is_compiling"]


def asked(precision: str, tolerance: float | None, guarantee: float | None) -> Any:
    """What takes the place of a precision."""
    if precision != "fp32" or (tolerance is not None and guarantee is not None):
        raise ArgumentError("precision, tolerance and guarantee are different ways to say how accurate a product has to be: name one")
    return f"tolerance={float(tolerance)}" if tolerance is not None else f"guarantee={float(guarantee or 0)}"


def is_compiling() -> bool:
    """Whether torch.compile looks at the call, and should find the operator."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()
