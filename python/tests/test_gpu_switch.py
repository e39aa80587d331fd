"""The switch on a GPU, against the package as it is installed: numbers, streams, graphs, compiled models, decisions, memory.

    python -m pytest -q test_gpu_switch.py
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import tilewright

torch = pytest.importorskip("torch", reason="torch is not installed here")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here that torch can use")


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    torch.manual_seed(20261126)
    tilewright.reset_stats()
    yield
    torch.cuda.synchronize()
    tilewright.disable()
    assert tilewright.stats().failure is None


def uniform(*shape: int) -> Any:
    return torch.rand(shape, device="cuda") * 2 - 1


def whole(*shape: int) -> Any:
    """Small whole numbers, whose products are exact."""
    return torch.randint(-4, 5, shape, device="cuda").float()


def taken() -> int:
    return sum(product.calls for product in tilewright.stats().taken)


def every_form(sizes: tuple[int, int, int]) -> list[Any]:
    m, n, k = sizes
    torch.manual_seed(1)
    a, b, c, row, v, w = whole(m, k), whole(k, n), whole(m, n), whole(n), whole(k), whole(m)
    many_a, many_b, many_c = whole(3, m, k), whole(3, k, n), whole(3, m, n)
    factors: Any = {"beta": 0.5, "alpha": -2.0}
    return [
        torch.mm(a, b),
        torch.mm(a, b, out=torch.empty(n, m, device="cuda").T),
        torch.mm(b.T, a.T),
        torch.bmm(many_a, many_b),
        torch.addmm(row, a, b),
        torch.addmm(c, a, b, **factors),
        torch.addmm(c, a, b, **factors, out=torch.empty(m, n, device="cuda")),
        c.clone().addmm_(a, b, **factors),
        torch.baddbmm(many_c, many_a, many_b, **factors),
        many_c.clone().baddbmm_(many_a, many_b, **factors),
        torch.addmv(w, a, v, **factors),
        torch.mv(a, v),
        torch.nn.functional.linear(many_a, b.T.contiguous(), row),
    ]


@pytest.mark.parametrize("sizes", [(64, 64, 64), (127, 129, 131), (1, 1000, 1000), (513, 257, 300), (1024, 2048, 512)])
def test_every_operator_is_that_of_torch(sizes: tuple[int, int, int]) -> None:
    expected = every_form(sizes)
    with tilewright.enabled(only_faster=False):
        ours = every_form(sizes)
    assert taken() == len(expected), tilewright.stats()
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
        assert one.stride() == other.stride()


def test_large_products_are_taken_and_small_ones_are_not() -> None:
    large, small, half = uniform(4096, 4096), uniform(64, 64), uniform(512, 512).half()
    exact = large.double() @ large.double()
    with tilewright.enabled():
        error = ((large @ large).double() - exact).norm() / exact.norm()
        small @ small
        half @ half
    assert error < 3e-7
    stats = tilewright.stats()
    (product,) = stats.taken
    assert (product.m, product.n, product.k, product.calls) == (4096, 4096, 4096, 1)
    assert product.predicted_ms is not None and product.torch_ms is not None and stats.saved_ms > 0
    assert sorted(stats.passed_on.values()) == [1, 1]


def test_derivatives_of_a_model_are_those_of_torch() -> None:
    model: Any = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256)).cuda()
    x = uniform(2048, 512)

    def gradients() -> list[Any]:
        model.zero_grad()
        model(x).square().mean().backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    expected = gradients()
    with tilewright.enabled(only_faster=False):
        ours = gradients()
    # Two forwards; backwards one for x of the second layer, and one for each weight.
    assert taken() == 5
    for one, other in zip(ours, expected, strict=True):
        assert (one - other).norm() <= 1e-5 * other.norm()


def test_the_current_stream_is_used() -> None:
    a, b = whole(512, 512), whole(512, 512)
    expected = a @ b
    stream = torch.cuda.Stream()
    with tilewright.enabled(only_faster=False):
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(100_000_000)
            late = a.clone()
            product = late @ b
        assert not stream.query(), "it waited"
        stream.synchronize()
    torch.testing.assert_close(product, expected, rtol=0, atol=0)


def test_a_graph_is_captured_and_replayed() -> None:
    a, b, row = whole(512, 512), whole(512, 512), whole(512)
    with tilewright.enabled(only_faster=False):
        torch.addmm(row, a, b)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            product = torch.addmm(row, a, b)
    a.copy_(whole(512, 512))
    graph.replay()
    torch.testing.assert_close(product, torch.addmm(row, a, b), rtol=0, atol=0)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_a_compiled_model_follows_the_switch(mode: Any) -> None:
    model: Any = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 128)).cuda()
    x = uniform(1024, 256)
    expected = model(x).detach()
    torch.compiler.reset()
    with tilewright.enabled(only_faster=False):
        compiled = torch.compile(model, fullgraph=True, mode=mode)
        for _ in range(4):
            y = compiled(x).detach().clone()
        assert taken() >= 2, tilewright.stats()
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
    tilewright.reset_stats()
    compiled(x)
    assert taken() == 0


def test_without_memory_for_a_workspace_torch_computes() -> None:
    a, b = uniform(8192, 8192), uniform(8192, 8192)
    out = torch.empty(8192, 8192, device="cuda")
    # Warm, so that cuBLAS has its own workspace.
    torch.mm(a, b, out=out)
    with tilewright.enabled(only_faster=False):
        torch.mm(a, b, out=out)
    workspace = taken()
    assert workspace == 1
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    hog: list[Any] = []
    size = free
    while size >= 1 << 20:
        try:
            hog.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    with tilewright.enabled(only_faster=False):
        torch.mm(a, b, out=out)
    stats = tilewright.stats()
    del hog
    torch.cuda.empty_cache()
    # A kernel without a workspace is as good.
    assert taken() + sum(stats.passed_on.values()) == 2, stats
    with pytest.raises(torch.OutOfMemoryError), tilewright.enabled(only_faster=False):
        rows = uniform(1 << 20, 1)
        torch.mm(rows, rows.T)


def test_threads_with_streams_of_their_own_compute_at_once() -> None:
    a, b = whole(300, 200), whole(200, 100)
    expected = a @ b
    torch.cuda.synchronize()

    def multiply(_: int) -> bool:
        stream = torch.cuda.Stream()
        right = True
        with torch.cuda.stream(stream):
            for _ in range(200):
                right = right and torch.equal(a @ b, expected)
        return right

    with tilewright.enabled(only_faster=False), ThreadPoolExecutor(4) as threads:
        assert all(threads.map(multiply, range(4)))
    assert taken() == 800


def test_autocast_and_tf32_are_left_alone() -> None:
    a = uniform(1024, 1024)
    with tilewright.enabled(only_faster=False), torch.autocast("cuda"):
        assert (a @ a).dtype == torch.float16
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        with tilewright.enabled(only_faster=False):
            a @ a
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    assert taken() == 0 and sum(tilewright.stats().passed_on.values()) == 2
