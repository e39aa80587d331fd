"""What a user may write, for the type checker: pyright reads this, and nobody runs it."""

from __future__ import annotations

from typing import Any

import numpy as np
import tilewright
import torch
from numpy.typing import NDArray
from typing_extensions import assert_type


def of_torch(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = tilewright.matmul(x, weight)
    assert_type(y, torch.Tensor)
    tilewright.matmul(x, weight, out=y, precision="fp32-strict")
    tilewright.bmm(x, weight, on_cpu="move")
    tilewright.matmul(x, weight, part="upper")
    assert_type(tilewright.linear(x, weight, y, ("leaky_relu", 0.1), residual=y, scale=0.5), torch.Tensor)
    tilewright.linear(x, weight, activation=["silu", ("mul", y), ("clamp", None, 1)], out=y)
    assert_type(tilewright.addmm(y, x, weight, beta=0.5, activation="gelu"), torch.Tensor)
    assert_type(tilewright.baddbmm(y, x, weight, residual=y), torch.Tensor)
    assert_type(tilewright.scale(x, 0.5, rows=y, out=x), torch.Tensor)
    assert_type(tilewright.grouped_matmul([x, y], (weight, x), out=[y, y]), list[torch.Tensor])
    packed = tilewright.PackedMatrix(weight, "bf16", frozen=True)
    assert_type(tilewright.linear(x, packed, y, precision=packed.precision), torch.Tensor)
    assert_type(tilewright.addmm(y, packed, x), torch.Tensor)
    layer = tilewright.nn.Linear(8, 8, activation=["relu", ("mul", y)])
    assert_type(tilewright.convert(layer, frozen=True), tilewright.nn.Linear)
    assert_type(tilewright.revert(layer).packed_bytes() + tilewright.nn.packed_bytes(layer) + packed.nbytes, int)
    return tilewright.matvec(weight, x, precision="tf32")


def of_numpy(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[Any]:
    array = tilewright.matmul(a, b, on_cpu="emulate")
    assert_type(array, tilewright.Array)
    assert_type(array.shape, tuple[int, ...])
    given = tilewright.matmul(a, b, out=a, on_cpu="emulate")
    assert_type(given, NDArray[np.float32])
    assert_type(tilewright.scale(a, 2, columns=b, on_cpu="emulate"), tilewright.Array)
    assert_type(tilewright.scale(a, rows=b, out=a), NDArray[np.float32])
    assert_type(tilewright.linear(a, b, b, "gelu", on_cpu="emulate"), tilewright.Array)
    assert_type(tilewright.addmm(a, a, b, out=b), NDArray[np.float32])
    assert_type(tilewright.grouped_matmul([a], [b], on_cpu="emulate"), list[tilewright.Array])
    assert_type(tilewright.grouped_matmul([a], [b], out=[a]), list[NDArray[np.float32]])
    try:
        again = tilewright.matmul(array, b, on_cpu="emulate")
    except tilewright.ArgumentError as error:
        raise SystemExit(str(error)) from error
    text: str = tilewright.explain(again, b)
    print(text, tilewright.__version__)
    return np.asarray(again)


def wrong(a: NDArray[np.float32], x: torch.Tensor) -> None:
    tilewright.matmul(a, a, precision="fp64")  # pyright: ignore[reportArgumentType, reportCallIssue]
    tilewright.matmul(x, x, part="middle")  # pyright: ignore[reportArgumentType, reportCallIssue]
    tilewright.matmul(x, x, out=a)  # pyright: ignore[reportArgumentType, reportCallIssue]
    tilewright.linear(x, x, activation=0.5)  # pyright: ignore[reportArgumentType, reportCallIssue]
    tilewright.scale(a, x)  # pyright: ignore[reportArgumentType, reportCallIssue]
    tilewright.PackedMatrix(a)  # pyright: ignore[reportArgumentType]
    tilewright.matmul(x, tilewright.PackedMatrix(x))  # pyright: ignore[reportArgumentType, reportCallIssue]
    tilewright.matmul([1.0], a)  # pyright: ignore[reportArgumentType, reportCallIssue]
