"""How torch's DTensor may divide the operators `torch.ops.tilewright.matmul`, `fused_matmul` and `scale` among devices.

    C = A·B      A divided by     B divided by     C is
    batches      a batch extent   the same         divided by it
    rows         rows             whole            divided by rows
    columns      whole            columns          divided by columns
    terms        columns          rows             a sum that is still to be made (`Partial`), by an all-reduce or a reduce-scatter

DTensor chooses the row of the table that moves the fewest bytes; each device then multiplies what it has, as one device would. A row is
left out where it would break a promise: a triangle of C (`part`) is not made of triangles of its rows or columns; sums that are added up
between devices are neither rounded once ("fp32-rounded", "fp32-ozaki"), nor within a bound that was asked for, nor, in three or more
parts, of the same bits in each row (`invariant`); and what follows a product (`fused_matmul`) follows its whole sums.

Nothing here is imported before a program imports `torch.distributed.tensor`, because that takes half a second.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from functools import partial
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
    try:
        # The public `register_sharding` knows no operators whose first argument is no tensor, and says nothing of arguments that are no
        # whole numbers to the memory of what has been decided: a triangle would be divided as a whole product had been.
        info: Any = importlib.import_module(f"{_DTENSOR}._op_schema").RuntimeSchemaInfo
        expand: Any = importlib.import_module(f"{_DTENSOR}._ops.utils").expand_to_full_mesh_op_strategy
        propagator: Any = importlib.import_module(_DTENSOR).DTensor._op_dispatcher.sharding_propagator
        register: Any = propagator.register_op_strategy
    except (ImportError, AttributeError):
        # A torch that arranges this otherwise: DTensor goes on refusing the operators, by its own message.
        return

    def strategy(divisions: Any, schema: Any) -> Any:
        arguments = [getattr(argument, "children", argument) for argument in schema.args_schema]
        placements = [of_results + of_arguments for of_results, of_arguments in divisions(*arguments, **schema.kwargs_schema)]
        return expand(schema.args_strategy[0].mesh, schema, placements, input_index=1)

    # Those that are defined: each module that defines one calls `register_with_dtensor`. What is decided is kept by extents and
    # divisions, and by the arguments that are named here.
    for name, divisions, kept in (
        ("scale", _of_scaling, info()),
        ("matmul", _of_product, info(static_kwargkey=["precision", "part", "invariant"])),
        ("fused_matmul", _of_fused, info(static_argnum=0, static_kwargkey=["precision", "steps", "invariant"], needs_pytree=True)),
    ):
        if hasattr(torch.ops.tilewright, name):
            register(getattr(torch.ops.tilewright, name).default, partial(strategy, divisions), kept)


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


def _of_fused(
    function: str, a: Any, b: Any, operands: Sequence[Any], *, steps: str = "", precision: str = "fp32", invariant: bool = False, **_: Any
) -> list[tuple[list[Any], list[Any]]]:
    """The divisions of the result, of A, B, and of the operands of the steps, which are broadcast to the result."""
    placements: Any = importlib.import_module(_DTENSOR)
    whole, sum_ = placements.Replicate(), placements.Partial()

    def by(extent: int | None) -> Any:
        return whole if extent is None else placements.Shard(extent)

    # By which extents the result, A and B are divided.
    if function == "linear":
        possible: list[tuple[int | None, int | None, int | None]] = [(extent, extent, None) for extent in range(a.ndim - 1)]
        possible += [(a.ndim - 1, None, 0)] if b.ndim == 2 else []
        extents, terms = a.ndim - 2 + b.ndim, b.ndim - 1
    else:
        possible = [(extent, extent, extent) for extent in range(a.ndim - 2)]
        possible += [(a.ndim - 2, a.ndim - 2, None), (a.ndim - 1, None, a.ndim - 1)]
        extents, terms = a.ndim, a.ndim - 2
    divisions: list[tuple[list[Any], list[Any]]] = []
    for of_result, of_a, of_b in ((None, None, None), *possible):
        of_operands: list[Any] = []
        for operand in operands:
            extent = -1 if of_result is None else of_result - extents + operand.ndim
            of_operands.append(by(extent) if extent >= 0 and operand.shape[extent] > 1 else whole)
        divisions.append(([by(of_result)], [None, by(of_a), by(of_b), *of_operands]))
    if not steps and precision in _SUMS_MAY_BE_DIVIDED and not invariant:
        divisions.append(([sum_], [None, by(a.ndim - 1), by(terms)]))
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
