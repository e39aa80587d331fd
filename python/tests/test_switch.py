"""The switch: torch's own operators, computed by Tilewright. On tensors on the CPU by the executor: everything but the GPU itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest
import tilewright

torch = pytest.importorskip("torch", reason="torch is not installed here: `cargo xtask test --with-torch` runs these")

from tilewright import _switch  # noqa: E402

OPERATORS = ["mm", "bmm", "addmm", "baddbmm", "addmv"]


def on(precision: Any = "fp32", only_faster: bool = False) -> AbstractContextManager[None]:
    return _switch.enabled(precision, only_faster=only_faster, device="cpu")


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    torch.manual_seed(20261126)
    tilewright.reset_stats()
    yield
    assert not _switch._base and not _switch._blocks, "a test has left the switch on"


def whole(*shape: int, **options: Any) -> Any:
    """Small whole numbers, whose products are exact."""
    return torch.randint(-4, 5, shape).float().requires_grad_(options.get("requires_grad", False))


def taken() -> int:
    return sum(product.calls for product in tilewright.stats().taken)


def passed_on(reason: str) -> int:
    return sum(calls for text, calls in tilewright.stats().passed_on.items() if reason in text)


def tables() -> list[str]:
    """What torch's dispatcher has for all operators that are taken."""
    names = [*OPERATORS, "mm.out", "bmm.out", "addmm.out", "addmm_", "baddbmm.out", "baddbmm_", "addmv.out", "addmv_"]
    return [torch._C._dispatch_dump(f"aten::{name}") for name in names]


def forms(beta: Any, alpha: Any) -> list[Any]:
    """The results of every operator in every form."""
    torch.manual_seed(1)
    a, b, c, v, w = whole(4, 5), whole(5, 6), whole(4, 6), whole(5), whole(4)
    many_a, many_b, many_c = whole(3, 4, 5), whole(3, 5, 6), whole(3, 4, 6)
    factors: Any = {"beta": beta, "alpha": alpha}
    nan = float("nan")
    same = c.clone()
    return [
        torch.mm(a, b),
        torch.mm(a, b, out=torch.full((4, 6), nan)),
        torch.mm(a, b, out=torch.full((6, 4), nan).T),
        torch.bmm(many_a, many_b),
        torch.bmm(many_a, many_b, out=torch.full((3, 4, 6), nan)),
        torch.addmm(c, a, b, **factors),
        torch.addmm(c[0], a, b, **factors),
        torch.addmm(c[:, :1], a, b, **factors),
        torch.addmm(c[0, 0], a, b, **factors),
        torch.addmm(c, a, b, **factors, out=torch.full((4, 6), nan)),
        torch.addmm(same, a, b, **factors, out=same),
        c.clone().addmm_(a, b, **factors),
        torch.baddbmm(many_c, many_a, many_b, **factors),
        torch.baddbmm(c, many_a, many_b, **factors, out=torch.full((3, 4, 6), nan)),
        many_c.clone().baddbmm_(many_a, many_b, **factors),
        torch.addmv(w, a, v, **factors),
        torch.addmv(w[:1], a, v, **factors, out=torch.full((4,), nan)),
        w.clone().addmv_(a, v, **factors),
    ]


def same(ours: list[Any], theirs: list[Any]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
        assert one.stride() == other.stride()


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0, 2), (0.5, -3.0), (-2.0, 0.25)])
def test_every_operator_in_every_form_is_that_of_torch(beta: Any, alpha: Any) -> None:
    expected = forms(beta, alpha)
    assert taken() == 0
    with on():
        ours = forms(beta, alpha)
    assert taken() == len(expected), tilewright.stats()
    same(ours, expected)


def test_calls_with_a_stack_of_arguments_are_taken_too() -> None:
    def calls() -> list[Any]:
        torch.manual_seed(1)
        a, b, c = whole(4, 5), whole(5, 6), whole(4, 6)
        ops, out = torch.ops.aten, torch.empty(4, 6)
        assert ops.mm.out(a, b, out=out) is out
        added = c.clone()
        assert ops.addmm_.default(added, a, b) is added
        counts = [torch._C._storage_Use_Count(tensor.untyped_storage()._cdata) for tensor in (a, b, c)]
        results = [
            out,
            added,
            ops.mm.default(a, b),
            ops.addmm.default(c, a, b),
            ops.addmm.default(c[0], a, b, beta=2, alpha=0.5),
            ops.addmm.out(c, a, b, alpha=3, out=torch.empty(4, 6)),
            ops.bmm.default(a[None], b[None]),
        ]
        after = [torch._C._storage_Use_Count(tensor.untyped_storage()._cdata) for tensor in (a, b, c)]
        assert after == counts, "operands are held by somebody"
        return results

    with torch.inference_mode():
        expected = calls()
        with on():
            ours = calls()
    assert taken() == len(expected)
    same(ours, expected)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")
def test_what_is_made_of_products_is_taken() -> None:
    x, weight, bias = whole(2, 3, 8), whole(5, 8), whole(5)
    programs: list[Any] = [
        lambda: torch.nn.functional.linear(x, weight, bias),
        lambda: torch.nn.functional.linear(x[0], weight),
        lambda: x @ weight.T,
        lambda: torch.mv(weight, x[0, 0]),
        lambda: torch.einsum("bik,jk->bij", x, weight),
        lambda: torch.vmap(torch.mm)(x, x.mT),
        lambda: torch.func.jvp(lambda a: a @ weight.T, (x,), (x,)),
    ]
    for program in programs:
        expected, before = program(), taken()
        with on():
            ours = program()
        assert taken() > before
        torch.testing.assert_close(ours, expected, rtol=0, atol=0)


def test_random_numbers_keep_the_promise_of_the_precision() -> None:
    a, b = torch.randn(40, 70), torch.randn(70, 30)
    exact = a.double() @ b.double()
    errors: list[float] = []
    for precision in ("fp32", "tf32"):
        with on(precision):
            errors.append(((a @ b).double() - exact).norm().item() / exact.norm().item())
    assert errors[0] < 3e-7 < errors[1] < 1e-3
    assert {product.precision for product in tilewright.stats().taken} == {"fp32", "tf32"}


def test_views_are_read_in_place() -> None:
    large = whole(20, 30)
    for a in (large.mT, large[1:12, 3:17], large[::2, ::3], large[3].expand(5, 30)):
        b = whole(a.shape[-1], 7)
        expected = (a @ b, b.mT @ a.mT)
        with on():
            same([a @ b, b.mT @ a.mT], list(expected))
    assert taken() == 8


def test_derivatives_are_those_of_torch() -> None:
    def derivatives() -> list[Any]:
        torch.manual_seed(1)
        x, weight, bias = (whole(*shape, requires_grad=True) for shape in ((7, 8), (5, 8), (5,)))
        y = torch.nn.functional.linear(x, weight, bias)
        first = torch.autograd.grad((y**2).sum(), (x, weight, bias), create_graph=True)
        second = torch.autograd.grad(sum((grad**2).sum() for grad in first), (x, weight))
        return [y, *first, *second]

    expected = derivatives()
    with on():
        ours = derivatives()
    assert taken() >= 7
    torch.testing.assert_close(ours, expected)


@pytest.mark.filterwarnings("ignore:.*double precision.*")
def test_derivatives_are_what_differences_approach() -> None:
    c, a, b = (torch.randn(*shape, requires_grad=True) for shape in ((3, 5), (3, 4), (4, 5)))
    with on("fp32-strict"):
        assert torch.autograd.gradcheck(torch.addmm, (c, a, b), eps=0.5, atol=1e-3, rtol=1e-3)


@pytest.mark.filterwarnings("ignore:Named tensors")
def test_everything_else_goes_to_torch_as_before() -> None:
    a, b = whole(4, 5), whole(5, 6)
    square = whole(4, 4)
    programs: dict[str, list[Any]] = {
        "other than float32": [lambda: a.double() @ b.double(), lambda: a.long() @ b.long()],
        "without elements": [lambda: torch.mm(a[:0], b), lambda: torch.mm(a[:, :0], b[:0])],
        "a factor": [lambda: torch.addmm(a, a, whole(5, 5).fill_(1), alpha=0)],
        # Torch grows a result without elements.
        "another shape": [lambda: torch.mm(a, b, out=torch.empty(0))],
    }
    # Newer torch has no names of extents.
    if hasattr(torch.Tensor, "rename"):
        named = (a.rename("rows", "terms"), b.rename("terms", "columns"))
        programs["names"] = [lambda: torch.mm(*named)]
    for reason, calls in programs.items():
        for program in calls:
            expected, before = program(), passed_on(reason)
            with on():
                ours = program()
            assert ours.dtype == expected.dtype
            if reason == "names":
                assert ours.names == expected.names
                ours, expected = ours.rename(None), expected.rename(None)
            torch.testing.assert_close(ours, expected, rtol=0, atol=0)
            assert passed_on(reason) == before + 1, (reason, tilewright.stats())
    assert taken() == 0
    with on():
        meta = torch.mm(a.to("meta"), b.to("meta"))
        sparse = torch.mm(square.to_sparse(), square)
    assert meta.is_meta and torch.equal(sparse, square @ square)
    assert taken() == 0


def message(program: Any) -> tuple[type, str]:
    with pytest.raises(Exception) as error:  # noqa: PT011
        program()
    return error.type, str(error.value)


def test_errors_are_those_of_torch() -> None:
    a, b = whole(4, 5), whole(5, 6)
    programs: list[Any] = [
        lambda: torch.mm(a, a),
        lambda: torch.mm(a.double(), b),
        lambda: torch.addmm(whole(3, 3), a, b),
        lambda: torch.bmm(a, b),
        lambda: torch.mm(whole(6, 6), whole(6, 6).requires_grad_(), out=torch.empty(6, 6)),
        lambda: torch.addmm(a.new_zeros(4, 6), a, b, alpha=1j),
    ]
    for program in programs:
        expected = message(program)
        with on():
            assert message(program) == expected


def test_a_result_that_overlaps_an_operand_is_left_to_torch() -> None:
    buffer = whole(12, 12)

    def program() -> Any:
        memory = buffer.clone()
        return torch.mm(memory[:6, :6], memory[6:, 6:], out=memory[6:, :6]).clone()

    expected = program()
    with on():
        ours = program()
    same([ours], [expected])
    assert passed_on("overlaps") == 1


def test_without_memory_torch_says_so() -> None:
    # More bytes than addresses: a system that promises memory which it does not have cannot promise these.
    column = torch.ones(1, 1).expand(1 << 30, 1)
    program = lambda: torch.mm(column, column.T)  # noqa: E731
    expected = message(program)
    with on():
        assert message(program) == expected
    assert passed_on("not enough memory") == 1


def test_tf32_is_left_to_torch() -> None:
    a, b = whole(4, 5), whole(5, 6)
    torch.set_float32_matmul_precision("high")
    try:
        with on():
            same([torch.mm(a, b)], [a @ b])
        assert (taken(), passed_on("TF32")) == (0, 2)
    finally:
        torch.set_float32_matmul_precision("highest")
    with on():
        torch.mm(a, b)
    assert taken() == 1


def test_regions_of_autocast_are_left_alone() -> None:
    a, b = whole(4, 5), whole(5, 6)
    with on(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.mm(a, b).dtype == torch.bfloat16
    assert (taken(), passed_on("other than float32")) == (0, 1)


def test_small_products_go_to_torch_unless_all_are_wanted() -> None:
    a, b = whole(4, 5), whole(5, 6)
    with on(only_faster=True):
        torch.mm(a, b)
    assert (taken(), passed_on("too small")) == (0, 1)
    with on(only_faster=False):
        torch.mm(a, b)
    assert taken() == 1


def test_modes_see_calls_before_they_are_taken() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with on(), Mode():
        torch.mm(whole(4, 5), whole(5, 6))
    assert "aten.mm.default" in seen and taken() == 1
    from torch._subclasses.fake_tensor import FakeTensorMode

    with on(), FakeTensorMode():
        assert torch.mm(torch.empty(4, 5), torch.empty(5, 6)).shape == (4, 6)
    assert taken() == 1


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_functions_follow_the_switch_without_being_compiled_again(backend: str) -> None:
    if backend == "inductor" and shutil.which("g++") is None:
        pytest.skip("torch's compiler needs a C++ compiler for the CPU")
    from torch._dynamo.testing import CompileCounterWithBackend

    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    x = whole(5, 8, requires_grad=True)
    expected = model(x)
    torch.compiler.reset()
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(model, fullgraph=True, backend=counter)

    def step() -> int:
        before = taken()
        y = compiled(x)
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
        y.sum().backward()
        return taken() - before

    assert step() == 0
    with on():
        # Forward two products; backward two for each layer.
        assert step() == 6
    assert step() == 0
    with on("fp32-strict"):
        assert step() == 6
    assert counter.frame_count == 1
    # Compiled while it is on, and used when it is not.
    torch.compiler.reset()
    with on():
        assert step() == 6
    assert step() == 0


def test_a_function_can_be_decorated() -> None:
    @on()
    def program() -> Any:
        return torch.mm(whole(4, 5), whole(5, 6))

    program()
    program()
    assert taken() == 2


def test_blocks_may_be_nested_and_end_in_any_order() -> None:
    a, b = whole(4, 5), whole(5, 6)

    def precision() -> str | None:
        tilewright.reset_stats()
        torch.mm(a, b)
        products = tilewright.stats().taken
        return products[0].precision if products else None

    assert precision() is None
    _switch.enable("fp32", only_faster=False, device="cpu")
    assert precision() == "fp32"
    with on("tf32"):
        assert precision() == "tf32"
        with on("fp32-strict"):
            assert precision() == "fp32-strict"
        assert precision() == "tf32"
    assert precision() == "fp32"
    first, second = on("tf32"), on("fp32-strict")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert precision() == "fp32-strict"
    second.__exit__(None, None, None)
    assert precision() == "fp32"
    with pytest.raises(ZeroDivisionError), on("tf32"):
        raise ZeroDivisionError
    assert precision() == "fp32"
    with on("tf32"):
        tilewright.disable()
        assert precision() is None
    assert precision() is None


def test_a_wrong_precision_changes_nothing() -> None:
    before = tables()
    with pytest.raises(tilewright.ArgumentError, match="fp33"), on("fp33"):
        pass
    with pytest.raises(tilewright.ArgumentError, match="fp33"):
        tilewright.enable("fp33")  # type: ignore[arg-type]
    assert tables() == before


def test_nothing_is_left_behind() -> None:
    before = tables()
    with on():
        during = tables()
        assert all("tilewright" in table for table in during)
    assert tables() == before
    for _ in range(3):
        _switch.enable("fp32", only_faster=True, device="cpu")
    tilewright.disable()
    tilewright.disable()
    assert tables() == before


def test_kernels_in_python_of_another_package_are_passed_on_to() -> None:
    a, b, calls = whole(4, 5), whole(5, 6), []
    expected = a @ b
    library = torch.library.Library("aten", "IMPL")
    try:

        def multiply(a: Any, b: Any) -> Any:
            calls.append(a.dtype)
            return (a[:, :, None] * b).sum(1)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library.impl("mm", multiply, "CPU")
        with on():
            same([torch.mm(a, b), torch.mm(a.double(), b.double()).float()], [expected, expected])
            with torch.inference_mode():
                same([torch.ops.aten.mm.default(a, b)], [expected])
        assert taken() == 2 and calls == [torch.float64]
    finally:
        library._destroy()
    with on():
        same([torch.mm(a, b)], [expected])


@pytest.mark.skipif(torch.version.cuda is None, reason="this torch has no CUDA")
def test_for_gpus_kernels_for_cuda_are_replaced() -> None:
    before = tables()
    with tilewright.enabled():
        assert all("tilewright" in table for table in tables())
        torch.mm(whole(4, 5), whole(5, 6))
        tilewright.enable("fp32-strict", only_faster=False)
    assert tables() != before
    tilewright.disable()
    assert tables() == before and taken() == 0 and not tilewright.stats().passed_on


def test_it_warns_of_nothing_and_says_what_it_does_if_asked_to() -> None:
    program = """
import torch
from tilewright import _switch
with _switch.enabled("fp32", only_faster=False, device="cpu"):
    torch.mm(torch.ones(4, 5), torch.ones(5, 6))
    torch.mm(torch.ones(4, 5).double(), torch.ones(5, 6).double())
"""
    for verbose, expected in (("0", []), ("1", ["mm m=4 n=6 k=5 batch=1 fp32", "mm to torch: elements other than float32"])):
        run = subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True, env=os.environ | {"TILEWRIGHT_VERBOSE": verbose}
        )
        lines = run.stderr.splitlines()
        assert len(lines) == len(expected), run.stderr
        for line, beginning in zip(lines, expected, strict=True):
            assert line.startswith(f"tilewright: {beginning}")


def test_stats_can_be_read() -> None:
    a, b = whole(4, 5), whole(5, 6)
    with on():
        torch.mm(a, b)
        torch.mm(a, b)
        torch.mm(a.double(), b.double())
    stats = tilewright.stats()
    (product,) = stats.taken
    assert (product.operator, product.m, product.n, product.k, product.batch, product.calls) == ("mm", 4, 6, 5, 1, 2)
    # Of the executor's times nothing is known.
    assert product.predicted_ms is None and product.saved_ms == 0 == stats.saved_ms
    assert "mm" in str(stats) and product.kernel in str(stats) and "float32" in str(stats)
    assert stats.failure is None
    tilewright.reset_stats()
    assert not tilewright.stats().taken and not tilewright.stats().passed_on


def test_threads_may_compute_while_the_switch_changes() -> None:
    ended = threading.Event()

    def multiply(seed: int) -> int:
        generator = torch.Generator().manual_seed(seed)
        calls = 0
        while not ended.is_set():
            a = torch.randint(-4, 5, (7, 9), generator=generator).float().requires_grad_()
            b = torch.randint(-4, 5, (9, 5), generator=generator).float()
            product = torch.mm(a, b)
            assert torch.equal(product, (a[:, :, None] * b).sum(1))
            product.sum().backward()
            calls += 1
        return calls

    with ThreadPoolExecutor() as threads:
        running = [threads.submit(multiply, seed) for seed in range(4)]
        try:
            for round_ in range(200):
                with on("fp32" if round_ % 2 else "fp32-strict"):
                    torch.mm(whole(4, 5), whole(5, 6))
        finally:
            ended.set()
        assert all(future.result() > 0 for future in running)
    assert taken() >= 200


def test_products_below_dtensor_are_taken() -> None:
    program = """
import torch, tilewright
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from tilewright import _switch
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
a, b = torch.arange(20.0).reshape(4, 5), torch.arange(30.0).reshape(5, 6)
with _switch.enabled("fp32", only_faster=False, device="cpu"):
    c = distribute_tensor(a, mesh, [Shard(0)]) @ distribute_tensor(b, mesh, [Replicate()])
assert torch.equal(c.full_tensor(), a @ b)
assert sum(product.calls for product in tilewright.stats().taken) == 1
dist.destroy_process_group()
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)
