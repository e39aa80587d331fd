"""What the package uses of torch, so that its types can be checked where torch is not installed. Not part of the wheel."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from torch import autograd as autograd
from torch import compiler as compiler
from torch import cuda as cuda
from torch import library as library

__version__: str

class dtype: ...
class device:
    type: str

class Size(tuple[int, ...]): ...

class Tag:
    pt2_compliant_tag: Tag

class Tensor:
    dtype: dtype
    device: device
    shape: Size
    ndim: int
    is_cpu: bool
    requires_grad: bool
    @property
    def mT(self) -> Tensor: ...
    def cuda(self) -> Tensor: ...
    def cpu(self) -> Tensor: ...
    def copy_(self, source: Tensor) -> Tensor: ...
    def data_ptr(self) -> int: ...
    def flatten(self, first: int, last: int) -> Tensor: ...
    def is_inference(self) -> bool: ...
    def new_empty(self, shape: Sequence[int]) -> Tensor: ...
    def reshape(self, shape: Sequence[int]) -> Tensor: ...
    def sum_to_size(self, shape: Sequence[int]) -> Tensor: ...
    def unsqueeze(self, place: int) -> Tensor: ...

float32: dtype

def empty(*shape: int, device: str = ...) -> Tensor: ...
def is_grad_enabled() -> bool: ...
def matmul(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def no_grad() -> AbstractContextManager[None]: ...
def rand(*shape: int, device: str = ...) -> Tensor: ...

class _C:
    @staticmethod
    def _AutoDispatchBelowAutograd() -> AbstractContextManager[None]: ...

class _Product:
    def __call__(self, a: Tensor, b: Tensor, *, precision: str = ..., on_cpu: str = ...) -> Tensor: ...

class _ProductInto:
    def __call__(self, a: Tensor, b: Tensor, *, precision: str = ..., on_cpu: str = ..., out: Tensor) -> None: ...

class _Operator(_Product):
    default: _Product
    out: _ProductInto

class _Namespace:
    matmul: _Operator

class _Ops:
    tilewright: _Namespace

ops: _Ops
