"""Prints a digest of the bits of each of some products by the CPU executor: the same on every machine, with every Python.

`cargo xtask wheels --run` compares what it prints.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any, get_args

import numpy as np
import tilewright

#: Sizes m, k, n.
SIZES = [(33, 47, 21), (1, 130, 64), (128, 32, 96)]


def operand(shape: tuple[int, int], seed: int) -> np.ndarray:
    """Numbers between -1 and 1, by integers alone: what NumPy's generators make need not stay the same."""
    index = np.arange(shape[0] * shape[1], dtype=np.uint32)
    mixed = (index * np.uint32(2654435761) + np.uint32(seed)) ^ (index >> np.uint32(3))
    mixed *= np.uint32(2246822519)
    return (mixed.astype(np.float32) / np.float32(2**31) - np.float32(1)).reshape(shape)


def digest(result: Any) -> str:
    return hashlib.sha256(np.from_dlpack(result).tobytes()).hexdigest()[:16]


def lines() -> list[str]:
    told: list[str] = []
    for precision in get_args(tilewright.Precision):
        for m, k, n in SIZES:
            a, b = operand((m, k), 1), operand((k, n), 2)
            try:
                bits = digest(tilewright.matmul(a, np.asfortranarray(b), precision=precision, on_cpu="emulate"))
            except tilewright.ArgumentError as error:
                bits = f"refused: {error}"
            told.append(f"{precision} {m}x{n}x{k} {bits}")
    special = operand((8, 40), 3)
    special[0, 0], special[1, 1], special[2, 2] = np.inf, np.nan, 3e38
    told.append(f"infinity, NaN and overflow {digest(tilewright.matmul(special, operand((40, 9), 4), on_cpu='emulate'))}")
    told.append(f"scale {digest(tilewright.scale(operand((19, 23), 5), 0.3, rows=operand((19, 1), 6)[:, 0], on_cpu='emulate'))}")
    x, w, bias = operand((19, 40), 7), operand((23, 40), 8), operand((1, 23), 9)
    for activation in ("relu", "sigmoid", "silu", "tanh", "gelu", ("gelu", "tanh"), "mish"):
        told.append(f"linear {activation} {digest(tilewright.linear(x, w, bias, activation, scale=0.7, on_cpu='emulate'))}")
    return told


if __name__ == "__main__":
    print(f"Python {sys.version.split()[0]}, {tilewright.__version__}", file=sys.stderr)
    print("\n".join(lines()))
