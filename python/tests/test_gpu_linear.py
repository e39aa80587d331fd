"""`linear`, `addmm` and `baddbmm` on a GPU, against float64: numbers, layouts, streams, graphs, derivatives.

    python -m pytest -q test_gpu_linear.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tilewright

torch = pytest.importorskip("torch", reason="torch is not installed here")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here that torch can use")

import torch.nn.functional as F  # noqa: E402

ACTIVATIONS: list[tuple[Any, Any]] = [
    (None, lambda x: x),
    ("relu", torch.relu),
    (("leaky_relu", 0.25), lambda x: F.leaky_relu(x, 0.25)),
    ("sigmoid", torch.sigmoid),
    ("silu", F.silu),
    ("tanh", torch.tanh),
    ("gelu", F.gelu),
    (("gelu", "tanh"), lambda x: F.gelu(x, approximate="tanh")),
    ("mish", F.mish),
    (("hardtanh", -0.5, 1.5), lambda x: F.hardtanh(x, -0.5, 1.5)),
    (["silu", "tanh", ("mul", 2.0), "gelu"], lambda x: F.gelu(2.0 * torch.tanh(F.silu(x)))),
]


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    torch.manual_seed(20261126)
    yield
    # A kernel that has failed is noticed here, in the test that launched it.
    torch.cuda.synchronize()


def operands(m: int, n: int, k: int) -> list[Any]:
    """x, w, a bias and a residual, of which products are of the size of one."""
    root = max(k, 1) ** -0.5
    x, w, bias, residual = (torch.randn(shape, device="cuda") for shape in ((m, k), (n, k), (n,), (m, n)))
    return [x, w * root, bias, residual]


def exact(x: Any, w: Any, bias: Any, residual: Any, by_torch: Any, scale: float = 1.0) -> Any:
    x, w, bias, residual = (tensor.double() for tensor in (x, w, bias, residual))
    return by_torch(scale * (x @ w.mT) + bias) + residual


def check(found: Any, expected: Any, within: float = 4e-6) -> None:
    assert found.dtype == torch.float32 and found.is_cuda
    torch.testing.assert_close(found.double(), expected, rtol=within, atol=within)


@pytest.mark.parametrize(("activation", "by_torch"), ACTIVATIONS, ids=lambda value: str(value)[:30])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        *((64, 64, 64), (1, 1, 1), (127, 129, 131), (1000, 7, 1000), (1, 4096, 4096)),
        *((513, 257, 0), (2048, 2048, 1024), (128, 128, 65536), (300, 5000, 40)),
    ],
)
def test_numbers(activation: Any, by_torch: Any, m: int, n: int, k: int) -> None:
    given = operands(m, n, k)
    expected = exact(*given, by_torch, 0.5)
    # The errors of sums of k terms, as a part of the root of their squares, which is one here.
    within = max(4e-6, 2e-7 * k**0.5)
    check(tilewright.linear(*given[:3], activation, given[3], 0.5), expected, within)
    check(tilewright.addmm(given[2], given[0], given[1].mT, alpha=0.5, activation=activation, residual=given[3]), expected, within)


def test_layouts_and_batches() -> None:
    x, w, bias, residual = operands(600, 384, 520)
    silu = lambda x: F.silu(x)  # noqa: E731
    expected = exact(x, w, bias, residual, silu)
    for of_x in (x, x.mT.contiguous().mT, torch.stack([x, x], -1)[..., 0]):
        for of_w in (w, w.mT.contiguous().mT):
            for of_residual in (residual, residual.mT.contiguous().mT, torch.stack([residual, residual], -1)[..., 1]):
                check(tilewright.linear(of_x, of_w, bias, "silu", of_residual), expected)
    out = torch.empty(384, 600, device="cuda").mT
    assert tilewright.linear(x, w, bias, "silu", residual, out=out) is out
    check(out, expected)
    check(tilewright.linear(x.view(5, 120, 520), w, bias, "silu", residual.view(5, 120, 384)).view(600, 384), expected)
    batch1, batch2 = x.view(5, 120, 520), torch.stack([w.mT * factor for factor in (1, -1, 2, 0.5, 0)])
    for input in (residual.view(5, 120, 384), bias, residual[:120], residual.view(5, 120, 384)[:, :1]):
        expected = F.gelu(0.5 * input.double() - batch1.double() @ batch2.double())
        check(tilewright.baddbmm(input, batch1, batch2, beta=0.5, alpha=-1, activation="gelu"), expected)


def test_values_that_tensor_cores_cannot_take_get_the_steps_once() -> None:
    x, w, bias, residual = operands(2048, 2048, 2048)
    x[5, 7], x[700, 3], w[1, 2], w[900, 5] = 1e-35, 1e30, 1e-36, 1e-30
    x[1500] *= 1e-30
    expected = exact(x, w, bias, residual, torch.tanh)
    check(tilewright.linear(x, w, bias, "tanh", residual), expected, 1e-5)
    x[9, 9], x[10, 10] = torch.inf, torch.nan
    found = tilewright.linear(x, w, bias, "tanh", residual)
    assert found[10].isnan().all() and torch.equal(found[9].isnan(), exact(x, w, bias, residual, torch.tanh)[9].isnan())
    keep = [row for row in range(2048) if row not in (9, 10)]
    check(found[keep], expected[keep], 1e-5)


@pytest.mark.parametrize("size", [(1024, 1024, 1024), (64, 512, 8192)])
def test_calls_are_in_the_order_of_streams_and_can_be_captured(size: Any) -> None:
    x, w, bias, residual = operands(*size)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(20):
            # The sum before is reused for the next one, unless something is still to read it.
            z = tilewright.linear(x + 1, w, bias, "gelu", residual)
    stream.synchronize()
    check(z, exact(x + 1, w, bias, residual, F.gelu), 2e-5)
    graph, out, square = torch.cuda.CUDAGraph(), torch.empty_like(z), torch.eye(size[1], device="cuda")
    with torch.cuda.graph(graph):
        made = tilewright.linear(x, w, bias, "gelu", residual)
        tilewright.linear(made, square, activation="relu", out=out)
    for factor in (1.0, -2.0):
        x.mul_(factor)
        bias.add_(1)
        graph.replay()
        torch.cuda.synchronize()
        check(made, exact(x, w, bias, residual, F.gelu), 2e-5)
        check(out, torch.relu(made.double()), 2e-5)


def test_kernels_can_be_loaded_while_a_stream_is_captured() -> None:
    x, w, bias, residual = operands(333, 222, 111)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = tilewright.linear(x, w, bias, ["mish", ("mul", 3.0)], residual)
    graph.replay()
    torch.cuda.synchronize()
    check(y, exact(x, w, bias, residual, lambda x: 3 * F.mish(x)), 1e-5)


@pytest.mark.parametrize(("activation", "by_torch"), ACTIVATIONS, ids=lambda value: str(value)[:30])
def test_derivatives(activation: Any, by_torch: Any) -> None:
    given = [tensor.requires_grad_() for tensor in operands(260, 130, 390)]
    check_derivatives(lambda *tensors: tilewright.linear(*tensors[:3], activation, tensors[3]), given, by_torch)


def check_derivatives(layer: Any, given: list[Any], by_torch: Any) -> None:
    """Compares the derivatives of a layer with those in float64."""
    wide = [tensor.detach().double().requires_grad_() for tensor in given]
    weights = torch.randn(given[3].shape, device="cuda")
    derivatives = torch.autograd.grad((exact(*wide, by_torch) * weights.double()).sum(), wide)
    found = torch.autograd.grad((layer(*given) * weights).sum(), given)
    for ours, theirs in zip(found, derivatives):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-4)


# torch would rather have it less accurate.
@pytest.mark.filterwarnings("ignore:TensorFloat32")
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_a_compiled_layer(mode: Any) -> None:
    from torch._inductor.exc import InductorError

    torch.compiler.reset()

    def layer(x: Any, w: Any, bias: Any, residual: Any) -> Any:
        return tilewright.linear(x, w, bias, ["gelu", ("mul", 0.5)], residual) * 2

    half = lambda x: 0.5 * F.gelu(x)  # noqa: E731
    given = operands(260, 130, 390)
    try:
        compiled = torch.compile(layer, fullgraph=True, mode=mode)
        compiled(*given)
    except InductorError as error:
        pytest.skip(f"torch cannot compile here: {error}")
    for _ in range(5):
        given[0] = torch.randn_like(given[0])
        check(compiled(*given), 2 * exact(*given, half), 1e-5)
    if mode is None:
        given = [tensor.requires_grad_() for tensor in given]
        check_derivatives(lambda *tensors: compiled(*tensors) / 2, given, half)


def test_tensors_of_the_cpu_are_moved_if_that_is_asked_for() -> None:
    given = [tensor.cpu() for tensor in operands(64, 32, 16)]
    y = tilewright.linear(*given[:3], "gelu", given[3], on_cpu="move")
    assert y.is_cpu
    torch.testing.assert_close(y.double(), exact(*given, F.gelu), rtol=4e-6, atol=4e-6)
    with pytest.raises(ValueError, match="cuda"):
        tilewright.linear(given[0].cuda(), *given[1:3])
