"""How torch's DTensor may divide the operators `torch.ops.tilewright.matmul` and `scale` among devices.

    C = A·B      A divided by     B divided by     C is
    batches      a batch extent   the same         divided by it
    rows         rows             whole            divided by rows
    columns      whole            columns          divided by columns
    terms        columns          rows             a sum that is still to be made (`Partial`), by an all-reduce or a reduce-scatter

DTensor chooses the row of the table that moves the fewest bytes; each device then multiplies what it has, as one device would. A row is
left out where it would break a promise of `matmul`: a triangle of C (`part`) is not made of triangles of its rows or columns, and
sums that are added up between devices are neither rounded once ("fp32-rounded", "fp32-ozaki"), nor within a bound that was asked for,
nor, in three or more parts, of the same bits in each row (`invariant`).

Nothing here is imported before a program imports `torch.distributed.tensor`, because that takes half a second.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["register_with_dtensor"]

_DTENSOR = "torch.distributed.tensor"
#: Those whose promise holds for a sum of products as it does for one.
_SUMS_MAY_BE_DIVIDED = frozenset({"fp32", "fp32-strict", "fp32-normwise", "tf32", "bf16", "fp16"})


def register_with_dtensor() -> None:
    """Tells DTensor of the operators: now if it is in use, otherwise as soon as it is imported."""
    if _DTENSOR in sys.modules:
        _register()
    elif not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport())


class _AfterImport(MetaPathFinder):
    """Finds nothing itself; registers the operators when the module of DTensor has been executed."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != _DTENSOR or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                _register()

            spec.loader.exec_module = execute_and_register
        return spec


def _register() -> None:
    torch: Any = importlib.import_module("torch")
    tensor: Any = importlib.import_module(_DTENSOR)
    try:
        register_sharding: Any = importlib.import_module(f"{_DTENSOR}.experimental").register_sharding
        info: Any = importlib.import_module(f"{_DTENSOR}._op_schema").RuntimeSchemaInfo
        infos: Any = tensor.DTensor._op_dispatcher.sharding_propagator.op_to_schema_info
    except (ImportError, AttributeError):
        # A torch that arranges this otherwise: DTensor goes on refusing the operators, by its own message.
        return
    operators = torch.ops.tilewright
    register_sharding(operators.scale.default)(_of_scaling)
    register_sharding(operators.matmul.default)(_of_product)
    # What DTensor has once decided it keeps, by extents and divisions, and by these arguments. `register_sharding` leaves out what is no
    # whole number: a triangle would then be divided as a whole product had been.
    infos[operators.matmul.default] = info(static_kwargkey=["precision", "part", "invariant"])


def _of_product(a: Any, b: Any, *, precision: str = "fp32", part: str = "all", invariant: bool = False, **_: Any) -> list[tuple[list[Any], list[Any]]]:
    """The divisions of C, A and B, of which each alone is right."""
    placements: Any = importlib.import_module(_DTENSOR)
    shard, whole, sum_ = placements.Shard, placements.Replicate(), placements.Partial()
    divisions: list[tuple[list[Any], list[Any]]] = [([whole], [whole, whole])]
    batches = max(a.ndim, b.ndim, 2) - 2
    for batch in range(batches):
        # Extents are counted from the last one, as broadcasting does.
        of_operands = [batch - batches + operand.ndim - 2 for operand in (a, b)]
        divided = [
            shard(extent) if extent >= 0 and operand.shape[extent] > 1 else whole
            for operand, extent in zip((a, b), of_operands, strict=True)
        ]
        if divided != [whole, whole]:
            divisions.append(([shard(batch)], divided))
    if part == "all" and a.ndim >= 2:
        divisions.append(([shard(batches)], [shard(a.ndim - 2), whole]))
    if part == "all" and b.ndim >= 2:
        divisions.append(([shard(batches + (a.ndim >= 2))], [whole, shard(b.ndim - 1)]))
    if precision in _SUMS_MAY_BE_DIVIDED and not invariant:
        divisions.append(([sum_], [shard(a.ndim - 1), shard(max(b.ndim - 2, 0))]))
    return divisions


def _of_scaling(matrix: Any, by: float = 1.0, rows: Any = None, columns: Any = None, **_: Any) -> list[tuple[list[Any], list[Any]]]:
    """The divisions of the result, the matrix, and the factors of its rows and columns."""
    placements: Any = importlib.import_module(_DTENSOR)
    shard, whole = placements.Shard, placements.Replicate()

    def division(extent: int | None) -> tuple[list[Any], list[Any]]:
        of_matrix = whole if extent is None else shard(extent)
        of_rows = shard(0) if extent == matrix.ndim - 2 else whole
        of_columns = shard(0) if extent == matrix.ndim - 1 else whole
        return [of_matrix], [of_matrix, None, None if rows is None else of_rows, None if columns is None else of_columns]

    return [division(extent) for extent in (None, *range(matrix.ndim))]
