"""The operator `scale` for torch, on the CPU executor: everything but the GPU itself."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import tilewright

torch = pytest.importorskip("torch", reason="torch is not installed here: `cargo xtask test --with-torch` runs these")

EMULATE: Any = {"on_cpu": "emulate"}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(20261122)


def whole(*shape: int, **options: Any) -> Any:
    """Small whole numbers, whose products are exact."""
    return torch.randint(-4, 5, shape).float().requires_grad_(options.get("requires_grad", False))


def ours(matrix: Any, by: Any = 1.0, rows: Any = None, columns: Any = None) -> Any:
    return tilewright.scale(matrix, by, rows=rows, columns=columns, **EMULATE)


def theirs(matrix: Any, by: Any = 1.0, rows: Any = None, columns: Any = None) -> Any:
    product = matrix if rows is None else rows.unsqueeze(-1) * matrix
    return by * (product if columns is None else product * columns)


SHAPES = [(2, 3), (5, 2, 3), (2, 5, 2, 3), (1, 1), (0, 3), (2, 0)]
FACTORS = [(False, False), (True, False), (False, True), (True, True)]


def operands(shape: Any, has: Any, requires_grad: Any = (False, False, False)) -> tuple[Any, Any, Any, Any]:
    rows, columns = (
        whole(extent, requires_grad=required) if given else None
        for extent, given, required in zip(shape[-2:], has, requires_grad[1:], strict=True)
    )
    return whole(*shape, requires_grad=requires_grad[0]), -1.5, rows, columns


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("has", FACTORS)
def test_the_product_is_that_of_torch(shape: Any, has: Any) -> None:
    arguments = operands(shape, has)
    product = ours(*arguments)
    assert type(product) is torch.Tensor and product.is_contiguous() and not product.requires_grad
    torch.testing.assert_close(product, theirs(*arguments), rtol=0, atol=0)


def test_views_are_read_in_place_and_results_lie_alike() -> None:
    large = whole(20, 30)
    views = (large.mT, large[1:12, 3:17], large[::2, ::3], large[3].expand(5, 30), large.view(4, 5, 30).permute(1, 0, 2))
    for matrix in views:
        product = ours(matrix, 3)
        torch.testing.assert_close(product, 3 * matrix, rtol=0, atol=0)
        assert product.stride() == torch.empty_like(matrix).stride()
    assert ours(large.mT).stride() == (1, 30)


def test_subclasses_modes_and_negated_views_go_through_the_dispatcher() -> None:
    matrix = whole(4, 5)
    imaginary = torch.complex(whole(4, 5), matrix).conj().imag
    assert imaginary.is_neg()
    torch.testing.assert_close(ours(imaginary, 2), -2 * matrix, rtol=0, atol=0)

    seen: list[str] = []

    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Mode():
        ours(matrix)
    assert "tilewright.scale.default" in seen


def test_tensors_without_memory_have_products_without_memory() -> None:
    product = tilewright.scale(torch.empty(5, 2, 3, device="meta"), 2, rows=torch.empty(2, device="meta"))
    assert product.device.type == "meta" and product.shape == (5, 2, 3)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        assert tilewright.scale(torch.empty(3, 2).mT).stride() == (1, 2)
        for arguments in ({"rows": torch.empty(3)}, {"columns": torch.empty(3, 1)}):
            with pytest.raises(ValueError, match=r"matrix has shape \(2, 3\)"):
                tilewright.scale(torch.empty(2, 3), **arguments)
        with pytest.raises(ValueError, match="two extents"):
            tilewright.scale(torch.empty(3))
        with pytest.raises(TypeError, match="float64"):
            tilewright.scale(torch.empty(2, 3), columns=torch.empty(3).double())


def message_of(kind: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(kind) as error:
        tilewright.scale(*arguments, **options)
    return str(error.value)


def test_errors_are_those_of_other_arrays() -> None:
    matrix, rows = whole(2, 3), whole(2)
    for matrix in (matrix, matrix.clone().requires_grad_()):
        assert "on_cpu" in message_of(ValueError, matrix)
        assert "torch.float64" in message_of(TypeError, matrix.double(), **EMULATE)
        assert "rows has shape (3,)" in message_of(ValueError, matrix, rows=whole(3), **EMULATE)
        text = message_of(ValueError, matrix, rows=torch.empty(2, device="meta"), **EMULATE)
        assert "matrix is on cpu and rows is on meta" in text
        assert "numpy.ndarray" in message_of(TypeError, matrix, columns=whole(3).numpy(), **EMULATE)
        assert "by is of type" in message_of(TypeError, matrix, torch.tensor(2.0), **EMULATE)
        assert "to_dense" in message_of(ValueError, matrix.detach().to_sparse(), rows=rows, **EMULATE)


def test_a_result_is_written_where_it_is_asked_for() -> None:
    matrix, rows = whole(5, 2, 3), whole(2)
    expected = theirs(matrix, 2, rows)
    for out in (torch.empty(5, 2, 3), torch.empty(2, 5, 3).transpose(0, 1), torch.empty(5, 3, 2).mT, matrix.clone()):
        before = out._version
        assert tilewright.scale(matrix, 2, rows=rows, out=out, **EMULATE) is out
        assert out._version > before
        torch.testing.assert_close(out, expected, rtol=0, atol=0)
        out.zero_()
        torch.ops.tilewright.scale.out(matrix, 2, rows, on_cpu="emulate", out=out)
        torch.testing.assert_close(out, expected, rtol=0, atol=0)
    itself = matrix.clone()
    before = itself._version
    assert tilewright.scale(itself, 2, rows=rows, out=itself, **EMULATE) is itself
    assert itself._version > before
    torch.testing.assert_close(itself, expected, rtol=0, atol=0)
    itself.copy_(matrix)
    torch.ops.tilewright.scale.out(itself, 2, rows, on_cpu="emulate", out=itself)
    torch.testing.assert_close(itself, expected, rtol=0, atol=0)
    assert "overlaps rows" in message_of(ValueError, matrix, rows=matrix[0, :, 0], out=matrix, **EMULATE)
    with pytest.raises(RuntimeError, match="no_grad"):
        tilewright.scale(matrix, rows=rows.requires_grad_(), out=torch.empty(5, 2, 3), **EMULATE)
    with torch.no_grad():
        tilewright.scale(matrix, rows=rows, out=torch.empty(5, 2, 3), **EMULATE)


def test_the_inference_mode_works() -> None:
    with torch.inference_mode():
        matrix = whole(2, 3)
        torch.testing.assert_close(tilewright.scale(matrix, 2, out=torch.empty(2, 3), **EMULATE), 2 * matrix)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("has", FACTORS)
@pytest.mark.parametrize("wanted", [(True, True, True), (True, False, False), (False, True, False), (False, False, True)])
def test_derivatives_are_those_of_torch(shape: Any, has: Any, wanted: Any) -> None:
    if not any(needed for needed, given in zip(wanted, (True, *has), strict=True) if given):
        return

    def derivatives(multiply: Any) -> list[Any]:
        torch.manual_seed(1)
        matrix, by, rows, columns = operands(shape, has, wanted)
        product = multiply(matrix, by, rows, columns)
        product.backward(whole(*product.shape))
        return [product.detach(), *(None if tensor is None else tensor.grad for tensor in (matrix, rows, columns))]

    torch.testing.assert_close(derivatives(ours), derivatives(theirs), rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:.*double precision.*")
def test_derivatives_are_what_differences_approach() -> None:
    # The product is linear in each operand, so that large steps are fine, as they have to be in single precision.
    inputs = [torch.randn(*shape, requires_grad=True) for shape in ((2, 3, 4), (3,), (4,))]
    multiply = lambda matrix, rows, columns: ours(matrix, 0.7, rows, columns)  # noqa: E731
    assert torch.autograd.gradcheck(multiply, inputs, eps=0.5, atol=1e-3, rtol=1e-3)
    assert torch.autograd.gradgradcheck(multiply, inputs, eps=0.5, atol=1e-2, rtol=1e-2)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")
@pytest.mark.parametrize("shape", [(2, 3), (5, 2, 3)])
def test_derivatives_forwards_and_transformations_are_those_of_torch(shape: Any) -> None:
    matrix, by, rows, columns = operands(shape, (True, True))
    tangents = (whole(*shape), whole(shape[-2]), whole(shape[-1]))
    many, many_rows, many_columns = whole(6, *shape), whole(6, shape[-2]), whole(shape[-1], 6)

    def results(multiply: Any) -> list[Any]:
        from torch.autograd import forward_ad
        from torch.func import grad, jacrev, jvp, vmap

        function = lambda matrix, rows, columns: multiply(matrix, by, rows, columns)  # noqa: E731
        with forward_ad.dual_level():
            dual = forward_ad.unpack_dual(function(matrix, forward_ad.make_dual(rows, tangents[1]), columns))
        loss = lambda *operands: (function(*operands) ** 2).sum()  # noqa: E731
        return [
            *dual,
            *jvp(function, (matrix, rows, columns), tangents),
            *grad(loss, argnums=(0, 1, 2))(matrix, rows, columns),
            *jacrev(function, argnums=(0, 1, 2))(matrix, rows, columns),
            vmap(function, in_dims=(0, None, None))(many, rows, columns),
            vmap(function, in_dims=(-1, 0, None))(many.movedim(0, -1), many_rows, columns),
            vmap(function, in_dims=(None, 0, 1))(matrix, many_rows, many_columns),
            vmap(lambda matrix: multiply(matrix, by))(many),
            *vmap(grad(loss, argnums=(0, 1)), in_dims=(0, 0, None))(many, many_rows, columns),
        ]

    torch.testing.assert_close(results(ours), results(theirs))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")
def test_no_derivative_is_lost_silently() -> None:
    from torch.autograd import forward_ad

    matrix, rows = whole(2, 3), whole(2)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(rows, rows)
        with pytest.raises(ValueError, match=r"forward-mode.*tilewright\.scale"):
            torch.ops.tilewright.scale(matrix, 1.0, dual, on_cpu="emulate")
        with pytest.raises(ValueError, match="forward-mode"):
            tilewright.scale(matrix, rows=dual, out=torch.empty(2, 3), **EMULATE)
        # Constants are fine.
        torch.ops.tilewright.scale(matrix, 1.0, rows, on_cpu="emulate")


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("has", FACTORS)
@pytest.mark.parametrize("shape", [(2, 3), (5, 2, 3)])
def test_torch_finds_the_operator_in_order(shape: Any, has: Any, requires_grad: bool) -> None:
    arguments = operands(shape, has, (requires_grad,) * 3)
    torch.library.opcheck(torch.ops.tilewright.scale.default, arguments, EMULATE)
    torch.library.opcheck(torch.ops.tilewright.scale.default, (whole(3, 2).mT, 2.0), EMULATE)
    constants = tuple(x.detach() if isinstance(x, torch.Tensor) else x for x in arguments)
    torch.library.opcheck(torch.ops.tilewright.scale.out, constants, EMULATE | {"out": torch.empty(shape)})


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_it_compiles_without_a_break(backend: str) -> None:
    def layer(multiply: Any, matrix: Any, by: Any, rows: Any, columns: Any) -> Any:
        return torch.relu(multiply(matrix, by, rows, columns)) + 1

    torch.compiler.reset()
    compiled = torch.compile(lambda *operands: layer(ours, *operands), fullgraph=True, backend=backend, dynamic=True)
    for by in (2, -0.5, 0.25):
        matrix, _, rows, columns = operands((5, 2, 3), (True, True), (True, True, True))
        expected = layer(theirs, matrix, by, rows, columns)
        torch.testing.assert_close(compiled(matrix, by, rows, columns), expected)
        compiled(matrix, by, rows, columns).sum().backward()
        found = [tensor.grad for tensor in (matrix, rows, columns)]
        torch.testing.assert_close(found, list(torch.autograd.grad(expected.sum(), (matrix, rows, columns))))


@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_function_can_have_its_result_written(in_place: bool) -> None:
    def layer(matrix: Any, out: Any) -> Any:
        return tilewright.scale(matrix, 3, out=out, **EMULATE) * 2

    torch.compiler.reset()
    matrix = whole(2, 3)
    expected = 3 * matrix
    out = matrix if in_place else torch.zeros(2, 3)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(matrix, out), 2 * expected)
    torch.testing.assert_close(out, expected)


def test_torch_may_be_imported_before_or_after_tilewright() -> None:
    check = 'assert (tilewright.scale(torch.ones(2, 3), 2, on_cpu="emulate") == 2).all(); torch.ops.tilewright.scale.default'
    compiled = """
f = torch.compile(lambda a: tilewright.scale(a, 2, on_cpu="emulate"), fullgraph=True, backend="eager")
assert (f(torch.ones(2, 3)) == 2).all()
"""
    for program in (f"tilewright, torch\n{check}", f"torch, tilewright\n{check}", f"tilewright, torch{compiled}"):
        subprocess.run([sys.executable, "-c", f"import {program}"], check=True)
