"""The operator `torch.ops.tilewright.fused_matmul`: a product, and steps behind it before it is stored. This module imports torch, so it
is imported only where torch is in use.

Where a derivative is wanted, the product with what is added first is one kernel, and torch does the other steps: their derivatives need
what they were given, which nobody has if it is not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd import forward_ad

from tilewright import _native
from tilewright._errors import ArgumentError, OperandTypeError
from tilewright._sharding import register_with_dtensor
from tilewright._torch import again, check_out, differentiate, multiply, refuse_derivative, refuse_tangents, write_to

__all__ = ["apply", "differentiable", "dispatch", "traced"]

_library = torch.library.Library("tilewright", "FRAGMENT")
_OPTIONS = 'float alpha=1.0, str steps="", float[] numbers=[], str precision="fp32", str on_cpu="refuse", bool invariant=False, Tensor? packed_a=None, Tensor? packed_b=None'
_ARGUMENTS = f"str function, Tensor a, Tensor b, Tensor[] operands, *, {_OPTIONS}"
_library.define(f"fused_matmul({_ARGUMENTS}) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
# It returns nothing: torch.compile takes no operators of ours that return what they were given.
_library.define(f"fused_matmul.out({_ARGUMENTS}, Tensor(a!) out) -> ()")


def dispatch(
    function: str,
    a: torch.Tensor,
    b: torch.Tensor,
    operands: list[torch.Tensor],
    out: torch.Tensor | None,
    alpha: float,
    steps: str,
    numbers: list[float],
    precision: str,
    on_cpu: str,
    invariant: bool,
    packed_a: torch.Tensor | None = None,
    packed_b: torch.Tensor | None = None,
) -> torch.Tensor:
    """Calls the operator, so that torch does everything that it does before a kernel."""
    if out is None and (forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active()):  # pyright: ignore[reportPrivateUsage]
        # An operator cannot say what it is to these; the product can, and so can all operators of torch.
        product = multiply(a, _right(function, b), part="all", precision=precision, on_cpu=on_cpu, invariant=invariant)
        return apply(product if alpha == 1 else product * alpha, _split(steps), numbers, operands)
    return traced(function, a, b, operands, out, alpha, steps, numbers, precision, on_cpu, invariant, packed_a, packed_b)


def differentiable(
    function: str,
    a: torch.Tensor,
    b: torch.Tensor,
    operands: list[torch.Tensor],
    out: None,
    alpha: float,
    steps: str,
    numbers: list[float],
    precision: str,
    on_cpu: str,
    invariant: bool,
    packed_a: torch.Tensor | None = None,
    packed_b: torch.Tensor | None = None,
) -> torch.Tensor:
    """As `dispatch`, where a derivative is wanted and nobody else looks on: what the operator would do, in less time."""
    options: dict[str, Any] = {"alpha": alpha, "steps": steps, "numbers": numbers, "precision": precision, "on_cpu": on_cpu}
    options |= {"invariant": invariant, "packed_a": packed_a, "packed_b": packed_b}
    return _affine(function, a, b, operands, options, _at_once)


def _at_once(
    function: str, a: torch.Tensor, b: torch.Tensor, operands: list[torch.Tensor], options: dict[str, Any]
) -> torch.Tensor:
    return _native.fused(function, a, b, operands, None, **options)


def _by_operator(
    function: str, a: torch.Tensor, b: torch.Tensor, operands: list[torch.Tensor], options: dict[str, Any]
) -> torch.Tensor:
    with torch._C._AutoDispatchBelowAutograd():  # pyright: ignore[reportPrivateUsage]
        return torch.ops.tilewright.fused_matmul.default(function, a, b, operands, **options)


def traced(
    function: str,
    a: torch.Tensor,
    b: torch.Tensor,
    operands: list[torch.Tensor],
    out: torch.Tensor | None,
    alpha: float,
    steps: str,
    numbers: list[float],
    precision: str,
    on_cpu: str,
    invariant: bool,
    packed_a: torch.Tensor | None = None,
    packed_b: torch.Tensor | None = None,
) -> torch.Tensor:
    """As `dispatch`, for a compiler that looks at the call."""
    options: dict[str, Any] = {"precision": precision, "on_cpu": on_cpu, "invariant": invariant}
    behind: dict[str, Any] = {"alpha": alpha, "steps": steps, "numbers": numbers}
    # What is packed once is no operand that a derivative could be wanted of: it has the numbers of one that is there, too.
    if packed_a is not None:
        options["packed_a"] = packed_a
    if packed_b is not None:
        options["packed_b"] = packed_b
    if out is not None:
        torch.ops.tilewright.fused_matmul.out(function, a, b, operands, out=out, **behind, **options)
        return out
    return torch.ops.tilewright.fused_matmul.default(function, a, b, operands, **behind, **options)


def _right(function: str, b: torch.Tensor) -> torch.Tensor:
    """What the first operand is multiplied by."""
    return b.mT if function == "linear" and b.ndim == 2 else b


def _on_cuda(
    function: str, a: torch.Tensor, b: torch.Tensor, operands: Sequence[torch.Tensor], **options: Any
) -> torch.Tensor:
    refuse_tangents(function, a, b, *operands)
    return _native.fused_tensors(function, a, b, list(operands), None, **_with_defaults(options))


def _on_cuda_out(
    function: str,
    a: torch.Tensor,
    b: torch.Tensor,
    operands: Sequence[torch.Tensor],
    *,
    out: torch.Tensor,
    **options: Any,
) -> None:
    refuse_tangents(function, a, b, *operands)
    _native.fused_tensors(function, a, b, list(operands), out, **_with_defaults(options))


def _on_cpu(
    function: str, a: torch.Tensor, b: torch.Tensor, operands: Sequence[torch.Tensor], **options: Any
) -> torch.Tensor:
    if options.get("on_cpu") == "move" and all(tensor.is_cpu for tensor in (a, b, *operands)):
        return _on_cuda(function, a.cuda(), b.cuda(), [operand.cuda() for operand in operands], **options).cpu()
    return _on_cuda(function, a, b, operands, **options)


def _on_cpu_out(
    function: str,
    a: torch.Tensor,
    b: torch.Tensor,
    operands: Sequence[torch.Tensor],
    *,
    out: torch.Tensor,
    **options: Any,
) -> None:
    if options.get("on_cpu") == "move" and all(tensor.is_cpu for tensor in (a, b, out, *operands)):
        write_to(out, _on_cpu(function, a, b, operands, **options))
    else:
        _on_cuda_out(function, a, b, operands, out=out, **options)


def _with_defaults(options: dict[str, Any]) -> dict[str, Any]:
    """The operator's options: torch leaves out those that are what they are by default."""
    defaults: dict[str, Any] = {"alpha": 1.0, "steps": "", "numbers": [], "precision": "fp32", "on_cpu": "refuse", "invariant": False}
    defaults |= {"packed_a": None, "packed_b": None}
    return defaults | options


def _without_numbers(
    function: str, a: torch.Tensor, b: torch.Tensor, operands: Sequence[torch.Tensor], **options: Any
) -> torch.Tensor:
    """What the result is, but for its elements: for tensors that have none."""
    names = {"linear": ("x", "w"), "addmm": ("mat1", "mat2"), "baddbmm": ("batch1", "batch2")}.get(function)
    if names is None:
        raise ArgumentError(f"the function is {function!r}: expected one of linear, addmm, baddbmm")
    read = [step.split(" ")[1] for step in _split(options.get("steps", "")) if " " in step]
    for name, tensor in zip((*names, *read), (a, b, *operands)):
        if tensor.dtype != torch.float32:
            raise OperandTypeError(f"{name} has elements of type {tensor.dtype}, and tilewright multiplies float32")
        if tensor.device != a.device:
            raise ArgumentError(f"{names[0]} is on {a.device} and {name} is on {tensor.device}: move them to one device")
    ranks = {"addmm": (2, 2), "baddbmm": (3, 3)}.get(function)
    shapes = f"{function}: {names[0]} has shape {tuple(a.shape)}, {names[1]} has shape {tuple(b.shape)}"
    if ranks is not None and ((a.ndim, b.ndim) != ranks or a.shape[:-2] != b.shape[:-2]):
        raise ArgumentError(f"{shapes}: expected two tensors of {ranks[0]} extents, which may differ in the last two")
    if function == "linear" and (not 1 <= b.ndim <= 2 or a.ndim < 1 or a.shape[-1] != b.shape[-1]):
        raise ArgumentError(f"{shapes}: w has to be a matrix or a vector, and its last extent that of x")
    shape = torch.matmul(a, _right(function, b)).shape
    for name, operand in zip(read, operands):
        _check_broadcast(name, operand, shape)
    return a.new_empty(shape)


def _check_broadcast(name: str, operand: torch.Tensor, shape: Sequence[int]) -> None:
    """Refuses what would make the result larger."""
    extents = tuple(operand.shape)
    if len(extents) > len(shape) or any(of not in (1, to) for of, to in zip(extents[::-1], tuple(shape)[::-1])):
        raise ArgumentError(
            f"{name} has shape {extents}, and the product has shape {tuple(shape)}: each extent, counted from the last one, has to be "
            "equal or 1"
        )


def _without_numbers_out(
    function: str,
    a: torch.Tensor,
    b: torch.Tensor,
    operands: Sequence[torch.Tensor],
    *,
    out: torch.Tensor,
    **options: Any,
) -> None:
    check_out(_without_numbers(function, a, b, operands, **options), out)


def _differentiable(
    function: str, a: torch.Tensor, b: torch.Tensor, operands: Sequence[torch.Tensor], **options: Any
) -> torch.Tensor:
    """The operator, or what is the same and has a derivative, if one is wanted."""
    if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in (a, b, *operands)):
        with torch._C._AutoDispatchBelowAutograd():  # pyright: ignore[reportPrivateUsage]
            return torch.ops.tilewright.fused_matmul.default(function, a, b, operands, **options)
    return _affine(function, a, b, operands, _with_defaults(options), _by_operator)


#: What computes a product with steps behind it.
_Compute = Callable[[str, torch.Tensor, torch.Tensor, list[torch.Tensor], dict[str, Any]], torch.Tensor]


def _affine(
    function: str,
    a: torch.Tensor,
    b: torch.Tensor,
    operands: Sequence[torch.Tensor],
    options: dict[str, Any],
    compute: _Compute,
) -> torch.Tensor:
    """What has a derivative: the product with a sum behind it, and torch's own operators."""
    steps, numbers = _split(options["steps"]), options["numbers"]
    # A sum at the beginning, such as that with a bias, is done with the product.
    sums = int(bool(steps) and steps[0].startswith("add "))
    read = operands[0] if sums else None
    options = options | {"steps": ";".join(steps[:sums]), "numbers": numbers[:sums]}
    product = _Affine.apply(a, b, read, function, options, compute)
    return apply(product, steps[sums:], numbers[sums:], operands[sums:])


def _refuse_derivative(
    function: str,
    a: torch.Tensor,
    b: torch.Tensor,
    operands: Sequence[torch.Tensor],
    *,
    out: torch.Tensor,
    **options: Any,
) -> None:
    refuse_derivative(function, a, b, out, *operands)
    with torch._C._AutoDispatchBelowAutograd():  # pyright: ignore[reportPrivateUsage]
        torch.ops.tilewright.fused_matmul.out(function, a, b, operands, out=out, **options)


class _Affine(torch.autograd.Function):
    """`alpha·a·b + beta·read`, where the first step, if there is one, is such a sum."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        a: torch.Tensor,
        b: torch.Tensor,
        read: torch.Tensor | None,
        function: str,
        options: dict[str, Any],
        compute: _Compute,
    ) -> torch.Tensor:
        ctx.function, ctx.alpha = function, options["alpha"]
        ctx.beta = options["numbers"][0] if read is not None else 0.0
        ctx.options = {name: options[name] for name in ("precision", "on_cpu", "invariant")} | {"part": "all"}
        ctx.shapes = (a.shape, b.shape)
        ctx.shape_of_read = None if read is None else read.shape
        # What is not needed is not kept.
        ctx.save_for_backward(a if ctx.needs_input_grad[1] else None, b if ctx.needs_input_grad[0] else None)
        return compute(function, a, b, [] if read is None else [read], options)

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None, None, None, None]:
        of_read = None
        if ctx.shape_of_read is not None and ctx.needs_input_grad[2]:
            of_read = (grad if ctx.beta == 1 else grad * ctx.beta).sum_to_size(ctx.shape_of_read)
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            grad = grad if ctx.alpha == 1 else grad * ctx.alpha
        of_a, of_b = _of_linear(ctx, grad) if ctx.function == "linear" else differentiate(ctx, grad)
        return of_a, of_b, of_read, None, None, None


def _of_linear(
    ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The derivatives of `x·wᵀ`: `dy·w` and `dyᵀ·x`, which has the layout of w."""
    x, w = ctx.saved_tensors
    options: dict[str, Any] = ctx.options
    _, shape_w = ctx.shapes
    if len(shape_w) == 1:
        grad = grad.unsqueeze(-1)
    of_x = of_w = None
    if w is not None:
        of_x = again(grad, w.unsqueeze(0) if w.ndim == 1 else w, **options)
    if x is not None:
        rows, vectors = (
            tensor.flatten(0, -2) if tensor.ndim > 1 else tensor.unsqueeze(0) for tensor in (grad, x)
        )
        of_w = again(rows.mT, vectors, **options).reshape(shape_w)
    return of_x, of_w


def _split(steps: str) -> list[str]:
    return [step for step in steps.split(";") if step]


def apply(
    values: torch.Tensor, steps: Sequence[str], numbers: Sequence[float], operands: Sequence[torch.Tensor]
) -> torch.Tensor:
    """The steps by torch's own operators."""
    left, given = list(operands), list(numbers)
    for step in steps:
        name, *read = step.split(" ")
        if read:
            operand = left.pop(0)
            _check_broadcast(read[0], operand, values.shape)
            factor = given.pop(0) if name == "add" else None
            if factor is None:
                values = values * operand
            elif factor != 0:
                values = torch.add(values, operand, alpha=factor)
        elif name == "scale":
            values = values * given.pop(0)
        elif name == "offset":
            values = values + given.pop(0)
        elif name == "leaky_relu":
            values = F.leaky_relu(values, given.pop(0))
        elif name == "hardtanh":
            values = F.hardtanh(values, given.pop(0), given.pop(0))
        elif name == "clamp":
            values = torch.clamp(values, given.pop(0), given.pop(0))
        else:
            values = _FUNCTIONS[name](values)
    return values


_FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "mish": F.mish,
}

_library.impl("fused_matmul", _on_cuda, "CUDA")
_library.impl("fused_matmul.out", _on_cuda_out, "CUDA")
_library.impl("fused_matmul", _on_cpu, "CPU")
_library.impl("fused_matmul.out", _on_cpu_out, "CPU")
_library.impl("fused_matmul", _differentiable, "Autograd")
_library.impl("fused_matmul.out", _refuse_derivative, "Autograd")
torch.library.register_fake("tilewright::fused_matmul", _without_numbers, lib=_library)
torch.library.register_fake("tilewright::fused_matmul.out", _without_numbers_out, lib=_library)
register_with_dtensor()
