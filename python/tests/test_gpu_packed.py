"""`PackedMatrix`, `nn.Linear` and `convert` on a GPU: numbers of products that read what is packed, streams, graphs, memory, compiled code.

    python -m pytest -q test_gpu_packed.py
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import tilewright

torch = pytest.importorskip("torch", reason="torch is not installed here")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="there is no GPU of compute capability 9.0 here that torch can use",
)

import torch.nn.functional as F  # noqa: E402
from tilewright import PackedMatrix, _native, nn  # noqa: E402

#: As large as products are that kernels of packed operands compute: m, n, k.
SIZES = [(2048, 2048, 2048), (1024, 8192, 8192), (1000, 3001, 2050), (4096, 4096, 512)]


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    torch.manual_seed(20261126)
    yield
    # A kernel that has failed is noticed here, in the test that launched it.
    torch.cuda.synchronize()


def rand(*shape: int) -> Any:
    return torch.rand(*shape, device="cuda") * 2 - 1


def check(found: Any, x: Any, w: Any, within: float = 1e-6) -> None:
    """The error as a part of the root of the sum of the terms' squares."""
    exact = x.double() @ w.double().mT
    size = (x.double().square() @ w.double().square().mT).sqrt().clamp_min(1e-30)
    assert found.dtype == torch.float32 and ((found.double() - exact).abs() / size).max().item() < within * x.shape[-1] ** 0.5


def other_of(w: Any) -> Any:
    """What is packed of w for its precision, of other numbers: a product with it shows whether it is read."""
    wrong = PackedMatrix(w + 1.0)
    assert wrong._memory is not None
    return wrong._memory


def packs(x: Any, w: Any, precision: Any = "fp32") -> bool:
    """Whether the kernel of the product is one of packed operands also where it has to pack them."""
    return "gemm_wgmma_packed" in tilewright.explain(x, w.mT, precision=precision).split("\n  because")[0]


def test_plans_for_large_products_read_what_is_packed_and_for_few_rows_they_do_not() -> None:
    w = rand(4096, 4096)
    answers = {m: _native.reads_packed(rand(m, 4096), w, "fp32", "refuse") for m in (1, 16, 512, 1024, 4096)}
    assert answers[4096] and answers[1024] and not answers[1]
    # And so they do: with what is packed of other numbers, the result is that of these.
    x = rand(4096, 4096)
    found = torch.ops.tilewright.fused_matmul("linear", x, w, [], packed_b=other_of(w))
    check(found, x, w + 1.0)
    with pytest.raises(AssertionError):
        check(found, x, w)


@pytest.mark.parametrize("precision", ["fp32", "fp32-normwise", "fp32-ozaki", "bf16", "fp16"])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_bits_are_those_of_products_that_pack_for_themselves(m: int, n: int, k: int, precision: Any) -> None:
    x, bias = rand(m, k), rand(n)
    for w in (rand(n, k), rand(k, n).mT, rand(n, k + 3)[:, 1:-2]):
        packed = PackedMatrix(w, precision)
        found = tilewright.linear(x, packed, bias, "gelu", precision=precision)
        without = tilewright.linear(x, w, bias, "gelu", precision=precision)
        if packs(x, w, precision):
            assert torch.equal(found, without)
        torch.testing.assert_close(found, without, rtol=2e-2, atol=2e-2 * k**0.5 if precision in ("bf16", "fp16") else 1e-4)
        transposed = tilewright.addmm(bias.unsqueeze(1), packed, x.mT, activation="gelu", precision=precision)
        torch.testing.assert_close(transposed.mT, found, rtol=2e-2, atol=2e-2 * k**0.5 if precision in ("bf16", "fp16") else 1e-4)


def test_numbers_that_cannot_be_packed_come_from_the_matrix() -> None:
    x, w = rand(2048, 2048), rand(2048, 2048)
    w[7, 9], w[300, 4], w[301] = float("inf"), float("nan"), torch.logspace(-38, 34, 2048, device="cuda")
    w[500, ::2] *= 1e-30
    x[11, 5], x[12] = float("-inf"), torch.logspace(-35, 0, 2048, device="cuda")
    found, expected = tilewright.linear(x, PackedMatrix(w)), tilewright.linear(x, w)
    assert packs(x, w) and torch.equal(found.nan_to_num(nan=3.0), expected.nan_to_num(nan=3.0))
    reference = F.linear(x.double(), w.double()).float()
    assert torch.equal(found.isnan(), reference.isnan()) and torch.equal(found.isinf(), reference.isinf())


def test_batches_of_vectors_and_few_rows() -> None:
    w = rand(4096, 4096)
    packed = PackedMatrix(w)
    for x in (rand(4, 512, 4096), rand(4096), rand(1, 4096), rand(17, 4096), rand(512, 4, 4096).transpose(0, 1), rand(0, 4096)):
        found, without = tilewright.linear(x, packed), tilewright.linear(x, w)
        torch.testing.assert_close(found, without, rtol=1e-5, atol=1e-4)


def test_a_changed_weight_is_never_read_as_it_was() -> None:
    module, x = nn.Linear(2048, 2048, device="cuda"), rand(2048, 2048)
    with torch.no_grad():
        for turn in range(12):
            if turn % 3 == 0:
                module.weight.copy_(rand(2048, 2048))
            check(module(x) - module.bias, x, module.weight, 4e-6)
        assert module.packed_bytes() > 0
    optimizer = torch.optim.AdamW(module.parameters(), 0.1, fused=True)
    for _ in range(3):
        module(x).square().mean().backward()
        optimizer.step()
        assert module.packed_bytes() == 0 or module._kept.is_current() is False
    with torch.no_grad():
        for _ in range(3):
            check(module(x) - module.bias, x, module.weight, 4e-6)


def test_memory_goes_with_the_module_and_with_unpack() -> None:
    def used() -> int:
        gc.collect()
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    x = rand(1024, 4096)
    before = used()
    module = nn.Linear(4096, 4096, bias=False, device="cuda")
    weight = used() - before
    with torch.no_grad():
        for _ in range(3):
            module(x)
    packed = used() - before - weight
    assert packed >= module.packed_bytes() > 0 and 1.0 <= packed / weight < 1.1
    module.unpack()
    assert used() == before + weight
    with torch.no_grad():
        for _ in range(3):
            module(x)
    module.cpu()
    assert used() == before


def test_it_is_packed_and_used_on_several_streams() -> None:
    x, w = rand(2048, 2048), rand(2048, 2048)
    streams = [torch.cuda.Stream() for _ in range(3)]
    for _ in range(10):
        w.copy_(rand(2048, 2048))
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(streams[0]):
            # It has something to do before it packs.
            torch.cuda._sleep(2_000_000)
            packed = PackedMatrix(w)
        with torch.cuda.stream(streams[1]):
            found = tilewright.linear(x, packed)
        del packed
        with torch.cuda.stream(streams[0]):
            # The allocator may give the memory to this one, and must not before the product has read it.
            torch.full((4 * 2048 * 2048,), 7.0, device="cuda")
        torch.cuda.synchronize()
        check(found, x, w)


def test_threads_share_a_module() -> None:
    module, x = nn.Linear(2048, 2048, bias=False, device="cuda"), rand(1024, 2048)
    results: list[Any] = []

    def use() -> None:
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                results.append(module(x))
            torch.cuda.synchronize()

    threads = [threading.Thread(target=use) for _ in range(4)]
    torch.cuda.synchronize()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 80
    for result in results:
        check(result, x, module.weight)


@pytest.mark.parametrize("frozen", [False, True])
def test_graphs(frozen: bool) -> None:
    module, x = nn.Linear(2048, 2048, bias=False, frozen=frozen, device="cuda"), rand(2048, 2048)
    with torch.no_grad():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                module(x)
        torch.cuda.current_stream().wait_stream(stream)
        assert module.packed_bytes() > 0
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = module(x)
        graph.replay()
        check(result, x, module.weight)
        module.weight.copy_(rand(2048, 2048))
        if frozen:
            # What is frozen is promised to stay as it is; if it does not, it has to be packed again.
            module.repack()
        graph.replay()
        check(result, x, module.weight)


def test_a_capture_packs_nothing() -> None:
    module, x = nn.Linear(2048, 2048, bias=False, frozen=True, device="cuda"), rand(2048, 2048)
    with torch.no_grad():
        tilewright.linear(x, module.weight)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = module(x)
        assert module.packed_bytes() == 0
        graph.replay()
        check(result, x, module.weight)


def test_derivatives() -> None:
    module = nn.Linear(2048, 1024, frozen=True, device="cuda")
    x = rand(2048, 2048).requires_grad_()
    with torch.no_grad():
        module(x)
    assert module.packed_bytes() > 0
    weights = rand(2048, 1024)
    y = module(x)
    check(y.detach() - module.bias.detach(), x.detach(), module.weight.detach(), 4e-6)
    of_x, of_w, of_bias = torch.autograd.grad((y * weights).sum(), [x, module.weight, module.bias])
    check(of_x, weights, module.weight.detach().mT)
    check(of_w, weights.mT, x.detach().mT)
    torch.testing.assert_close(of_bias, weights.sum(0), rtol=1e-4, atol=1e-3)


def test_the_operator_is_one_of_torch_with_what_is_packed() -> None:
    w, x = rand(512, 512), rand(1024, 512)
    torch.library.opcheck(torch.ops.tilewright.fused_matmul.default, ("linear", x, w, []), {"packed_b": PackedMatrix(w)._memory})


def test_compiled() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
    x = rand(2048, 2048)
    with torch.no_grad():
        expected = model(x)
        for frozen in (False, True):
            tilewright.convert(model, frozen=frozen)
            for _ in range(2):
                model(x)
            try:
                torch.compiler.reset()
                found = torch.compile(model, fullgraph=True)(x)
            except torch._inductor.exc.InductorError as error:  # no compiler of C here
                pytest.skip(f"torch cannot compile here: {error}")
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_converted_model() -> None:
    model = torch.nn.TransformerEncoderLayer(1024, 8, 4096, dropout=0.0, batch_first=True, device="cuda").eval()
    x = rand(4, 512, 1024)
    # Its short way in evaluation reads weights without their modules.
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            expected = model(x)
            tilewright.convert(model)
            for _ in range(3):
                found = model(x)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
            assert nn.packed_bytes(model) == model.linear1.packed_bytes() + model.linear2.packed_bytes() > 0
            tilewright.revert(model)
            torch.testing.assert_close(model(x), expected)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
