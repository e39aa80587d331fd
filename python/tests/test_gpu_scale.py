"""Products with diagonal matrices and numbers on a GPU, against the package as it is installed: numbers, order on streams,
graphs, speed.

    python -m pytest -q test_gpu_scale.py
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import tilewright

torch = pytest.importorskip("torch", reason="torch is not installed here")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here that torch can use")


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    torch.manual_seed(20261122)
    before = torch.cuda.current_device()
    yield
    # A kernel that has failed is noticed here, in the test that launched it.
    torch.cuda.synchronize()
    assert torch.cuda.current_device() == before


def uniform(*shape: int) -> Any:
    return torch.rand(shape, device="cuda") * 2 - 1


def expected(matrix: Any, by: float, rows: Any = None, columns: Any = None) -> Any:
    """The same, in the same order, each step rounded to float32: so the same bits."""
    product = matrix if rows is None else rows.unsqueeze(-1) * matrix
    product = product if columns is None else product * columns
    return product * torch.tensor(by, dtype=torch.float32, device=matrix.device)


FACTORS = [(False, False), (True, False), (False, True), (True, True)]


def views(shape: tuple[int, ...]) -> dict[str, Any]:
    batch, (m, n) = shape[:-2], shape[-2:]
    return {
        "by rows": uniform(*shape),
        "by columns": uniform(*batch, n, m).mT,
        "padded": uniform(*batch, m, n + 13)[..., 5 : 5 + n],
        "padded and aligned": uniform(*batch, m, 4 * n + 8)[..., 4 : 4 + n],
        "spread": uniform(*batch, 2 * m, 3 * n)[..., ::2, ::3],
        "repeated rows": uniform(1, n).expand(shape),
        "repeated columns": uniform(m, 1).expand(shape),
        "unaligned": uniform(math.prod(shape) + 1)[1:].view(shape),
    }


@pytest.mark.parametrize(
    "shape",
    [(1, 1), (4, 1024), (3, 1025), (1031, 1), (1, 1033), (257, 509), (2048, 4096), (5, 60, 70), (1000, 3, 4), (4, 5, 33, 65)],
)
@pytest.mark.parametrize("has", FACTORS)
def test_numbers(shape: tuple[int, ...], has: Any) -> None:
    for step in (1, 2):
        rows, columns = (
            uniform(step * extent)[::step] if given else None for extent, given in zip(shape[-2:], has, strict=True)
        )
        for name, matrix in views(shape).items():
            wanted = expected(matrix, -0.3, rows, columns)
            product = tilewright.scale(matrix, -0.3, rows=rows, columns=columns)
            assert torch.equal(product, wanted) and product.stride() == torch.empty_like(matrix).stride(), name
            for out in (torch.empty(shape, device="cuda"), torch.empty((*shape[:-2], shape[-1], shape[-2]), device="cuda").mT):
                assert tilewright.scale(matrix, -0.3, rows=rows, columns=columns, out=out) is out
                assert torch.equal(out, wanted), name
            if not name.startswith("repeated"):
                tilewright.scale(matrix, -0.3, rows=rows, columns=columns, out=matrix)
                assert torch.equal(matrix, wanted), f"{name}, in place"


def test_special_numbers_are_multiplied_like_others() -> None:
    special = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 1e-42, 3e38, 1.0, -1e-38], device="cuda")
    matrix, rows = special.expand(8, 8), special.clone()
    for by in (0.0, 1.0, -1.0, 2.5, 0.1):
        torch.testing.assert_close(
            tilewright.scale(matrix, by, rows=rows), expected(matrix, by, rows), rtol=0, atol=0, equal_nan=True
        )


def test_more_elements_than_31_bits_count() -> None:
    rows, cols = 65_537, 32_769
    if torch.cuda.mem_get_info()[0] < 10 * rows * cols:
        pytest.skip("there is too little free memory on this GPU")
    matrix = torch.empty(rows, cols, device="cuda")
    matrix[0], matrix[-1], matrix[rows // 2] = 1.0, 2.0, 3.0
    of_rows = torch.arange(rows, device="cuda", dtype=torch.float32)
    of_columns = torch.arange(cols, device="cuda", dtype=torch.float32)
    lines = {row: expected(matrix[row : row + 1], 0.5, of_rows[row : row + 1], of_columns) for row in (0, rows // 2, rows - 1)}
    tilewright.scale(matrix, 0.5, rows=of_rows, columns=of_columns, out=matrix)
    for row, line in lines.items():
        assert torch.equal(matrix[row : row + 1], line), row


def test_operands_elsewhere_are_refused_by_name() -> None:
    matrix = uniform(2, 3)
    with pytest.raises(ValueError, match=r"matrix is on cuda:0 and rows is on (the CPU|cpu)"):
        tilewright.scale(matrix, rows=torch.ones(2))
    with pytest.raises(ValueError, match="out is on"):
        tilewright.scale(matrix, out=torch.empty(2, 3))
    with pytest.raises(TypeError, match="by is of type"):
        tilewright.scale(matrix, torch.ones((), device="cuda"))


def test_tensors_of_the_cpu_are_moved_if_that_is_asked_for() -> None:
    matrix, rows = uniform(70, 80).cpu(), uniform(70).cpu()
    wanted = expected(matrix, 2.0, rows)
    assert torch.equal(tilewright.scale(matrix, 2, rows=rows, on_cpu="move"), wanted)
    tilewright.scale(matrix, 2, rows=rows, on_cpu="move", out=matrix)
    assert torch.equal(matrix, wanted)
    overlapping = torch.zeros(200).as_strided((3, 4, 4), (8, 4, 1))
    with pytest.raises(ValueError, match="overlaps itself"):
        tilewright.scale(torch.ones(3, 4, 4), 2, on_cpu="move", out=overlapping)


def test_the_current_stream_is_used() -> None:
    """Each call waits for what was queued before it on its stream, and what comes after waits for the call."""
    matrix, rows = uniform(512, 512), uniform(512)
    wanted = expected(matrix, 2.0, rows)
    torch.cuda.synchronize()
    for _ in range(20):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            late = torch.zeros_like(matrix)
            # About a millisecond, in which whoever does not wait reads zeros.
            torch.cuda._sleep(2_000_000)
            late.copy_(matrix)
            product = tilewright.scale(late, 2, rows=rows)
            late.zero_()
            copy = product.clone()
        stream.synchronize()
        assert torch.equal(copy, wanted)


def test_a_call_does_not_wait() -> None:
    matrix = uniform(256, 256)
    tilewright.scale(matrix, 2)
    torch.cuda.synchronize()
    event = torch.cuda.Event()
    torch.cuda._sleep(400_000_000)
    tilewright.scale(matrix, 2)
    event.record()
    assert not event.query(), "the call has waited for the GPU"
    torch.cuda.synchronize()


@pytest.mark.parametrize("is_across", [False, True])
def test_a_graph_is_captured_and_replayed(is_across: bool) -> None:
    matrix, rows, columns, out = uniform(300, 260), uniform(300), uniform(260), torch.empty(300, 260, device="cuda")
    source = uniform(260, 300).mT if is_across else matrix
    tilewright.scale(source, 0.5, rows=rows, columns=columns, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tilewright.scale(source, 0.5, rows=rows, columns=columns, out=out)
        tilewright.scale(out, 2, out=out)
        product = tilewright.scale(out, columns=columns)
    for _ in range(5):
        source.copy_(uniform(300, 260))
        rows.copy_(uniform(300))
        graph.replay()
        torch.cuda.synchronize()
        twice = expected(expected(source, 0.5, rows, columns), 2.0)
        assert torch.equal(out, twice) and torch.equal(product, expected(twice, 1.0, None, columns))


def test_the_first_use_during_a_capture_works_or_says_what_to_do() -> None:
    """In a process of its own, where nothing has been loaded."""
    program = """
import torch, tilewright
matrix = torch.rand(96, 97, device="cuda")
graph = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(graph):
        product = tilewright.scale(matrix, 2)
except tilewright.DeviceError as error:
    assert "before the capture" in str(error), error
else:
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(product, 2 * matrix)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_layer(mode: Any, in_place: bool) -> None:
    from torch._inductor.exc import InductorError

    torch.compiler.reset()
    rows, columns = uniform(100), uniform(512)

    def layer(matrix: Any) -> Any:
        product = matrix * 3
        product = tilewright.scale(product, 0.5, rows=rows, columns=columns, out=product if in_place else None)
        return torch.relu(product) * 2

    try:
        compiled = torch.compile(layer, fullgraph=True, mode=mode)
        compiled(uniform(4, 100, 512))
    except InductorError as error:
        pytest.skip(f"torch cannot compile here: {error}")
    for _ in range(5):
        matrix = uniform(4, 100, 512)
        wanted = torch.relu(expected(matrix * 3, 0.5, rows, columns)) * 2
        torch.testing.assert_close(compiled(matrix), wanted)


@pytest.mark.parametrize("shape", [(60, 70), (5, 60, 70)])
def test_derivatives(shape: Any) -> None:
    def derivatives(multiply: Any, dtype: Any) -> list[Any]:
        torch.manual_seed(1)
        operands = [uniform(*extents).to(dtype).requires_grad_() for extents in (shape, shape[-2:-1], shape[-1:])]
        loss = (multiply(*operands) ** 2).sum()
        first = torch.autograd.grad(loss, operands, create_graph=True)
        second = torch.autograd.grad(sum((grad**2).sum() for grad in first), operands)
        return [grad.double() for grad in (*first, *second)]

    found = derivatives(lambda matrix, rows, columns: tilewright.scale(matrix, 0.7, rows=rows, columns=columns), torch.float32)
    wanted = derivatives(lambda matrix, rows, columns: 0.7 * rows.unsqueeze(-1) * matrix * columns, torch.float64)
    for grad, of_torch in zip(found, wanted, strict=True):
        torch.testing.assert_close(grad, of_torch, rtol=1e-4, atol=1e-5 * of_torch.abs().max().item())


def test_torch_finds_the_operator_in_order() -> None:
    for requires_grad in (False, True):
        operands = (uniform(5, 60, 70), 0.5, uniform(60), uniform(70))
        for operand in operands:
            if isinstance(operand, torch.Tensor):
                operand.requires_grad_(requires_grad)
        torch.library.opcheck(torch.ops.tilewright.scale.default, operands)


def test_memory_is_given_back() -> None:
    matrix = uniform(2048, 2048)
    tilewright.scale(matrix, 2)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(50):
        tilewright.scale(matrix, 2)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


def test_it_takes_about_as_long_as_a_copy() -> None:
    matrix, out = uniform(16_384, 8_192), torch.empty(16_384, 8_192, device="cuda")
    rows, columns = uniform(16_384), uniform(8_192)

    def milliseconds(work: Any) -> float:
        times: list[float] = []
        for _ in range(12):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        return sorted(times)[len(times) // 2]

    copy = milliseconds(lambda: out.copy_(matrix))
    for name, work in {
        "number": lambda: tilewright.scale(matrix, 0.5, out=out),
        "rows and columns": lambda: tilewright.scale(matrix, rows=rows, columns=columns, out=out),
        "in place": lambda: tilewright.scale(out, rows=rows, columns=columns, out=out),
    }.items():
        time = milliseconds(work)
        print(f"{name}: {time:.3f} ms, a copy {copy:.3f} ms")
        # Other programs may share the GPU.
        assert time <= 1.5 * copy, name


def test_arrays_by_the_cuda_array_interface() -> None:
    class Wrapped:
        """Has nothing but the interface."""

        def __init__(self, tensor: Any) -> None:
            self.__cuda_array_interface__ = tensor.__cuda_array_interface__ | {
                "version": 3,
                "stream": torch.cuda.current_stream().cuda_stream or 1,
            }

    matrix, rows = uniform(100, 200), uniform(100)
    wanted = expected(matrix, 2.0, rows)
    assert torch.equal(torch.from_dlpack(tilewright.scale(Wrapped(matrix), 2, rows=Wrapped(rows))), wanted)
    tilewright.scale(Wrapped(matrix), 2, rows=Wrapped(rows), out=Wrapped(matrix))
    assert torch.equal(matrix, wanted)


def test_cupy_arrays() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed here")
    matrix, columns = cupy.random.rand(300, 200, dtype=cupy.float32), cupy.random.rand(200, dtype=cupy.float32)
    product = tilewright.scale(matrix, 2, columns=columns)
    assert isinstance(product, tilewright.Array) and product.device == "cuda:0"
    cupy.testing.assert_array_equal(cupy.from_dlpack(product), matrix * columns * cupy.float32(2))
