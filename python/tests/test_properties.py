"""Products of operands that are drawn by a seed: shapes with zeros, ones and primes, batches that are broadcast, and any layout that has no
negative stride. All numbers are small and whole, so that results are exact.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tilewright

EXTENTS = [0, 1, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33]
LAYOUTS = ["by rows", "by columns", "padded", "permuted", "spread", "repeated", "overlapping", "of records"]
#: Layouts whose elements have places of their own, which can be written to.
APART = ["by rows", "by columns", "padded", "permuted", "spread", "of records"]


def laid_out(random: np.random.Generator, shape: tuple[int, ...], layouts: list[str]) -> tuple[str, np.ndarray, np.ndarray]:
    """Whole numbers of this shape, in a layout, and all memory that they are in, where the rest is -99."""
    layout = str(random.choice(layouts)) if shape else "by rows"
    values = np.asarray(random.integers(-4, 5, shape), np.float32)
    memory = view = values
    if layout == "by columns":
        memory = view = np.asfortranarray(values)
    elif layout == "padded":
        memory = np.full([extent + 3 for extent in shape], -99, np.float32)
        view = memory[tuple(slice(start, start + extent) for start, extent in zip(random.integers(0, 4, len(shape)), shape))]
    elif layout == "permuted":
        order = random.permutation(len(shape))
        memory = np.full([shape[place] for place in order], -99, np.float32)
        view = memory.transpose(np.argsort(order))
    elif layout == "spread":
        steps = [int(step) for step in random.integers(1, 4, len(shape))]
        memory = np.full([extent * step for extent, step in zip(shape, steps)], -99, np.float32)
        view = memory[tuple(slice(None, None, step) for step in steps)]
    elif layout == "repeated" and 0 not in shape:
        kept = random.integers(0, 2, len(shape))
        view = np.broadcast_to(values[tuple(slice(None) if keep else slice(0, 1) for keep in kept)], shape)
        return layout, view, values
    elif layout == "overlapping" and 0 not in shape:
        strides = [int(stride) for stride in random.integers(0, 4, len(shape))]
        memory = random.integers(-4, 5, 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides))).astype(np.float32)
        return layout, np.lib.stride_tricks.as_strided(memory, shape, [4 * stride for stride in strides]), memory
    elif layout == "of records":
        records = np.zeros(shape, [("before", "f4"), ("number", "f4"), ("behind", "f8")])
        memory = view = records["number"]
    view[...] = values
    return layout, view, memory


def shapes(random: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of operands that can be multiplied."""
    m, k, n = (int(extent) for extent in random.choice(EXTENTS, 3))
    batch = [int(extent) for extent in random.choice([0, 1, 1, 2, 3, 4], int(random.integers(0, 4)), p=[0.05, 0.2, 0.15, 0.3, 0.2, 0.1])]

    def extents(matrix: tuple[int, int], vector: tuple[int]) -> tuple[int, ...]:
        if random.random() < 0.1:
            return vector
        own = batch[int(random.integers(0, len(batch) + 1)) :]
        return (*(1 if random.random() < 0.25 else extent for extent in own), *matrix)

    return extents((m, k), (k,)), extents((k, n), (k,))


@pytest.mark.parametrize("seed", range(20))
def test_products_of_any_operands(seed: int) -> None:
    for case in range(25):
        random = np.random.default_rng([seed, case])
        shape_a, shape_b = shapes(random)
        (layout_a, a, _), (layout_b, b, _) = (laid_out(random, shape, LAYOUTS) for shape in (shape_a, shape_b))
        what = f"seed {seed}, case {case}: {shape_a} {layout_a}, {shape_b} {layout_b}"
        expected = np.asarray(np.matmul(a.astype(np.float64), b.astype(np.float64)))
        options: dict[str, Any] = {
            "precision": str(random.choice(["fp32", "fp32-strict", "fp32-rounded", "tf32"])),
            "invariant": bool(random.integers(0, 2)),
            "on_cpu": "emulate",
        }
        made = np.asarray(tilewright.matmul(a, b, **options))
        np.testing.assert_array_equal(made, expected, what)
        layout, out, memory = laid_out(random, expected.shape, APART)
        out[...] = -99
        tilewright.matmul(a, b, out=out, **options)
        np.testing.assert_array_equal(out, expected, f"{what}, out {layout}")
        # Nothing else has been written.
        out[...] = -99
        assert (memory == -99).all(), f"{what}, out {layout}"


@pytest.mark.parametrize("seed", range(10))
def test_scaled_matrices_of_any_layout(seed: int) -> None:
    for case in range(25):
        random = np.random.default_rng([seed, case, 1])
        shape = tuple(int(extent) for extent in random.choice(EXTENTS[:9], int(random.integers(2, 6))))
        if math.prod(shape) > 50_000:
            continue
        layout, matrix, _ = laid_out(random, shape, LAYOUTS)
        rows, columns = (
            laid_out(random, (extent,), LAYOUTS)[1] if random.integers(0, 2) else None for extent in shape[-2:]
        )
        expected = 3 * matrix * (1 if rows is None else rows[:, None]) * (1 if columns is None else columns)
        _, out, memory = laid_out(random, shape, APART)
        out[...] = -99
        for given in (None, out):
            made = tilewright.scale(matrix, 3, rows=rows, columns=columns, out=given, on_cpu="emulate")
            np.testing.assert_array_equal(np.asarray(made), expected, f"seed {seed}, case {case}: {shape} {layout}")
        out[...] = -99
        assert (memory == -99).all()
