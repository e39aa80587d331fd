"""Torch's own samples of its operators, with the switch on and off: results and derivatives of float32 have to agree.

    python torch_samples.py                      # the operators that become products, on the GPU
    python torch_samples.py --all                # every operator that torch has samples of
    python torch_samples.py --device cpu         # by the CPU executor: minutes
    python torch_samples.py --op mm --op einsum

The samples are those that torch tests itself with (`torch.testing._internal`, which needs the package `expecttest`). All products are taken, however
small. A result agrees if it is as near to torch's as float32 demands, or as near to that of float64 as torch's is: where sums cancel, neither is near.
What raises an error without the switch has to raise the same with it. The exit code is 0 only if all agree and some products were taken.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import tilewright
import torch
from tilewright import _switch

#: Those that are products, or are computed by products.
PRODUCTS = [
    "__rmatmul__",
    "addbmm",
    "addmm",
    "addmv",
    "baddbmm",
    "bmm",
    "cdist",
    "corrcoef",
    "cov",
    "einsum",
    "inner",
    "linalg.matrix_power",
    "linalg.multi_dot",
    "linalg.pinv",
    "matmul",
    "mm",
    "mv",
    "nn.functional.bilinear",
    "nn.functional.linear",
    "nn.functional.multi_head_attention_forward",
    "nn.functional.scaled_dot_product_attention",
    "tensordot",
]

#: Those whose results nobody has written: of attention that is, without dropout, the state of the generator of random numbers.
UNWRITTEN = {
    *("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"),
    "torch.ops.aten._efficient_attention_forward",
}

#: Of the largest number of a result: what sums of as many terms as samples have may differ by in float32.
TOLERANCE = 2e-5

#: How many times as far from the result of float64 as torch's own a result may be, where it is not near to torch's: "fp32" promises 1e-6 of the sum
#: of the terms' magnitudes, and a sum of few terms by instructions for float32 is off by 2**-24.
TIMES_TORCH = 16.0


def operators(names: list[str] | None) -> Iterator[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    known = {op.name for op in op_db}
    unknown = sorted(set(names or []) - known)
    if unknown:
        raise SystemExit(f"torch has no samples of {', '.join(unknown)}")
    yield from (op for op in op_db if (op.name in names if names is not None else op.name not in UNWRITTEN))


def tensors(value: Any) -> list[Any]:
    """The tensors in a result, in order."""
    leaves, _ = torch.utils._pytree.tree_flatten(value)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def run(op: Any, sample: Any) -> tuple[str, list[Any]]:
    """What a call gives, with its derivatives: an error, or tensors."""
    torch.manual_seed(0)
    arguments = [leaf for leaf in tensors([sample.input, sample.args, sample.kwargs]) if leaf.requires_grad and leaf.is_leaf]
    for leaf in arguments:
        leaf.grad = None
    try:
        results = tensors(op(sample.input, *sample.args, **sample.kwargs))
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}", []
    differentiable = [result for result in results if result.requires_grad and result.is_floating_point()]
    if arguments and differentiable:
        sum(result.sum() for result in differentiable).backward()
    grads = [leaf.grad for leaf in arguments if leaf.grad is not None]
    return "", [result.detach().clone() for result in [*results, *grads]]


def difference(ours: tuple[str, list[Any]], theirs: tuple[str, list[Any]]) -> str | None:
    """What is wrong; nothing if they agree."""
    if ours[0] != theirs[0]:
        return f"{ours[0] or 'no error'}, and torch alone: {theirs[0] or 'no error'}"
    if len(ours[1]) != len(theirs[1]):
        return f"{len(ours[1])} tensors, and torch alone has {len(theirs[1])}"
    for one, other in zip(ours[1], theirs[1], strict=True):
        if one.layout == torch.strided and one.stride() != other.stride():
            return f"strides {one.stride()}, and torch alone has {other.stride()}"
        largest = 1.0
        if other.is_floating_point() and other.layout == torch.strided and other.numel() > 0:
            largest = max(largest, float(other.nan_to_num(posinf=0.0, neginf=0.0).abs().max()))
        try:
            torch.testing.assert_close(one, other, rtol=TOLERANCE, atol=TOLERANCE * largest, equal_nan=True)
        except AssertionError as error:
            return str(error).replace("\n", " ")
    return None


def in_float64(op: Any, sample: Any) -> list[Any]:
    """What a call gives in float64; nothing if it cannot be had."""

    def double(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
            return value
        return value.detach().double().requires_grad_(value.requires_grad)

    return run(op, sample.transform(double))[1]


def is_as_near_as_torch(ours: list[Any], theirs: list[Any], exact: list[Any]) -> bool:
    """Whether results are as near to those of float64 as torch's are, each by its norm."""
    if not len(ours) == len(theirs) == len(exact):
        return False
    distances = [[(result.double() - reference).norm() for result in (one, other)] for one, other, reference in zip(ours, theirs, exact, strict=True)]
    return all(bool(one <= TIMES_TORCH * other) or bool(one <= TOLERANCE) for one, other in distances)


def main() -> int:
    parser = argparse.ArgumentParser(description="Torch's own samples, with the switch on and off.")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--op", action="append", help="an operator, as torch's database calls it")
    parser.add_argument("--all", action="store_true", help="all operators of the database")
    parser.add_argument("--precision", default="fp32")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names = None if options.all else options.op or PRODUCTS
    failures = samples_seen = 0
    for op in operators(names):
        if torch.float32 not in op.supported_dtypes(options.device):
            continue
        tilewright.reset_stats()
        count = wrong = 0
        derivatives = op.supports_autograd and torch.float32 in op.supported_backward_dtypes(options.device)
        for sample in op.sample_inputs(options.device, torch.float32, requires_grad=derivatives):
            theirs = run(op, sample)
            # What differs from itself says nothing.
            if difference(run(op, sample), theirs) is not None:
                continue
            with _switch.enabled(options.precision, only_faster=False, device=options.device):
                ours = run(op, sample)
            count += 1
            problem = difference(ours, theirs)
            if problem is not None and not is_as_near_as_torch(ours[1], theirs[1], in_float64(op, sample)):
                wrong += 1
                print(f"  {op.name}, sample {count}: {problem}", file=sys.stderr)
        stats = tilewright.stats()
        taken = sum(product.calls for product in stats.taken)
        if stats.failure is not None:
            wrong += 1
            print(f"  {op.name}: {stats.failure}", file=sys.stderr)
        samples_seen += taken
        failures += wrong
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        print(f"{name:50} {count:4} samples, {taken:5} products taken, {wrong} wrong", flush=True)
    print(f"{samples_seen} products taken, {failures} wrong")
    return 0 if failures == 0 and samples_seen > 0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
