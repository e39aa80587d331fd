"""`PackedMatrix`, `nn.Linear` and `convert` on the CPU executor: numbers, and that nothing is read that was packed of older numbers.

The executor packs as a GPU does, but its plans read matrices as they are: what is packed is compared with what is packed anew. `test_gpu_packed.py` has the
products that read it.
"""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from typing import Any

import pytest
import tilewright

torch = pytest.importorskip("torch", reason="torch is not installed here: `cargo xtask test --with-torch` runs these")

import torch.nn.functional as F  # noqa: E402
from tilewright import PackedMatrix, _native, nn  # noqa: E402

EMULATE: Any = {"on_cpu": "emulate"}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(20261126)
    torch.compiler.reset()


@pytest.fixture
def packing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where plans read what is packed."""
    monkeypatch.setattr(_native, "reads_packed", lambda *_: True)


def packed(w: Any, precision: Any = "fp32", **options: Any) -> PackedMatrix:
    return PackedMatrix(w, precision, **EMULATE, **options)


def is_of(of: PackedMatrix, w: Any) -> bool:
    """Whether the numbers of `w` are what is packed, bit by bit."""
    memory = packed(w.detach().clone(), of.precision)._memory
    assert memory is not None and of._memory is not None
    found, bits = of._memory.view(torch.int32), memory.view(torch.int32)
    # Between its parts there are gaps, which nobody writes.
    expected = []
    for gaps in (0, -1):
        bits.fill_(gaps)
        _native.pack(w.detach().clone(), memory, of.precision, "emulate")
        expected.append(bits.clone())
    written = expected[0] == expected[1]
    assert written.sum() > 0.5 * w.numel()
    return bool(((found == expected[0]) | ~written).all())


def layer(*arguments: Any, **options: Any) -> nn.Linear:
    return nn.Linear(24, 16, *arguments, **EMULATE, **options)


def test_which_plan_it_is_is_asked_once_for_inputs_that_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(_native, "reads_packed", lambda x, *_: asked.append(tuple(x.shape)))
    made = layer().requires_grad_(False)
    for rows in (3, 3, 3, 3, 5, 5, 3):
        made(torch.randn(rows, 24))
    # The first call sees the weight for the first time.
    assert asked == [(3, 24), (5, 24), (3, 24)]
    # Another layout of the same shape, and another weight.
    made(torch.randn(24, 3).t())
    made.weight = torch.nn.Parameter(torch.randn(16, 24), requires_grad=False)
    for _ in range(3):
        made(torch.randn(24, 3).t())
    assert asked[3:] == [(3, 24)] * 2


def check(module: Any, x: Any, activation: Any = lambda y: y) -> None:
    """One call, whose result is that of torch for the parameters as they are."""
    torch.testing.assert_close(module(x), activation(F.linear(x, module.weight, module.bias)), rtol=1e-5, atol=1e-5)


# ── PackedMatrix ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("precision", ["fp32", "fp32-normwise", "fp32-ozaki", "bf16", "fp16"])
def test_it_knows_what_it_is(precision: str) -> None:
    w = torch.randn(16, 40)
    it = packed(w, precision)
    assert (it.shape, it.dtype, it.device, it.precision) == (w.shape, w.dtype, w.device, precision)
    assert it.source is w and it.is_current() and not it.frozen and it.FORMAT_VERSION == 1
    # A line is filled up, and of fp32 it has the bits twice.
    assert w.numel() * (2 if precision in ("bf16", "fp16") else 4) <= it.nbytes <= 6 * 16 * 128
    assert repr(it) == f"PackedMatrix((16, 40), precision='{precision}', device='cpu', nbytes={it.nbytes})"


@pytest.mark.parametrize("shape", [(16, 40), (1, 40), (16, 1), (0, 40), (16, 0), (130, 70)])
def test_products_are_those_of_the_matrix(shape: Any) -> None:
    for w in (torch.randn(shape), torch.randn(shape[::-1]).mT, torch.randn(*shape, 3)[..., 1], torch.randn(shape[0], shape[1] + 1)[:, 1:]):
        it = packed(w)
        # The last one makes several products of what others make one of.
        extents = [(6,), (), (2, 3), (0,), (2, 4, 3)]
        for x in [torch.randn(*extent, shape[1]) for extent in extents] + [torch.randn(4, 3, 2, shape[1])[:, ::2].transpose(0, 2)]:
            assert torch.equal(tilewright.linear(x, it, None, "gelu", **EMULATE), tilewright.linear(x, w, None, "gelu", **EMULATE))
            out = torch.empty(*x.shape[:-1], shape[0])
            assert tilewright.linear(x, it, out=out, **EMULATE) is out
            assert torch.equal(out, tilewright.linear(x, w, **EMULATE))
        x, bias = torch.randn(shape[1], 6), torch.randn(shape[0], 1)
        assert torch.equal(tilewright.addmm(bias, it, x, **EMULATE), tilewright.addmm(bias, w, x, **EMULATE))


def test_what_is_packed_follows_the_matrix() -> None:
    w, x = torch.randn(16, 24), torch.randn(4, 24)
    it = packed(w)
    assert is_of(it, w)
    w.mul_(2)
    assert not it.is_current() and not is_of(it, w)
    torch.testing.assert_close(tilewright.linear(x, it, **EMULATE), x @ w.mT)
    assert it.is_current() and is_of(it, w)
    # Also by views of it, in the inference mode, and by what this package writes.
    for write in (lambda: w[3:5, 2].zero_(), lambda: torch.mul(w, 3.0, out=w), lambda: tilewright.scale(w, 2.0, out=w, **EMULATE)):
        write()
        assert not it.is_current()
        tilewright.linear(x, it, **EMULATE)
        assert it.is_current() and is_of(it, w)
    with torch.inference_mode():
        w.add_(1)
        tilewright.linear(x, it, **EMULATE)
    assert is_of(it, w)
    # Memory of its own, which lies otherwise.
    w.set_(torch.randn(24, 16).mT)
    tilewright.linear(x, it, **EMULATE)
    assert is_of(it, w)


def test_what_torch_does_not_count_is_packed_by_hand() -> None:
    w = torch.randn(16, 24)
    it = packed(w)
    w.data.mul_(2)
    assert it.is_current() and not is_of(it, w)
    it.repack()
    assert is_of(it, w)


def test_what_is_frozen_is_packed_again_where_it_is() -> None:
    w = torch.randn(16, 24)
    frozen, other = packed(w, frozen=True), packed(w)
    addresses = [it._memory.data_ptr() for it in (frozen, other)]
    assert frozen.frozen and "frozen=True" in repr(frozen)
    w.mul_(2)
    for it in (frozen, other):
        tilewright.linear(torch.randn(4, 24), it, **EMULATE)
        assert is_of(it, w)
    assert frozen._memory.data_ptr() == addresses[0]
    # Not where it does not lie as it did.
    w.set_(torch.randn(40, 24))
    tilewright.linear(torch.randn(4, 24), frozen, **EMULATE)
    assert is_of(frozen, w)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))], ids=["copy", "deepcopy", "pickle"])
def test_copies_are_packed_anew(again: Any) -> None:
    it = packed(torch.randn(16, 24), "bf16", frozen=True)
    other = again(it)
    assert (other.precision, other.frozen, other.shape) == ("bf16", True, it.shape)
    assert is_of(other, it.source) and it._memory.data_ptr() != other._memory.data_ptr()


def test_the_memory_is_in_no_pickle() -> None:
    w = torch.randn(256, 256)
    assert len(pickle.dumps(packed(w))) < len(pickle.dumps(w)) + 1000


def test_derivatives_are_those_without_it() -> None:
    def derivatives(pack: bool) -> Any:
        torch.manual_seed(1)
        x, w, bias = (torch.randn(shape, requires_grad=True) for shape in ((5, 24), (16, 24), (16,)))
        y = tilewright.linear(x, packed(w) if pack else w, bias, "gelu", **EMULATE)
        return [y, *torch.autograd.grad(y.square().sum(), (x, w, bias))]

    for with_it, without in zip(derivatives(True), derivatives(False)):
        assert torch.equal(with_it, without)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")
def test_vmap_and_forward_derivatives_go_by_the_matrix() -> None:
    it, x = packed(torch.randn(16, 24)), torch.randn(5, 3, 24)
    expected = x @ it.source.mT
    torch.testing.assert_close(torch.vmap(lambda v: tilewright.linear(v, it, **EMULATE))(x), expected, rtol=1e-5, atol=1e-5)
    _, tangent = torch.func.jvp(lambda v: tilewright.linear(v, it, **EMULATE), (x,), (x,))
    torch.testing.assert_close(tangent, expected, rtol=1e-5, atol=1e-5)


def test_what_cannot_be_packed_is_refused() -> None:
    w = torch.randn(16, 24)
    with torch.inference_mode():
        inference = torch.randn(16, 24)
    for wrong, error, message in [
        (lambda: packed(torch.randn(3)), tilewright.ArgumentError, "only matrices"),
        (lambda: packed(w.double()), tilewright.OperandTypeError, "float64"),
        (lambda: packed([[1.0]]), tilewright.OperandTypeError, "of type list"),
        (lambda: packed(inference), tilewright.ArgumentError, "inference mode"),
        (lambda: packed(w, "fp32-strict"), tilewright.ArgumentError, "no kernel multiplies packed matrices in fp32-strict"),
        (lambda: packed(w, "fp33"), tilewright.ArgumentError, "precision"),
        (lambda: PackedMatrix(w), tilewright.ArgumentError, "on_cpu"),
        (lambda: PackedMatrix(w, on_cpu="move"), tilewright.ArgumentError, "w.cuda()"),
        (lambda: tilewright.linear(torch.randn(4, 24), packed(w, "bf16"), **EMULATE), tilewright.ArgumentError, "precision='bf16'"),
        (lambda: tilewright.linear(torch.randn(4, 23), packed(w), **EMULATE), tilewright.ArgumentError, "the features of x"),
        (lambda: tilewright.matmul(torch.randn(4, 16), packed(w), **EMULATE), tilewright.OperandTypeError, "PackedMatrix"),
        (lambda: tilewright.linear(packed(w), w, **EMULATE), tilewright.OperandTypeError, "PackedMatrix"),
    ]:
        with pytest.raises(error, match=message):
            wrong()


def test_memory_that_is_none_of_its_own_is_refused() -> None:
    w, x = torch.randn(16, 24), torch.randn(4, 24)
    memory = packed(w)._memory
    assert memory is not None
    operator = torch.ops.tilewright.fused_matmul
    assert torch.equal(operator("linear", x, w, [], packed_b=memory, **EMULATE), tilewright.linear(x, w, **EMULATE))
    for wrong in (memory[1:], memory[::2], memory.view(1, -1), memory.int()):
        with pytest.raises(tilewright.Error):
            operator("linear", x, w, [], packed_b=wrong, **EMULATE)
    with pytest.raises(tilewright.Error, match="WorkspaceTooSmall|memory|bytes"):
        operator("linear", x, w, [], packed_b=memory[:64], **EMULATE)


def test_a_tolerance_goes_by_the_matrix() -> None:
    it, x = packed(torch.randn(16, 24)), torch.randn(4, 24)
    assert torch.equal(tilewright.linear(x, it, tolerance=1e-5, **EMULATE), tilewright.linear(x, it.source, tolerance=1e-5, **EMULATE))


def test_threads_use_it_while_another_one_writes() -> None:
    w, x = torch.zeros(16, 24), torch.ones(4, 24)
    it = packed(w)
    wrong: list[Any] = []

    def use() -> None:
        for _ in range(10):
            y = tilewright.linear(x, it, **EMULATE)
            if not torch.isfinite(y).all():
                wrong.append(y)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for value in range(20):
        w.fill_(value)
    for thread in threads:
        thread.join()
    tilewright.linear(x, it, **EMULATE)
    assert not wrong and is_of(it, w)


# ── nn.Linear ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_parameters_are_those_of_torch() -> None:
    torch.manual_seed(1)
    ours = layer(activation="relu")
    torch.manual_seed(1)
    theirs = torch.nn.Linear(24, 16)
    assert list(ours.state_dict()) == list(theirs.state_dict()) == ["weight", "bias"]
    for name, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value)
    assert layer(bias=False).bias is None
    assert isinstance(ours, torch.nn.Linear) and "activation='relu', precision='fp32'" in repr(ours)
    assert "frozen=True" in repr(layer(frozen=True))


def test_wrong_options_are_refused_when_it_is_made() -> None:
    with pytest.raises(tilewright.ArgumentError, match="step"):
        layer(activation="swishh")
    with pytest.raises(tilewright.ArgumentError, match="precision"):
        layer(precision="fp33")


def test_from_linear_shares_parameters() -> None:
    theirs = torch.nn.Linear(24, 16).eval()
    ours = nn.Linear.from_linear(theirs, "gelu", **EMULATE)
    assert ours.weight is theirs.weight and ours.bias is theirs.bias and not ours.training
    check(ours, torch.randn(5, 24), F.gelu)
    assert nn.Linear.from_linear(torch.nn.Linear(3, 4, bias=False)).bias is None


def test_the_second_call_packs_and_others_use_it(packing: None) -> None:
    module, x = layer(activation="gelu"), torch.randn(2, 3, 24)
    sizes: list[int] = []
    with torch.no_grad():
        for _ in range(4):
            check(module, x, F.gelu)
            sizes.append(module.packed_bytes())
    assert sizes[0] == 0 and sizes[1] > 16 * 24 * 4 and sizes[1:] == [sizes[1]] * 3
    kept = module._kept
    with torch.no_grad():
        assert kept is not None and kept.source is module.weight and module.operand(x) is kept
    module.unpack()
    assert module.packed_bytes() == 0
    residual = torch.randn(2, 3, 16)
    torch.testing.assert_close(module(x, residual), module(x) + residual)


def test_nothing_is_packed_where_no_plan_would_read_it() -> None:
    module = layer(frozen=True)
    for _ in range(3):
        check(module, torch.randn(5, 24))
    assert module.packed_bytes() == 0


def test_fsdp_has_its_own_way_to_change_weights(packing: None) -> None:
    """It gathers the parts of a weight into the same tensor before each call, and tells torch that nothing has changed."""
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        module, x = layer(bias=False), torch.randn(5, 24)
        fully_shard(module, mesh=dist.init_device_mesh("cpu", (1,)), reshard_after_forward=True)
        with torch.no_grad():
            for _ in range(5):
                found = module(x)
                torch.testing.assert_close(found, F.linear(x, module.weight.full_tensor()), rtol=1e-5, atol=1e-5)
                assert module._kept is None
                module.weight.to_local().copy_(torch.randn(16, 24))
    finally:
        dist.destroy_process_group()


def test_in_training_nothing_is_packed(packing: None) -> None:
    module, x = layer(), torch.randn(5, 24)
    reference = torch.nn.Linear(24, 16)
    reference.load_state_dict(module.state_dict())
    optimizers = [torch.optim.SGD(of.parameters(), 0.1) for of in (module, reference)]
    for _ in range(4):
        for of, optimizer in zip((module, reference), optimizers):
            optimizer.zero_grad()
            of(x).square().sum().backward()
            optimizer.step()
        assert module.packed_bytes() == 0
        torch.testing.assert_close(module.weight, reference.weight, rtol=1e-4, atol=1e-4)
    # Then the weight stays as it is.
    with torch.no_grad():
        for _ in range(2):
            check(module, x)
    assert module.packed_bytes() > 0
    module(x)
    assert module.packed_bytes() == 0
    # One that wants no derivative is not trained.
    module.requires_grad_(False)
    for _ in range(2):
        check(module, x)
    assert module.packed_bytes() > 0


def change_in_place(module: Any) -> None:
    with torch.no_grad():
        module.weight[3] = 7.0


def change_by_an_optimizer(module: Any) -> None:
    module(torch.randn(5, 24)).sum().backward()
    torch.optim.AdamW(module.parameters(), 0.1).step()


def change_by_a_fused_optimizer(module: Any) -> None:
    module(torch.randn(5, 24)).sum().backward()
    torch.optim.AdamW(module.parameters(), 0.1, fused=True).step()


def change_by_loading(module: Any) -> None:
    module.load_state_dict(torch.nn.Linear(24, 16).state_dict())


def change_by_assigning(module: Any) -> None:
    module.load_state_dict(torch.nn.Linear(24, 16).state_dict(), assign=True)


def change_the_parameter(module: Any) -> None:
    module.weight = torch.nn.Parameter(torch.randn(16, 24))


def change_the_data(module: Any) -> None:
    module.weight.data = torch.randn(16, 24)


def change_the_layout(module: Any) -> None:
    with torch.no_grad():
        module.weight.set_(torch.randn(24, 16).mT)


def change_by_way_of_double(module: Any) -> None:
    module.double().float()


CHANGES = [
    *(change_in_place, change_by_an_optimizer, change_by_a_fused_optimizer, change_by_loading, change_by_assigning),
    *(change_the_parameter, change_the_data, change_the_layout, change_by_way_of_double),
]


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_no_change_is_missed(change: Any, frozen: bool, packing: None) -> None:
    module, x = layer(frozen=frozen), torch.randn(5, 24)
    with torch.no_grad():
        for _ in range(3):
            module(x)
    assert module.packed_bytes() > 0
    change(module)
    with torch.no_grad():
        for _ in range(3):
            check(module, x)
            kept = module._kept
            assert kept is None or (kept.source is module.weight and is_of(kept, module.weight))
    assert module.packed_bytes() > 0


def test_memory_of_another_weight_at_the_same_address_is_none_of_the_same(packing: None) -> None:
    """An allocator gives the memory of what has gone to what comes: with the same address, shape and number of changes."""
    memory = torch.randn(16, 24)
    module, x = layer(), torch.randn(5, 24)
    module.weight = torch.nn.Parameter(memory)
    with torch.no_grad():
        for _ in range(2):
            module(x)
        assert module.packed_bytes() > 0
        memory.copy_(torch.randn(16, 24))
        other = torch.nn.Parameter(torch.frombuffer(memory.numpy(), dtype=torch.float32).view(16, 24))
        assert other.data_ptr() == module.weight.data_ptr()
        module.weight = other
        for _ in range(3):
            check(module, x)
            assert module._kept is None or is_of(module._kept, other)


def test_what_goes_with_what_is_packed(packing: None) -> None:
    for change in (lambda of: of.to(torch.float64), lambda of: of.share_memory(), lambda of: of.to("meta"), lambda of: of.unpack()):
        module = layer()
        with torch.no_grad():
            for _ in range(2):
                module(torch.randn(5, 24))
        memory = weakref.ref(module._kept)
        change(module)
        gc.collect()
        assert memory() is None and module.packed_bytes() == 0


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))], ids=["copy", "deepcopy", "pickle"])
def test_copies_have_nothing_packed(again: Any, packing: None) -> None:
    module, x = layer(activation=[("mul", 2.0), "gelu"], frozen=True), torch.randn(5, 24)
    with torch.no_grad():
        for _ in range(2):
            expected = module(x)
        other = again(module)
        assert module.packed_bytes() > 0 and other.packed_bytes() == 0
        assert other.frozen and other.activation == module.activation
        assert torch.equal(other(x), expected) and other.packed_bytes() > 0
    assert "_kept" not in module.state_dict() and list(module.state_dict()) == ["weight", "bias"]


def test_weights_whose_changes_are_not_counted_are_not_kept(packing: None) -> None:
    with torch.inference_mode():
        module = layer(frozen=True)
        for _ in range(3):
            check(module, torch.randn(5, 24))
    assert module.packed_bytes() == 0

    class Tensor(torch.Tensor):
        pass

    module = layer(frozen=True)
    module.weight = torch.nn.Parameter(torch.randn(16, 24).as_subclass(Tensor))
    with torch.no_grad():
        for _ in range(3):
            module(torch.randn(5, 24))
    assert module.packed_bytes() == 0


def test_in_the_inference_mode_ordinary_weights_are(packing: None) -> None:
    module, x = layer(), torch.randn(5, 24)
    with torch.inference_mode():
        for _ in range(3):
            check(module, x)
    assert module.packed_bytes() > 0
    # And then where a derivative is wanted.
    (of_x,) = torch.autograd.grad(module(x.requires_grad_()).sum(), [x])
    torch.testing.assert_close(of_x, module.weight.sum(0).expand(5, -1), rtol=1e-4, atol=1e-4)


def test_torch_computes_what_is_not_float32() -> None:
    module = layer(activation=["relu", ("mul", 2.0)])
    x = torch.randn(5, 24)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(module(x), 2 * torch.relu(F.linear(x, module.weight, module.bias)))
    residual = torch.randn(5, 16).double()
    torch.testing.assert_close(
        module.double()(x.double(), residual), 2 * torch.relu(F.linear(x.double(), module.weight, module.bias)) + residual
    )


def test_functional_calls_have_their_own_weights(packing: None) -> None:
    module, x = layer(), torch.randn(5, 24)
    with torch.no_grad():
        for _ in range(2):
            module(x)
        other = {"weight": torch.randn(16, 24), "bias": torch.randn(16)}
        found = torch.func.functional_call(module, other, (x,))
        torch.testing.assert_close(found, F.linear(x, other["weight"], other["bias"]), rtol=1e-5, atol=1e-5)
        check(module, x)
        many = {name: torch.stack([value, 2 * value]) for name, value in other.items()}
        found = torch.vmap(lambda parameters: torch.func.functional_call(module, parameters, (x,)))(many)
        torch.testing.assert_close(found[1], 2 * F.linear(x, other["weight"], other["bias"]), rtol=1e-5, atol=1e-5)


def graphs_of(module: Any, x: Any) -> list[Any]:
    """What torch.compile makes of a module: without a break."""
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch.testing.assert_close(torch.compile(module, backend=backend, fullgraph=True)(x), module(x))
    return [node for graph in graphs for node in graph.graph.nodes if "fused_matmul" in str(node.target)]


def test_compiled_code_goes_by_the_weight(packing: None) -> None:
    module, x = layer(activation="gelu"), torch.randn(5, 24)
    with torch.no_grad():
        (call,) = graphs_of(module, x)
        assert "packed_b" not in call.kwargs
        for _ in range(2):
            module(x)
        assert module.packed_bytes() > 0
        torch.compiler.reset()
        (call,) = graphs_of(module, x)
        assert "packed_b" not in call.kwargs


def test_compiled_code_uses_what_is_frozen(packing: None) -> None:
    module, x = layer(activation="gelu", frozen=True), torch.randn(5, 24)
    with torch.no_grad():
        module(x)
        (call,) = graphs_of(module, x)
        assert "packed_b" in call.kwargs
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    found = torch.autograd.grad(compiled(x).square().sum(), [module.weight])
    expected = torch.autograd.grad(F.gelu(F.linear(x, module.weight, module.bias)).square().sum(), [module.weight])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_graphs_that_are_written_down_have_nothing_packed_in_them(packing: None) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    module, x = layer(frozen=True), torch.randn(5, 24)
    with torch.no_grad():
        module(x)
        assert module.packed_bytes() > 0
        graph = make_fx(lambda v: module(v))(x)
        other = layer(frozen=True)
        make_fx(lambda v: other(v))(x)
        assert other.packed_bytes() == 0
        assert not any("packed_b" in node.kwargs for node in graph.graph.nodes)
        change_in_place(module)
        torch.testing.assert_close(graph(x), module(x))


# ── convert ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(24, 24)
        self.again = self.first
        self.rest = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(24, 16, bias=False), torch.nn.Linear(16, 8).double())
        self.attention = torch.nn.MultiheadAttention(24, 2)
        self.kept_besides = [self.first]

    def forward(self, x: Any) -> Any:
        return self.rest[2](self.rest[1](self.rest[0](self.again(self.kept_besides[0](self.first(x))))).double())


def test_convert_changes_what_is_torchs_linear_and_nothing_else(packing: None) -> None:
    model, x = Model(), torch.randn(5, 24)
    calls: list[Any] = []
    model.first.register_forward_hook(lambda *_: calls.append(None))
    expected, parameters, names = model(x), dict(model.named_parameters()), list(model.state_dict())
    assert len(calls) == 3
    converted = tilewright.convert(model, **EMULATE)
    assert converted is model
    kinds = {name: type(part) for name, part in model.named_modules(remove_duplicate=False)}
    assert kinds["first"] is kinds["again"] is kinds["rest.1"] is nn.Linear
    # Neither float64 nor subclasses.
    assert kinds["rest.2"] is torch.nn.Linear and kinds["attention.out_proj"] is not nn.Linear
    assert model.again is model.first is model.kept_besides[0]
    assert list(model.state_dict()) == names and all(model.get_parameter(name) is of for name, of in parameters.items())
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)
    assert len(calls) == 12
    # The shared one once.
    parts = model.first, model.rest[1]
    assert nn.packed_bytes(model) == sum(part.packed_bytes() for part in parts) > 0
    assert tilewright.convert(model, "bf16", frozen=True, **EMULATE).first.precision == "bf16" and nn.packed_bytes(model) == 0

    attributes = set(torch.nn.Linear(24, 24).__dict__)
    assert tilewright.revert(model) is model
    assert type(model.first) is type(model.rest[1]) is torch.nn.Linear and set(model.first.__dict__) == attributes
    torch.testing.assert_close(model(x), expected)
    assert len(calls) == 15


def test_a_layer_alone_is_converted_too() -> None:
    module = torch.nn.Linear(24, 16)
    assert tilewright.convert(module, **EMULATE) is module and isinstance(module, nn.Linear)
    check(module, torch.randn(5, 24))
    assert type(tilewright.revert(module)) is torch.nn.Linear
    # What has an activation cannot be one of torch's.
    assert type(tilewright.revert(layer(activation="relu"))) is nn.Linear


def test_parametrized_weights_are_left_to_torch() -> None:
    module = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(24, 16))
    assert not isinstance(tilewright.convert(module), nn.Linear)


def test_weights_that_become_parametrized_are_computed_each_time(packing: None) -> None:
    module, x = layer(frozen=True), torch.randn(5, 24)
    torch.nn.utils.parametrizations.weight_norm(module)
    with torch.no_grad():
        for _ in range(3):
            check(module, x)
            module.parametrizations.weight.original0.mul_(2.0)
    assert module.packed_bytes() == 0
