"""`tilewright.Array`, and how other libraries take it."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tilewright


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


@pytest.fixture
def array() -> tilewright.Array:
    """(3, 2), all 5."""
    return tilewright.matmul(ones(3, 5), ones(5, 2), on_cpu="emulate")


def test_it_says_what_it_is(array: tilewright.Array) -> None:
    assert (array.shape, array.dtype, array.device) == ((3, 2), "float32", "cpu")
    assert repr(array) == "tilewright.Array(shape=(3, 2), dtype=float32, device=cpu)"
    assert array.__dlpack_device__() == (1, 0)


def test_numpy_takes_it_without_copying(array: tilewright.Array) -> None:
    first, second = np.from_dlpack(array), np.asarray(array)
    assert first.ctypes.data == second.ctypes.data == array.__array_interface__["data"][0]
    second[0, 0] = 7.0
    assert first[0, 0] == 7.0 and first.shape == (3, 2) and first[2, 1] == 5.0


def test_its_memory_lives_as_long_as_it_is_used() -> None:
    taken = [np.from_dlpack(tilewright.matmul(ones(64, 3), ones(3, 64), on_cpu="emulate")) for _ in range(20)]
    gc.collect()
    assert all((array == 3.0).all() for array in taken)


def test_capsules_that_nobody_takes_are_freed(array: tilewright.Array) -> None:
    for max_version in (None, (0, 8), (1, 0), (1, 3)):
        for _ in range(100):
            array.__dlpack__(max_version=max_version)
    assert '"dltensor_versioned"' in repr(array.__dlpack__(max_version=(1, 0)))
    assert '"dltensor"' in repr(array.__dlpack__())


def test_what_it_cannot_do_is_a_buffer_error(array: tilewright.Array) -> None:
    with pytest.raises(BufferError, match="copies"):
        array.__dlpack__(copy=True)
    with pytest.raises(BufferError, match=r"\(1, 0\).*\(2, 0\)"):
        array.__dlpack__(dl_device=(2, 0))
    assert not hasattr(array, "__cuda_array_interface__")


def test_it_is_an_operand_like_any_other(array: tilewright.Array) -> None:
    again = tilewright.matmul(array, ones(2, 4), on_cpu="emulate")
    assert (np.asarray(again) == 10.0).all()
    assert tilewright.matmul(ones(3, 1), ones(1, 2), out=array, on_cpu="emulate") is array
    assert (np.asarray(array) == 1.0).all()


def test_many_threads_at_once() -> None:
    failures: list[Any] = []

    def multiply(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(20):
            m, n, k = random.integers(1, 20, 3)
            a, b = (random.integers(-4, 5, shape).astype(np.float32) for shape in [(m, k), (k, n)])
            if not (np.asarray(tilewright.matmul(a, b, on_cpu="emulate")) == a @ b).all():
                failures.append((m, n, k))

    with ThreadPoolExecutor() as threads:
        list(threads.map(multiply, range(4)))
    assert not failures
