"""Products of lists of NumPy's matrices by the CPU executor: sizes, layouts, results given, what is wrong with one of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tilewright
from conftest import TOLERANCES, largest_error

SIZES = [(3, 4, 5), (70, 33, 21), (1, 1, 1), (0, 4, 2), (4, 0, 2), (5, 6, 0), (64, 64, 64), (130, 7, 9)]


def grouped(a: Any, b: Any, **options: Any) -> list[np.ndarray]:
    return [np.from_dlpack(c) for c in tilewright.grouped_matmul(a, b, on_cpu="emulate", **options)]


def matrices(random: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Operands of these sizes, some by columns, some with gaps."""
    a = [random.standard_normal((m, k), np.float32) for m, _, k in SIZES]
    b = [random.standard_normal((k, n), np.float32) for _, n, k in SIZES]
    a[1], b[3] = np.asfortranarray(a[1]), np.asfortranarray(b[3])
    spread = np.zeros((128, 128), np.float32)
    spread[::2, ::2] = a[6]
    a[6] = spread[::2, ::2]
    return a, b


@pytest.mark.parametrize("precision", ["fp32", "fp32-strict"])
def test_each_product_is_that_of_its_matrices(random: np.random.Generator, precision: Any) -> None:
    a, b = matrices(random)
    for of_a, of_b, c in zip(a, b, grouped(a, b, precision=precision), strict=True):
        assert c.shape == (of_a.shape[0], of_b.shape[1])
        if c.size and of_a.shape[1]:
            assert largest_error(c, of_a, of_b) <= TOLERANCES[precision]
        else:
            np.testing.assert_array_equal(c, of_a @ of_b)
    assert grouped([], []) == []
    assert all((c == d).all() for c, d in zip(grouped(a, b, guarantee=1e-5), grouped(tuple(a), iter(b)), strict=True))


def test_results_are_written_where_they_are_asked_for(random: np.random.Generator) -> None:
    a = [random.integers(-4, 5, (6, 5)).astype(np.float32) for _ in range(4)]
    b = [random.integers(-4, 5, (5, 3)).astype(np.float32) for _ in range(4)]
    # Side by side, in the columns of one array.
    whole = np.full((6, 14), np.nan, np.float32)
    out = [whole[:, 3 * i : 3 * i + 3] for i in range(4)]
    results = tilewright.grouped_matmul(a, b, out=out, on_cpu="emulate")
    assert all(result is given for result, given in zip(results, out, strict=True))
    np.testing.assert_array_equal(whole[:, :12], np.concatenate([x @ y for x, y in zip(a, b, strict=True)], axis=1))
    assert np.isnan(whole[:, 12:]).all()


def test_what_is_wrong_is_said_of_the_product(random: np.random.Generator) -> None:
    a, b = ([random.standard_normal(shape, np.float32) for _ in range(3)] for shape in [(4, 5), (5, 6)])
    c = [np.zeros((4, 6), np.float32) for _ in range(3)]

    def refused(message: str, a: Any = a, b: Any = b, error: Any = tilewright.ArgumentError, **options: Any) -> None:
        with pytest.raises(error, match=message):
            tilewright.grouped_matmul(a, b, **({"on_cpu": "emulate"} | options))

    refused("a has 3 matrices, b has 2", b=b[:2])
    refused("there are 1 results", out=c[:1])
    refused(r"product 1 of the group: a has shape \(4, 5\), b has shape \(4, 5\)", b=[b[0], a[0], b[2]])
    refused("product 2 of the group: .*float64", a=[*a[:2], a[2].astype(np.float64)], error=tilewright.OperandTypeError)
    refused("(?s)product 0 of the group: .*tf32.*can be computed in fp32-strict or fp32", precision="tf32")
    refused("product 1 of the group: out has shape", out=[c[0], a[1], c[2]])
    refused("product 1 of the group: out overlaps a", a=[a[0], c[1][:, :5], a[2]], out=c)
    refused("C of product 0 and C of product 2", out=[c[0], c[1], c[0]])
    refused("C of product 1 and A of product 2|A of product 2 and C of product 1", a=[a[0], a[1], c[1][:, :5]], out=c)
    refused("CPU's memory", on_cpu="refuse")
    refused('on_cpu="move" is for matmul', on_cpu="move")
