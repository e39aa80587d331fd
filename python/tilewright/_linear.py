"""Products with something behind them that is done before the result is stored: `linear`, `addmm`, `baddbmm`."""

from __future__ import annotations

from typing import Any, overload

from tilewright._calls import asked, is_compiling
from tilewright._native import Array, fused
from tilewright._packed import PackedMatrix
from tilewright._steps import Steps, number
from tilewright._types import Activation, OnCpu, Operand, Out, Precision, Tensor

__all__ = ["addmm", "baddbmm", "linear"]


@overload
def linear(
    x: Tensor,
    w: Tensor | PackedMatrix,
    bias: Tensor | None = None,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    scale: float | None = None,
    *,
    out: Tensor | None = None,
    precision: Precision = "fp32",
    tolerance: float | None = None,
    guarantee: float | None = None,
    invariant: bool = False,
    on_cpu: OnCpu = "refuse",
) -> Tensor: ...
@overload
def linear(
    x: Operand,
    w: Operand,
    bias: Operand | None = None,
    activation: Activation | None = None,
    residual: Operand | None = None,
    scale: float | None = None,
    *,
    out: None = None,
    precision: Precision = "fp32",
    tolerance: float | None = None,
    guarantee: float | None = None,
    invariant: bool = False,
    on_cpu: OnCpu = "refuse",
) -> Array: ...
@overload
def linear(
    x: Operand,
    w: Operand,
    bias: Operand | None = None,
    activation: Activation | None = None,
    residual: Operand | None = None,
    scale: float | None = None,
    *,
    out: Out,
    precision: Precision = "fp32",
    tolerance: float | None = None,
    guarantee: float | None = None,
    invariant: bool = False,
    on_cpu: OnCpu = "refuse",
) -> Out: ...
def linear(
    x: Any,
    w: Any,
    bias: Any = None,
    activation: Activation | None = None,
    residual: Any = None,
    scale: float | None = None,
    *,
    out: Any = None,
    precision: Precision = "fp32",
    tolerance: float | None = None,
    guarantee: float | None = None,
    invariant: bool = False,
    on_cpu: OnCpu = "refuse",
) -> Any:
    """`activation(scale · x·wᵀ + bias) + residual`: `torch.nn.functional.linear`, and what often follows it.

    What follows the product is done before its elements are stored, or by one more launch, in this order: times `scale`, plus
    `bias`, the steps of `activation` one after the other, plus `residual`. Each step is rounded to float32; how large the errors of
    activations are, `blocks::epilogue::Activation` says (a few units in the last place).

        >>> y = tilewright.linear(x, w, bias, "gelu", residual=x)
        >>> y = tilewright.linear(x, w, bias, [("mul", 0.5), ("hardtanh", -2.0, 2.0), "gelu"])

    Args:
        x: Vectors of as many elements as `w` has columns, in batches of any number of extents.
        w: A matrix with a row for each element of a vector of the result, as torch's `Linear.weight`; or one such row, without
            which the result has an extent less; or a `PackedMatrix`, which is packed once for many products.
        bias: What is added to the product: a tensor that can be broadcast to the result, such as a vector of an element for each
            row of `w`.
        activation: A step, or a list of them. A step is a name, or a tuple of a name and its numbers, as functions of torch have them:

            - "relu", "sigmoid", "silu", "tanh", "mish";
            - "gelu", which is ("gelu", "none"); ("gelu", "tanh");
            - ("leaky_relu", slope), 0.01 if that is left out;
            - ("hardtanh", min, max), -1 and 1 if they are left out; ("clamp", min, max), of which either may be None;
            - ("mul", other) and ("add", other) or ("add", other, alpha): a number, or a tensor that can be broadcast to the result.

            There can be 8 steps, 3 of them with tensors, `bias` and `residual` among them; hardtanh and clamp are two.
        residual: What is added at last, likewise.
        scale: A number that the product is multiplied by.
        out, precision, tolerance, guarantee, invariant, on_cpu: As for `matmul`. `out` overlaps none of the tensors, the bias and the
            residual included.

    Returns:
        As `matmul` does.

    Raises:
        ArgumentError, OperandTypeError, OutOfMemoryError, DeviceError: As `matmul` does.

    Where a derivative is wanted, the product with `scale` and `bias` is one kernel, and torch does the steps of `activation` and adds
    `residual`: activations are then torch's, with its rounding. The derivatives of `x` and `w` are products of this package.
    """
    addend = [] if bias is None else [(bias, 1.0, "bias")]
    options = (out, precision, tolerance, guarantee, invariant, on_cpu)
    return _call("linear", x, w, 1.0 if scale is None else scale, addend, activation, residual, *options)


@overload
def addmm(
    input: Tensor,
    mat1: Tensor | PackedMatrix,
    mat2: Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    out: Tensor | None = None,
    precision: Precision = "fp32",
    tolerance: float | None = None,
    guarantee: float | None = None,
    invariant: bool = False,
    on_cpu: OnCpu = "refuse",
) -> Tensor: ...
@overload
def addmm(
    input: Operand,
    mat1: Operand,
    mat2: Operand,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    activation: Activation | None = None,
    residual: Operand | None = None,
    out: None = None,
    precision: Precision = "fp32",
    tolerance: float | None = None,
    guarantee: float | None = None,
    invariant: bool = False,
    on_cpu: OnCpu = "refuse",
) -> Array: ...
@overload
def addmm(
    input: Operand,
    mat1: Operand,
    mat2: Operand,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    activation: Activation | None = None,
    residual: Operand | None = None,
    out: Out,
    precision: Precision = "fp32",
    tolerance: float | None = None,
    guarantee: float | None = None,
    invariant: bool = False,
    on_cpu: OnCpu = "refuse",
) -> Out: ...
def addmm(
    input: Any,
    mat1: Any,
    mat2: Any,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    activation: Activation | None = None,
    residual: Any = None,
    out: Any = None,
    precision: Precision = "fp32",
    tolerance: float | None = None,
    guarantee: float | None = None,
    invariant: bool = False,
    on_cpu: OnCpu = "refuse",
) -> Any:
    """`activation(beta · input + alpha · mat1·mat2) + residual`: `torch.addmm`, and what often follows it.

    `input` is not read if `beta` is zero, neither matrix if `alpha` is zero. It may be of any shape that can be broadcast to the product's.
    `mat1` may be a `PackedMatrix`.
    All other arguments, result and exceptions are those of `linear`. `out` may not be `input` itself.
    """
    options = (out, precision, tolerance, guarantee, invariant, on_cpu)
    return _call("addmm", mat1, mat2, alpha, [(input, beta, "input")], activation, residual, *options)


@overload
def baddbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    out: Tensor | None = None,
    precision: Precision = "fp32",
    tolerance: float | None = None,
    guarantee: float | None = None,
    invariant: bool = False,
    on_cpu: OnCpu = "refuse",
) -> Tensor: ...
@overload
def baddbmm(
    input: Operand,
    batch1: Operand,
    batch2: Operand,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    activation: Activation | None = None,
    residual: Operand | None = None,
    out: None = None,
    precision: Precision = "fp32",
    tolerance: float | None = None,
    guarantee: float | None = None,
    invariant: bool = False,
    on_cpu: OnCpu = "refuse",
) -> Array: ...
@overload
def baddbmm(
    input: Operand,
    batch1: Operand,
    batch2: Operand,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    activation: Activation | None = None,
    residual: Operand | None = None,
    out: Out,
    precision: Precision = "fp32",
    tolerance: float | None = None,
    guarantee: float | None = None,
    invariant: bool = False,
    on_cpu: OnCpu = "refuse",
) -> Out: ...
def baddbmm(
    input: Any,
    batch1: Any,
    batch2: Any,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    activation: Activation | None = None,
    residual: Any = None,
    out: Any = None,
    precision: Precision = "fp32",
    tolerance: float | None = None,
    guarantee: float | None = None,
    invariant: bool = False,
    on_cpu: OnCpu = "refuse",
) -> Any:
    """`activation(beta · input + alpha · batch1·batch2) + residual`: `torch.baddbmm`, and what often follows it.

    The products are those of two batches of as many matrices; everything else is as for `addmm`.
    """
    options = (out, precision, tolerance, guarantee, invariant, on_cpu)
    return _call("baddbmm", batch1, batch2, alpha, [(input, beta, "input")], activation, residual, *options)


def _call(
    function: str,
    a: Any,
    b: Any,
    alpha: float,
    addend: list[tuple[Any, float, str]],
    activation: Any,
    residual: Any,
    out: Any,
    precision: str,
    tolerance: float | None,
    guarantee: float | None,
    invariant: bool,
    on_cpu: str,
) -> Any:
    if tolerance is not None or guarantee is not None:
        precision = asked(precision, tolerance, guarantee)
    steps = Steps()
    for tensor, factor, name in addend:
        steps.add(name, tensor, number(function, "beta", factor))
    steps.activation(activation)
    if residual is not None:
        steps.add("residual", residual)
    alpha = number(function, "scale" if function == "linear" else "alpha", alpha)
    left: Any = a
    right: Any = b
    packed_a = packed_b = None
    if type(b) is PackedMatrix and function == "linear":
        right, packed_b = b.operand(precision)
    elif type(a) is PackedMatrix and function == "addmm":
        left, packed_a = a.operand(precision)
    arguments = (function, left, right, steps.operands, out, alpha, steps.text, steps.numbers, precision, on_cpu, invariant, packed_a, packed_b)
    if is_compiling():
        from tilewright import _fused

        return _fused.traced(*arguments)
    return fused(*arguments)
