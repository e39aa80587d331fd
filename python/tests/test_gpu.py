"""On a GPU, against the package as it is installed: numbers, order on streams, graphs, threads.

    python -m pytest -q test_gpu.py

`TILEWRIGHT_STRESS_SECONDS` says for how long many threads and streams multiply at once: 5 seconds unless it is set.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import tilewright

torch = pytest.importorskip("torch", reason="torch is not installed here")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here that torch can use")

PRECISIONS = ("fp32", "fp32-strict", "fp32-rounded", "fp32-ozaki", "fp32-normwise", "tf32", "bf16", "fp16")
STRESS_SECONDS = float(os.environ.get("TILEWRIGHT_STRESS_SECONDS", "5"))


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    torch.manual_seed(20261121)
    before = torch.cuda.current_device()
    yield
    # A kernel that has failed is noticed here, in the test that launched it.
    torch.cuda.synchronize()
    assert torch.cuda.current_device() == before


def uniform(*shape: int) -> Any:
    return torch.rand(shape, device="cuda") * 2 - 1


def tolerance(precision: str, terms: int) -> float:
    """How large an error of an element may be, as a part of the sum of the magnitudes of its terms."""
    sums = 4 * math.sqrt(max(terms, 1)) * 2.0**-24
    if precision == "fp32-rounded":
        return 2.0**-24 * (1 + 1e-6)
    rounded = {"tf32": 2.0**-10, "fp16": 2.0**-10, "bf16": 2.0**-7}
    if precision in rounded:
        return sums + rounded[precision] * (1 + rounded[precision])
    return sums if precision == "fp32-strict" else max(sums, 1e-6)


def check(c: Any, a: Any, b: Any, precision: str = "fp32") -> None:
    """Compares every element with the product in float64."""
    expected = torch.matmul(a.double(), b.double())
    magnitudes = torch.matmul(a.double().abs(), b.double().abs())
    assert c.shape == expected.shape and c.dtype == torch.float32 and c.device == a.device
    error = ((c.double() - expected).abs() / magnitudes.clamp_min(1e-30)).max().item() if c.numel() else 0.0
    assert error <= tolerance(precision, a.shape[-1]), f"{error:.2e}"


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(64, 64, 64), (1, 1, 1), (127, 129, 131), (256, 512, 3000), (1000, 1, 1000), (1, 1000, 1000), (513, 257, 0), (2048, 1024, 2048)],
)
@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)])
def test_numbers(precision: Any, m: int, n: int, k: int, transposed: tuple[bool, bool]) -> None:
    a = uniform(k, m).mT if transposed[0] else uniform(m, k)
    b = uniform(n, k).mT if transposed[1] else uniform(k, n)
    try:
        c = tilewright.matmul(a, b, precision=precision)
    except tilewright.ArgumentError as error:
        # No precision is ever taken in place of another, so some are not to be had on every GPU.
        assert "no kernel computes" in str(error) and precision not in ("fp32", "fp32-strict")
        pytest.skip(str(error).splitlines()[0])
    check(c, a, b, precision)


def views(m: int, k: int) -> dict[str, Any]:
    return {
        "padded": uniform(m, k + 13)[:, 5 : 5 + k],
        "spread": uniform(2 * m, 3 * k)[::2, ::3],
        "rows apart": uniform(3 * m, k)[::3],
        "columns apart": uniform(k, 2 * m).mT[::2],
        "repeated rows": uniform(1, k).expand(m, k),
        "repeated columns": uniform(m, 1).expand(m, k),
        "unaligned": uniform(m * k + 1)[1:].view(m, k),
    }


@pytest.mark.parametrize("precision", ["fp32", "fp32-strict", "fp32-rounded", "tf32", "bf16", "fp16"])
@pytest.mark.parametrize("n,k", [(4096, 4096), (1000, 700), (64, 20000), (5, 3)])
def test_invariant_rows_keep_their_bits(precision: Any, n: int, k: int) -> None:
    a, b = uniform(3000, k), uniform(n, k).mT
    if precision in ("fp32", "fp32-strict"):
        a[5, k // 2], a[9, 2], b[1, 2] = 1e-35, 1e37, 1e-36  # what no tensor core can take as it is
        a[70] *= 1e-36
    whole = tilewright.matmul(a, b, precision=precision, invariant=True)
    check(whole[100:], a[100:], b, precision)
    for first, count in [(0, 1), (5, 1), (9, 1), (3, 8), (60, 33), (0, 128), (1, 300), (500, 1025)]:
        part = tilewright.matmul(a[first : first + count], b, precision=precision, invariant=True)
        assert torch.equal(part, whole[first : first + count]), (first, count)
    batch = tilewright.matmul(a[:90].view(9, 10, k), torch.stack(9 * [b]), precision=precision, invariant=True)
    assert torch.equal(batch.view(90, n), whole[:90])


@pytest.mark.parametrize("name", ["padded", "spread", "rows apart", "columns apart", "repeated rows", "repeated columns", "unaligned"])
@pytest.mark.parametrize("precision", ["fp32", "fp32-strict", "tf32"])
@pytest.mark.parametrize("size", [(60, 70, 50), (640, 300, 1030)])
def test_views_are_read_in_place(name: str, precision: Any, size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b = views(m, k)[name], views(n, k)[name].mT
    check(tilewright.matmul(a, b, precision=precision), a, b, precision)


@pytest.mark.parametrize(
    ("shape_a", "shape_b"),
    [
        ((70,), (70,)),
        ((60, 70), (70,)),
        ((70,), (70, 80)),
        ((5, 60, 70), (70,)),
        ((5, 60, 70), (70, 80)),
        ((60, 70), (5, 70, 80)),
        ((5, 60, 70), (5, 70, 80)),
        ((4, 1, 60, 70), (5, 70, 80)),
        ((4, 5, 60, 70), (5, 70, 80)),
        ((3, 4, 60, 70), (3, 1, 70, 80)),
        ((64, 8, 16, 32), (64, 8, 32, 16)),
        ((0, 60, 70), (70, 80)),
        ((5, 60, 0), (5, 0, 80)),
    ],
)
def test_batches(shape_a: Any, shape_b: Any) -> None:
    a, b = uniform(*shape_a), uniform(*shape_b)
    check(tilewright.matmul(a, b), a, b)


def test_a_permuted_batch_is_read_in_place() -> None:
    # Heads of an attention layer: (batch, place, head, feature) to (batch, head, place, feature).
    a, b = (uniform(3, 50, 8, 64).permute(0, 2, 1, 3) for _ in range(2))
    check(tilewright.matmul(a, b.mT), a, b.mT)


def test_a_result_is_written_where_it_is_asked_for() -> None:
    a, b = uniform(5, 100, 60), uniform(5, 60, 200)
    for out in (
        torch.empty(5, 100, 200, device="cuda"),
        torch.empty(5, 200, 100, device="cuda").mT,
        torch.empty(100, 5, 200, device="cuda").transpose(0, 1),
    ):
        assert tilewright.matmul(a, b, out=out) is out
        check(out, a, b)
    room = torch.full((5, 100, 300), 7.0, device="cuda")
    tilewright.matmul(a, b, out=room[:, :, 50:250])
    check(room[:, :, 50:250], a, b)
    assert (room[:, :, :50] == 7).all() and (room[:, :, 250:] == 7).all()


def test_infinities_and_nan_arrive_where_they_belong() -> None:
    a, b = uniform(300, 2500), uniform(2500, 300)
    a[17, 3], b[5, 40] = math.inf, math.nan
    c = tilewright.matmul(a, b)
    assert c[:, 40].isnan().all()
    others = torch.ones(300, dtype=torch.bool, device="cuda")
    others[40] = False
    assert not c[17, others].isfinite().any()
    others_of_rows = torch.ones(300, dtype=torch.bool, device="cuda")
    others_of_rows[17] = False
    assert c[others_of_rows][:, others].isfinite().all()


def test_operands_elsewhere_are_refused_by_name() -> None:
    a, b = uniform(2, 3), uniform(3, 4)
    with pytest.raises(ValueError, match=r"a is on cuda:0 and b is on (the CPU|cpu)"):
        tilewright.matmul(a, b.cpu())
    with pytest.raises(ValueError, match="out is on"):
        tilewright.matmul(a, b, out=torch.empty(2, 4))
    with pytest.raises(TypeError, match="torch.float64"):
        tilewright.matmul(a, b.double())
    with pytest.raises(ValueError, match="on_cpu"):
        tilewright.matmul(a.cpu(), b.cpu())


def test_tensors_of_the_cpu_are_moved_if_that_is_asked_for() -> None:
    a, b = uniform(70, 80).cpu(), uniform(80, 90).cpu()
    c = tilewright.matmul(a, b, on_cpu="move")
    check(c, a, b)
    out = torch.empty(70, 90)
    assert tilewright.matmul(a, b, on_cpu="move", out=out) is out
    check(out, a, b)
    overlapping = torch.zeros(200).as_strided((3, 4, 4), (8, 4, 1))
    with pytest.raises(ValueError, match="overlaps itself"):
        tilewright.matmul(torch.ones(3, 4, 4), torch.ones(3, 4, 4), on_cpu="move", out=overlapping)


def test_the_current_stream_is_used() -> None:
    """Each product waits for what was queued before it on its stream, and what comes after waits for the product."""
    a, b = uniform(512, 512), uniform(512, 512)
    expected = tilewright.matmul(a, b)
    torch.cuda.synchronize()
    for _ in range(20):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            late = torch.zeros_like(a)
            # About a millisecond, in which whoever does not wait reads zeros.
            torch.cuda._sleep(2_000_000)
            late.copy_(a)
            c = tilewright.matmul(late, b)
            late.zero_()
            copy = c.clone()
        stream.synchronize()
        assert torch.equal(copy, expected)


def test_a_product_does_not_wait() -> None:
    a, b = uniform(256, 256), uniform(256, 256)
    tilewright.matmul(a, b)
    torch.cuda.synchronize()
    event = torch.cuda.Event()
    torch.cuda._sleep(400_000_000)
    tilewright.matmul(a, b)
    event.record()
    assert not event.query(), "the call has waited for the GPU"
    torch.cuda.synchronize()


@pytest.mark.parametrize("precision", ["fp32", "fp32-strict", "tf32"])
@pytest.mark.parametrize("size", [64, 1024, 2048])
def test_a_graph_is_captured_and_replayed(precision: Any, size: int) -> None:
    a, b = uniform(size, size), uniform(size, size)
    tilewright.matmul(a, b, precision=precision)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        c = tilewright.matmul(a, b, precision=precision)
    for _ in range(5):
        a.copy_(uniform(size, size))
        b.copy_(uniform(size, size))
        graph.replay()
        torch.cuda.synchronize()
        check(c, a, b, precision)


def test_the_first_use_during_a_capture_works_or_says_what_to_do() -> None:
    """In a process of its own, where nothing has been loaded."""
    program = """
import torch, tilewright
a, b = torch.rand(96, 97, device="cuda"), torch.rand(97, 98, device="cuda")
graph = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(graph):
        c = tilewright.matmul(a, b)
except tilewright.DeviceError as error:
    assert "before the capture" in str(error), error
else:
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(c, torch.matmul(a.double(), b.double()).float())
    print("captured")
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_torch_may_start_with_the_driver_already_in_use() -> None:
    """The context that is current stays what it was: torch finds its own, whoever was first."""
    program = """
import tilewright
class OnGpu:
    __cuda_array_interface__ = {"shape": (2, 2), "typestr": "<f4", "data": (0x1000, False), "version": 3}
try:
    tilewright.matmul(OnGpu(), OnGpu())
except tilewright.Error:
    pass
import torch
a = torch.ones(64, 64, device="cuda")
assert (tilewright.matmul(a, a) == 64).all() and (a @ a == 64).all()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_a_compiled_layer(mode: Any) -> None:
    from torch._inductor.exc import InductorError

    torch.compiler.reset()
    weight, x = uniform(512, 256), uniform(4, 100, 512)

    def layer(x: Any) -> Any:
        return torch.relu(tilewright.matmul(x, weight)) * 2

    try:
        compiled = torch.compile(layer, fullgraph=True, mode=mode)
        compiled(x)
    except InductorError as error:
        pytest.skip(f"torch cannot compile here: {error}")
    for _ in range(5):
        x = uniform(4, 100, 512)
        expected = torch.relu(torch.matmul(x.double(), weight.double())) * 2
        torch.testing.assert_close(compiled(x).double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("shape_a", "shape_b"), [((60, 70), (70, 80)), ((5, 60, 70), (70, 80)), ((5, 60, 70), (5, 70, 80)), ((60, 70), (70,))])
def test_derivatives(shape_a: Any, shape_b: Any) -> None:
    def derivatives(multiply: Any, dtype: Any) -> list[Any]:
        torch.manual_seed(1)
        a, b = (uniform(*shape).to(dtype).requires_grad_() for shape in (shape_a, shape_b))
        loss = (multiply(a, b) ** 2).sum()
        first = torch.autograd.grad(loss, (a, b), create_graph=True)
        second = torch.autograd.grad(sum((grad**2).sum() for grad in first), (a, b))
        return [grad.double() for grad in (*first, *second)]

    ours = derivatives(tilewright.matmul, torch.float32)
    for grad, expected in zip(ours, derivatives(torch.matmul, torch.float64), strict=True):
        torch.testing.assert_close(grad, expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item())


def test_torch_finds_the_operator_in_order() -> None:
    for a, b in [(uniform(60, 70), uniform(70, 80)), (uniform(5, 60, 70), uniform(70, 80))]:
        torch.library.opcheck(torch.ops.tilewright.matmul.default, (a, b))
        torch.library.opcheck(torch.ops.tilewright.matmul.default, (a.clone().requires_grad_(), b))


def test_memory_is_given_back() -> None:
    a, b = uniform(2048, 2048), uniform(2048, 2048)
    tilewright.matmul(a, b)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(50):
        tilewright.matmul(a, b)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


def test_an_explanation_names_the_gpu() -> None:
    text = tilewright.explain(uniform(256, 256), uniform(256, 256))
    assert torch.cuda.get_device_name() in text and "because" in text


def test_many_threads_and_streams_at_once() -> None:
    """Products of different shapes on streams of their own, whose memory torch gives to whoever asks next. Every one is
    checked, exactly: the numbers are whole."""
    sizes = [(64, 64, 64), (200, 100, 300), (512, 512, 512), (1000, 1, 2000), (300, 700, 2600), (1024, 1024, 1024), (33, 65, 129)]
    precisions: list[Any] = ["fp32", "fp32-strict", "tf32", "fp32-normwise"]
    end = time.monotonic() + STRESS_SECONDS
    failures: list[str] = []
    counts = [0] * 8

    def multiply(number: int) -> None:
        try:
            stream = torch.cuda.Stream()
            generator = torch.Generator(device="cuda").manual_seed(number)
            with torch.cuda.stream(stream):
                while time.monotonic() < end and not failures:
                    m, n, k = sizes[(counts[number] + number) % len(sizes)]
                    precision = precisions[(counts[number] // len(sizes)) % len(precisions)]
                    a = torch.randint(-4, 5, (m, k), device="cuda", generator=generator).float()
                    b = torch.randint(-4, 5, (k, n), device="cuda", generator=generator).float()
                    c = tilewright.matmul(a, b, precision=precision)
                    if not torch.equal(c.double(), a.double() @ b.double()):
                        failures.append(f"thread {number}, {m} x {n} x {k}, {precision}")
                    counts[number] += 1
        except Exception as error:  # noqa: BLE001
            failures.append(f"thread {number}: {error!r}")

    threads = [threading.Thread(target=multiply, args=(number,)) for number in range(len(counts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and min(counts) > 0, (failures, counts)


def test_cupy_arrays() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed here")
    a, b = cupy.random.rand(300, 200, dtype=cupy.float32), cupy.random.rand(400, 200, dtype=cupy.float32)
    c = tilewright.matmul(a, b.T)
    assert isinstance(c, tilewright.Array) and c.device == "cuda:0" and not hasattr(c, "__array_interface__")
    for taken in (cupy.from_dlpack(c), cupy.asarray(c)):
        cupy.testing.assert_allclose(taken, a @ b.T, rtol=1e-5)
    out = cupy.empty((300, 400), cupy.float32)
    with cupy.cuda.Stream(non_blocking=True):
        d = a * 2
        assert tilewright.matmul(d, b.T, out=out) is out
        cupy.testing.assert_allclose(out, d @ b.T, rtol=1e-5)
    taken = torch.from_dlpack(c)
    del c
    check(taken, torch.from_dlpack(a), torch.from_dlpack(b).mT)


def test_arrays_by_the_cuda_array_interface() -> None:
    class Wrapped:
        """Has nothing but the interface."""

        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor
            self.__cuda_array_interface__ = tensor.__cuda_array_interface__ | {
                "version": 3,
                "stream": torch.cuda.current_stream().cuda_stream or 1,
            }

    a, b = uniform(100, 200), uniform(300, 200)
    c = torch.from_dlpack(tilewright.matmul(Wrapped(a), Wrapped(b.mT)))
    check(c, a, b.mT)
    out = torch.empty(100, 300, device="cuda")
    tilewright.matmul(Wrapped(a), Wrapped(b.mT), out=Wrapped(out))
    check(out, a, b.mT)


def test_jax_arrays() -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed here")
    try:
        device = jax.devices("gpu")[0]
    except RuntimeError as error:
        pytest.skip(f"JAX has no GPU here: {error}")
    a, b = (jax.device_put(jax.numpy.ones(shape, jax.numpy.float32), device) for shape in [(60, 70), (70, 80)])
    c = jax.dlpack.from_dlpack(tilewright.matmul(a, b))
    assert c.shape == (60, 80) and bool((c == 70).all())


def banded(matrix: Any, kind: str) -> Any:
    """Operands with zeros: of a triangle, of some rows and columns, of nothing but zeros."""
    if kind in ("upper", "lower"):
        return matrix.triu() if kind == "upper" else matrix.tril()
    if kind == "blocks":
        matrix = matrix.clone()
        matrix[: matrix.shape[0] // 2, : matrix.shape[1] // 3] = 0
        matrix[matrix.shape[0] // 2 :, -matrix.shape[1] // 4 :] = 0
        return matrix
    return matrix if kind == "full" else torch.zeros_like(matrix)


@pytest.mark.parametrize("part", ["all", "upper", "lower"])
@pytest.mark.parametrize("kind", ["full", "upper", "lower", "blocks", "zero"])
@pytest.mark.parametrize("size", [(1, 1, 1), (300, 200, 700), (1500, 1500, 1500), (1030, 2060, 515), (2060, 1030, 4100)])
@pytest.mark.parametrize("transposed", [False, True])
def test_parts_and_zeros(part: Any, kind: str, size: tuple[int, int, int], transposed: bool) -> None:
    m, n, k = size
    a, b = banded(uniform(m, k), kind), banded(uniform(k, n), kind)
    if transposed:
        a, b = a.mT.contiguous().mT, b.mT.contiguous().mT
    c = torch.full((m, n), math.nan, device="cuda")
    tilewright.matmul(a, b, out=c, part=part)
    wanted = {"all": torch.ones_like, "upper": lambda c: torch.ones_like(c).triu(), "lower": lambda c: torch.ones_like(c).tril()}
    mask = wanted[part](c).bool()
    assert (c[~mask] == 0).all()
    expected, magnitudes = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    error = ((c.double() - expected).abs() / magnitudes.clamp_min(1e-30))[mask]
    assert error.max() <= tolerance("fp32", k)


@pytest.mark.parametrize("special", [math.inf, math.nan])
@pytest.mark.parametrize("place", [(5, 1000), (700, 3), (1499, 1499)])
@pytest.mark.parametrize("operand", [0, 1])
def test_zeros_do_not_hide_what_is_not_finite(special: float, place: tuple[int, int], operand: int) -> None:
    operands = [uniform(1500, 1500).triu(), uniform(1500, 1500).triu()]
    operands[operand][place] = special
    c, expected = tilewright.matmul(*operands), torch.matmul(*operands)
    assert torch.equal(c.isnan(), expected.isnan()) and torch.equal(c.isinf(), expected.isinf())
    torch.testing.assert_close(c, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
