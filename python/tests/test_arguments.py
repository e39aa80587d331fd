"""What is refused, and what the messages say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tilewright


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def refused(a: Any, b: Any, function: Any = tilewright.matmul, **options: Any) -> str:
    """The message of the error that these arguments are refused with."""
    with pytest.raises(ValueError) as error:
        function(a, b, **{"on_cpu": "emulate"} | options)
    assert isinstance(error.value, tilewright.ArgumentError)
    return str(error.value)


@pytest.mark.parametrize(
    ("shape_a", "shape_b"),
    [((2, 3), (4, 5)), ((2, 3), (4,)), ((3,), (4, 5)), ((3,), (4,)), ((2, 2, 3), (5, 3, 4)), ((), (2, 2)), ((2, 2), ())],
)
def test_shapes_that_make_no_product_are_both_named(shape_a: tuple[int, ...], shape_b: tuple[int, ...]) -> None:
    message = refused(zeros(*shape_a), zeros(*shape_b))
    assert str(shape_a) in message and str(shape_b) in message
    with pytest.raises(ValueError):
        np.matmul(zeros(*shape_a), zeros(*shape_b))


def test_matvec_and_bmm_take_nothing_else() -> None:
    message = refused(zeros(2, 3), zeros(3, 1), tilewright.matvec)
    assert "(2, 3)" in message and "(3, 1)" in message and "matmul" in message
    message = refused(zeros(1, 2, 3), zeros(2, 3, 4), tilewright.bmm)
    assert "(1, 2, 3)" in message and "(2, 3, 4)" in message and "broadcasts" in message
    assert "three extents" in refused(zeros(2, 3), zeros(3, 4), tilewright.bmm)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "uint8", "bool", "complex64"])
def test_other_types_of_elements_are_named_and_never_cast(dtype: str) -> None:
    with pytest.raises(TypeError) as error:
        tilewright.matmul(zeros(2, 2), zeros(2, 2).astype(dtype), on_cpu="emulate")
    message = str(error.value)
    assert isinstance(error.value, tilewright.OperandTypeError)
    assert message.startswith("b ") and dtype.removesuffix("8").rstrip("0123456789") in message and "float32" in message


@pytest.mark.parametrize("dtype", [">f4", "O", "S4", "M8[s]", "V4", "longdouble", [("x", "f4")]])
def test_types_that_dlpack_does_not_have_are_named_too(dtype: Any) -> None:
    other = np.zeros((2, 2), dtype)
    for call in (
        lambda: tilewright.matmul(zeros(2, 2), other, on_cpu="emulate"),
        lambda: tilewright.grouped_matmul([zeros(2, 2)], [other], on_cpu="emulate"),
    ):
        with pytest.raises(tilewright.OperandTypeError) as error:
            call()
        assert f"b has elements of type {other.dtype}" in str(error.value) and "float32" in str(error.value)


@pytest.mark.parametrize("other", [[[1.0]], 1.0, None, "a", np.ndarray, tilewright.Array])
def test_what_is_no_array_is_named_by_its_type(other: Any) -> None:
    with pytest.raises(tilewright.OperandTypeError, match=type(other).__name__):
        tilewright.matmul(zeros(2, 2), other, on_cpu="emulate")


def test_the_cpu_is_used_only_if_it_is_asked_for() -> None:
    message = refused(zeros(2, 2), zeros(2, 2), on_cpu="refuse")
    assert "emulate" in message and "cuda" in message
    assert "torch" in refused(zeros(2, 2), zeros(2, 2), on_cpu="move")


def test_options_are_listed_where_one_is_unknown() -> None:
    message = refused(zeros(2, 2), zeros(2, 2), precision="fp64")
    assert "fp64" in message and "fp32-strict" in message and "tf32" in message
    message = refused(zeros(2, 2), zeros(2, 2), on_cpu="maybe")
    assert "maybe" in message and "refuse" in message and "emulate" in message


def calls(**options: Any) -> list[Any]:
    """Calls of each function with these options."""
    a = zeros(2, 2)
    options = {"on_cpu": "emulate"} | options
    return [
        lambda: tilewright.matmul(a, a, **options),
        lambda: tilewright.matvec(a, a[0], **options),
        lambda: tilewright.bmm(a[None], a[None], **options),
        lambda: tilewright.linear(a, a, **options),
        lambda: tilewright.addmm(a, a, a, **options),
        lambda: tilewright.baddbmm(a, a[None], a[None], **options),
        lambda: tilewright.explain(a, a, **options),
        lambda: tilewright.grouped_matmul([a], [a], **options),
        lambda: tilewright.scale(a, **options),
    ]


@pytest.mark.parametrize(
    ("option", "value", "functions"),
    [
        ("precision", None, 8),
        ("precision", b"fp32", 8),
        ("on_cpu", 1, 9),
        ("on_cpu", None, 9),
        ("invariant", 1, 7),
        ("invariant", None, 7),
        ("invariant", "yes", 7),
    ],
)
def test_options_of_other_types_are_named(option: str, value: Any, functions: int) -> None:
    for call in calls(**{option: value})[:functions]:
        with pytest.raises(tilewright.OperandTypeError) as error:
            call()
        assert str(error.value).startswith(f"{option} is {value!r}: pass ")


def test_a_part_that_is_no_text_is_named() -> None:
    with pytest.raises(tilewright.OperandTypeError, match="part is None: pass a string"):
        tilewright.matmul(zeros(2, 2), zeros(2, 2), part=None, on_cpu="emulate")  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert "part is '\\ud800'" in refused(zeros(2, 2), zeros(2, 2), part="\ud800")


@pytest.mark.parametrize("value", ["abc", "1e-3", [1], np.array([1e-3, 2]), 1j, object()])
@pytest.mark.parametrize("option", ["tolerance", "guarantee"])
def test_an_error_that_is_no_number_is_named(option: str, value: Any) -> None:
    for call in calls(**{option: value})[:8]:
        with pytest.raises(tilewright.OperandTypeError) as error:
            call()
        assert option in str(error.value) and repr(value) in str(error.value)


def test_numbers_that_no_float_holds_are_refused() -> None:
    a, large = zeros(2, 2), 10**5000
    for call in (
        lambda: tilewright.scale(a, large, on_cpu="emulate"),
        lambda: tilewright.scale(a, -large, on_cpu="emulate"),
        lambda: tilewright.linear(a, a, scale=large, on_cpu="emulate"),
        lambda: tilewright.linear(a, a, activation=("add", large), on_cpu="emulate"),
        lambda: tilewright.addmm(a, a, a, beta=large, on_cpu="emulate"),
        lambda: tilewright.matmul(a, a, tolerance=large, on_cpu="emulate"),
    ):
        with pytest.raises(tilewright.ArgumentError, match="beyond all of float's"):
            call()


@pytest.mark.parametrize("other", [5, None])
def test_a_group_that_is_no_list_is_named(other: Any) -> None:
    for name, a, b in (("a", other, []), ("b", [], other)):
        with pytest.raises(tilewright.OperandTypeError, match=f"{name} is of type {type(other).__name__}"):
            tilewright.grouped_matmul(a, b, on_cpu="emulate")
    with pytest.raises(tilewright.OperandTypeError, match="out is of type int"):
        tilewright.grouped_matmul([], [], out=5, on_cpu="emulate")  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_layouts_that_kernels_do_not_take_are_refused() -> None:
    message = refused(zeros(4, 4)[::-1], zeros(4, 4))
    assert "a has shape (4, 4)" in message and "-4" in message and "extent 0" in message
    # A stride along an extent of one element means nothing.
    tilewright.matmul(zeros(4, 4)[3:2:-1], zeros(4, 4), on_cpu="emulate")
    shifted = np.frombuffer(bytearray(65), np.uint8)[1:].view(np.float32).reshape(4, 4)
    assert "multiples of 4" in refused(zeros(4, 4), shifted)
    # Of a field of records that are no whole number of elements.
    packed = np.zeros((4, 4), [("number", "f4"), ("flag", "u1")])["number"]
    message = refused(packed, zeros(4, 4))
    assert message.startswith("a.__dlpack__()") and "itemsize" in message and "copy" in message


def test_results_that_cannot_be_written_to_are_refused() -> None:
    a = zeros(4, 4)
    assert "(4, 5)" in refused(a, a, out=zeros(4, 5))
    read_only = zeros(4, 4)
    read_only.setflags(write=False)
    assert "read-only" in refused(a, a, out=read_only)
    assert "overlaps a" in refused(a, zeros(4, 4), out=a)
    assert "overlaps b" in refused(zeros(4, 4), a, out=a[:, ::-1][:, ::-1])
    # Columns between others: they have no element in common, and the message does not say so.
    whole = zeros(4, 8)
    assert "with all gaps" in refused(whole[:, :4], a, out=whole[:, 4:])
    repeated = np.lib.stride_tricks.as_strided(zeros(4), (4, 4), (0, 4))
    assert "overlaps itself" in refused(a, a, out=repeated)
    with pytest.raises(TypeError, match="out"):
        tilewright.matmul(a, a, out=np.zeros((4, 4)), on_cpu="emulate")
    # Operands may be read-only.
    assert np.asarray(tilewright.matmul(read_only, read_only, on_cpu="emulate")).shape == (4, 4)


def strided(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """An array with these strides in elements, in memory of its own."""
    last = sum((extent - 1) * stride for extent, stride in zip(shape, strides))
    memory = np.full(last + 1, np.nan, np.float32)
    return np.lib.stride_tricks.as_strided(memory, shape, [4 * stride for stride in strides])


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((3, 4, 4), (8, 4, 1)),  # each matrix begins in the one before
        ((3, 4, 4), (0, 4, 1)),
        ((3, 4, 4), (16, 0, 1)),
        ((3, 4, 4), (16, 3, 1)),
        ((3, 4, 4), (3, 12, 1)),  # between the rows, with too little room
        ((2, 3, 4, 4), (16, 16, 4, 1)),
        ((2, 3, 4, 4), (33, 11, 1, 3)),
    ],
)
def test_results_that_overlap_themselves_are_refused(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    out = strided(shape, strides)
    numbers = np.ones(shape, np.float32)
    for message in (refused(numbers, numbers, out=out), refused(numbers, 2.0, tilewright.scale, out=out)):
        assert "out, of shape" in message and str(shape) in message and str(strides) in message
        assert "overlaps itself" in message and "new array" in message
    assert np.isnan(out).all()


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((3, 4, 4), (4, 12, 1)),  # between the rows
        ((3, 4, 4), (1, 12, 3)),  # between the elements
        ((3, 4, 4), (100, 5, 1)),
        ((2, 3, 4, 4), (4, 8, 24, 1)),
        ((2, 3), (3, 2)),  # rows that interleave: 0 2 4 and 3 5 7
        ((1, 4, 4), (0, 4, 1)),
        ((2, 5, 3, 4), (4, 96, 8, 1)),
    ],
)
def test_results_that_interleave_are_written(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    a = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 5
    b = np.eye(shape[-1], dtype=np.float32) + 1
    for function, other, expected in ((tilewright.matmul, b, a @ b), (tilewright.scale, 3.0, 3 * a)):
        out = strided(shape, strides)
        assert function(a, other, out=out, on_cpu="emulate") is out
        np.testing.assert_array_equal(out, expected)


def test_a_matrix_that_overlaps_itself_is_no_place_for_its_product() -> None:
    matrix = strided((3, 4, 4), (8, 4, 1))
    assert "overlaps itself" in refused(matrix, 2.0, function=tilewright.scale, out=matrix)
    # To read from, it is as good as any.
    matrix[...] = 2.0
    np.testing.assert_array_equal(np.asarray(tilewright.scale(matrix, 2.0, on_cpu="emulate")), np.full((3, 4, 4), 4.0))


def test_too_little_memory_is_answered_with_what_helps_in_python() -> None:
    column = np.broadcast_to(np.ones((1, 1), np.float32), (2_000_000, 1))
    with pytest.raises(tilewright.OutOfMemoryError) as error:
        tilewright.matmul(column, column.T, on_cpu="emulate")
    message = str(error.value)
    assert isinstance(error.value, MemoryError)
    assert "14.6 TiB are needed" in message and "elete arrays" in message and "rows of a" in message
    assert "--" not in message


def test_no_message_names_flags_of_the_command_line() -> None:
    for precision in ("fp32-ozaki", "fp32-normwise", "bf16", "fp16"):
        try:
            tilewright.matmul(zeros(200, 200), zeros(200, 200), precision=precision, on_cpu="emulate")
        except tilewright.ArgumentError as error:
            assert precision in str(error) and "--" not in str(error)


class OnGpu:
    """Says that it is on a GPU."""

    def __init__(self, **changes: Any) -> None:
        self.__cuda_array_interface__ = {
            "shape": (2, 2),
            "typestr": "<f4",
            "data": (0x1000, False),
            "version": 3,
        } | changes


def test_the_cuda_array_interface_is_checked() -> None:
    with pytest.raises(tilewright.OperandTypeError, match="<f8"):
        tilewright.matmul(OnGpu(typestr="<f8"), OnGpu())
    assert "whole elements" in refused(OnGpu(strides=(6, 4)), OnGpu())
    assert "-8" in refused(OnGpu(strides=(-32, 4)), OnGpu())
    for entry, value in (
        ("shape", 5),
        ("shape", (-1, 2)),
        ("shape", (10**30,)),
        ("data", 0),
        ("data", (-1, False)),
        ("data", (0x1000,)),
        ("strides", 5),
        ("strides", ("a", "b")),
        ("typestr", b"<f4"),
    ):
        with pytest.raises(tilewright.OperandTypeError) as error:
            tilewright.matmul(OnGpu(**{entry: value}), OnGpu())
        assert f"__cuda_array_interface__ of a has {entry}={value!r}: expected" in str(error.value)
    assert "no `shape`" in refused(OnGpu(shape=None), OnGpu())
    assert "mask" in refused(OnGpu(mask=OnGpu()), OnGpu())
    for interface, words in ((5, "is 5: expected a dict"), (None, "is of type")):
        wrong = OnGpu()
        wrong.__cuda_array_interface__ = interface
        with pytest.raises(tilewright.OperandTypeError, match=words):
            tilewright.matmul(zeros(2, 2), wrong)
    nothing = OnGpu(shape=(0, 2), data=(0, False))
    message = refused(nothing, zeros(2, 2))
    assert "a is on cuda:0" in message and "b is on the CPU" in message


def test_other_devices_of_dlpack_are_refused() -> None:
    class OnMetal:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (8, 0)

        def __dlpack__(self, **_options: Any) -> Any:
            raise AssertionError("nobody asks")

    assert "type 8" in refused(OnMetal(), zeros(2, 2))


def test_triangles_are_of_matrices() -> None:
    message = refused(zeros(3), zeros(3, 4), part="upper")
    assert "(3,)" in message and "(3, 4)" in message and "part" in message
    assert "part" in refused(zeros(2, 3), zeros(3), part="lower")
    message = refused(zeros(2, 2), zeros(2, 2), part="middle")
    assert "middle" in message and "upper" in message and "lower" in message
