"""The types of arguments, for type checkers. Nothing here imports another library."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias, TypeVar

Precision: TypeAlias = Literal["fp32", "fp32-strict", "fp32-rounded", "fp32-ozaki", "fp32-normwise", "tf32", "bf16", "fp16"]
"""How precise a product is: see `tilewright.matmul`."""

Part: TypeAlias = Literal["all", "upper", "lower"]
"""Which elements of each matrix of a product are wanted: see `tilewright.matmul`."""

Step: TypeAlias = "str | tuple[Any, ...]"
"""One of an `Activation`."""

Activation: TypeAlias = "Step | list[Step]"
"""What is done behind a product, element by element: see `tilewright.linear`."""

OnCpu: TypeAlias = Literal["refuse", "move", "emulate"]
"""What happens to operands in the CPU's memory: see `tilewright.matmul`."""


class TorchTensor(Protocol):
    """A tensor of torch, by what no array of another library has."""

    def data_ptr(self) -> int: ...
    def is_inference(self) -> bool: ...


class SupportsDlpack(Protocol):
    """An array that DLPack can hand over."""

    # Libraries differ in what arguments they take.
    @property
    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, Any]: ...


class SupportsCudaArray(Protocol):
    """An array with the CUDA array interface."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


Operand: TypeAlias = "SupportsDlpack | SupportsCudaArray"
"""An array of a library other than torch."""

Tensor = TypeVar("Tensor", bound=TorchTensor)
Out = TypeVar("Out", bound="SupportsDlpack | SupportsCudaArray")
