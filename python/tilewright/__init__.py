"""Matrix products of float32 on NVIDIA GPUs, by kernels that are written in Rust and part of the package.

    >>> import torch, tilewright
    >>> a = torch.randn(2048, 8192, device="cuda")
    >>> b = torch.randn(4096, 8192, device="cuda")
    >>> c = tilewright.matmul(a, b.mT)

`matmul` computes what `torch.matmul` does. Its default precision, "fp32", is as accurate as float32 arithmetic element by
element, and computed by tensor cores where the GPU has them. It takes torch tensors, and arrays of any library that has
`__dlpack__` or `__cuda_array_interface__`, such as CuPy and JAX. Nothing is copied: any strides that are not negative are
layouts like any other.

`grouped_matmul` multiplies lists of matrices that may differ in their sizes, all at once; `scale` multiplies by diagonal matrices and by
numbers.

`linear`, `addmm` and `baddbmm` are torch's functions of these names, with an activation and a residual behind them, done before the
result is stored. A weight that stays the same can be packed once for them: `PackedMatrix`, and `nn.Linear`, which `convert` puts into models.

For torch, the operators are `torch.ops.tilewright.matmul`, `fused_matmul` and `scale`: differentiable, and known to `torch.compile`.

`enable` puts the products in the place of torch's own, for programs that call torch alone; `stats` says what came of it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, overload

try:
    import tilewright._native  # pyright: ignore[reportUnusedImport]
except ModuleNotFoundError as missing:
    raise ImportError(
        f"this copy of tilewright has no native half for Python {sys.version}: there are wheels for Linux on x86-64 and aarch64 with "
        "glibc 2.28 or newer and CPython 3.10 or newer, not for free-threaded builds of it; pip installs the one that fits"
    ) from missing

from tilewright._calls import asked, is_compiling
from tilewright._errors import ArgumentError, DeviceError, Error, OperandTypeError, OutOfMemoryError
from tilewright._linear import addmm, baddbmm, linear
from tilewright._native import Array, __version__, multiply
from tilewright._native import explain as _explain
from tilewright._native import grouped as _grouped
from tilewright._native import scale as _scale_directly
from tilewright._packed import PackedMatrix
from tilewright._stats import Stats, TakenProduct, reset_stats, stats
from tilewright._types import Activation, OnCpu, Operand, Out, Part, Precision, Tensor

if TYPE_CHECKING:
    from tilewright import nn
    from tilewright.nn import convert, revert

__all__ = [
    "Activation",
    "ArgumentError",
    "Array",
    "DeviceError",
    "Error",
    "OnCpu",
    "OperandTypeError",
    "OutOfMemoryError",
    "PackedMatrix",
    "Part",
    "Precision",
    "Stats",
    "TakenProduct",
    "__version__",
    "addmm",
    "baddbmm",
    "bmm",
    "convert",
    "disable",
    "enable",
    "enabled",
    "explain",
    "grouped_matmul",
    "linear",
    "matmul",
    "matvec",
    "nn",
    "reset_stats",
    "revert",
    "scale",
    "stats",
]

try:
    _has_torch = importlib.util.find_spec("torch") is not None
except ValueError:
    # What has the name in `sys.modules` is no module that was imported.
    _has_torch = False
if not _has_torch:
    # An asterisk would ask for these. Type checkers read the list above.
    globals()["__all__"] = [name for name in __all__ if name not in ("convert", "nn", "revert")]


@overload
def matmul(
    a: Tensor,
    b: Tensor,
    *,
    out: Tensor | None = None,
    precision: Precision = "fp32",
    tolerance: float | None = None,
    guarantee: float | None = None,
    invariant: bool = False,
    part: Part = "all",
    on_cpu: OnCpu = "refuse",
) -> Tensor: ...
@overload
def matmul(
    a: Operand,
    b: Operand,
    *,
    out: None = None,
    precision: Precision = "fp32",
    tolerance: float | None = None,
    guarantee: float | None = None,
    invariant: bool = False,
    part: Part = "all",
    on_cpu: OnCpu = "refuse",
) -> Array: ...
@overload
def matmul(
    a: Operand, b: Operand, *, out: Out, precision: Precision = "fp32", tolerance: float | None = None, guarantee: float | None = None, invariant: bool = False, part: Part = "all", on_cpu: OnCpu = "refuse"
) -> Out: ...
def matmul(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    precision: Precision = "fp32",
    tolerance: float | None = None,
    guarantee: float | None = None,
    invariant: bool = False,
    part: Part = "all",
    on_cpu: OnCpu = "refuse",
) -> Any:
    """The matrix product of two tensors, as `torch.matmul` and `numpy.matmul` define it.

    The last extent of `a` and the last but one of `b` are summed over. A vector `a` is a matrix of one row, a vector `b` one
    of one column; that extent is not part of the result. All other extents are batches, which are broadcast.

    Args:
        a: A tensor of float32 on a CUDA device: of torch, or of any library with `__dlpack__` or
            `__cuda_array_interface__`. Strides may be any that are not negative; nothing is copied.
        b: Another one on the same device, of the same kind.
        out: Where to write the product: of its shape, on the same device. It may have gaps. From its first element to its last, gaps
            included, it overlaps neither operand; none of its own elements is where another one is.
        precision: What is computed.

            - "fp32": as accurate as float32 arithmetic, element by element. Tensor cores multiply parts of the operands.
            - "fp32-strict": fused float32 operations on CUDA cores, nothing else.
            - "fp32-rounded": sums in float64, rounded to float32 once, so that nearly every element is the number nearest to the
              exact one. Tensor cores for float64 compute them where a GPU has fast ones (A100, H100, H200, B200); elsewhere it
              takes long.
            - "fp32-ozaki": exact sums of 8-bit digits of scaled operands, rounded to float32 once: nearly every element is the number
              nearest to the exact one, unless elements that are small beside the largest of their row of a matrix in `a` or column of
              one in `b` matter. For H100 and H200; much faster than "fp32-rounded".
            - "fp32-normwise": accurate only against the largest element of each row of a matrix in `a` and each column of
              one in `b`; the fastest of these.
            - "tf32", "bf16", "fp16": operands rounded to that, sums in float32.

        tolerance: In place of a precision, how large the error of an element may be, as a part of the sum of the magnitudes of its
            terms: the fastest way is taken whose errors are at most that on inputs that were made to show them, by half as a
            margin. Where no kernel's are as small, an error says what can be had.
        guarantee: The same, by what is proven for all operands.
        invariant: Whether each row of the product shall have the same bits whatever rows of `a` come with it, how many, and in which
            place of a batch: they depend on that row, on the matrix in `b`, and on the extents of that, on one GPU and with one version
            of this package. It takes longer where another order of the sums would have been faster for so many rows. Not for
            "fp32-ozaki" and "fp32-normwise".
        part: Which elements of each matrix of the product are wanted: "all"; those on the diagonal and above it, "upper", as
            `torch.triu` keeps them; or those on it and below, "lower". The others are zero, and as good as none of their time is
            spent. Where parts of the operands are zero, as in triangular matrices, much of the rest is not spent either.
        on_cpu: What to do with operands in the CPU's memory: "refuse" them; "move" torch tensors to the current CUDA device
            and the product back, which costs two copies through the bus; or "emulate" the kernels on the CPU, which is slow,
            and meant for tests.

    Returns:
        `out` if there is one. Otherwise, a torch tensor for torch tensors, without gaps; a `tilewright.Array` for others,
        which any library takes by its `from_dlpack`.

        For torch tensors, the product is queued on the current stream of their device, and this does not wait for it;
        `torch.autocast` changes nothing. For other arrays it has been computed when this returns.

    Raises:
        ArgumentError: (a `ValueError`) for shapes that make no product, layouts that kernels do not take, and devices that
            differ or are not meant to be used.
        OperandTypeError: (a `TypeError`) for other element types, for objects that are no arrays, and for options of other types. Nothing
            is cast.
        OutOfMemoryError: (a `MemoryError`) where there is too little memory. torch raises its own error.
        DeviceError: (a `RuntimeError`) where there is no GPU to use, or it fails.
    """
    if tolerance is not None or guarantee is not None:
        precision = asked(precision, tolerance, guarantee)
    if is_compiling():
        return _traced("matmul", a, b, out, precision, on_cpu, part, invariant)
    return multiply("matmul", a, b, out, precision, on_cpu, part, invariant)


@overload
def matvec(
    a: Tensor, x: Tensor, *, out: Tensor | None = None, precision: Precision = "fp32", tolerance: float | None = None, guarantee: float | None = None, invariant: bool = False, on_cpu: OnCpu = "refuse"
) -> Tensor: ...
@overload
def matvec(
    a: Operand, x: Operand, *, out: None = None, precision: Precision = "fp32", tolerance: float | None = None, guarantee: float | None = None, invariant: bool = False, on_cpu: OnCpu = "refuse"
) -> Array: ...
@overload
def matvec(a: Operand, x: Operand, *, out: Out, precision: Precision = "fp32", tolerance: float | None = None, guarantee: float | None = None, invariant: bool = False, on_cpu: OnCpu = "refuse") -> Out: ...
def matvec(a: Any, x: Any, *, out: Any = None, precision: Precision = "fp32", tolerance: float | None = None, guarantee: float | None = None, invariant: bool = False, on_cpu: OnCpu = "refuse") -> Any:
    """The product of a matrix and a vector, and of nothing else: as `torch.mv`.

    Arguments, but for `part`, result and exceptions are those of `matmul`; in messages, `x` is `b`.
    """
    if tolerance is not None or guarantee is not None:
        precision = asked(precision, tolerance, guarantee)
    if is_compiling():
        return _traced("matvec", a, x, out, precision, on_cpu, "all", invariant)
    return multiply("matvec", a, x, out, precision, on_cpu, "all", invariant)


@overload
def bmm(
    a: Tensor, b: Tensor, *, out: Tensor | None = None, precision: Precision = "fp32", tolerance: float | None = None, guarantee: float | None = None, invariant: bool = False, on_cpu: OnCpu = "refuse"
) -> Tensor: ...
@overload
def bmm(
    a: Operand, b: Operand, *, out: None = None, precision: Precision = "fp32", tolerance: float | None = None, guarantee: float | None = None, invariant: bool = False, on_cpu: OnCpu = "refuse"
) -> Array: ...
@overload
def bmm(a: Operand, b: Operand, *, out: Out, precision: Precision = "fp32", tolerance: float | None = None, guarantee: float | None = None, invariant: bool = False, on_cpu: OnCpu = "refuse") -> Out: ...
def bmm(a: Any, b: Any, *, out: Any = None, precision: Precision = "fp32", tolerance: float | None = None, guarantee: float | None = None, invariant: bool = False, on_cpu: OnCpu = "refuse") -> Any:
    """The products of two batches of as many matrices, each of three extents: as `torch.bmm`. Nothing is broadcast.

    Arguments, but for `part`, result and exceptions are those of `matmul`.
    """
    if tolerance is not None or guarantee is not None:
        precision = asked(precision, tolerance, guarantee)
    if is_compiling():
        return _traced("bmm", a, b, out, precision, on_cpu, "all", invariant)
    return multiply("bmm", a, b, out, precision, on_cpu, "all", invariant)


@overload
def grouped_matmul(
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    *,
    out: Sequence[Tensor] | None = None,
    precision: Precision = "fp32",
    tolerance: float | None = None,
    guarantee: float | None = None,
    on_cpu: OnCpu = "refuse",
) -> list[Tensor]: ...
@overload
def grouped_matmul(
    a: Sequence[Operand],
    b: Sequence[Operand],
    *,
    out: None = None,
    precision: Precision = "fp32",
    tolerance: float | None = None,
    guarantee: float | None = None,
    on_cpu: OnCpu = "refuse",
) -> list[Array]: ...
@overload
def grouped_matmul(
    a: Sequence[Operand],
    b: Sequence[Operand],
    *,
    out: Sequence[Out],
    precision: Precision = "fp32",
    tolerance: float | None = None,
    guarantee: float | None = None,
    on_cpu: OnCpu = "refuse",
) -> list[Out]: ...
def grouped_matmul(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    precision: Precision = "fp32",
    tolerance: float | None = None,
    guarantee: float | None = None,
    on_cpu: OnCpu = "refuse",
) -> Any:
    """The products `a[i] @ b[i]` of two lists of as many matrices, which may differ in sizes, strides and layouts: all at once.

    Each kernel is launched once, however many products there are. A call copies a table of the products to the device, and waits until
    that is done; so it cannot be captured into a CUDA graph.

    Args:
        a: Matrices of float32, as `matmul` takes them, all on one device and all of torch or none. There may be none.
        b: As many others.
        out: Where to write the products: as many matrices of their shapes, which may be parts of one tensor. None may overlap
            another one, nor an operand.
        precision: "fp32" or "fp32-strict", as for `matmul`.
        tolerance: As for `matmul`.
        guarantee: As for `matmul`.
        on_cpu: "refuse" or "emulate", as for `matmul`.

    Returns:
        A list of the products: those of `out` if there is one, otherwise new ones, of the kind that `matmul` returns.

        For torch tensors they are queued on the current stream of their device, and this does not wait for them. They have no
        derivative: call it under `torch.no_grad()` where one is wanted of an operand.

    Raises:
        ArgumentError, OperandTypeError, OutOfMemoryError, DeviceError: As `matmul` does. What is wrong with a product is said with
            its number.
    """
    if tolerance is not None or guarantee is not None:
        precision = asked(precision, tolerance, guarantee)
    return _grouped(_listed("a", a), _listed("b", b), None if out is None else _listed("out", out), precision, on_cpu)


@overload
def scale(
    matrix: Tensor,
    by: float = 1.0,
    *,
    rows: Tensor | None = None,
    columns: Tensor | None = None,
    out: Tensor | None = None,
    on_cpu: OnCpu = "refuse",
) -> Tensor: ...
@overload
def scale(
    matrix: Operand,
    by: float = 1.0,
    *,
    rows: Operand | None = None,
    columns: Operand | None = None,
    out: None = None,
    on_cpu: OnCpu = "refuse",
) -> Array: ...
@overload
def scale(
    matrix: Operand,
    by: float = 1.0,
    *,
    rows: Operand | None = None,
    columns: Operand | None = None,
    out: Out,
    on_cpu: OnCpu = "refuse",
) -> Out: ...
def scale(
    matrix: Any, by: float = 1.0, *, rows: Any = None, columns: Any = None, out: Any = None, on_cpu: OnCpu = "refuse"
) -> Any:
    """A matrix times a number, with each row and each column times a factor of its own: `by · diag(rows) · matrix ·
    diag(columns)`, in one pass.

    Each element is multiplied in float32 by its row's factor, by its column's, and by `by`, and rounded each time. Also by
    zero, so that what is not finite leaves a NaN.

    Args:
        matrix: A tensor of float32 of two or more extents, as `matmul` takes them. The last two are rows and columns, those
            before them a batch.
        by: A number of Python, which is rounded to float32. It is no tensor, and has no derivative.
        rows: A vector of a factor for each row, on the same device and of the same kind; the same for all matrices of a batch.
        columns: A vector of a factor for each column, likewise.
        out: Where to write the product: of the shape of `matrix`, on the same device. It may be `matrix` itself, with the same
            strides; otherwise it overlaps none of the operands.
        on_cpu: As for `matmul`.

    Returns:
        As `matmul` does. A new torch tensor has its extents in the same order in memory as `matrix`.

        It takes as long as a copy of the matrix, or twice as long if `out`, or the `Array` that is returned, lies by rows and
        `matrix` by columns, or the other way round.

    Raises:
        ArgumentError, OperandTypeError, OutOfMemoryError, DeviceError: As `matmul` does.
    """
    if is_compiling():
        from tilewright import _scale

        return _scale.traced(matrix, by, rows, columns, out, on_cpu)
    return _scale_directly(matrix, by, rows, columns, out, on_cpu)


def explain(
    a: Any, b: Any, *, precision: Precision = "fp32", tolerance: float | None = None, guarantee: float | None = None, invariant: bool = False, part: Part = "all", on_cpu: OnCpu = "refuse"
) -> str:
    """How `matmul` would compute this product: the kernel, why that one, the steps, and why not the other kernels.

    Arguments and exceptions are those of `matmul`. Kernels are loaded, and nothing is computed.
    """
    if tolerance is not None or guarantee is not None:
        precision = asked(precision, tolerance, guarantee)
    return _explain("matmul", a, b, precision, on_cpu, part, invariant)


def enable(precision: Precision = "fp32", *, only_faster: bool = True) -> None:
    """Computes torch's products of float32 on CUDA devices by Tilewright from now on, in the whole process, until `disable` is called.

    `torch.mm`, `addmm`, `bmm`, `baddbmm`, `addmv`, with `out=` and in place, are taken, and with them all that torch makes of these:
    `linear`, `matmul`, `mv`, `einsum`, derivatives, `vmap`, what `torch.compile` leaves to libraries, and the parts of a DTensor's
    product. What is taken is decided for each call: torch's own kernel computes products of other types, on other devices or with names of
    extents, all products while TF32 is allowed (`torch.backends.cuda.matmul`), and those for which there is not enough memory.

    A CUDA graph has the kernels that were captured, whatever the switch says when it is replayed. Call this outside of functions that
    are compiled; those that were compiled before need not be compiled again.

    With the environment variable TILEWRIGHT_VERBOSE=1, each call writes a line to the standard error.

    Args:
        precision: As for `matmul`.
        only_faster: Whether torch computes what is not predicted to be faster by more than a call costs, such as small products.

    Raises:
        ArgumentError: The precision is none.
        DeviceError: This torch cannot have its kernels replaced: it has no CUDA, is older than 2.10, or arranges kernels otherwise in memory;
            or the platform is not Linux on x86-64.
    """
    from tilewright import _switch

    _switch.enable(precision, only_faster=only_faster)


def disable() -> None:
    """Ends what `enable` and any `enabled` have begun: torch computes as if there had been none."""
    from tilewright import _switch

    _switch.disable()


def enabled(precision: Precision = "fp32", *, only_faster: bool = True) -> AbstractContextManager[None]:
    """What `enable` does, for a `with` block, or as a decorator for a function.

    It holds for the whole process, because torch computes derivatives in threads of its own. Of several blocks, the one that was entered
    last decides, and they may end in any order.

        >>> with tilewright.enabled():
        ...     model(x).sum().backward()
    """
    from tilewright import _switch

    return _switch.enabled(precision, only_faster=only_faster)


def __getattr__(name: str) -> Any:
    # These import torch.
    if name in ("nn", "convert", "revert"):
        import importlib

        nn = importlib.import_module("tilewright.nn")
        return nn if name == "nn" else getattr(nn, name)
    raise AttributeError(f"module 'tilewright' has no attribute {name!r}")


def _listed(name: str, matrices: Any) -> list[Any]:
    try:
        each = iter(matrices)
    except TypeError:
        raise OperandTypeError(f"{name} is of type {type(matrices).__name__}: pass a list of matrices") from None
    return list(each)


def _traced(rule: str, a: Any, b: Any, out: Any, precision: str, on_cpu: str, part: str, invariant: bool) -> Any:
    from tilewright import _torch

    return _torch.traced(rule, a, b, out, precision=precision, on_cpu=on_cpu, part=part, invariant=invariant)


# The operator is there as soon as both libraries are.
if sys.modules.get("torch") is not None:
    import tilewright._fused  # pyright: ignore[reportUnusedImport]
    import tilewright._scale  # pyright: ignore[reportUnusedImport]
    import tilewright._torch  # pyright: ignore[reportUnusedImport]
