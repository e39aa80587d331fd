"""The operator `torch.ops.tilewright.scale`. This module imports torch, so it is imported only where torch is in use."""

from __future__ import annotations

from typing import Protocol

import torch
from torch.autograd import forward_ad

from tilewright import _native
from tilewright._errors import ArgumentError, OperandTypeError
from tilewright._sharding import register_with_dtensor
from tilewright._torch import check_out, refuse_derivative, refuse_tangents, write_to

__all__ = ["dispatch", "traced"]

_library = torch.library.Library("tilewright", "FRAGMENT")
# Torch has no derivatives of tensors that are keywords only.
_ARGUMENTS = 'Tensor matrix, float by=1.0, Tensor? rows=None, Tensor? columns=None, *, str on_cpu="refuse"'
_library.define(f"scale({_ARGUMENTS}) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
# It returns nothing: torch.compile takes no operators of ours that return what they were given.
_library.define(f"scale.out({_ARGUMENTS}, Tensor(a!) out) -> ()")


def dispatch(
    matrix: torch.Tensor,
    by: float,
    rows: torch.Tensor | None,
    columns: torch.Tensor | None,
    out: torch.Tensor | None,
    on_cpu: str,
) -> torch.Tensor:
    """Calls the operator, so that torch does everything that it does before a kernel."""
    if out is None:
        return _scale(matrix, by, rows, columns, on_cpu)
    torch.ops.tilewright.scale.out(matrix, by, rows, columns, on_cpu=on_cpu, out=out)
    return out


def traced(
    matrix: torch.Tensor,
    by: float,
    rows: torch.Tensor | None,
    columns: torch.Tensor | None,
    out: torch.Tensor | None,
    on_cpu: str,
) -> torch.Tensor:
    """As `dispatch`, for a compiler that looks at the call."""
    if out is None:
        return torch.ops.tilewright.scale.default(matrix, by, rows, columns, on_cpu=on_cpu)
    return dispatch(matrix, by, rows, columns, out, on_cpu)


def _scale(
    matrix: torch.Tensor, by: float, rows: torch.Tensor | None, columns: torch.Tensor | None, on_cpu: str
) -> torch.Tensor:
    """By the operator; under forward-mode derivatives and transformations of functions, to which an operator cannot say what it
    is, by a function that can.
    """
    if forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active():  # pyright: ignore[reportPrivateUsage]
        return _Scaling.apply(matrix, by, rows, columns, on_cpu)
    return torch.ops.tilewright.scale.default(matrix, by, rows, columns, on_cpu=on_cpu)


def _on_cuda(
    matrix: torch.Tensor,
    by: float = 1.0,
    rows: torch.Tensor | None = None,
    columns: torch.Tensor | None = None,
    *,
    on_cpu: str = "refuse",
) -> torch.Tensor:
    refuse_tangents("scale", matrix, rows, columns)
    return _native.scale_tensors(matrix, by, rows, columns, None, on_cpu)


def _on_cuda_out(
    matrix: torch.Tensor,
    by: float = 1.0,
    rows: torch.Tensor | None = None,
    columns: torch.Tensor | None = None,
    *,
    on_cpu: str = "refuse",
    out: torch.Tensor,
) -> None:
    refuse_tangents("scale", matrix, rows, columns)
    _native.scale_tensors(matrix, by, rows, columns, out, on_cpu)


def _on_cpu(
    matrix: torch.Tensor,
    by: float = 1.0,
    rows: torch.Tensor | None = None,
    columns: torch.Tensor | None = None,
    *,
    on_cpu: str = "refuse",
) -> torch.Tensor:
    if on_cpu == "move" and all(tensor.is_cpu for tensor in (matrix, rows, columns) if tensor is not None):
        there = [None if tensor is None else tensor.cuda() for tensor in (rows, columns)]
        return _on_cuda(matrix.cuda(), by, there[0], there[1]).cpu()
    return _on_cuda(matrix, by, rows, columns, on_cpu=on_cpu)


def _on_cpu_out(
    matrix: torch.Tensor,
    by: float = 1.0,
    rows: torch.Tensor | None = None,
    columns: torch.Tensor | None = None,
    *,
    on_cpu: str = "refuse",
    out: torch.Tensor,
) -> None:
    if on_cpu == "move" and all(tensor.is_cpu for tensor in (matrix, rows, columns, out) if tensor is not None):
        write_to(out, _on_cpu(matrix, by, rows, columns, on_cpu=on_cpu))
    else:
        _on_cuda_out(matrix, by, rows, columns, on_cpu=on_cpu, out=out)


def _without_numbers(
    matrix: torch.Tensor,
    by: float = 1.0,
    rows: torch.Tensor | None = None,
    columns: torch.Tensor | None = None,
    *,
    on_cpu: str = "refuse",
) -> torch.Tensor:
    """What the product is, but for its elements: for tensors that have none."""
    if matrix.ndim < 2:
        raise ArgumentError(f"matrix has shape {tuple(matrix.shape)}: it needs two extents at least")
    for name, factors, place in (("matrix", matrix, 0), ("rows", rows, -2), ("columns", columns, -1)):
        if factors is None:
            continue
        if factors.dtype != torch.float32:
            raise OperandTypeError(f"{name} has elements of type {factors.dtype}, and tilewright multiplies float32")
        if factors.device != matrix.device:
            raise ArgumentError(f"matrix is on {matrix.device} and {name} is on {factors.device}: move them to one device")
        if place and (factors.ndim != 1 or factors.shape[0] != matrix.shape[place]):
            of_matrix = tuple(matrix.shape)
            raise ArgumentError(
                f"{name} has shape {tuple(factors.shape)}, and matrix has shape {of_matrix}: pass one for each of its {name}"
            )
    return torch.empty_like(matrix)


def _without_numbers_out(
    matrix: torch.Tensor,
    by: float = 1.0,
    rows: torch.Tensor | None = None,
    columns: torch.Tensor | None = None,
    *,
    on_cpu: str = "refuse",
    out: torch.Tensor,
) -> None:
    check_out(_without_numbers(matrix, by, rows, columns), out)


def _refuse_derivative(
    matrix: torch.Tensor,
    by: float = 1.0,
    rows: torch.Tensor | None = None,
    columns: torch.Tensor | None = None,
    *,
    on_cpu: str = "refuse",
    out: torch.Tensor,
) -> None:
    refuse_derivative("scale", matrix, rows, columns, out)
    with torch._C._AutoDispatchBelowAutograd():  # pyright: ignore[reportPrivateUsage]
        dispatch(matrix, by, rows, columns, out, on_cpu)


def _needed(ctx: torch.autograd.function.FunctionCtx) -> tuple[bool, bool, bool]:
    """Whether the derivatives of matrix, rows and columns are wanted."""
    # Torch leaves out arguments at the end that are what they are by default.
    matrix, _, rows, columns, *_ = (*ctx.needs_input_grad, False, False)
    return matrix, rows, columns


def _keep(
    ctx: torch.autograd.function.FunctionCtx,
    inputs: tuple[torch.Tensor, float, torch.Tensor | None, torch.Tensor | None],
    keyword_only_inputs: dict[str, str],
    output: torch.Tensor,
) -> None:
    """Keeps what the derivatives need."""
    matrix, by, rows, columns = inputs
    ctx.by, ctx.options = by, keyword_only_inputs
    of_matrix, of_rows, of_columns = _needed(ctx)
    # What is not needed is not kept.
    ctx.save_for_backward(
        matrix if of_rows or of_columns else None,
        rows if of_matrix or of_columns else None,
        columns if of_matrix or of_rows else None,
    )


def _differentiate(
    ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor
) -> tuple[torch.Tensor | None, None, torch.Tensor | None, torch.Tensor | None]:
    """The derivative of the matrix is the same product of what comes back; those of factors are sums of what they multiply."""
    matrix, rows, columns = ctx.saved_tensors
    needs_matrix, needs_rows, needs_columns = _needed(ctx)
    of_matrix = of_rows = of_columns = None
    if needs_matrix:
        of_matrix = _scale(grad, ctx.by, rows, columns, **ctx.options)
    if matrix is not None:
        # Factors are those of all matrices of a batch.
        products = (grad * matrix).sum_to_size(matrix.shape[-2:]) * ctx.by
        if needs_rows:
            of_rows = (products if columns is None else products * columns).sum(-1)
        if needs_columns:
            of_columns = (products if rows is None else products * rows.unsqueeze(-1)).sum(-2)
    return of_matrix, None, of_rows, of_columns


class _Scaling(torch.autograd.Function):
    """The product, for forward-mode derivatives and for `torch.func`."""

    @staticmethod
    def forward(
        matrix: torch.Tensor, by: float, rows: torch.Tensor | None, columns: torch.Tensor | None, on_cpu: str
    ) -> torch.Tensor:
        return torch.ops.tilewright.scale.default(matrix, by, rows, columns, on_cpu=on_cpu)

    @staticmethod
    def setup_context(
        ctx: torch.autograd.function.FunctionCtx,
        inputs: tuple[torch.Tensor, float, torch.Tensor | None, torch.Tensor | None, str],
        output: torch.Tensor,
    ) -> None:
        matrix, by, rows, columns, on_cpu = inputs
        ctx.by, ctx.options = by, {"on_cpu": on_cpu}
        ctx.save_for_backward(matrix, rows, columns)
        ctx.save_for_forward(matrix, rows, columns)

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor
    ) -> tuple[torch.Tensor | None, None, torch.Tensor | None, torch.Tensor | None, None]:
        return (*_differentiate(ctx, grad), None)

    @staticmethod
    def jvp(
        ctx: torch.autograd.function.FunctionCtx,
        d_matrix: torch.Tensor | None,
        _by: None,
        d_rows: torch.Tensor | None,
        d_columns: torch.Tensor | None,
        _on_cpu: None,
    ) -> torch.Tensor | None:
        matrix, rows, columns = ctx.saved_tensors
        total: torch.Tensor | None = None
        # It is linear in each of the three.
        for tangent, (of, of_rows, of_columns) in (
            (d_matrix, (d_matrix, rows, columns)),
            (d_rows, (matrix, d_rows, columns)),
            (d_columns, (matrix, rows, d_columns)),
        ):
            if tangent is not None and of is not None:
                part = _scale(of, ctx.by, of_rows, of_columns, **ctx.options)
                total = part if total is None else total + part
        return total

    @staticmethod
    def vmap(
        info: _BatchSize,
        in_dims: tuple[int | None, None, int | None, int | None, None],
        matrix: torch.Tensor,
        by: float,
        rows: torch.Tensor | None,
        columns: torch.Tensor | None,
        on_cpu: str,
    ) -> tuple[torch.Tensor, int]:
        # The extent that is mapped over comes first: a batch like any other, unless there are other factors for each.
        of_matrix, _, of_rows, of_columns, _ = in_dims
        if of_matrix is None:
            matrix = matrix.unsqueeze(0).expand(info.batch_size, *matrix.shape)
        else:
            matrix = matrix.movedim(of_matrix, 0)
        if rows is not None and of_rows is not None:
            matrix = matrix * _spread(rows.movedim(of_rows, 0).unsqueeze(-1), matrix.ndim)
            rows = None
        if columns is not None and of_columns is not None:
            matrix = matrix * _spread(columns.movedim(of_columns, 0).unsqueeze(-2), matrix.ndim)
            columns = None
        return _scale(matrix, by, rows, columns, on_cpu), 0


class _BatchSize(Protocol):
    batch_size: int


def _spread(factors: torch.Tensor, rank: int) -> torch.Tensor:
    """Factors with a leading extent, such as multiply tensors of this many extents."""
    while factors.ndim < rank:
        factors = factors.unsqueeze(1)
    return factors


_library.impl("scale", _on_cuda, "CUDA")
_library.impl("scale.out", _on_cuda_out, "CUDA")
_library.impl("scale", _on_cpu, "CPU")
_library.impl("scale.out", _on_cpu_out, "CPU")
_library.impl("scale.out", _refuse_derivative, "Autograd")
torch.library.register_fake("tilewright::scale", _without_numbers, lib=_library)
torch.library.register_fake("tilewright::scale.out", _without_numbers_out, lib=_library)
torch.library.register_autograd("tilewright::scale", _differentiate, setup_context=_keep, lib=_library)
register_with_dtensor()
