"""Calls in processes that were forked, by `os.fork` or by `multiprocessing`.

Every program runs in a process of its own with a time limit: what these tests are about is that nothing waits for ever.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

#: Seconds that a program has. They take one or two.
TIME_LIMIT = 60

PREAMBLE = """
import multiprocessing, os, signal, sys, threading, time
import numpy as np, tilewright

def product(size=40):
    a = np.arange(size * size, dtype=np.float32).reshape(size, size) % 7
    # Not `a @ a.T`: a child in which OpenBLAS computes waits for ever if a thread of its parent was allocating there.
    expected = (a[:, None, :] * a).sum(axis=-1)
    assert (np.asarray(tilewright.matmul(a, a.T, on_cpu="emulate")) == expected).all()
    assert (np.asarray(tilewright.scale(a, 2.0, on_cpu="emulate")) == 2 * a).all()
    return float(a[0, 1])

def in_child(work):
    # The exit code of a child that does this.
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        work()
        os._exit(0)
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
"""


def run(program: str, **environment: str) -> str:
    """What a program prints, which is ended with all of its children if it takes too long."""
    process = subprocess.Popen(
        # Python warns of forks beside threads, which is what this is about.
        [sys.executable, "-W", "ignore", "-c", PREAMBLE + textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | environment,
    )
    try:
        output, errors = process.communicate(timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        pytest.fail(f"not finished after {TIME_LIMIT} s: {output}{errors}")
    assert process.returncode == 0, output + errors
    return output


def test_a_child_computes_after_its_parent_did() -> None:
    run(
        """
        product()
        assert in_child(product) == 0
        product()

        def twice():
            product()
            assert in_child(product) == 0  # a child of a child

        assert in_child(twice) == 0
        """
    )


def test_a_child_computes_before_its_parent_does() -> None:
    run("assert in_child(product) == 0; product(); assert in_child(product) == 0")


def test_a_pool_of_forked_processes_computes() -> None:
    run(
        """
        product()
        with multiprocessing.get_context("fork").Pool(3) as pool:
            assert pool.map(product, range(2, 12)) == [1.0] * 10
        product()
        """
    )


def test_workers_that_load_data_compute() -> None:
    """As torch's DataLoader does it: workers that get indices from one queue, and send what they make to another."""
    run(
        """
        context = multiprocessing.get_context("fork")
        product()

        def work(indices, results):
            while (index := indices.get()) is not None:
                results.put((index, product(index + 2)))

        for epoch in range(2):
            indices, results = context.Queue(), context.Queue()
            workers = [context.Process(target=work, args=(indices, results), daemon=True) for _ in range(2)]
            for worker in workers:
                worker.start()
            for index in range(8):
                indices.put(index)
            for _ in workers:
                indices.put(None)
            assert sorted(results.get() for _ in range(8)) == [(index, 1.0) for index in range(8)]
            for worker in workers:
                worker.join()
            product()
        """
    )


def test_forks_while_other_threads_are_in_calls() -> None:
    run(
        """
        stop = threading.Event()

        def compute():
            size = 2
            while not stop.is_set():
                size = size % 60 + 1 # another shape: another plan
                product(size + 2)

        threads = [threading.Thread(target=compute) for _ in range(3)]
        for thread in threads:
            thread.start()
        # The first fork may happen in the very first call of the process.
        for _ in range(30):
            assert in_child(lambda: [product(size) for size in (5, 33)]) == 0
        # From a thread that is not the first one.
        codes = []
        forker = threading.Thread(target=lambda: codes.extend(in_child(product) for _ in range(10)))
        forker.start()
        forker.join()
        stop.set()
        for thread in threads:
            thread.join()
        assert codes == [0] * 10
        """
    )


def test_forks_while_other_threads_make_what_is_made_once() -> None:
    run(
        """
        def first_calls():
            threads = [threading.Thread(target=product, args=(5,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            assert in_child(lambda: product(5)) == 0
            for thread in threads:
                thread.join()

        # This process makes nothing, so that every child of it makes all.
        sys.setswitchinterval(1e-6)
        for _ in range(60):
            assert in_child(first_calls) == 0
        """
    )


def test_arrays_of_the_parent_are_used_and_dropped_in_a_child() -> None:
    run(
        """
        import gc
        ones = np.ones((30, 30), np.float32)
        stop = threading.Event()
        def make_arrays():
            while not stop.is_set():
                tilewright.matmul(ones[:2], ones, on_cpu="emulate")
        threads = [threading.Thread(target=make_arrays) for _ in range(3)]
        for thread in threads:
            thread.start()

        def use():
            global array
            again = tilewright.matmul(array, ones, on_cpu="emulate")
            assert (np.asarray(again) == 900).all() and (np.asarray(array) == 30).all()
            del array, again
            gc.collect()

        for _ in range(30):
            array = tilewright.matmul(ones, ones, on_cpu="emulate")
            assert in_child(use) == 0
        stop.set()
        for thread in threads:
            thread.join()
        assert (np.asarray(array) == 30).all()
        """
    )


@pytest.fixture(scope="module")
def fake_driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A driver that only pretends: the one of the tests of `cuda-driver`."""
    sources = Path(__file__).parents[2] / "crates/cuda-driver/tests/driver"
    if shutil.which("rustc") is None or not sources.exists():
        pytest.skip("there is no rustc, or no source, to make a driver of that only pretends")
    directory = tmp_path_factory.mktemp("driver")
    library, facts = directory / "libfakecuda.so", directory / "libgpu_facts.rlib"
    edition = ["--edition=2024", "-Cpanic=abort"]
    # What GPUs offer, which the driver refuses more than.
    options = ["--crate-type=rlib", "--crate-name=gpu_facts", "--check-cfg=cfg(feature,values(any()))"]
    source = sources.parents[2] / "gpu-facts" / "src" / "lib.rs"
    subprocess.run(["rustc", *edition, *options, "-o", facts, source], check=True)
    options = ["--crate-type=cdylib", "--crate-name=cuda", "-Awarnings", f"--extern=gpu_facts={facts}"]
    subprocess.run(["rustc", *edition, *options, "-o", library, sources / "fake_libcuda.rs"], check=True)
    return str(library)


ON_GPU = """
class OnGpu:
    __cuda_array_interface__ = {"shape": (2, 2), "typestr": "<f4", "data": (0x1000, False), "version": 3}

def use_gpu():
    # Initializes the driver; there is nothing at this address, or no kernel in this build.
    try:
        tilewright.matmul(OnGpu(), OnGpu())
    except tilewright.Error as error:
        return error
    raise AssertionError("this was computed?")

def is_told_to_spawn():
    error = use_gpu()
    assert isinstance(error, tilewright.DeviceError), repr(error)
    for part in ("fork", "spawn", str(parent)):
        assert part in str(error), str(error)

parent = os.getpid()
"""


def test_a_child_of_a_process_that_has_used_a_gpu_is_told_what_to_do(fake_driver: str) -> None:
    run(
        ON_GPU
        + textwrap.dedent(
            """
            assert "spawn" not in str(use_gpu()), str(use_gpu())
            assert in_child(is_told_to_spawn) == 0
            # The executor needs no driver.
            assert in_child(product) == 0
            assert "spawn" not in str(use_gpu())
            """
        ),
        TILEWRIGHT_LIBCUDA=fake_driver,
    )


def test_a_child_may_be_the_first_to_use_a_gpu(fake_driver: str) -> None:
    program = """
    product()
    def first():
        assert "spawn" not in str(use_gpu())
    assert in_child(first) == 0 and in_child(first) == 0
    """
    run(ON_GPU + textwrap.dedent(program), TILEWRIGHT_LIBCUDA=fake_driver)


def test_without_a_driver_a_child_is_told_that() -> None:
    program = """
    assert "no CUDA driver" in str(use_gpu())
    def told():
        assert "no CUDA driver" in str(use_gpu())
    assert in_child(told) == 0
    """
    run(ON_GPU + textwrap.dedent(program), TILEWRIGHT_LIBCUDA="/nowhere/libcuda.so.1")
