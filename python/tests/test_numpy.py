"""Products of NumPy's arrays by the CPU executor: numbers, layouts, broadcasting, sizes of zero, results given."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tilewright
from conftest import TOLERANCES, largest_error


def product(a: Any, b: Any, **options: Any) -> np.ndarray:
    return np.from_dlpack(tilewright.matmul(a, b, on_cpu="emulate", **options))


@pytest.mark.parametrize("precision", ["fp32", "fp32-strict", "fp32-rounded", "fp32-ozaki", "fp32-normwise", "tf32", "bf16", "fp16"])
def test_every_precision_keeps_its_promise_or_says_that_it_cannot(random: np.random.Generator, precision: Any) -> None:
    a, b = (random.standard_normal(shape, np.float32) for shape in [(33, 47), (47, 21)])
    try:
        c = product(a, b, precision=precision)
    except tilewright.ArgumentError as error:
        # Some kernels need hardware that the executor does not have.
        assert precision in str(error) and precision in ("fp32-ozaki", "fp32-normwise", "bf16", "fp16")
        return
    assert largest_error(c, a, b) <= TOLERANCES[precision]


def test_an_error_takes_the_place_of_a_precision(random: np.random.Generator) -> None:
    a, b = (random.standard_normal(shape, np.float32) for shape in [(33, 47), (47, 21)])
    for error in (7e-8, 1e-5, 2e-3):
        for asked in ({"guarantee": error}, {"tolerance": error}):
            assert largest_error(product(a, b, **asked), a, b) <= error
    text = tilewright.explain(a, b, guarantee=7e-8, on_cpu="emulate")
    assert "fp32-rounded" in text and "guarantee=7e-8 is asked for" in text
    assert (product(a, b, tolerance=7e-8) == product(a, b, precision="fp32-rounded")).all()
    # What cannot be had is said, and so is what can.
    with pytest.raises(tilewright.ArgumentError, match="the smallest bound is 6.0e-8, of gemm_mma_"):
        product(a, b, guarantee=1e-9)
    for asked in ({"guarantee": 0}, {"tolerance": -1e-6}, {"tolerance": float("nan")}, {"guarantee": float("inf")}):
        with pytest.raises(tilewright.ArgumentError, match="positive number"):
            product(a, b, **asked)
    for asked in ({"guarantee": 1e-6, "tolerance": 1e-6}, {"guarantee": 1e-6, "precision": "tf32"}):
        with pytest.raises(tilewright.ArgumentError, match="name one"):
            product(a, b, **asked)


@pytest.mark.parametrize("precision", ["fp32", "fp32-strict", "fp32-rounded", "tf32"])
def test_invariant_rows_keep_their_bits(random: np.random.Generator, precision: Any) -> None:
    a, b = (random.standard_normal(shape, np.float32) for shape in [(70, 150), (150, 40)])
    a[5, 3], a[9, 7], b[8, 2] = 1e-35, 1e37, 1e-36  # what no tensor core can take as it is
    whole = product(a, b, precision=precision, invariant=True)
    assert largest_error(whole[10:], a[10:], b) <= TOLERANCES[precision]
    for rows in (slice(0, 1), slice(9, 10), slice(3, 20), slice(5, 70, 13)):
        np.testing.assert_array_equal(product(a[rows], b, precision=precision, invariant=True), whole[rows])
    np.testing.assert_array_equal(product(np.asfortranarray(a)[7:30], b, precision=precision, invariant=True), whole[7:30])
    np.testing.assert_array_equal(product(a[6], b, precision=precision, invariant=True), whole[6])
    # Neither the matrices of a batch, nor those that one row meets, are columns of one product.
    batch = product(a.reshape(7, 10, 150), b, precision=precision, invariant=True)
    np.testing.assert_array_equal(batch.reshape(70, 40), whole)
    both = product(a[:1], np.stack([b, 2 * b]), precision=precision, invariant=True)
    np.testing.assert_array_equal(both, np.stack([whole[:1], product(a[:1], 2 * b, precision=precision, invariant=True)]))
    assert "whatever rows come with them" in tilewright.explain(a, b, precision=precision, invariant=True, on_cpu="emulate")


def layouts(matrix: np.ndarray) -> dict[str, np.ndarray]:
    """The same numbers in different places."""
    rows, cols = matrix.shape
    spread = np.full((2 * rows, 3 * cols), np.nan, np.float32)
    spread[::2, ::3] = matrix
    padded = np.full((rows, cols + 5), np.nan, np.float32)
    padded[:, 2:-3] = matrix
    return {
        "by rows": np.ascontiguousarray(matrix),
        "by columns": np.asfortranarray(matrix),
        "padded": padded[:, 2:-3],
        "padded columns": np.asfortranarray(padded)[:, 2:-3],
        "spread": spread[::2, ::3],
    }


def test_all_layouts_give_the_same_product(random: np.random.Generator) -> None:
    a, b = (random.integers(-4, 5, shape).astype(np.float32) for shape in [(9, 13), (13, 6)])
    for (name_a, of_a), (name_b, of_b) in itertools.product(layouts(a).items(), layouts(b).items()):
        np.testing.assert_array_equal(product(of_a, of_b), a @ b, f"{name_a}, {name_b}")


SHAPES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (1, 3, 4)),
    ((1, 2, 3), (5, 3, 4)),
    ((2, 5, 2, 3), (5, 3, 4)),
    ((2, 1, 2, 3), (5, 3, 4)),
    ((2, 1, 2, 3), (1, 5, 3, 4)),
    ((2, 3, 4, 2, 3), (3, 3)),
    ((2, 1, 4, 2, 3), (3, 1, 3, 2)),
    ((1, 1, 3), (3, 1)),
]


@pytest.mark.parametrize(("shape_a", "shape_b"), SHAPES)
def test_broadcasting_is_that_of_numpy(random: np.random.Generator, shape_a: Any, shape_b: Any) -> None:
    a, b = (random.integers(-4, 5, shape).astype(np.float32) for shape in (shape_a, shape_b))
    expected = np.matmul(a, b)
    c = product(a, b)
    assert c.shape == expected.shape
    np.testing.assert_array_equal(c, expected)


def test_permuted_and_repeated_batches_are_not_copied(random: np.random.Generator) -> None:
    a = random.integers(-4, 5, (4, 2, 3, 5)).astype(np.float32)
    b = random.integers(-4, 5, (2, 4, 5, 6)).astype(np.float32)
    for view in (a.transpose(1, 0, 2, 3), a.transpose(1, 0, 3, 2).swapaxes(2, 3), np.broadcast_to(a[0, :, None], (2, 4, 3, 5))):
        np.testing.assert_array_equal(product(view, b), view @ b)


@pytest.mark.parametrize(
    ("shape_a", "shape_b"),
    [((0, 3), (3, 4)), ((2, 0), (0, 4)), ((2, 3), (3, 0)), ((0,), (0,)), ((0, 2, 3), (3, 4)), ((5, 2, 0), (5, 0, 4)), ((0, 0), (0, 0))],
)
def test_sizes_of_zero(shape_a: Any, shape_b: Any) -> None:
    c = product(np.ones(shape_a, np.float32), np.ones(shape_b, np.float32))
    np.testing.assert_array_equal(c, np.matmul(np.ones(shape_a), np.ones(shape_b)))


def test_a_result_is_written_where_it_is_asked_for(random: np.random.Generator) -> None:
    a, b = (random.integers(-4, 5, shape).astype(np.float32) for shape in [(5, 4, 3), (5, 3, 6)])
    for out in (
        np.full((5, 4, 6), np.nan, np.float32),
        np.full((5, 6, 4), np.nan, np.float32).transpose(0, 2, 1),
        np.full((4, 5, 6), np.nan, np.float32).transpose(1, 0, 2),
        np.full((5, 4, 20), np.nan, np.float32)[:, :, 3:9],
    ):
        assert tilewright.matmul(a, b, out=out, on_cpu="emulate") is out
        np.testing.assert_array_equal(out, a @ b)
    # What lies between the rows stays as it is.
    room = np.full((5, 4, 20), 7.0, np.float32)
    tilewright.bmm(a, b, out=room[:, :, 3:9], on_cpu="emulate")
    assert (room == 7.0).sum() >= 5 * 4 * 14


def test_matvec_and_bmm(random: np.random.Generator) -> None:
    a, x = (random.integers(-4, 5, shape).astype(np.float32) for shape in [(7, 5), (5,)])
    np.testing.assert_array_equal(np.from_dlpack(tilewright.matvec(a, x, on_cpu="emulate")), a @ x)
    np.testing.assert_array_equal(np.from_dlpack(tilewright.matvec(a, x[::1], on_cpu="emulate")), a @ x)
    a, b = (random.integers(-4, 5, shape).astype(np.float32) for shape in [(3, 7, 5), (3, 5, 2)])
    np.testing.assert_array_equal(np.from_dlpack(tilewright.bmm(a, b, on_cpu="emulate")), a @ b)


def test_an_explanation_names_the_kernel_and_the_reason() -> None:
    text = tilewright.explain(np.ones((4, 5), np.float32), np.ones((5, 6), np.float32), on_cpu="emulate")
    assert "m=4 n=6 k=5" in text and "kernel" in text and "because" in text
    with pytest.raises(tilewright.ArgumentError):
        tilewright.explain(np.ones((4, 5), np.float32), np.ones((4, 6), np.float32), on_cpu="emulate")


def test_an_older_dlpack_is_understood(random: np.random.Generator) -> None:
    class Older:
        """Has no `max_version`."""

        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __dlpack__(self, *, stream: Any = None) -> Any:
            assert stream is None
            return self.array.__dlpack__()

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    a = random.integers(-4, 5, (3, 4)).astype(np.float32)
    np.testing.assert_array_equal(product(Older(a), Older(a.T)), a @ a.T)


@pytest.mark.parametrize("part", ["upper", "lower"])
@pytest.mark.parametrize(("shape_a", "shape_b"), [((5, 7), (7, 5)), ((3, 5, 7), (7, 4)), ((7, 5), (2, 3, 5, 9)), ((0, 3), (3, 0))])
def test_only_a_triangle_of_each_matrix_is_computed(random: np.random.Generator, part: Any, shape_a: Any, shape_b: Any) -> None:
    a, b = (random.integers(-4, 5, shape).astype(np.float32) for shape in (shape_a, shape_b))
    expected = {"upper": np.triu, "lower": np.tril}[part](a @ b)
    np.testing.assert_array_equal(product(a, b, part=part), expected)
    out = np.full(expected.shape, np.nan, np.float32)
    tilewright.matmul(a, b, out=out, part=part, on_cpu="emulate")
    np.testing.assert_array_equal(out, expected)
    assert part in tilewright.explain(a, b, part=part, on_cpu="emulate") or out.size == 0
