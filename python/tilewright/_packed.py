"""`PackedMatrix`: a matrix of torch's, beside the form of it that kernels on tensor cores read, which is made once for many products."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import TYPE_CHECKING, Any

from tilewright import _native
from tilewright._calls import is_compiling
from tilewright._errors import ArgumentError, OperandTypeError
from tilewright._types import OnCpu, Precision

if TYPE_CHECKING:
    import torch

__all__ = ["PackedMatrix", "is_watched", "mark"]


class PackedMatrix:
    """A matrix of float32 and the same numbers packed for products in one precision.

    Tensor cores read numbers as several of fewer bits, in lines of their own layout. Usually each product packs both of its operands;
    a weight that stays the same can be packed once:

        >>> packed = tilewright.PackedMatrix(w)
        >>> y = tilewright.linear(x, packed, bias, "gelu")

    It takes the place of `w` in `linear`, and of `mat1` in `addmm`. Its memory is about as large as that of the matrix: `nbytes`. A
    kernel for other operands is chosen where it is faster, such as for few rows of `x`, and then reads the matrix; so it is with what is not
    finite, or too large or small to be packed. So the matrix is kept, too.

    What is packed is never older than the matrix, as far as torch counts changes: a changed matrix is packed again at its next product.
    torch counts what its own operators write, and a step of any of its optimizers counts as a change, too. It does not count what is written through
    `.data`, by a CUDA graph that is replayed, by collectives such as `torch.distributed.broadcast`, or by other libraries: call `repack` after that.

    Args:
        w: A matrix, as `linear` takes it: its rows are what vectors are multiplied by. Not a tensor of the inference mode, of which torch counts
            no changes.
        precision: That of all products: "fp32", "fp32-normwise", "fp32-ozaki", "bf16" or "fp16", as for `matmul`.
        frozen: Whether the matrix stays as it is: then what is packed is also used in CUDA graphs that are captured, and by
            `torch.compile`, where nothing can look whether the matrix has changed. `repack` writes to the same memory, so that graphs go by
            what has been packed last. Keep it as long as such a graph: the graph reads the memory.
        on_cpu: "refuse" or "emulate", as for `matmul`.

    Raises:
        ArgumentError, OperandTypeError, OutOfMemoryError, DeviceError: As `matmul` does, and where a device has no kernels for packed
            operands of the precision: those of compute capability 9.0 have.

    It can be used by several threads and on several streams. Copying it and pickling it keep the matrix, which is packed anew.
    """

    #: How the memory is laid out. What was packed by another version of this package is not to be used; it cannot be saved.
    FORMAT_VERSION = 1

    def __init__(self, w: torch.Tensor, precision: Precision = "fp32", *, frozen: bool = False, on_cpu: OnCpu = "refuse") -> None:
        torch = _torch()
        if torch is None or not isinstance(w, torch.Tensor):
            raise OperandTypeError(f"w is of type {type(w).__name__}: only tensors of torch can be packed")
        if w.ndim != 2:
            raise ArgumentError(f"w has shape {tuple(w.shape)}: only matrices can be packed")
        if on_cpu == "move":
            raise ArgumentError('on_cpu is "move": pack what w.cuda() gives')
        if mark(w) is None:
            raise ArgumentError(
                "w cannot be packed once: it is a tensor of the inference mode or of a class of its own, of which torch counts no changes; "
                "clone it outside of the inference mode"
            )
        self._source, self._frozen, self._on_cpu = w, frozen, on_cpu
        self._precision: Precision = precision
        self._lock = threading.Lock()
        #: What is packed, what the matrix was like then, and the stream and the event behind which it is ready.
        self._memory: torch.Tensor | None = None
        self._mark: Any = None
        self._ready: tuple[Any, Any] | None = None
        with self._lock:
            self._pack()

    @property
    def source(self) -> torch.Tensor:
        """The matrix."""
        return self._source

    @property
    def shape(self) -> torch.Size:
        """The matrix's shape."""
        return self._source.shape

    @property
    def dtype(self) -> torch.dtype:
        """The type of the matrix's elements."""
        return self._source.dtype

    @property
    def device(self) -> torch.device:
        """Where both are."""
        return self._source.device

    @property
    def precision(self) -> Precision:
        """The precision of products with it."""
        return self._precision

    @property
    def frozen(self) -> bool:
        """Whether the matrix is said to stay as it is."""
        return self._frozen

    @property
    def nbytes(self) -> int:
        """The memory that is taken beside the matrix's."""
        memory = self._memory
        return 0 if memory is None else 4 * memory.numel()

    def is_current(self) -> bool:
        """Whether the matrix is what it was when it was packed, as far as torch counts changes."""
        return self._mark == mark(self._source)

    def repack(self) -> None:
        """Packs the matrix as it is now: after changes that torch does not count."""
        with self._lock:
            self._pack()

    def operand(self, precision: str) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The matrix, and what is packed, for a product that is queued now on the current stream; or None where it is not to be used."""
        if precision != self._precision and "=" not in precision:
            raise ArgumentError(f"w is packed for precision={self._precision!r}, and the product is to be in {precision!r}: pack it for that")
        if "=" in precision:
            # A tolerance: whatever kernel is chosen, it packs for itself.
            return self._source, None
        if is_compiling():
            return self._source, self._memory if self._frozen else None
        torch = _torch()
        if is_watched(torch):
            # A graph is made of the call, which is to be right later on.
            return self._source, None
        if self._source.is_cuda and torch.cuda.is_current_stream_capturing():
            return self._source, self._memory if self._frozen else None
        with self._lock:
            if not self.is_current():
                self._pack()
            memory, ready = self._memory, self._ready
        if ready is not None and memory is not None:
            stream, event = ready
            current = torch.cuda.current_stream(memory.device)
            if current != stream:
                current.wait_event(event)
                memory.record_stream(current)
        return self._source, memory

    def _pack(self) -> None:
        """Packs on the current stream."""
        torch, source = _torch(), self._source
        found = mark(source)
        # Where graphs may read it, it stays where it is.
        into = self._memory if self._frozen and self._mark is not None and found is not None and self._mark[1:] == found[1:] else None
        if into is None:
            # It goes first, so that both need not fit.
            self._memory = self._mark = self._ready = None
        # A tensor of the inference mode could not be an operand where derivatives are wanted.
        with torch.inference_mode(False), torch.no_grad():
            memory = _native.pack(source.detach(), into, self._precision, self._on_cpu)
        if memory.is_cuda:
            stream = torch.cuda.current_stream(memory.device)
            event = torch.cuda.Event()
            event.record(stream)
            if self._frozen:
                # A stream that is captured cannot wait for it.
                event.synchronize()
            self._ready = stream, event
        self._memory, self._mark = memory, found

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._source, self._precision, self._frozen, self._on_cpu)

    def __repr__(self) -> str:
        frozen = ", frozen=True" if self._frozen else ""
        return f"PackedMatrix({tuple(self.shape)}, precision={self._precision!r}{frozen}, device={str(self.device)!r}, nbytes={self.nbytes})"


def _again(w: Any, precision: Precision, frozen: bool, on_cpu: OnCpu) -> PackedMatrix:
    return PackedMatrix(w, precision, frozen=frozen, on_cpu=on_cpu)


def mark(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """What a tensor is like: how often torch has written to it, where it is, and how it lies. Two marks of one tensor that are equal are of the same
    numbers. None, if torch does not count that.

    torch does not count what fused optimizers write, so the steps of all optimizers belong to it.
    """
    torch = _torch()
    _watch_optimizers()
    # Tensors of other classes may have no memory, or others' than they seem to have.
    if (type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter) or tensor.is_inference():
        return None
    return (tensor._version, _steps), tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.device, tensor.dtype


#: How many steps optimizers of torch have made since they are watched.
_steps = 0
_is_watching = False


def _watch_optimizers() -> None:
    """Counts the steps of optimizers from now on."""
    global _is_watching
    if not _is_watching:
        # torch.optim deletes the name of this module.
        module: Any = importlib.import_module("torch.optim.optimizer")
        module.register_optimizer_step_post_hook(_count_step)
        _is_watching = True


def _count_step(*_what: Any) -> None:
    """Called after each step of each optimizer. Of compiled ones, torch counts what they write."""
    global _steps
    if not is_compiling():
        _steps += 1


def is_watched(torch: Any) -> bool:
    """Whether calls are written down to be repeated, or are made with tensors that have no numbers."""
    return torch._C._len_torch_dispatch_stack() > 0 or torch._C._get_tracing_state() is not None


def _torch() -> Any:
    return sys.modules.get("torch")
