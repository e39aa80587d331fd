"""Modules of torch by Tilewright: `Linear`, whose weight is packed once as long as it stays the same, and what puts it into models.

    >>> model = tilewright.convert(model)      # each torch.nn.Linear of float32 is a tilewright.nn.Linear now, with the same parameters
    >>> tilewright.nn.packed_bytes(model)      # what is kept beside them

This module imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F

from tilewright import _fused, _native
from tilewright._calls import is_compiling
from tilewright._errors import ArgumentError
from tilewright._linear import linear
from tilewright._packed import PackedMatrix, is_watched, mark
from tilewright._steps import Steps
from tilewright._types import Activation, OnCpu, Precision

__all__ = ["Linear", "convert", "packed_bytes", "revert"]

_Module = TypeVar("_Module", bound=torch.nn.Module)


#: What a module has found on the way, which nobody else is given.
_FOUND = ("_kept", "_seen", "_unread")


class Linear(torch.nn.Linear):
    """`torch.nn.Linear` by `tilewright.linear`, with an activation behind it, and a weight that is packed once as long as it stays the same.

    Parameters, their names and their first values are those of `torch.nn.Linear`, and so is what `state_dict` has.

    In inference (`torch.no_grad` or `torch.inference_mode`, or a weight that wants no derivative), the first call with a weight multiplies it as it is. If
    the next one finds it unchanged, it packs it (`tilewright.PackedMatrix`), and all that follow use that. What is packed takes about as much memory
    as the weight. It is freed when the weight has changed, by a call in training, by `to`, `share_memory` and the like; it is not in
    copies, in what is pickled, or in `state_dict`.

    torch counts what its own operators write to a weight, and a step of any of its optimizers counts as a change, too. It does not count what is
    written through `weight.data`, by a CUDA graph that is replayed, by collectives such as `torch.distributed.broadcast`, or by other libraries:
    call `repack` after that.

    Args:
        in_features, out_features, bias, device, dtype: As for `torch.nn.Linear`.
        activation: As for `tilewright.linear`.
        precision: As for `tilewright.matmul`. A weight is packed in "fp32", "fp32-normwise", "fp32-ozaki", "bf16" and "fp16", on
            GPUs of compute capability 9.0.
        frozen: Whether the weight stays as it is: the first call packs it, and what is packed is also used in CUDA graphs that are captured
            and by `torch.compile`, once there has been a call outside of them. Otherwise these multiply the weight as it is, because
            nothing in them looks whether it has changed. Such a graph reads the memory: leave the module as it is as long as there is the graph.
        on_cpu: As for `tilewright.matmul`.

    What is not float32, and everything inside `torch.autocast`, is computed by torch: `precision` is about float32 alone.
    """

    activation: Activation | None
    precision: Precision
    frozen: bool
    on_cpu: OnCpu

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        activation: Activation | None = None,
        precision: Precision = "fp32",
        *,
        frozen: bool = False,
        on_cpu: OnCpu = "refuse",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self.become(activation, precision, frozen, on_cpu)

    def become(self, activation: Activation | None, precision: Precision, frozen: bool, on_cpu: OnCpu) -> None:
        """What the constructor does besides torch's: sets the options."""
        # What is wrong with them is said here, and not by the first call.
        Steps().activation(activation)
        if precision not in _native.precisions():
            raise ArgumentError(f"precision is {precision!r}: expected one of {', '.join(_native.precisions())}")
        self.activation, self.precision, self.frozen, self.on_cpu = activation, precision, frozen, on_cpu
        self.unpack()

    @classmethod
    def from_linear(
        cls,
        module: torch.nn.Linear,
        activation: Activation | None = None,
        precision: Precision = "fp32",
        *,
        frozen: bool = False,
        on_cpu: OnCpu = "refuse",
    ) -> Linear:
        """A module with the parameters of another one: the same tensors, not copies."""
        bias: Any = module.bias
        made = cls(module.in_features, module.out_features, bias is not None, device="meta")
        made.weight, made.bias = module.weight, bias
        made.become(activation, precision, frozen, on_cpu)
        return made.train(module.training)

    def forward(self, input: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """`activation(input·weightᵀ + bias) + residual`."""
        kind = input.device.type
        casts = kind in ("cuda", "cpu") and torch.is_autocast_enabled(kind)
        if casts or input.dtype != torch.float32 or self.weight.dtype != torch.float32:
            steps = Steps()
            steps.activation(self.activation)
            values = _fused.apply(F.linear(input, self.weight, self.bias), steps.names, steps.numbers, steps.operands)
            return values if residual is None else values + residual
        weight: Any = self.operand(input)
        return linear(input, weight, self.bias, self.activation, residual, precision=self.precision, on_cpu=self.on_cpu)

    def operand(self, input: torch.Tensor) -> torch.Tensor | PackedMatrix:
        """The weight as `tilewright.linear` takes it for such an input, and `tilewright.addmm` as its first matrix: packed, or as it is."""
        weight = self.weight
        if not self.frozen and weight.requires_grad and torch.is_grad_enabled() and not is_compiling():
            # In training the weight is about to change, and there are libraries that change weights behind torch's back then.
            self.unpack()
            return weight
        kept = self._kept
        if kept is not None:
            if kept.source is weight and (is_compiling() or self.frozen or kept.is_current()):
                return kept
            if not is_compiling():
                self._kept = None
        if is_compiling() or not self._can_be_kept(input):
            return weight
        found = mark(weight)
        # One that is computed from others, as by a parametrization, is another one each time.
        if found is None or type(weight) is not torch.nn.Parameter:
            return weight
        seen, self._seen = self._seen, found
        if not self.frozen and seen != found:
            return weight
        # Which plan it is takes a while to find out, and is the same for inputs that are alike.
        alike = (input.shape, input.stride())
        if alike == self._unread:
            return weight
        if not _native.reads_packed(input.detach(), weight.detach(), self.precision, self.on_cpu):
            self._unread = alike
            return weight
        self._kept = kept = PackedMatrix(weight, self.precision, frozen=self.frozen, on_cpu="emulate" if weight.is_cpu else "refuse")
        return kept

    def _can_be_kept(self, input: torch.Tensor) -> bool:
        """Whether the weight may be packed during this call."""
        if not (self.weight.is_cuda and input.is_cuda or self.on_cpu == "emulate") or is_watched(torch):
            return False
        if torch._C._are_functorch_transforms_active():  # pyright: ignore[reportPrivateUsage]
            return False
        return not (self.weight.is_cuda and torch.cuda.is_current_stream_capturing())

    def repack(self) -> None:
        """Packs the weight as it is now, if it is packed: after changes that torch does not count."""
        if self._kept is not None:
            self._kept.repack()

    def unpack(self) -> None:
        """Frees what is packed. The next call is like the first one."""
        self._kept: PackedMatrix | None = None
        #: What the weight was like at the last call.
        self._seen: tuple[Any, ...] | None = None
        #: Inputs for which plans read the weight as it is: the shape and strides of the last such one.
        self._unread: tuple[Any, ...] | None = None

    def packed_bytes(self) -> int:
        """The memory that the packed weight takes."""
        return 0 if self._kept is None else self._kept.nbytes

    def __setattr__(self, name: str, value: Any) -> None:
        # FSDP puts the same parameter here again with other numbers, and has torch count no change.
        if name == "weight":
            self.unpack()
        super().__setattr__(name, value)

    def _apply(self, *arguments: Any, **options: Any) -> Linear:
        self.unpack()
        return super()._apply(*arguments, **options)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | dict.fromkeys(_FOUND)

    def extra_repr(self) -> str:
        """What is shown of it."""
        shown = [super().extra_repr()]
        shown += [] if self.activation is None else [f"activation={self.activation!r}"]
        shown += [f"precision={self.precision!r}"] + ["frozen=True"] * self.frozen
        return ", ".join(shown)


def convert(
    module: _Module, precision: Precision = "fp32", *, frozen: bool = False, on_cpu: OnCpu = "refuse"
) -> _Module:
    """Makes each `torch.nn.Linear` in a module a `tilewright.nn.Linear`, in place, and the module itself if it is one.

    They stay the same objects, with the same parameters and hooks, so that optimizers and whatever else knows them need not be told. Subclasses, those with
    parametrizations, and those that are not of float32 stay as they are. `revert` undoes it.

    Each weight that is packed takes about its own size again (`packed_bytes` tells, after some calls): a model that takes 10 GB takes up to
    20 GB. In training nothing is packed.

    Args:
        module: Any module. It is given back.
        precision, frozen, on_cpu: As for `Linear`. Those that have been converted before get these.
    """
    for part in cast("Iterator[Any]", module.modules()):
        if _is_just(part, torch.nn.Linear) and part.weight.dtype == torch.float32:
            part.__class__ = Linear
            part.become(None, precision, frozen, on_cpu)
        elif _is_just(part, Linear):
            part.become(part.activation, precision, frozen, on_cpu)
    return module


def revert(module: _Module) -> _Module:
    """Undoes `convert`, in place: each `Linear` without an activation is a `torch.nn.Linear` again. What was packed is freed."""
    for part in cast("Iterator[Any]", module.modules()):
        if _is_just(part, Linear) and part.activation is None:
            for name in ("activation", "precision", "frozen", "on_cpu", *_FOUND):
                del part.__dict__[name]
            part.__class__ = torch.nn.Linear
    return module


def _is_just(part: object, kind: type) -> bool:
    """Whether that is its class, and not one that it inherits from."""
    return type(part) is kind


def packed_bytes(module: torch.nn.Module) -> int:
    """The memory that the packed weights of all parts of a module take."""
    return sum(part.packed_bytes() for part in module.modules() if isinstance(part, Linear))
