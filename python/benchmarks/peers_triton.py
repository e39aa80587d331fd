"""A matrix product by Triton with three TF32 products for each (`input_precision="tf32x3"`): after the tutorial, tuned on the first call.

Imported only where Triton is installed.
"""

# pyright: basic, reportMissingImports=false, reportInvalidTypeForm=false, reportIndexIssue=false, reportCallIssue=false, reportMissingModuleSource=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

_CONFIGS = [
    triton.Config({"ROWS": rows, "COLUMNS": columns, "TERMS": terms}, num_warps=warps, num_stages=stages)
    for rows, columns, terms, warps, stages in (
        (128, 128, 32, 4, 3),
        (128, 128, 32, 8, 3),
        (128, 256, 32, 8, 3),
        (256, 128, 32, 8, 3),
        (128, 64, 32, 4, 4),
        (64, 128, 32, 4, 4),
        (64, 64, 32, 4, 4),
        (128, 128, 64, 8, 3),
    )
]


@triton.autotune(configs=_CONFIGS, key=["m", "n", "k"])
@triton.jit
def _multiply(
    a, b, c, m, n, k, by_row_a, by_row_b, by_row_c, ROWS: tl.constexpr, COLUMNS: tl.constexpr, TERMS: tl.constexpr, TOGETHER: tl.constexpr
):
    # Blocks that run at the same time share rows and columns in the L2 cache.
    block, rows_of_blocks, columns_of_blocks = tl.program_id(0), tl.cdiv(m, ROWS), tl.cdiv(n, COLUMNS)
    group = block // (TOGETHER * columns_of_blocks)
    first = group * TOGETHER
    size = min(rows_of_blocks - first, TOGETHER)
    row = (first + (block % (TOGETHER * columns_of_blocks)) % size) * ROWS + tl.arange(0, ROWS)
    column = ((block % (TOGETHER * columns_of_blocks)) // size) * COLUMNS + tl.arange(0, COLUMNS)
    term = tl.arange(0, TERMS)
    sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    row64, column64 = row.to(tl.int64), column.to(tl.int64)
    for start in range(0, k, TERMS):
        here = start + term
        of_a = tl.load(a + row64[:, None] * by_row_a + here[None, :], mask=(row[:, None] < m) & (here[None, :] < k), other=0.0)
        of_b = tl.load(b + here[:, None].to(tl.int64) * by_row_b + column64[None, :], mask=(here[:, None] < k) & (column[None, :] < n), other=0.0)
        sums = tl.dot(of_a, of_b, sums, input_precision="tf32x3")
    tl.store(c + row64[:, None] * by_row_c + column64[None, :], sums, mask=(row[:, None] < m) & (column[None, :] < n))


def multiply(a: Any, b: Any) -> Any:
    """The product of two matrices of float32 whose rows have no gaps within."""
    (m, k), n = a.shape, b.shape[1]
    if a.stride(1) != 1 or b.stride(1) != 1:
        raise SystemExit("Triton's product is written here for matrices by rows")
    c = torch.empty(m, n, device=a.device)

    def blocks(chosen: Any) -> Any:
        return (triton.cdiv(m, chosen["ROWS"]) * triton.cdiv(n, chosen["COLUMNS"]),)

    _multiply[blocks](a, b, c, m, n, k, a.stride(0), b.stride(0), c.stride(0), TOGETHER=8)
    return c
