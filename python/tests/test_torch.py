"""The operator for torch, on the CPU executor: everything but the GPU itself."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import tilewright
from conftest import TOLERANCES, largest_error

torch = pytest.importorskip("torch", reason="torch is not installed here: `cargo xtask test --with-torch` runs these")

EMULATE: Any = {"on_cpu": "emulate"}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(20261121)


def whole(*shape: int, **options: Any) -> Any:
    """Small whole numbers, whose products are exact."""
    return torch.randint(-4, 5, shape).float().requires_grad_(options.get("requires_grad", False))


SHAPES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (4, 3, 2)),
    ((6, 5, 2, 3), (3, 4)),
    ((2, 0), (0, 4)),
    ((0, 3), (3, 4)),
]


@pytest.mark.parametrize(("shape_a", "shape_b"), SHAPES)
def test_the_product_is_that_of_torch(shape_a: Any, shape_b: Any) -> None:
    a, b = whole(*shape_a), whole(*shape_b)
    c = tilewright.matmul(a, b, **EMULATE)
    assert type(c) is torch.Tensor and c.is_contiguous() and not c.requires_grad
    torch.testing.assert_close(c, torch.matmul(a, b), rtol=0, atol=0)


def test_random_numbers_keep_the_promise_of_the_precision() -> None:
    a, b = torch.randn(40, 70), torch.randn(70, 30)
    for precision in ("fp32", "fp32-strict", "tf32"):
        c = tilewright.matmul(a, b, precision=precision, **EMULATE)
        assert largest_error(c, a, b) <= TOLERANCES[precision]


def test_views_are_read_in_place() -> None:
    large = whole(20, 30)
    for a in (large.mT, large[1:12, 3:17], large[::2, ::3], large[3].expand(5, 30), large.view(4, 5, 30).permute(1, 0, 2)):
        b = whole(a.shape[-1], 7)
        torch.testing.assert_close(tilewright.matmul(a, b, **EMULATE), a @ b, rtol=0, atol=0)
        torch.testing.assert_close(tilewright.matmul(b.mT, a.mT, **EMULATE), b.mT @ a.mT, rtol=0, atol=0)


def test_subclasses_modes_and_negated_views_go_through_the_dispatcher() -> None:
    a, b = whole(4, 5), whole(5, 6)
    imaginary = torch.complex(whole(4, 5), a).conj().imag
    assert imaginary.is_neg()
    torch.testing.assert_close(tilewright.matmul(imaginary, b, **EMULATE), -a @ b, rtol=0, atol=0)

    seen: list[str] = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return super().__torch_function__(func, types, args, kwargs or {})

    tilewright.matmul(a.as_subclass(Watched), b, **EMULATE)
    assert "tilewright.matmul.default" in seen

    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(f"mode {func}")
            return func(*args, **(kwargs or {}))

    with Mode():
        tilewright.matmul(a, b, **EMULATE)
    assert "mode tilewright.matmul.default" in seen


def test_tensors_without_memory_have_products_without_memory() -> None:
    a = torch.empty(5, 2, 3, device="meta")
    c = tilewright.matmul(a, torch.empty(3, 4, device="meta"))
    assert c.device.type == "meta" and c.shape == (5, 2, 4)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        c = tilewright.matmul(torch.empty(5, 2, 3), torch.empty(3))
        assert c.shape == (5, 2)


def message_of(kind: Any, a: Any, b: Any, function: Any = tilewright.matmul, **options: Any) -> str:
    with pytest.raises(kind) as error:
        function(a, b, **options)
    return str(error.value)


def test_errors_are_those_of_other_arrays() -> None:
    a, b = whole(2, 3), whole(3, 4)
    assert "on_cpu" in message_of(ValueError, a, b)
    assert "on_cpu" in message_of(ValueError, a.requires_grad_(), b)
    a = a.detach()
    assert "torch.float64" in message_of(TypeError, a.double(), b, **EMULATE)
    assert "torch.bfloat16" in message_of(TypeError, a, b.bfloat16(), **EMULATE)
    text = message_of(ValueError, a, a, **EMULATE)
    assert text.count("(2, 3)") == 2
    assert "(2, 3)" in message_of(ValueError, a, b, tilewright.bmm, **EMULATE)
    assert "(2, 3)" in message_of(ValueError, a.requires_grad_(), b, tilewright.matvec, **EMULATE)
    a = a.detach()
    text = message_of(ValueError, a, torch.empty(3, 4, device="meta"), **EMULATE)
    assert "cpu" in text and "meta" in text
    assert "to_dense" in message_of(ValueError, a.to_sparse(), b, **EMULATE)
    assert "numpy.ndarray" in message_of(TypeError, a, b.numpy(), **EMULATE)


def test_a_result_is_written_where_it_is_asked_for() -> None:
    a, b = whole(5, 2, 3), whole(3, 4)
    for out in (torch.empty(5, 2, 4), torch.empty(2, 5, 4).transpose(0, 1), torch.empty(5, 4, 2).mT):
        before = out._version
        assert tilewright.matmul(a, b, out=out, **EMULATE) is out
        assert out._version > before
        torch.testing.assert_close(out, a @ b, rtol=0, atol=0)
        out.zero_()
        torch.ops.tilewright.matmul.out(a, b, out=out, on_cpu="emulate")
        torch.testing.assert_close(out, a @ b, rtol=0, atol=0)
    assert "(5, 2, 5)" in message_of(ValueError, a, b, out=torch.empty(5, 2, 5), **EMULATE)
    square = whole(3, 3)
    assert "overlaps a" in message_of(ValueError, square, whole(3, 3), out=square, **EMULATE)
    with pytest.raises(RuntimeError, match="no_grad"):
        tilewright.matmul(a.requires_grad_(), b, out=torch.empty(5, 2, 4), **EMULATE)
    with torch.no_grad():
        tilewright.matmul(a, b, out=torch.empty(5, 2, 4), **EMULATE)


def test_the_inference_mode_works() -> None:
    with torch.inference_mode():
        a, b = whole(2, 3), whole(3, 4)
        torch.testing.assert_close(tilewright.matmul(a, b, out=torch.empty(2, 4), **EMULATE), a @ b)


@pytest.mark.parametrize(("shape_a", "shape_b"), SHAPES)
@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
def test_derivatives_are_those_of_torch(shape_a: Any, shape_b: Any, wanted: tuple[bool, bool]) -> None:
    def derivatives(multiply: Any) -> list[Any]:
        torch.manual_seed(1)
        a = whole(*shape_a, requires_grad=wanted[0])
        b = whole(*shape_b, requires_grad=wanted[1])
        c = multiply(a, b)
        c.backward(whole(*c.shape))
        return [c.detach(), a.grad, b.grad]

    ours = derivatives(lambda a, b: tilewright.matmul(a, b, **EMULATE))
    torch.testing.assert_close(ours, derivatives(torch.matmul), rtol=0, atol=0)


@pytest.mark.parametrize(("shape_a", "shape_b"), [((2, 3), (3, 4)), ((3,), (3,)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (3,))])
def test_second_derivatives_are_those_of_torch(shape_a: Any, shape_b: Any) -> None:
    def derivatives(multiply: Any) -> Any:
        torch.manual_seed(1)
        a, b = whole(*shape_a, requires_grad=True), whole(*shape_b, requires_grad=True)
        (first,) = torch.autograd.grad((multiply(a, b) ** 2).sum(), a, create_graph=True)
        return torch.autograd.grad((first**2).sum(), (a, b))

    ours = derivatives(lambda a, b: tilewright.matmul(a, b, **EMULATE))
    torch.testing.assert_close(ours, derivatives(torch.matmul))


@pytest.mark.filterwarnings("ignore:.*double precision.*")
def test_derivatives_are_what_differences_approach() -> None:
    # The product is linear in each operand, so that large steps are fine, as they have to be in single precision.
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    multiply = lambda a, b: tilewright.matmul(a, b, precision="fp32-strict", **EMULATE)  # noqa: E731
    assert torch.autograd.gradcheck(multiply, (a, b), eps=0.5, atol=1e-3, rtol=1e-3)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")
@pytest.mark.parametrize(("shape_a", "shape_b"), [((2, 3), (3, 4)), ((3,), (3, 4)), ((5, 2, 3), (3,)), ((3,), (3,))])
def test_derivatives_forwards_and_transformations_are_those_of_torch(shape_a: Any, shape_b: Any) -> None:
    a, b = whole(*shape_a), whole(*shape_b)
    da, db = whole(*shape_a), whole(*shape_b)
    many_a, many_b = whole(6, *shape_a), whole(6, *shape_b)

    def results(multiply: Any) -> list[Any]:
        from torch.autograd import forward_ad
        from torch.func import grad, jacrev, jvp, vmap

        with forward_ad.dual_level():
            dual = forward_ad.unpack_dual(multiply(forward_ad.make_dual(a, da), b))
        loss = lambda a, b: (multiply(a, b) ** 2).sum()  # noqa: E731
        return [
            *dual,
            *jvp(multiply, (a, b), (da, db)),
            grad(loss)(a, b),
            grad(loss, argnums=1)(a, b),
            jacrev(multiply)(a, b),
            vmap(multiply)(many_a, many_b),
            vmap(multiply, in_dims=(None, 0))(a, many_b),
            vmap(multiply, in_dims=(-1, None))(many_a.movedim(0, -1), b),
            vmap(grad(loss))(many_a, many_b),
        ]

    ours = results(lambda a, b: tilewright.matmul(a, b, **EMULATE))
    torch.testing.assert_close(ours, results(torch.matmul))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")
def test_no_derivative_is_lost_silently() -> None:
    from torch.autograd import forward_ad

    a, b = whole(2, 3), whole(3, 4)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(a, a)
        with pytest.raises(ValueError, match="forward-mode"):
            torch.ops.tilewright.matmul(dual, b, on_cpu="emulate")
        with pytest.raises(ValueError, match="forward-mode"):
            tilewright.matmul(dual, b, out=torch.empty(2, 4), **EMULATE)
        # Constants are fine.
        torch.ops.tilewright.matmul(a, b, on_cpu="emulate")


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(("shape_a", "shape_b"), [((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((3,), (3,)), ((5, 1, 2, 3), (4, 3, 2))])
def test_torch_finds_the_operator_in_order(shape_a: Any, shape_b: Any, requires_grad: bool) -> None:
    a, b = (whole(*shape, requires_grad=requires_grad) for shape in (shape_a, shape_b))
    torch.library.opcheck(torch.ops.tilewright.matmul.default, (a, b), EMULATE)
    out = torch.empty(torch.matmul(a, b).shape)
    torch.library.opcheck(torch.ops.tilewright.matmul.out, (a.detach(), b.detach()), EMULATE | {"out": out})


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [tilewright.matmul, tilewright.matvec, tilewright.bmm])
def test_it_compiles_without_a_break(backend: str, function: Any) -> None:
    shapes = {"matmul": ((5, 2, 3), (3, 4)), "matvec": ((2, 3), (3,)), "bmm": ((5, 2, 3), (5, 3, 4))}
    a, b = (whole(*shape, requires_grad=True) for shape in shapes[function.__name__])

    def layer(a: Any, b: Any) -> Any:
        return torch.relu(function(a, b, **EMULATE)) + 1

    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend=backend, dynamic=True)
    torch.testing.assert_close(compiled(a, b), torch.relu(a @ b) + 1)
    compiled(a, b).sum().backward()
    ours = a.grad.clone()
    a.grad = None
    (torch.relu(a @ b) + 1).sum().backward()
    torch.testing.assert_close(ours, a.grad)


def test_a_compiled_function_can_have_its_result_written() -> None:
    def layer(a: Any, b: Any, out: Any) -> Any:
        return tilewright.matmul(a, b, out=out, **EMULATE) * 2

    torch.compiler.reset()
    a, b, out = whole(2, 3), whole(3, 4), torch.zeros(2, 4)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(a, b, out), 2 * (a @ b))
    torch.testing.assert_close(out, a @ b)


def test_a_compiler_sees_wrong_arguments_too() -> None:
    torch.compiler.reset()
    compiled = torch.compile(lambda a, b: tilewright.bmm(a, b, **EMULATE), backend="eager")
    with pytest.raises(Exception, match="matmul"):
        compiled(whole(2, 3), whole(3, 4))


def test_torch_may_be_imported_after_tilewright_and_compile_the_first_call() -> None:
    program = """
import tilewright
import torch
f = torch.compile(lambda a, b: tilewright.matmul(a, b, on_cpu="emulate"), fullgraph=True, backend="eager")
assert (f(torch.ones(2, 3), torch.ones(3, 4)) == 3).all()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_torch_that_is_imported_later_is_noticed() -> None:
    program = """
import numpy, tilewright
one = numpy.ones((2, 2), numpy.float32)
tilewright.matmul(one, one, on_cpu="emulate")
import torch
assert isinstance(tilewright.matmul(torch.ones(2, 2), torch.ones(2, 2), on_cpu="emulate"), torch.Tensor)
assert torch.ops.tilewright.matmul(torch.ones(2, 2), torch.ones(2, 2), on_cpu="emulate").sum() == 8
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_torch_takes_an_array() -> None:
    import numpy as np

    one = np.ones((2, 2), np.float32)
    array = tilewright.matmul(one, one, **EMULATE)
    taken = torch.from_dlpack(array)
    del array
    assert taken.dtype == torch.float32 and (taken == 2).all()


def test_many_threads_at_once() -> None:
    failures: list[Any] = []

    def multiply(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for size in torch.randint(1, 20, (30, 3), generator=generator).tolist():
            a = torch.randint(-4, 5, (size[0], size[1]), generator=generator).float().requires_grad_(seed % 2 == 0)
            b = torch.randint(-4, 5, (size[1], size[2]), generator=generator).float()
            if not torch.equal(tilewright.matmul(a, b, **EMULATE), a @ b):
                failures.append(size)

    with ThreadPoolExecutor() as threads:
        list(threads.map(multiply, range(4)))
    assert not failures


TRIANGLES: Any = {"upper": torch.triu, "lower": torch.tril}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")
@pytest.mark.parametrize("part", ["upper", "lower"])
@pytest.mark.parametrize(("shape_a", "shape_b"), [((4, 5), (5, 6)), ((3, 6, 5), (5, 4)), ((5, 4), (2, 3, 4, 5))])
def test_triangles_of_products_and_their_derivatives(part: Any, shape_a: Any, shape_b: Any) -> None:
    tensors = [whole(*shape, requires_grad=True) for shape in (shape_a, shape_b)]
    expected = TRIANGLES[part](torch.matmul(*tensors))
    weights = whole(*expected.shape)
    grads = torch.autograd.grad((expected * weights).sum(), tensors)
    c = tilewright.matmul(*tensors, part=part, **EMULATE)
    torch.testing.assert_close(c, expected, rtol=0, atol=0)
    found = torch.autograd.grad((c * weights).sum(), tensors)
    torch.testing.assert_close(found, grads, rtol=0, atol=0)

    def ours(a: Any, b: Any) -> Any:
        return tilewright.matmul(a, b, part=part, **EMULATE)

    def theirs(a: Any, b: Any) -> Any:
        return TRIANGLES[part](torch.matmul(a, b))

    primals = tuple(tensor.detach() for tensor in tensors)
    tangents = tuple(torch.ones_like(tensor) for tensor in primals)
    torch.testing.assert_close(torch.func.jvp(ours, primals, tangents), torch.func.jvp(theirs, primals, tangents), rtol=0, atol=0)
    stacked = tuple(torch.stack([tensor, 2 * tensor]) for tensor in primals)
    torch.testing.assert_close(torch.func.vmap(ours)(*stacked), torch.func.vmap(theirs)(*stacked), rtol=0, atol=0)
    torch.testing.assert_close(torch.compile(ours, fullgraph=True, backend="aot_eager")(*primals), theirs(*primals), rtol=0, atol=0)
    with pytest.raises(tilewright.ArgumentError, match="triangles"):
        ours(primals[0][0].reshape(-1)[:5].to("meta"), torch.empty(5, 4, device="meta"))


def test_tensors_are_read_the_same_way_by_a_torch_without_functions_of_c() -> None:
    """Before 2.10, tensors say through Python alone what they are."""
    program = """
import torch
if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    del torch.Tensor.__dlpack_c_exchange_api__
assert not hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
import tilewright
a, b = torch.arange(42.0).reshape(6, 7), torch.arange(70.0).reshape(10, 7).T
assert torch.equal(tilewright.matmul(a, b, on_cpu="emulate"), a @ b)
assert torch.equal(tilewright.matmul(a[1::2, :3], b[2:5, ::3], on_cpu="emulate"), a[1::2, :3] @ b[2:5, ::3])
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("make", [lambda a: a, lambda a: a.T, lambda a: a[1:, ::2], lambda a: torch.nn.Parameter(a)])
def test_what_is_read_of_a_tensor_is_what_it_is(make: Any) -> None:
    a = make(torch.arange(49.0).reshape(7, 7))
    columns = a.shape[1]
    assert torch.equal(tilewright.matmul(a, torch.eye(columns), **EMULATE), a)
    assert torch.equal(tilewright.matmul(torch.eye(a.shape[0]), a, **EMULATE), a)
