"""Products of NumPy's arrays with diagonal matrices and numbers, by the CPU executor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tilewright


def scaled(matrix: Any, by: Any = 1.0, **options: Any) -> np.ndarray:
    return np.from_dlpack(tilewright.scale(matrix, by, on_cpu="emulate", **options))


def expected(matrix: Any, by: Any, rows: Any, columns: Any) -> np.ndarray:
    """The same, in the same order, in the same precision: so the same bits."""
    with np.errstate(all="ignore"):
        product = matrix if rows is None else rows[:, None] * matrix
        product = product if columns is None else product * columns
        return np.float32(by) * product


def views(shape: tuple[int, ...], random: np.random.Generator) -> dict[str, np.ndarray]:
    """Random numbers in different layouts."""
    batch, (m, n) = shape[:-2], shape[-2:]

    def numbers(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    return {
        "by rows": numbers(*shape),
        "by columns": numbers(*batch, n, m).swapaxes(-1, -2),
        "padded": numbers(*batch, m, n + 5)[..., 2 : n + 2],
        "spread": numbers(*batch, 2 * m, 3 * n)[..., ::2, ::3],
        "unaligned": numbers(math.prod(shape) + 1)[1:].reshape(shape),
        "repeated": np.broadcast_to(numbers(n), shape),
    }


@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (40, 33), (2, 1030), (1030, 2), (3, 5, 4), (2, 3, 5, 7), (2, 1, 6, 8)])
@pytest.mark.parametrize("has", [(False, False), (True, False), (False, True), (True, True)])
def test_every_element_is_multiplied_in_the_same_order(random: np.random.Generator, shape: Any, has: Any) -> None:
    rows, columns = (
        random.standard_normal(2 * extent).astype(np.float32)[::2] if given else None
        for extent, given in zip(shape[-2:], has, strict=True)
    )
    for name, matrix in views(shape, random).items():
        product = scaled(matrix, -0.3, rows=rows, columns=columns)
        np.testing.assert_array_equal(product, expected(matrix, -0.3, rows, columns), name, strict=True)


def test_batches_in_any_order(random: np.random.Generator) -> None:
    matrix = random.standard_normal((4, 2, 3, 5)).astype(np.float32)
    rows = random.standard_normal(3).astype(np.float32)
    out = np.zeros((3, 2, 4, 5), np.float32)
    for order in [(1, 0, 2, 3), (1, 0, 3, 2), (0, 1, 3, 2)]:
        view = matrix.transpose(order)
        factors = rows if view.shape[-2] == 3 else None
        np.testing.assert_array_equal(scaled(view, 2, rows=factors), expected(view, 2, factors, None))
    # Matrices of the result lie between each other.
    result = out.transpose(2, 1, 0, 3)
    assert tilewright.scale(matrix, 2, rows=rows, out=result, on_cpu="emulate") is result
    np.testing.assert_array_equal(result, expected(matrix, 2, rows, None))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (0, 2, 3), (2, 0, 3)])
def test_sizes_of_zero(shape: Any) -> None:
    matrix = np.ones(shape, np.float32)
    rows, columns = np.ones(shape[-2], np.float32), np.ones(shape[-1], np.float32)
    assert scaled(matrix, 2.0, rows=rows, columns=columns).shape == shape


def test_special_numbers_are_multiplied_like_others() -> None:
    special = np.array([[np.nan, np.inf, -np.inf, -0.0, 1e-42, 3e38]], np.float32)
    for by in (0, 1, -1, 2.5, 1e39, math.nan, True, np.float32(0.1), np.float64(0.1)):
        np.testing.assert_array_equal(scaled(special, by), expected(special, by, None, None))


def test_a_result_is_written_where_it_is_asked_for(random: np.random.Generator) -> None:
    matrix = random.standard_normal((5, 4, 6)).astype(np.float32)
    columns = random.standard_normal(6).astype(np.float32)
    product = expected(matrix, 3, None, columns)
    for out in (
        np.full((5, 4, 6), np.nan, np.float32),
        np.full((5, 6, 4), np.nan, np.float32).transpose(0, 2, 1),
        np.full((5, 4, 20), np.nan, np.float32)[:, :, 3:9],
    ):
        assert tilewright.scale(matrix, 3, columns=columns, out=out, on_cpu="emulate") is out
        np.testing.assert_array_equal(out, product)
    room = np.full((5, 4, 20), 7.0, np.float32)
    tilewright.scale(matrix, 3, columns=columns, out=room[:, :, 3:9], on_cpu="emulate")
    assert (room == 7.0).sum() >= 5 * 4 * 14


def test_a_matrix_may_be_its_own_result(random: np.random.Generator) -> None:
    rows = random.standard_normal(7).astype(np.float32)
    for name, matrix in views((7, 5), random).items():
        if name == "repeated":
            continue
        product = expected(matrix.copy(), 3, rows, None)
        # A view of the same memory, too.
        assert tilewright.scale(matrix[:], 3, rows=rows, out=matrix, on_cpu="emulate") is matrix
        np.testing.assert_array_equal(matrix, product, name)


def refused(kind: type[tilewright.Error], *arguments: Any, **options: Any) -> str:
    """The message of the error that these arguments are refused with."""
    with pytest.raises(kind) as error:
        tilewright.scale(*arguments, **{"on_cpu": "emulate"} | options)
    return str(error.value)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def test_operands_that_do_not_go_together_are_named() -> None:
    wrong = tilewright.ArgumentError
    assert "(3,)" in refused(wrong, zeros(3)) and "two extents" in refused(wrong, zeros())
    message = refused(wrong, zeros(2, 3), rows=zeros(3))
    assert message.startswith("rows has shape (3,)") and "(2, 3)" in message and "2 rows" in message
    message = refused(wrong, zeros(4, 2, 3), columns=zeros(2))
    assert message.startswith("columns has shape (2,)") and "3 columns" in message
    assert "(2, 1)" in refused(wrong, zeros(2, 3), rows=zeros(2, 1))
    assert "(2, 4)" in refused(wrong, zeros(2, 3), out=zeros(2, 4))
    assert "-1" in refused(wrong, zeros(2, 3), columns=zeros(3)[::-1])
    assert "emulate" in refused(wrong, zeros(2, 3), on_cpu="refuse")
    assert "torch" in refused(wrong, zeros(2, 3), on_cpu="move")
    assert "maybe" in refused(wrong, zeros(2, 3), on_cpu="maybe")


def test_results_that_cannot_be_written_to_are_refused() -> None:
    wrong = tilewright.ArgumentError
    memory = zeros(40)
    matrix = memory[:12].reshape(3, 4)
    # The same memory in another order, or a part of it.
    assert "overlaps matrix" in refused(wrong, matrix, out=memory[:12].reshape(4, 3).T)
    assert "overlaps matrix" in refused(wrong, matrix, out=memory[4:16].reshape(3, 4))
    assert "overlaps rows" in refused(wrong, matrix, rows=memory[:3], out=matrix)
    assert "overlaps columns" in refused(wrong, matrix, columns=memory[30:34], out=memory[28:40].reshape(3, 4))
    repeated = np.lib.stride_tricks.as_strided(zeros(4), (4, 4), (0, 4))
    assert "overlaps itself" in refused(wrong, repeated, out=repeated)
    read_only = zeros(3, 4)
    read_only.setflags(write=False)
    assert "read-only" in refused(wrong, zeros(3, 4), out=read_only)


@pytest.mark.parametrize("by", [None, "2", np.ones((), np.float32), np.ones(1, np.float32), 2j])
def test_what_is_no_number_is_named_by_its_type(by: Any) -> None:
    message = refused(tilewright.OperandTypeError, zeros(2, 3), by)
    assert message.startswith("by is of type") and type(by).__name__ in message


def test_other_types_of_elements_are_never_cast() -> None:
    wrong = tilewright.OperandTypeError
    for name in ("rows", "columns", "out"):
        message = refused(wrong, zeros(2, 2), **{name: np.ones((2,), np.float64)})
        assert message.startswith(f"{name} ") and "float64" in message
    assert refused(wrong, np.ones((2, 2), np.int32)).startswith("matrix ")
    assert "list" in refused(wrong, [[1.0]])
