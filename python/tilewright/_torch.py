"""The operator `torch.ops.tilewright.matmul`. This module imports torch, so it is imported only where torch is in use."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad

from tilewright import _native
from tilewright._errors import ArgumentError, OperandTypeError

__all__ = ["again", "check_out", "differentiable", "differentiate", "dispatch", "multiply", "refuse_derivative", "refuse_tangents", "traced", "write_to"]

_library = torch.library.Library("tilewright", "DEF")
_OPTIONS = 'str precision="fp32", str on_cpu="refuse", str part="all", bool invariant=False'
_library.define(f"matmul(Tensor a, Tensor b, *, {_OPTIONS}) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
# It returns nothing: torch.compile takes no operators of ours that return what they were given.
_library.define(f"matmul.out(Tensor a, Tensor b, *, {_OPTIONS}, Tensor(a!) out) -> ()")


def dispatch(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, **options: Any) -> torch.Tensor:
    """Calls the operator, so that torch does everything that it does before a kernel. The options are the operator's."""
    if out is None:
        return multiply(a, b, **options)
    torch.ops.tilewright.matmul.out(a, b, **options, out=out)
    return out


def differentiable(a: torch.Tensor, b: torch.Tensor, out: None, **options: Any) -> torch.Tensor:
    """The product where a derivative is wanted and nobody else looks on: what the operator would do, in less time."""
    return _Differentiable.apply(a, b, options)


def traced(
    rule: str, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, **options: Any
) -> torch.Tensor:
    """As `dispatch`, for a compiler that looks at the call: it can see no native code, so what that checks is checked here."""
    if (rule == "matvec" and (a.ndim, b.ndim) != (2, 1)) or (rule == "bmm" and (a.ndim, b.ndim) != (3, 3)):
        raise ArgumentError(f"{rule}: a has shape {tuple(a.shape)}, b has shape {tuple(b.shape)}: matmul takes them")
    if rule == "bmm" and a.shape[0] != b.shape[0]:
        raise ArgumentError(f"bmm: a has shape {tuple(a.shape)}, b has shape {tuple(b.shape)}: matmul broadcasts them")
    if out is None:
        return torch.ops.tilewright.matmul.default(a, b, **options)
    return dispatch(a, b, out, **options)


def multiply(a: torch.Tensor, b: torch.Tensor, **options: Any) -> torch.Tensor:
    """By the operator; under forward-mode derivatives and transformations of functions, to which an operator cannot say what it
    is, by a function that can.
    """
    if forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active():  # pyright: ignore[reportPrivateUsage]
        return _Product.apply(a, b, options)
    return torch.ops.tilewright.matmul.default(a, b, **options)


def _on_cuda(a: torch.Tensor, b: torch.Tensor, **options: Any) -> torch.Tensor:
    refuse_tangents("matmul", a, b)
    return _native.multiply_tensors(a, b, None, **options)


def _on_cuda_out(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor, **options: Any) -> None:
    refuse_tangents("matmul", a, b)
    _native.multiply_tensors(a, b, out, **options)


def _on_cpu(a: torch.Tensor, b: torch.Tensor, **options: Any) -> torch.Tensor:
    if options.get("on_cpu") == "move" and a.is_cpu and b.is_cpu:
        return _on_cuda(a.cuda(), b.cuda(), **options).cpu()
    return _on_cuda(a, b, **options)


def _on_cpu_out(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor, **options: Any) -> None:
    if options.get("on_cpu") == "move" and a.is_cpu and b.is_cpu and out.is_cpu:
        write_to(out, _on_cpu(a, b, **options))
    else:
        _on_cuda_out(a, b, out=out, **options)


def refuse_tangents(function: str, *tensors: torch.Tensor | None) -> None:
    """Refuses what torch would silently take for constants: an operator has no way to say its forward-mode derivative."""
    if forward_ad._current_level < 0:  # pyright: ignore[reportPrivateUsage]
        return
    if any(tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise ArgumentError(
            f"the forward-mode derivative is that of tilewright.{function} without out=, not of the operator: call "
            f"tilewright.{function}"
        )


def check_out(product: torch.Tensor, out: torch.Tensor) -> None:
    """Refuses a result of another type or shape: `copy_` would cast or broadcast."""
    if out.dtype != torch.float32:
        raise OperandTypeError(f"out has elements of type {out.dtype}, and the product is of float32")
    if out.shape != product.shape:
        is_, needed = tuple(out.shape), tuple(product.shape)
        raise ArgumentError(f"out has shape {is_}, and the product has shape {needed}: they have to be equal")


def write_to(out: torch.Tensor, product: torch.Tensor) -> None:
    """Copies a product to where it is wanted, if that is as kernels would take it."""
    check_out(product, out)
    _native.check_is_apart("out", tuple(out.shape), out.stride())
    out.copy_(product)


def _without_numbers(a: torch.Tensor, b: torch.Tensor, **options: Any) -> torch.Tensor:
    """What the product is, but for its elements: for tensors that have none."""
    if options.get("part", "all") != "all" and min(a.ndim, b.ndim) < 2:
        raise ArgumentError(
            f"matmul: a has shape {tuple(a.shape)}, b has shape {tuple(b.shape)}: only matrices have triangles; leave out part"
        )
    for name, tensor in (("a", a), ("b", b)):
        if tensor.dtype != torch.float32:
            raise OperandTypeError(f"{name} has elements of type {tensor.dtype}, and tilewright multiplies float32")
    if a.device != b.device:
        raise ArgumentError(f"a is on {a.device} and b is on {b.device}: move them to one device")
    return a.new_empty(torch.matmul(a, b).shape)


def _without_numbers_out(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor, **options: Any) -> None:
    check_out(_without_numbers(a, b, **options), out)


def refuse_derivative(function: str, *tensors: torch.Tensor | None) -> None:
    """Nobody can differentiate what overwrites a tensor."""
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
        raise DerivativeOfOutError(
            f"tilewright.{function} with out= has no derivative, and one of the tensors requires one: leave out the argument, "
            "or call it under torch.no_grad()"
        )


def _refuse_derivative(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor, **options: Any) -> None:
    refuse_derivative("matmul", a, b, out)
    with torch._C._AutoDispatchBelowAutograd():  # pyright: ignore[reportPrivateUsage]
        dispatch(a, b, out, **options)


class DerivativeOfOutError(ArgumentError, RuntimeError):
    """A derivative is wanted of a product that overwrites a tensor."""


def _keep(
    ctx: torch.autograd.function.FunctionCtx,
    inputs: tuple[torch.Tensor, torch.Tensor],
    keyword_only_inputs: dict[str, Any],
    output: torch.Tensor,
) -> None:
    """Keeps what the derivatives need."""
    a, b = inputs
    ctx.options = keyword_only_inputs
    # What is not needed is not kept.
    ctx.save_for_backward(a if ctx.needs_input_grad[1] else None, b if ctx.needs_input_grad[0] else None)
    ctx.shapes = (a.shape, b.shape)


def again(
    a: torch.Tensor, b: torch.Tensor, *, precision: str = "fp32", on_cpu: str = "refuse", part: str = "all", invariant: bool = False
) -> torch.Tensor:
    """A product of what a derivative is made of, with the operator's options: at once, unless somebody looks on here, too."""
    return _native.multiply("matmul", a, b, None, precision, on_cpu, part, invariant)


class _Differentiable(torch.autograd.Function):
    """The product with its derivative, for calls that nobody else wants to see."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, a: torch.Tensor, b: torch.Tensor, options: dict[str, Any]
    ) -> torch.Tensor:
        _keep(ctx, (a, b), options, a)
        return again(a, b, **options)

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        return (*differentiate(ctx, grad), None)


def differentiate(
    ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The derivatives, as products: `dA = dC·Bᵀ` and `dB = Aᵀ·dC`, summed over what was broadcast."""
    a, b = ctx.saved_tensors
    options: dict[str, Any] = ctx.options | {"part": "all"}
    grad = _of_part(grad, ctx.options)
    shape_a, shape_b = ctx.shapes
    # Vectors as matrices: a of one row, b of one column.
    if len(shape_b) == 1:
        grad = grad.unsqueeze(-1)
    if len(shape_a) == 1:
        grad = grad.unsqueeze(-2)
    grad_a = grad_b = None
    if ctx.needs_input_grad[0] and b is not None:
        right = b.unsqueeze(-1) if len(shape_b) == 1 else b
        rows = shape_a if len(shape_a) > 1 else (1, *shape_a)
        grad_a = again(grad, right.mT, **options).sum_to_size(rows).reshape(shape_a)
    if ctx.needs_input_grad[1] and a is not None:
        left = a.unsqueeze(0) if len(shape_a) == 1 else a
        if len(shape_b) <= 2 and left.ndim > 2:
            # One matrix b for all of a: one product with as many terms, rather than a sum of products.
            left, grad = left.flatten(0, -2), grad.flatten(0, -2)
        columns = shape_b if len(shape_b) > 1 else (*shape_b, 1)
        grad_b = again(left.mT, grad, **options).sum_to_size(columns).reshape(shape_b)
    return grad_a, grad_b


def _of_part(tensor: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
    """The elements that the product has, of its derivative: the others are zero, whatever the operands are."""
    part = options.get("part", "all")
    return tensor if part == "all" else tensor.triu() if part == "upper" else tensor.tril()


class _Product(torch.autograd.Function):
    """The product, for forward-mode derivatives and for `torch.func`."""

    @staticmethod
    def forward(a: torch.Tensor, b: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        return torch.ops.tilewright.matmul.default(a, b, **options)

    @staticmethod
    def setup_context(
        ctx: torch.autograd.function.FunctionCtx,
        inputs: tuple[torch.Tensor, torch.Tensor, dict[str, Any]],
        output: torch.Tensor,
    ) -> None:
        a, b, ctx.options = inputs
        ctx.shapes = (a.shape, b.shape)
        ctx.save_for_backward(a, b)
        ctx.save_for_forward(a, b)

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        return (*differentiate(ctx, grad), None)

    @staticmethod
    def jvp(
        ctx: torch.autograd.function.FunctionCtx, da: torch.Tensor | None, db: torch.Tensor | None, *_: None
    ) -> torch.Tensor | None:
        a, b = ctx.saved_tensors
        by_a = multiply(da, b, **ctx.options) if da is not None and b is not None else None
        by_b = multiply(a, db, **ctx.options) if db is not None and a is not None else None
        return by_a if by_b is None else by_b if by_a is None else by_a + by_b

    @staticmethod
    def vmap(
        info: object,
        in_dims: tuple[int | None, int | None, object],
        a: torch.Tensor,
        b: torch.Tensor,
        options: dict[str, Any],
    ) -> tuple[torch.Tensor, int]:
        # The extent that is mapped over comes first, behind it as many others in a as in b: a batch like any other.
        ranks = [tensor.ndim - (place is not None) for tensor, place in zip((a, b), in_dims[:2])]
        matrices: list[torch.Tensor] = []
        for tensor, place, rank, of_vector in zip((a, b), in_dims[:2], ranks, (-2, -1)):
            tensor = tensor.unsqueeze(0) if place is None else tensor.movedim(place, 0)
            tensor = tensor.unsqueeze(of_vector) if rank == 1 else tensor
            while tensor.ndim <= max(*ranks, 2):
                tensor = tensor.unsqueeze(1)
            matrices.append(tensor)
        product = multiply(matrices[0], matrices[1], **options)
        product = product.squeeze(-1) if ranks[1] == 1 else product
        if ranks[0] == 1:
            product = product.squeeze(-1 if ranks[1] == 1 else -2)
        return product, 0


_library.impl("matmul", _on_cuda, "CUDA")
_library.impl("matmul.out", _on_cuda_out, "CUDA")
_library.impl("matmul", _on_cpu, "CPU")
_library.impl("matmul.out", _on_cpu_out, "CPU")
_library.impl("matmul.out", _refuse_derivative, "Autograd")
torch.library.register_fake("tilewright::matmul", _without_numbers, lib=_library)
torch.library.register_fake("tilewright::matmul.out", _without_numbers_out, lib=_library)
torch.library.register_autograd("tilewright::matmul", differentiate, setup_context=_keep, lib=_library)
