"""The native half of the package, for type checkers. Its documentation is in `python/src`."""

from typing import Any, final

from typing_extensions import CapsuleType

__version__: str

@final
class Array:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

def multiply(
    rule: str, a: object, b: object, out: object | None, precision: str, on_cpu: str, part: str, invariant: bool
) -> Any: ...
def multiply_tensors(
    a: object, b: object, out: object | None, *, precision: str = ..., on_cpu: str = ..., part: str = ..., invariant: bool = ...
) -> Any: ...
def fused(
    function: str,
    a: object,
    b: object,
    operands: list[Any],
    out: object | None,
    alpha: float,
    steps: str,
    numbers: list[float],
    precision: str,
    on_cpu: str,
    invariant: bool,
    packed_a: object | None,
    packed_b: object | None,
) -> Any: ...
def fused_tensors(
    function: str,
    a: object,
    b: object,
    operands: list[Any],
    out: object | None,
    alpha: float,
    steps: str,
    numbers: list[float],
    precision: str,
    on_cpu: str,
    invariant: bool,
    packed_a: object | None,
    packed_b: object | None,
) -> Any: ...
def pack(w: object, memory: object | None, precision: str, on_cpu: str) -> Any: ...
def reads_packed(x: object, w: object, precision: str, on_cpu: str) -> bool: ...
def scale(
    matrix: object, by: float, rows: object | None, columns: object | None, out: object | None, on_cpu: str
) -> Any: ...
def scale_tensors(
    matrix: object, by: float, rows: object | None, columns: object | None, out: object | None, on_cpu: str
) -> Any: ...
def grouped(
    a: list[object], b: list[object], out: list[object] | None, precision: str, on_cpu: str
) -> list[Any]: ...
def explain(rule: str, a: object, b: object, precision: str, on_cpu: str, part: str, invariant: bool) -> str: ...
def check_is_apart(name: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> None: ...
def precisions() -> tuple[str, ...]: ...
def switch_on(libraries: str, key: int, precision: str, *, only_faster: bool, on_cpu: bool, verbose: bool) -> None: ...
def switch_off() -> None: ...
def switch_records() -> tuple[
    list[tuple[str, tuple[int, int, int, int], str, str, int, tuple[float, float] | None]],
    list[tuple[str, int]],
    str | None,
]: ...
def switch_reset() -> None: ...
