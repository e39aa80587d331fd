"""What is believed of a DLPack capsule, and what is not. The capsules are made here, by hand."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
import tilewright

CPU, CUDA, CUDA_HOST = 1, 2, 3
READ_ONLY, IS_COPIED = 1, 2


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Given:
    """An array that offers a capsule of this kind. Without changes, it is `numbers`, (2, 2), in the CPU's memory."""

    def __init__(self, is_versioned: bool, device: Any = (CPU, 0), name: bytes | None = None, **changes: Any) -> None:
        self.numbers = np.full(8, 2.0, np.float32)
        shape = changes.pop("shape", (2, 2))
        strides = changes.pop("strides", None)
        extents = None if shape is None else (ctypes.c_int64 * max(len(shape), 1))(*shape)
        steps = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        tensor = {
            "data": self.numbers.ctypes.data,
            "device_type": CPU,
            "device_id": 0,
            "ndim": 0 if shape is None else len(shape),
            "code": 2,
            "bits": 32,
            "lanes": 1,
            "byte_offset": 0,
        }
        versions = {"major": 1, "minor": 0, "flags": 0}
        tensor |= {key: value for key, value in changes.items() if key in tensor}
        versions |= {key: value for key, value in changes.items() if key in versions}
        assert set(changes) <= set(tensor) | set(versions)
        described = DLTensor(**tensor)
        for field, values in (("shape", extents), ("strides", steps)):
            if values is not None:
                setattr(described, field, ctypes.cast(values, ctypes.POINTER(ctypes.c_int64)))
        self.managed = Versioned(tensor=described, **versions) if is_versioned else Managed(tensor=described)
        self.kept = (extents, steps)
        self.name = name or (b"dltensor_versioned" if is_versioned else b"dltensor")
        self.device = device

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, **_options: Any) -> Any:
        # The name has to live as long as the capsule: it is this object's.
        return new_capsule(ctypes.addressof(self.managed), self.name, None)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def refused(given: Any, **options: Any) -> str:
    with pytest.raises(tilewright.Error) as error:
        tilewright.matmul(given, ones(2, 2), **{"on_cpu": "emulate"} | options)
    assert isinstance(error.value, (tilewright.ArgumentError, tilewright.OperandTypeError)), repr(error.value)
    return str(error.value)


versions = pytest.mark.parametrize("is_versioned", [False, True])


@versions
def test_a_capsule_in_order_is_taken(is_versioned: bool) -> None:
    given = Given(is_versioned)
    np.testing.assert_array_equal(np.asarray(tilewright.matmul(given, ones(2, 2), on_cpu="emulate")), 4 * ones(2, 2))
    given = Given(is_versioned, strides=(1, 2), byte_offset=16)
    given.numbers[4:] = [1, 2, 3, 4]
    product = np.asarray(tilewright.matmul(given, np.eye(2, dtype=np.float32), on_cpu="emulate"))
    np.testing.assert_array_equal(product, [[1, 3], [2, 4]])
    tilewright.matmul(ones(2, 2), ones(2, 2), out=given, on_cpu="emulate")
    assert given.numbers.tolist() == [2.0] * 8


@versions
def test_the_device_of_the_capsule_is_that_which_was_named(is_versioned: bool) -> None:
    message = refused(Given(is_versioned, device_type=CUDA))
    assert "(1, 0)" in message and "(2, 0)" in message and "__dlpack_device__" in message
    message = refused(Given(is_versioned, device=(CUDA, 0)))
    assert "(1, 0)" in message and "(2, 0)" in message
    message = refused(Given(is_versioned, device=(CUDA, 1), device_type=CUDA, device_id=3))
    assert "(2, 1)" in message and "(2, 3)" in message
    assert "(3, 0)" in refused(Given(is_versioned, device_type=CUDA_HOST))
    # Also of the result, and of one without elements.
    with pytest.raises(tilewright.ArgumentError, match=r"out .*\(2, 0\)"):
        tilewright.matmul(ones(2, 2), ones(2, 2), out=Given(is_versioned, device_type=CUDA), on_cpu="emulate")
    with pytest.raises(tilewright.ArgumentError, match=r"\(2, 0\)"):
        tilewright.matmul(Given(is_versioned, device_type=CUDA, shape=(0, 2)), ones(2, 2), on_cpu="emulate")


@versions
def test_a_shape_that_is_none_is_refused(is_versioned: bool) -> None:
    assert "-1 extents" in refused(Given(is_versioned, ndim=-1))
    assert "2 extents" in refused(Given(is_versioned, shape=None, ndim=2))
    assert "-3" in refused(Given(is_versioned, shape=(2, -3)))
    # Without extents there need not be a list of them: a number.
    assert "scalar" in refused(Given(is_versioned, shape=None))


@versions
def test_elements_have_an_address(is_versioned: bool) -> None:
    assert "no address" in refused(Given(is_versioned, data=None))
    assert "no address" in refused(Given(is_versioned, data=None, byte_offset=16))
    assert "addressed" in refused(Given(is_versioned, byte_offset=2**64 - 64))
    assert "multiples of 4" in refused(Given(is_versioned, byte_offset=2))
    # Where there are no elements, there is nothing to have one.
    for offset, shape in itertools.product((0, 16), ((0, 2), (2, 0))):
        empty = Given(is_versioned, data=None, byte_offset=offset, shape=shape)
        product = tilewright.matmul(empty, ones(shape[1], 3), on_cpu="emulate")
        np.testing.assert_array_equal(np.asarray(product), np.zeros((shape[0], 3)))


@versions
def test_other_elements_are_refused(is_versioned: bool) -> None:
    assert "float32x4" in refused(Given(is_versioned, lanes=4))
    assert "float64" in refused(Given(is_versioned, bits=64))
    assert "int32" in refused(Given(is_versioned, code=0))
    assert "lanes" in refused(Given(is_versioned, code=77))


@versions
def test_a_capsule_that_was_taken_before_is_refused(is_versioned: bool) -> None:
    used = b"used_dltensor_versioned" if is_versioned else b"used_dltensor"
    message = refused(Given(is_versioned, name=used))
    assert "taken over" in message and used.decode() in message
    assert "whatever" in refused(Given(is_versioned, name=b"whatever"))


def test_what_is_no_capsule_is_refused() -> None:
    class Wrong(Given):
        def __dlpack__(self, **_options: Any) -> Any:
            return 5

    message = refused(Wrong(False))
    assert "int" in message and "__dlpack__" in message and message.startswith("a.")


@pytest.mark.parametrize("device", [None, (CPU,), (CPU, 0, 0), [CPU, 0], (1.0, 0), (10**20, 0), "ab"])
def test_what_is_no_device_is_refused(device: Any) -> None:
    with pytest.raises(tilewright.OperandTypeError) as error:
        tilewright.matmul(ones(2, 2), Given(True, device=device), on_cpu="emulate")
    assert f"b.__dlpack_device__() has returned {device!r}" in str(error.value)


def test_what_is_not_handed_over_is_said_with_the_reason() -> None:
    class Refusing(Given):
        def __dlpack__(self, **_options: Any) -> Any:
            raise BufferError("it is elsewhere")

    message = refused(Refusing(True))
    assert message.startswith("a.__dlpack__()") and "it is elsewhere" in message

    class Failing(Given):
        def __dlpack__(self, **_options: Any) -> Any:
            raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"):
        tilewright.matmul(Failing(True), ones(2, 2), on_cpu="emulate")


def test_another_version_is_refused() -> None:
    assert "DLPack 2" in refused(Given(True, major=2))
    # What a minor version adds changes nothing.
    tilewright.matmul(Given(True, minor=9), ones(2, 2), on_cpu="emulate")


def test_results_have_to_be_the_callers_memory_and_writable() -> None:
    for flags, part in ((READ_ONLY, "read-only"), (IS_COPIED, "copy"), (READ_ONLY | IS_COPIED, "read-only")):
        given = Given(True, flags=flags)
        with pytest.raises(tilewright.ArgumentError, match=f"out .*{part}"):
            tilewright.matmul(ones(2, 2), ones(2, 2), out=given, on_cpu="emulate")
        assert given.numbers.tolist() == [2.0] * 8
        # As operands they are as good as any.
        tilewright.matmul(given, ones(2, 2), on_cpu="emulate")


class Kept:
    """Hands over the same capsule each time, as none may."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack_device__(self) -> Any:
        return (CPU, 0)

    def __dlpack__(self, **_options: Any) -> Any:
        return self.capsule


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_nobody_else_can_take_a_tensor_that_is_read(version: Any) -> None:
    numbers = np.full((2, 2), 3.0, np.float32)
    before = sys.getrefcount(numbers)
    kept = Kept(numbers.__dlpack__(max_version=version))

    class Thief:
        """Takes the first operand's tensor over, and deletes it, after that has been read."""

        stolen = False

        def __dlpack_device__(self) -> Any:
            return (CPU, 0)

        def __dlpack__(self, **options: Any) -> Any:
            try:
                np.from_dlpack(kept)
                self.stolen = True
            except ValueError:
                pass
            return ones(2, 2).__dlpack__(**options)

    thief = Thief()
    product = tilewright.matmul(kept, thief, on_cpu="emulate")
    assert not thief.stolen
    np.testing.assert_array_equal(np.asarray(product), 6 * ones(2, 2))
    # It was deleted after the call.
    assert sys.getrefcount(numbers) == before
    assert "new capsule each time" in refused(kept)
    # A tensor that is refused stays with its capsule.
    kept = Kept(np.ones((2, 3), np.float64).__dlpack__(max_version=version))
    refused(kept)
    np.testing.assert_array_equal(np.from_dlpack(kept), np.ones((2, 3)))


@versions
def test_each_tensor_is_deleted_once(is_versioned: bool) -> None:
    deleted: list[int] = []
    deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleted.append)

    class Deletable(Given):
        def __init__(self, **changes: Any) -> None:
            super().__init__(is_versioned, **changes)
            self.managed.deleter = ctypes.cast(deleter, ctypes.c_void_p)

    a, b, out = Deletable(), Deletable(), Deletable()
    addresses = sorted(ctypes.addressof(given.managed) for given in (a, b, out))
    tilewright.matmul(a, b, out=out, on_cpu="emulate")
    assert sorted(deleted) == addresses
    # Also where something is wrong with another one.
    deleted.clear()
    refused(a, out=Deletable(shape=(3, 3)))
    assert len(deleted) == 2
    deleted.clear()
    # Whoever makes the capsule deletes what nobody takes.
    refused(Deletable(bits=64))
    assert not deleted


def test_arrays_that_ask_for_one_another_without_end_are_refused() -> None:
    program = """
        import sys
        import numpy as np
        import tilewright

        # The stack ends before this.
        sys.setrecursionlimit(1_000_000)

        class Nested:
            def __init__(self, depth):
                self.depth = depth

            def __dlpack_device__(self):
                return (1, 0)

            def __dlpack__(self, **options):
                if self.depth == 0:
                    return np.ones((2, 2), np.float32).__dlpack__(**options)
                return product(self.depth - 1).__dlpack__(**options)

        def product(depth):
            return tilewright.matmul(Nested(depth), np.ones((2, 2), np.float32), on_cpu="emulate")

        assert (np.asarray(product(20)) == 2.0**21).all()
        for _ in range(3):
            try:
                product(-1)
            except tilewright.ArgumentError as error:
                print(error)
        assert (np.asarray(product(0)) == 2.0).all()
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, f"{result.returncode} {result.stderr}"
    assert result.stdout.count("a is asked for its memory within 64 other arrays") == 3
