"""The package as it is installed: what is in it, and that it can be imported anywhere."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import typing
from pathlib import Path

import pytest
import tilewright

FILES = importlib.metadata.files("tilewright") or []


def test_the_wheel_has_everything_and_nothing_else() -> None:
    names = {str(file) for file in FILES if "__pycache__" not in str(file)}
    package = {name for name in names if name.startswith("tilewright/")}
    assert package == {
        "tilewright/__init__.py",
        "tilewright/_calls.py",
        "tilewright/_errors.py",
        "tilewright/_fused.py",
        "tilewright/_linear.py",
        "tilewright/_native.abi3.so",
        "tilewright/_native.pyi",
        "tilewright/_packed.py",
        "tilewright/_scale.py",
        "tilewright/_sharding.py",
        "tilewright/_stats.py",
        "tilewright/_steps.py",
        "tilewright/_switch.py",
        "tilewright/_torch.py",
        "tilewright/_types.py",
        "tilewright/nn.py",
        "tilewright/py.typed",
    }
    metadata = f"tilewright-{tilewright.__version__}.dist-info/"
    assert all(name.startswith(metadata) for name in names - package), names - package
    assert {f"{metadata}licenses/LICENSE-APACHE", f"{metadata}licenses/LICENSE-MIT"} <= names


def test_the_kernels_are_in_the_native_module() -> None:
    (file,) = [file for file in FILES if file.name == "_native.abi3.so"]
    native = Path(str(file.locate())).read_bytes()
    assert b".target sm_80" in native and b".target sm_90a" in native, "the wheel was built without PTX"


def test_importing_it_loads_no_driver() -> None:
    program = "import tilewright; assert 'libcuda' not in open('/proc/self/maps', encoding='utf-8').read()"
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


def test_the_version_is_that_of_the_metadata() -> None:
    assert tilewright.__version__ == importlib.metadata.version("tilewright")


def test_the_types_name_all_precisions() -> None:
    from tilewright import _native

    assert set(typing.get_args(tilewright.Precision)) == set(_native.precisions())


def test_it_is_imported_without_any_other_library() -> None:
    program = """
import sys
for absent in ("torch", "numpy", "cupy", "jax", "typing_extensions"):
    sys.modules[absent] = None
import tilewright
assert tilewright.matmul.__doc__
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_interpreter_without_the_native_half_is_told_which_have_one() -> None:
    program = """
import sys
sys.modules["tilewright._native"] = None
import tilewright
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "CPython 3.10 or newer, not for free-threaded builds" in result.stderr, result.stderr


def test_the_wheel_is_for_every_python_that_has_the_stable_interface() -> None:
    (file,) = [file for file in FILES if file.name == "WHEEL"]
    (tag,) = [line for line in Path(str(file.locate())).read_text().splitlines() if line.startswith("Tag: ")]
    assert tag.startswith("Tag: cp310-abi3-manylinux_2_"), tag


def test_torch_is_not_imported_unless_it_is_in_use() -> None:
    program = "import sys, tilewright; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_second_interpreter_of_a_process_is_refused() -> None:
    program = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import tilewright
other = interpreters.create()
interpreters.run_string(other, "try:\\n import tilewright\\nexcept ImportError: print('refused', flush=True)")
interpreters.destroy(other)
try:
    tilewright.matmul(5, 5)
except tilewright.OperandTypeError:
    print("in order")
"""
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False)
    assert result.stdout.split("\n") == ["refused", "in order", ""], result.stdout + result.stderr


def test_arrays_are_multiplied_while_another_thread_imports_torch() -> None:
    # Until that is done, a module is there that lacks most of its parts.
    program = """
import sys, types
import numpy, tilewright
sys.modules["torch"] = types.ModuleType("torch")
one = numpy.ones((1, 1), numpy.float32)
for product in (
    tilewright.matmul(one, one, on_cpu="emulate"),
    tilewright.linear(one, one, on_cpu="emulate"),
    tilewright.scale(one, on_cpu="emulate"),
    *tilewright.grouped_matmul([one], [one], on_cpu="emulate"),
):
    assert numpy.asarray(product)[0, 0] == 1
tilewright.explain(one, one, on_cpu="emulate")
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


def test_what_imports_torch_is_there_when_it_is_asked_for() -> None:
    program = """
import sys, tilewright
assert "tilewright.nn" not in sys.modules and not hasattr(tilewright, "nothing")
try:
    tilewright.PackedMatrix([[1.0]])
except tilewright.OperandTypeError:
    pass
if __import__("importlib").util.find_spec("torch"):
    assert tilewright.nn.Linear.__module__ == "tilewright.nn" and tilewright.convert is tilewright.nn.convert
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", "import importlib.util\n" + program], check=True)


def test_an_asterisk_asks_for_what_is_there() -> None:
    for absent in ("", "import sys; sys.modules['torch'] = None; "):
        program = absent + "from tilewright import *; assert matmul and scale and PackedMatrix"
        subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


def test_exceptions_are_also_those_of_python() -> None:
    for ours, theirs in [
        (tilewright.ArgumentError, ValueError),
        (tilewright.OperandTypeError, TypeError),
        (tilewright.OutOfMemoryError, MemoryError),
        (tilewright.DeviceError, RuntimeError),
    ]:
        assert issubclass(ours, tilewright.Error) and issubclass(ours, theirs)


def test_without_a_gpu_the_error_says_so() -> None:
    class OnGpu:
        __cuda_array_interface__ = {"shape": (2, 2), "typestr": "<f4", "data": (0x1000, False), "version": 3}

    program = "import ctypes; ctypes.CDLL('libcuda.so.1')"
    if subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0:
        pytest.skip("there is a driver here")
    with pytest.raises(tilewright.DeviceError, match="no CUDA driver"):
        tilewright.matmul(OnGpu(), OnGpu())
