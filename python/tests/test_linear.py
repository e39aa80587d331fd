"""`linear`, `addmm` and `baddbmm` of arrays, on the CPU executor, against float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tilewright
from conftest import TOLERANCES

EMULATE: Any = {"on_cpu": "emulate"}
#: The rounding of a float32.
UNIT = 2.0**-24

erf = np.vectorize(math.erf, otypes=[float])


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


#: Each activation, what it is, and its steepest slope.
ACTIVATIONS: list[tuple[Any, Callable[[Any], Any], float]] = [
    ("relu", lambda x: np.maximum(x, 0), 1),
    ("leaky_relu", lambda x: np.where(x < 0, 0.01 * x, x), 1),
    (("leaky_relu", 0.5), lambda x: np.where(x < 0, 0.5 * x, x), 1),
    ("sigmoid", sigmoid, 0.25),
    ("silu", lambda x: x * sigmoid(x), 1.1),
    ("tanh", np.tanh, 1),
    ("gelu", lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))), 1.13),
    (("gelu", "none"), lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))), 1.13),
    (("gelu", "tanh"), gelu_tanh, 1.13),
    ("mish", lambda x: x * np.tanh(np.log1p(np.exp(x))), 1.09),
    ("hardtanh", lambda x: np.clip(x, -1, 1), 1),
    (("hardtanh", -0.5, 2), lambda x: np.clip(x, -0.5, 2), 1),
    (("clamp", None, 0.25), lambda x: np.minimum(x, 0.25), 1),
    (("clamp", -0.25), lambda x: np.maximum(x, -0.25), 1),
    (("mul", -3), lambda x: -3 * x, 3),
    (("add", 0.75, 2), lambda x: x + 1.5, 1),
]


def wide(array: Any) -> np.ndarray:
    return np.asarray(array).astype(np.float64)


class Judged:
    """A value in float64, and how far from it a float32 may be."""

    def __init__(self, a: Any, b: Any, alpha: float = 1.0, tolerance: float = TOLERANCES["fp32"]) -> None:
        a, b = wide(a), wide(b)
        self.value = alpha * np.matmul(a, b)
        self.bound = abs(alpha) * tolerance * np.matmul(np.abs(a), np.abs(b))
        self._rounded()

    def _rounded(self) -> None:
        self.bound = self.bound + 2 * UNIT * np.abs(self.value) + 2.0**-140

    def add(self, operand: Any, factor: float = 1.0) -> Judged:
        self.value = self.value + factor * wide(operand)
        self._rounded()
        return self

    def multiply(self, operand: Any) -> Judged:
        self.value, self.bound = self.value * wide(operand), self.bound * np.abs(wide(operand))
        self._rounded()
        return self

    def apply(self, function: Callable[[Any], Any], slope: float) -> Judged:
        before = np.abs(self.value)
        self.value, self.bound = function(self.value), self.bound * slope
        # What `blocks::epilogue::Activation` promises, where t of gelu by tanh is at most 1.6·x + 0.071·x³.
        self.bound = self.bound + np.abs(self.value) * (4e-7 + 2.5e-7 * (1.6 * before + 0.1 * before**3))
        self._rounded()
        return self

    def check(self, found: Any) -> None:
        found = np.asarray(found)
        assert found.dtype == np.float32 and found.shape == self.value.shape
        assert np.isfinite(found).all()
        excess = np.abs(wide(found) - self.value) - self.bound
        assert (excess <= 0).all(), float(excess.max())


def normal(random: np.random.Generator, *shape: int) -> Any:
    return random.standard_normal(shape, dtype=np.float32)


def linear(*arguments: Any, **options: Any) -> np.ndarray:
    return np.asarray(tilewright.linear(*arguments, **EMULATE, **options))


@pytest.mark.parametrize(("activation", "function", "slope"), ACTIVATIONS, ids=lambda value: str(value))
def test_every_activation_is_what_its_name_says(
    random: np.random.Generator, activation: Any, function: Any, slope: float
) -> None:
    x, w, bias, residual = (normal(random, *shape) for shape in ((37, 19), (23, 19), (23,), (37, 23)))
    expected = Judged(x, w.T, 0.5).add(bias).apply(function, slope)
    expected.check(linear(x, w, bias, activation, scale=0.5))
    expected.add(residual).check(linear(x, w, bias, activation, residual, 0.5))


def test_a_wrong_activation_is_noticed(random: np.random.Generator) -> None:
    x, w, bias = (normal(random, *shape) for shape in ((9, 19), (23, 19), (23,)))
    (_, gelu, slope), (other, *_) = ACTIVATIONS[6], ACTIVATIONS[8]
    with pytest.raises(AssertionError):
        Judged(x, w.T).add(bias).apply(gelu, slope).check(linear(x, w, bias, other))
    with pytest.raises(AssertionError):
        Judged(x, w.T).add(bias).check(linear(x, w, bias * np.float32(1 + 1e-5)))


SHAPES = [
    ((5,), (3, 5)),
    ((5,), (5,)),
    ((7, 5), (5,)),
    ((1, 1), (1, 1)),
    ((129, 33), (65, 33)),
    ((3, 7, 5), (4, 5)),
    ((2, 3, 7, 5), (4, 5)),
    ((2, 1, 3, 1, 5), (4, 5)),
    ((0, 5), (3, 5)),
    ((2, 0, 5), (3, 5)),
    ((4, 5), (0, 5)),
]


@pytest.mark.parametrize(("shape_x", "shape_w"), SHAPES)
def test_shapes_are_those_of_torch(random: np.random.Generator, shape_x: Any, shape_w: Any) -> None:
    x, w = normal(random, *shape_x), normal(random, *shape_w)
    shape = (*shape_x[:-1], *shape_w[:-1])
    relu = ACTIVATIONS[0]
    # Whatever can be broadcast to the result: its own shape, parts of it, extents of one.
    others = [shape[place:] for place in range(len(shape) + 1)]
    others += [tuple(1 if place == one else extent for place, extent in enumerate(shape)) for one in range(len(shape))]
    for other in others:
        bias, residual = normal(random, *other), normal(random, *others[0])
        found = linear(x, w, bias, ["relu", ("mul", bias)], residual)
        Judged(x, w.T).add(bias).apply(relu[1], relu[2]).multiply(bias).add(residual).check(found)


def views(array: np.ndarray) -> list[np.ndarray]:
    """The same numbers, in other places of memory."""
    *batch, rows, columns = array.shape
    apart = np.zeros((*batch, 2 * rows, 3 * columns), np.float32)[..., 1::2, 1::3]
    apart[...] = array
    return [array, np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2), apart]


def test_layouts_are_read_in_place(random: np.random.Generator) -> None:
    x, w, residual = normal(random, 3, 6, 10), normal(random, 5, 10), normal(random, 3, 6, 5)
    expected = Judged(x, w.T).apply(np.tanh, 1).add(residual)
    for of_x in [*views(x), np.ascontiguousarray(x.transpose(1, 0, 2)).transpose(1, 0, 2)]:
        for of_w in views(w):
            for of_residual in [*views(residual), np.ascontiguousarray(residual.transpose(2, 0, 1)).transpose(1, 2, 0)]:
                expected.check(linear(of_x, of_w, None, "tanh", of_residual))
    # Extents with a stride of zero.
    one = np.broadcast_to(normal(random, 1, 5), (6, 5))
    Judged(x, w.T).add(one).check(linear(x, w, one))


def test_batches_and_what_is_added_to_them(random: np.random.Generator) -> None:
    batch1, batch2 = normal(random, 4, 6, 7), normal(random, 4, 7, 5)
    for shape in ((4, 6, 5), (1, 6, 5), (6, 5), (4, 1, 5), (4, 6, 1), (5,), (1,), (4, 1, 1)):
        input = normal(random, *shape)
        found = tilewright.baddbmm(input, batch1, batch2, beta=0.5, alpha=-2.0, activation="sigmoid", residual=input, **EMULATE)
        Judged(batch1, batch2, -2.0).add(input, 0.5).apply(sigmoid, 0.25).add(input).check(found)
    for view in (*views(batch1), np.broadcast_to(batch1[:1], batch1.shape)):
        found = tilewright.baddbmm(batch1[..., :5], view, batch2, **EMULATE)
        Judged(view, batch2).add(batch1[..., :5]).check(found)


def test_a_result_between_others_in_memory_is_computed_part_by_part(random: np.random.Generator) -> None:
    batch1, batch2, input = normal(random, 4, 6, 7), normal(random, 4, 7, 5), normal(random, 4, 6, 5)
    out = np.zeros((6, 4, 5), np.float32).transpose(1, 0, 2)
    assert tilewright.baddbmm(input, batch1, batch2, activation="tanh", out=out, **EMULATE) is out
    Judged(batch1, batch2).add(input).apply(np.tanh, 1).check(out)


def test_addmm_is_that_of_torch(random: np.random.Generator) -> None:
    mat1, mat2 = normal(random, 17, 40), normal(random, 40, 9)
    for shape in ((17, 9), (9,), (17, 1), (1, 9), ()):
        input = normal(random, *shape)
        found = tilewright.addmm(input, mat1, mat2, beta=-1.5, alpha=0.25, activation=("gelu", "tanh"), **EMULATE)
        Judged(mat1, mat2, 0.25).add(input, -1.5).apply(gelu_tanh, 1.13).check(found)


def test_steps_are_done_in_their_order() -> None:
    x, w = np.array([[1.0, -2.0]], np.float32), np.array([[3.0, 1.0], [1.0, 4.0]], np.float32)
    bias, factor = np.array([1.0, 2.0], np.float32), np.array([[2.0, 0.5]], np.float32)
    # The product is [1, -7]; times 2, plus the bias: [3, -12].
    assert linear(x, w, bias, scale=2).tolist() == [[3.0, -12.0]]
    assert linear(x, w, bias, [("add", 1), "relu", ("mul", 2)], scale=2).tolist() == [[8.0, 0.0]]
    assert linear(x, w, bias, ["relu", ("add", 1), ("mul", 2)], scale=2).tolist() == [[8.0, 2.0]]
    assert linear(x, w, bias, [("mul", factor), ("add", factor, -3)], scale=2).tolist() == [[0.0, -7.5]]
    assert linear(x, w, bias, "relu", factor, 2).tolist() == [[5.0, 0.5]]
    # As many as there can be: eight, three of them with tensors.
    eight: Any = [("mul", factor), "relu", "relu", "relu", "relu", "relu"]
    assert linear(x, w, bias, eight, factor, 2).tolist() == [[8.0, 0.5]]


def test_what_is_multiplied_by_zero_is_not_read() -> None:
    nan, one = np.full((3, 3), np.nan, np.float32), np.ones((3, 3), np.float32)
    assert (np.asarray(tilewright.addmm(nan, one, one, beta=0, **EMULATE)) == 3).all()
    assert (np.asarray(tilewright.addmm(nan, one, one, beta=0, activation=("add", 1), **EMULATE)) == 4).all()
    assert (np.asarray(tilewright.addmm(one, nan, nan, alpha=0, beta=2, **EMULATE)) == 2).all()
    assert (np.asarray(tilewright.addmm(one, nan, nan, alpha=0, beta=0, **EMULATE)) == 0).all()
    with pytest.raises(ValueError, match="input has shape"):
        tilewright.addmm(nan[:2], one, one, beta=0, **EMULATE)


def test_without_terms_there_is_what_follows() -> None:
    x, w, bias = np.ones((3, 0), np.float32), np.ones((2, 0), np.float32), np.array([-1.0, 2.0], np.float32)
    assert linear(x, w).tolist() == [[0.0, 0.0]] * 3
    assert linear(x, w, bias, "relu", scale=7).tolist() == [[0.0, 2.0]] * 3


def test_special_values_stay_what_they_are() -> None:
    inf, nan = math.inf, math.nan
    x = np.array([[nan], [inf], [-inf], [3e38], [-3e38], [0.0]], np.float32)
    w = np.ones((1, 1), np.float32)

    def of(activation: Any, **options: Any) -> list[float]:
        return [float(value) for value in linear(x, w, activation=activation, precision="fp32-strict", **options)[:, 0]]

    big = float(np.float32(3e38))
    for activation, expected in (
        (None, [nan, inf, -inf, big, -big, 0.0]),
        ("relu", [nan, inf, 0.0, big, 0.0, 0.0]),
        ("sigmoid", [nan, 1.0, 0.0, 1.0, 0.0, 0.5]),
        ("tanh", [nan, 1.0, -1.0, 1.0, -1.0, 0.0]),
        ("silu", [nan, inf, nan, big, -0.0, 0.0]),
        # (Below, its limit, where torch has -inf times 0.)
        ("gelu", [nan, inf, 0.0, big, 0.0, 0.0]),
        ("hardtanh", [nan, 1.0, -1.0, 1.0, -1.0, 0.0]),
        (("mul", 2.0), [nan, inf, -inf, inf, -inf, 0.0]),
        (("add", inf), [nan, inf, nan, inf, inf, inf]),
    ):
        np.testing.assert_equal(of(activation), expected, err_msg=str(activation))
    np.testing.assert_equal(of(None, scale=2.0), [nan, inf, -inf, inf, -inf, 0.0])
    np.testing.assert_equal(of(None, bias=np.array([nan], np.float32)), [nan] * 6)


@pytest.mark.parametrize("precision", ["fp32-strict", "fp32-rounded", "tf32"])
def test_precisions_are_those_of_products(random: np.random.Generator, precision: Any) -> None:
    x, w, bias = normal(random, 33, 40), normal(random, 21, 40), normal(random, 21)
    found = linear(x, w, bias, "silu", precision=precision)
    silu = ACTIVATIONS[4]
    Judged(x, w.T, tolerance=TOLERANCES[precision]).add(bias).apply(silu[1], silu[2]).check(found)
    with pytest.raises(ValueError, match="name one"):
        linear(x, w, precision=precision, tolerance=1e-6)


def test_rows_can_be_invariant(random: np.random.Generator) -> None:
    x, w, bias = normal(random, 70, 50), normal(random, 30, 50), normal(random, 30)
    whole = linear(x, w, bias, "gelu", invariant=True)
    assert (linear(x[41:42], w, bias, "gelu", invariant=True) == whole[41]).all()


def test_a_result_is_written_where_it_is_asked_for(random: np.random.Generator) -> None:
    x, w, bias = normal(random, 7, 11), normal(random, 5, 11), normal(random, 5)
    for out in (np.zeros((7, 5), np.float32), np.zeros((5, 7), np.float32).T, np.zeros((14, 10), np.float32)[::2, ::2]):
        assert tilewright.linear(x, w, bias, "tanh", out=out, **EMULATE) is out
        Judged(x, w.T).add(bias).apply(np.tanh, 1).check(out)


def message_of(kind: Any, function: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(kind) as error:
        function(*arguments, **(EMULATE | options))
    return str(error.value)


def test_wrong_arguments_are_named(random: np.random.Generator) -> None:
    x, w, bias = normal(random, 4, 5), normal(random, 3, 5), normal(random, 3)
    of: Any = tilewright.linear
    assert "on_cpu" in message_of(ValueError, of, x, w, bias, on_cpu="refuse")
    text = message_of(ValueError, of, x, w.T)
    assert "linear" in text and "x has shape (4, 5)" in text and "w has shape (5, 3)" in text
    assert "w has to be a matrix" in message_of(ValueError, of, x, w[None])
    assert "bias has shape (4,)" in message_of(ValueError, of, x, w, bias=x[:, 0])
    # It would make the result larger.
    assert "residual has shape (2, 4, 3)" in message_of(ValueError, of, x, w, residual=normal(random, 2, 4, 3))
    assert "operand_of_mul has shape (5,)" in message_of(ValueError, of, x, w, activation=("mul", x[0]))
    assert "bias has elements of type" in message_of(TypeError, of, x, w, bias=bias.astype(np.float64))
    assert "x has elements of type" in message_of(TypeError, of, x.astype(np.float16), w)
    assert "list" in message_of(TypeError, of, x, w, bias=[1.0, 2.0, 3.0])
    out = np.zeros((4, 3), np.float32)
    assert "out overlaps residual" in message_of(ValueError, of, x, w, residual=out, out=out)
    assert "out has shape (3, 4)" in message_of(ValueError, of, x, w, out=out.T)
    assert "mat1 has shape" in message_of(ValueError, tilewright.addmm, bias, x[0], w)
    assert "scale is given" in message_of(TypeError, of, x, w, scale=bias[:1])
    assert "beta is given" in message_of(TypeError, tilewright.addmm, out, x, w.T, beta="half")
    assert "alpha is given" in message_of(TypeError, tilewright.addmm, out, x, w.T, alpha=None)
    assert "batch2 has shape" in message_of(ValueError, tilewright.baddbmm, bias, x[None], w.T[None].repeat(2, 0))
    assert "overlaps input" in message_of(ValueError, tilewright.addmm, out, x, w.T, out=out)


def test_wrong_activations_are_named(random: np.random.Generator) -> None:
    x, w = normal(random, 4, 5), normal(random, 3, 5)

    def of(kind: Any, activation: Any, **options: Any) -> str:
        return message_of(kind, tilewright.linear, x, w, activation=activation, **options)

    assert "'swish'" in of(ValueError, "swish") and "silu" in of(ValueError, "swish")
    assert "3.0" in of(ValueError, 3.0)
    assert "()" in of(ValueError, ())
    assert "relu takes 0 numbers" in of(ValueError, ("relu", 1.0))
    assert "hardtanh takes 2 numbers" in of(ValueError, ("hardtanh", 1, 2, 3))
    assert "leaky_relu" in of(TypeError, ("leaky_relu", "steep"))
    for bounds in (("hardtanh", 2, -2), ("clamp", math.nan), ("clamp", None, math.nan), ("hardtanh", math.nan, 1)):
        assert f"{bounds[0]} has the bounds" in of(ValueError, bounds)
    # As torch's, all of it is the larger bound then.
    assert (linear(x, w, activation=("clamp", 2, -2)) == -2).all()
    assert "gelu" in of(ValueError, ("gelu", x))
    assert "gelu" in of(ValueError, ("gelu", "sigmoid")) and "gelu" in of(ValueError, ("gelu", "none", 1))
    assert "mul is given 0" in of(ValueError, ("mul",)) and "add is given 3" in of(ValueError, ("add", 1, 2, 3))
    assert "add" in of(TypeError, ("add", 1.0, x))
    assert "9 steps" in of(ValueError, ["relu"] * 9) or "at most 8" in of(ValueError, ["relu"] * 9)
    one = np.ones((1,), np.float32)
    text = of(ValueError, [("mul", one), ("add", one), ("mul", one)], residual=one)
    assert "4 tensors" in text and "residual" in text
