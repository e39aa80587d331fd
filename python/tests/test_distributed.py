"""DTensor, two processes with gloo, on the CPU executor: how the operators are divided, and what the switch takes of torch's own ways.

The processes run this file as a program: every function `case_…`, once for all tests, which then ask what came of each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tilewright

torch = pytest.importorskip("torch", reason="torch is not installed here: `cargo xtask test --with-torch` runs these")

PROCESSES = 2
#: Seconds, for a machine that has a lot else to do.
LIMIT = 120
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python" / "several_gpus"


def whole(*shape: int) -> Any:
    """Small whole numbers, whose products are exact; the same in all processes."""
    return torch.randint(-4, 5, shape).float()


def part_of(mesh: Any, tensor: Any, extent: int | None) -> Any:
    """Divides a tensor by an extent, or not at all."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    return distribute_tensor(tensor, mesh, [Replicate() if extent is None else Shard(extent)])


def same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found.full_tensor(), expected, rtol=0, atol=0)


def multiply(a: Any, b: Any, **options: Any) -> Any:
    return tilewright.matmul(a, b, on_cpu="emulate", **options)


# The shapes, by which extent each is divided, and by which one the product then is: "sum" where it is a sum that is still to be made.
DIVISIONS: list[tuple[tuple[int, ...], int | None, tuple[int, ...], int | None, int | str | None]] = [
    ((6, 5), 0, (5, 7), None, 0),
    ((5, 4), 0, (4, 3), None, 0),  # three rows, and two; extents smaller than the number of processes torch does not divide
    ((6, 5), None, (5, 7), 1, 1),
    ((6, 5), 1, (5, 7), 0, "sum"),
    ((6, 5), None, (5, 7), None, None),
    ((4, 3, 5), 0, (4, 5, 2), 0, 0),
    ((4, 3, 5), 0, (5, 2), None, 0),
    ((3, 5), None, (4, 5, 2), 0, 0),
    ((4, 3, 5), 0, (1, 5, 2), None, 0),
    ((2, 4, 3, 5), 1, (4, 5, 2), 0, 1),
    ((4, 3, 5), 1, (5, 2), None, 1),
    ((4, 3, 5), 2, (5, 2), 0, "sum"),
    ((4, 3, 5), None, (4, 5, 2), 2, 2),
    ((5,), 0, (5,), 0, "sum"),
    ((6, 5), 0, (5,), None, 0),
    ((5,), None, (5, 7), 1, 0),
    ((5,), None, (4, 5, 7), 0, 0),
    ((5,), None, (4, 5, 7), 2, 1),
    ((4, 3, 5), 1, (5,), None, 1),
]


def case_products_are_divided_without_moving_an_operand(mesh: Any) -> None:
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor.debug import CommDebugMode

    for shape_a, of_a, shape_b, of_b, of_c in DIVISIONS:
        a, b = whole(*shape_a), whole(*shape_b)
        part_a, part_b = part_of(mesh, a, of_a), part_of(mesh, b, of_b)
        with CommDebugMode() as moved:
            c = multiply(part_a, part_b)
        expected = Partial() if of_c == "sum" else Replicate() if of_c is None else Shard(of_c)
        assert c.placements == (expected,), (shape_a, of_a, shape_b, of_b, c.placements)
        assert moved.get_total_counts() == 0, (shape_a, of_a, shape_b, of_b)
        same(c, torch.matmul(a, b))


def case_any_division_gives_the_right_product(mesh: Any) -> None:
    for shape_a, shape_b in (((5, 4), (4, 3)), ((4, 5, 3), (3, 2)), ((3, 4), (2, 4, 5)), ((5,), (5, 3)), ((2, 1, 3, 4), (3, 4, 2))):
        a, b = whole(*shape_a), whole(*shape_b)
        for of_a in (None, *range(a.ndim)):
            for of_b in (None, *range(b.ndim)):
                same(multiply(part_of(mesh, a, of_a), part_of(mesh, b, of_b)), torch.matmul(a, b))


def case_triangles_are_of_the_whole_product(mesh: Any) -> None:
    a, b = whole(6, 5), whole(5, 6)
    for of_a, of_b in ((0, None), (None, 1), (1, 0)):
        # The same extents and divisions first for all of it, which DTensor remembers.
        for part, expected in (("all", a @ b), ("upper", (a @ b).triu()), ("all", a @ b), ("lower", (a @ b).tril())):
            same(multiply(part_of(mesh, a, of_a), part_of(mesh, b, of_b), part=part), expected)
    batch = whole(4, 3, 5)
    c = multiply(part_of(mesh, batch, 0), part_of(mesh, whole(4, 5, 3), 0), part="upper")
    assert c.placements[0].is_shard(0)


def case_promises_that_a_sum_of_sums_would_break_are_kept(mesh: Any) -> None:
    a, b = whole(6, 8), whole(8, 7)
    part_a, part_b = part_of(mesh, a, 1), part_of(mesh, b, 0)
    assert multiply(part_a, part_b).placements[0].is_partial()
    for options in ({"precision": "fp32-rounded"}, {"tolerance": 1e-6}, {"invariant": True}):
        c = multiply(part_a, part_b, **options)
        assert not c.placements[0].is_partial(), options
        same(c, a @ b)
    assert multiply(part_a, part_b, precision="fp32-strict").placements[0].is_partial()


def case_what_follows_a_product_is_divided_with_it(mesh: Any) -> None:
    from torch.distributed.tensor.debug import CommDebugMode

    x, w, bias, residual = whole(4, 6, 5), whole(8, 5), whole(8), whole(4, 6, 8)
    expected = torch.relu(x @ w.mT + bias) + residual
    for of_x, of_w, of_bias, of_residual, of_result in ((0, None, None, 0, 0), (1, None, None, 1, 1), (None, 0, 0, 2, 2)):
        divided = ((x, of_x), (w, of_w), (bias, of_bias), (residual, of_residual))
        part_x, part_w, part_bias, part_residual = (part_of(mesh, tensor, of) for tensor, of in divided)
        with CommDebugMode() as moved:
            found = tilewright.linear(part_x, part_w, part_bias, activation="relu", residual=part_residual, on_cpu="emulate")
        assert found.placements[0].is_shard(of_result) and moved.get_total_counts() == 0
        same(found, expected)
    # Sums in parts only where nothing follows them.
    part_x, part_w = part_of(mesh, x, 2), part_of(mesh, w, 1)
    same(tilewright.linear(part_x, part_w, on_cpu="emulate"), x @ w.mT)
    same(tilewright.linear(part_x, part_w, activation="relu", on_cpu="emulate"), torch.relu(x @ w.mT))
    same(tilewright.linear(part_x, part_w, on_cpu="emulate"), x @ w.mT)
    added, a, b = whole(3, 1, 4), whole(3, 2, 6), whole(3, 6, 4)
    for of_added, of_a, of_b in ((None, None, None), (0, 0, 0), (2, None, 2), (None, 1, None), (None, 2, 1), (1, 2, 1)):
        found = tilewright.baddbmm(part_of(mesh, added, of_added), part_of(mesh, a, of_a), part_of(mesh, b, of_b), on_cpu="emulate")
        same(found, torch.baddbmm(added.expand(3, 2, 4), a, b))
    # The same extents and divisions, by another function.
    square = whole(6, 6)
    operands = (part_of(mesh, square, None), part_of(mesh, square, 0), [])
    same(torch.ops.tilewright.fused_matmul("linear", *operands, on_cpu="emulate"), square @ square.mT)
    same(torch.ops.tilewright.fused_matmul("addmm", *operands, on_cpu="emulate"), square @ square)
    leaves = [tensor.clone().requires_grad_() for tensor in (x, w, bias)]
    (torch.relu(torch.nn.functional.linear(*leaves)) * residual).sum().backward()
    for of_x, of_w, of_bias in ((0, None, None), (None, 0, 0), (2, 1, None)):
        parts = [part_of(mesh, tensor, of).requires_grad_() for tensor, of in ((x, of_x), (w, of_w), (bias, of_bias))]
        result = tilewright.linear(*parts, activation="relu", on_cpu="emulate")
        (result * part_of(mesh, residual, None)).sum().full_tensor().backward()
        for part, leaf in zip(parts, leaves, strict=True):
            same(part.grad, leaf.grad)


def case_scaling_is_divided(mesh: Any) -> None:
    from torch.distributed.tensor.debug import CommDebugMode

    matrix, rows, columns = whole(6, 6), whole(6), whole(6)
    batch = whole(4, 6, 6)
    # Rows alone and columns alone look the same to DTensor, unless it is told of what is not there.
    part = part_of(mesh, matrix, 0)
    same(tilewright.scale(part, rows=part_of(mesh, rows, 0), on_cpu="emulate"), matrix * rows[:, None])
    same(tilewright.scale(part, columns=part_of(mesh, columns, 0), on_cpu="emulate"), matrix * columns)
    same(tilewright.scale(part, rows=part_of(mesh, rows, 0), on_cpu="emulate"), matrix * rows[:, None])
    for of_rows, of_columns in ((rows, None), (None, columns), (rows, columns), (None, None)):
        for of_matrix, tensor in ((0, matrix), (1, matrix), (None, matrix), (0, batch)):
            expected = tensor * 2
            expected = expected if of_rows is None else expected * of_rows[:, None]
            expected = expected if of_columns is None else expected * of_columns
            dtensors: dict[str, Any] = {}
            if of_rows is not None:
                dtensors["rows"] = part_of(mesh, of_rows, 0 if tensor is matrix and of_matrix == 0 else None)
            if of_columns is not None:
                dtensors["columns"] = part_of(mesh, of_columns, 0 if tensor is matrix and of_matrix == 1 else None)
            part = part_of(mesh, tensor, of_matrix)
            with CommDebugMode() as moved:
                found = tilewright.scale(part, 2.0, **dtensors, on_cpu="emulate")
            assert moved.get_total_counts() == 0
            assert found.placements == part.placements
            same(found, expected)


def case_derivatives_are_those_of_the_whole(mesh: Any) -> None:
    for shape_a, of_a, shape_b, of_b in (
        ((6, 5), 0, (5, 7), None),
        ((6, 5), None, (5, 7), 1),
        ((6, 5), 1, (5, 7), 0),
        ((4, 3, 5), 0, (5, 2), None),
        ((4, 3, 5), 0, (4, 5, 2), 0),
        ((4, 3, 5), 0, (1, 5, 2), None),
    ):
        a, b, weights = whole(*shape_a).requires_grad_(), whole(*shape_b).requires_grad_(), None
        expected = torch.matmul(a, b)
        weights = whole(*expected.shape)
        (expected * weights).sum().backward()
        parts = [part_of(mesh, tensor.detach(), of).requires_grad_() for tensor, of in ((a, of_a), (b, of_b))]
        c = multiply(*parts)
        (c * part_of(mesh, weights, None)).sum().full_tensor().backward()
        for part, tensor in zip(parts, (a, b), strict=True):
            same(part.grad, tensor.grad)


def case_compiled_functions_know_the_operator(mesh: Any) -> None:
    function: Any = torch.compile(lambda a, b: multiply(a, b) + 1, backend="eager", fullgraph=True)
    a, b = whole(6, 5), whole(5, 7)
    same(function(part_of(mesh, a, 0), part_of(mesh, b, None)), a @ b + 1)


def case_the_switch_takes_what_parallel_modules_multiply(mesh: Any) -> None:
    from tilewright import _switch
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def model() -> Any:
        torch.manual_seed(5)
        return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))

    def tensor_parallel() -> Any:
        return parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})

    torch.manual_seed(6)
    x = torch.randn(10, 6)
    right = model()
    right(x).square().mean().backward()
    own = x.chunk(PROCESSES)[mesh.get_local_rank()]
    for divided, mine, products in (
        # Each process multiplies its parts: two products forward, three backward, as x has no derivative.
        (tensor_parallel(), x, 5),
        (fully_shard(model(), mesh=mesh), own, 5),
        (torch.nn.parallel.DistributedDataParallel(model()), own, 5),
    ):
        tilewright.reset_stats()
        with _switch.enabled("fp32", only_faster=False, device="cpu"):
            divided(mine).square().mean().backward()
        assert sum(product.calls for product in tilewright.stats().taken) == products, tilewright.stats()
        for (name, found), expected in zip(divided.named_parameters(), right.parameters(), strict=True):
            gradient = found.grad.full_tensor() if hasattr(found.grad, "full_tensor") else found.grad
            torch.testing.assert_close(gradient, expected.grad, rtol=1e-5, atol=1e-7, msg=lambda text, name=name: f"{name}: {text}")


CASES = {name: function for name, function in list(globals().items()) if name.startswith("case_")}


def main() -> None:
    import traceback

    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (PROCESSES,))
    for name, case in CASES.items():
        torch.manual_seed(20261126)
        said = ""
        try:
            case(mesh)
        except Exception:  # noqa: BLE001: the test says it
            said = traceback.format_exc()
        # All have to be done, or the next case would wait for one that is still in this.
        all_said: list[Any] = [None] * PROCESSES
        dist.all_gather_object(all_said, said)
        if dist.get_rank() == 0:
            print(json.dumps({"case": name, "said": [text for text in all_said if text]}), flush=True)
    dist.barrier()
    # The threads that DTensor's collectives leave behind may abort an orderly end of a process.
    os._exit(0)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, list[str]]:
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(PROCESSES), __file__]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment, check=False)
    lines = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    found = {line["case"]: line["said"] for line in lines}
    assert process.returncode == 0 and found.keys() == CASES.keys(), process.stderr[-3000:]
    return found


@pytest.mark.parametrize("case", CASES)
def test_two_processes(case: str, outcomes: dict[str, list[str]]) -> None:
    assert not outcomes[case], "\n".join(outcomes[case])


@pytest.mark.parametrize("order", ["torch, tilewright, dtensor", "dtensor, tilewright", "tilewright, dtensor"])
def test_any_order_of_imports_tells_dtensor(order: str) -> None:
    modules = {"torch": "import torch", "tilewright": "import tilewright", "dtensor": "import torch.distributed.tensor"}
    program = "\n".join(modules[name] for name in order.split(", "))
    program += """
import sys
import torch
tilewright.matmul(torch.ones(1, 1), torch.ones(1, 1), on_cpu="emulate")
from torch.distributed.tensor import DTensor
known = DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs
assert all(getattr(torch.ops.tilewright, name).default in known for name in ("matmul", "fused_matmul", "scale"))
assert not any(type(finder).__module__.startswith("tilewright") for finder in sys.meta_path)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


def test_dtensor_is_not_imported_for_those_who_do_not_use_it() -> None:
    program = "import sys, torch, tilewright; assert 'torch.distributed.tensor' not in sys.modules"
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


def example(name: str, *options: str) -> str:
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(PROCESSES)]
    command += [str(EXAMPLES / name), "--device", "cpu", "--rounds", "1", "--calls", "1", *options]
    process = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False)
    assert process.returncode == 0, f"{process.stdout}\n{process.stderr[-3000:]}"
    return process.stdout


SMALL = ("--width", "16", "--blocks", "1", "--batch", "2", "--length", "4")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sharded_products.py", ("--problem", "9x7x11")),
        ("overlapped.py", ("--problem", "9x7x11", "--chunks", "1", "3:2:1")),
        ("tensor_parallel.py", SMALL),
        ("data_parallel.py", (*SMALL, "--by", "fsdp")),
    ],
)
def test_the_examples_are_right(name: str, options: tuple[str, ...]) -> None:
    if not EXAMPLES.is_dir():
        pytest.skip(f"{EXAMPLES} is not there: the examples are part of the repository, not of the package")
    assert "WRONG" not in example(name, *options)


if __name__ == "__main__":
    main()
