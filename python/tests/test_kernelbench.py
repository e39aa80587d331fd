"""KernelBench's problems by tilewright, and how they are measured: everything but the GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here: `cargo xtask test --with-torch` runs these")

# Not in front: the package that is tested is the one that is installed.
sys.path.append(str(Path(__file__).parents[1] / "kernelbench"))

import measure  # noqa: E402
import run  # noqa: E402
from measure import EAGER, OURS, WRITING, Times  # noqa: E402
from problems import PROBLEMS, Problem  # noqa: E402

BY_NUMBER = {problem.number: problem for problem in PROBLEMS}
EMULATE: Any = {"on_cpu": "emulate"}
NO_MODEL = torch.nn.Identity()

#: The shapes of the inputs that KernelBench publishes, and of the result.
PUBLISHED: dict[int, tuple[Any, ...]] = {
    1: ((4096, 4096), (4096, 4096), (4096, 4096)),
    2: ((2048, 8192), (8192, 4096), (2048, 4096)),
    3: ((128, 512, 1024), (128, 1024, 2048), (128, 512, 2048)),
    4: ((2048, 1048576), (1048576, 1), (2048, 1)),
    5: ((65536, 16384), 3.14, (65536, 16384)),
    6: ((256, 524288), (524288, 256), (256, 256)),
    7: ((32768, 64), (64, 32768), (32768, 32768)),
    8: ((8205, 2949), (2949, 5921), (8205, 5921)),
    9: ((32768, 32), (32, 32768), (32768, 32768)),
    10: ((16, 1024, 2048), (2048, 768), (16, 1024, 768)),
    11: ((8, 256, 512, 256), (256, 768), (8, 256, 512, 768)),
    12: ((4096,), (4096, 4096), (4096, 4096)),
    13: ((4096, 4096), (4096, 4096), (4096, 4096)),
    14: ((4096, 4096), (4096, 4096), (4096, 4096)),
    15: ((4096, 4096), (4096, 4096), (4096, 4096)),
    16: ((8192, 2048), (8192, 4096), (2048, 4096)),
    17: ((2048, 8192), (4096, 8192), (2048, 4096)),
    18: ((8192, 2048), (4096, 8192), (2048, 4096)),
}

#: Sizes for the CPU executor, in place of the published ones.
SMALL: dict[int, dict[str, int]] = {
    1: {"N": 20},
    2: {"M": 12, "K": 40, "N": 24},
    3: {"BATCH": 3, "M": 8, "K": 16, "N": 12},
    4: {"M": 9, "K": 130},
    5: {"M": 14, "N": 10},
    6: {"M": 8, "K": 300, "N": 8},
    7: {"M": 40, "K": 6, "N": 40},
    8: {"M": 13, "K": 29, "N": 21},
    9: {"M": 40, "K": 3},
    10: {"BATCH": 3, "M": 7, "K": 20, "N": 9},
    11: {"BATCH": 2, "GROUP": 3, "M": 7, "K": 10, "N": 9},
    12: {"N": 17},
    13: {"N": 20},
    14: {"N": 20},
    15: {"N": 20},
    16: {"M": 12, "K": 40, "N": 20},
    17: {"M": 12, "K": 40, "N": 20},
    18: {"M": 12, "K": 40, "N": 20},
}

all_problems = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.file.stem)


def small(problem: Problem) -> ModuleType:
    """The problem with few elements."""
    module = problem.load()
    assert all(isinstance(getattr(module, name), int) for name in SMALL[problem.number])
    return problem.load(sizes=SMALL[problem.number])


def shape_of(value: Any) -> Any:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else value


def test_there_are_18_problems_and_as_many_files() -> None:
    assert sorted(BY_NUMBER) == list(range(1, 19))
    files = (Path(run.__file__).parent / "level1").glob("*.py")
    assert sorted(files) == [problem.file for problem in PROBLEMS]


@all_problems
def test_the_sizes_are_the_published_ones(problem: Problem) -> None:
    module = problem.load()
    inputs = measure.make_inputs(module, "meta")
    result = module.Model(*module.get_init_inputs())(*inputs)
    assert (*map(shape_of, inputs), shape_of(result)) == PUBLISHED[problem.number]
    assert all(value.dtype == torch.float32 for value in inputs if isinstance(value, torch.Tensor))


@all_problems
def test_what_the_runner_knows_of_a_problem_is_so(problem: Problem) -> None:
    module = problem.load()
    inputs = measure.make_inputs(module, "meta")
    if problem.operands is not None:
        a, b = problem.operands(*inputs)
        assert a.shape[-1] == problem.terms == b.shape[-2]
        assert torch.matmul(a, b).shape == module.Model()(*inputs).shape
    else:
        assert problem.terms == (1 if problem.number in (5, 12) else 4096)
    # The shape that the table shows has the numbers of the published shapes in it.
    for shape in PUBLISHED[problem.number][:2]:
        assert all(str(extent) in problem.shape for extent in (shape if isinstance(shape, tuple) else (shape,)))


@all_problems
def test_it_is_used_as_kernelbench_uses_it(problem: Problem) -> None:
    module = problem.load()
    assert issubclass(module.Model, torch.nn.Module) and issubclass(module.ModelNew, torch.nn.Module)
    assert module.ModelNew(*module.get_init_inputs()).on_cpu == "move"


@all_problems
def test_it_agrees_with_torch(problem: Problem) -> None:
    module = small(problem)
    agreed, difference = measure.correctness(module, "cpu", **EMULATE)
    assert agreed == measure.CORRECTNESS_TRIALS
    assert difference <= 1e-4
    error, torch_error = measure.errors(problem, module, "cpu", **EMULATE)
    assert 0 < error <= max(problem.error_bound, torch_error)


@all_problems
def test_the_exact_result_is_the_same_by_parts(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    module = small(problem)
    inputs = measure.make_inputs(module, "cpu", measure.signed)
    model = module.Model()
    result = model(*inputs)
    exact = model(*(value.double() if isinstance(value, torch.Tensor) else value for value in inputs))
    monkeypatch.setattr(measure, "PART_BYTES", 500)
    parts = list(measure.exact_parts(problem, model, inputs, result))
    assert len(parts) > 1 or problem.cut is None
    assert [start for start, _, _ in parts] == [sum(length for _, length, _ in parts[:n]) for n in range(len(parts))]
    joined = torch.cat([part for _, _, part in parts])
    assert joined.dtype == torch.float64
    torch.testing.assert_close(joined, exact, rtol=1e-14, atol=1e-14)


def test_inputs_have_the_structure_of_the_problem() -> None:
    for random in ((), (measure.signed,)):
        a, b = measure.make_inputs(small(BY_NUMBER[13]), "cpu", *random)
        assert torch.equal(a, a.T) and torch.equal(b, b.T) and not torch.equal(a, b)
        for number, part in ((14, torch.triu), (15, torch.tril)):
            for matrix in measure.make_inputs(small(BY_NUMBER[number]), "cpu", *random):
                assert torch.equal(matrix, part(matrix)) and not torch.equal(matrix, torch.diag(matrix.diag()))
    a, _ = measure.make_inputs(small(BY_NUMBER[1]), "cpu", measure.signed)
    assert -1 <= a.min() < -0.5 and 0.5 < a.max() <= 1


def with_new(module: ModuleType, compute: Callable[..., Any]) -> ModuleType:
    """The problem with another solution."""

    class Wrong(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return compute(*inputs)

    module.ModelNew = Wrong  # type: ignore[attr-defined]
    return module


def test_wrong_results_are_noticed() -> None:
    problem = BY_NUMBER[1]
    agreed, difference = measure.correctness(with_new(small(problem), lambda a, b: a @ b + 0.5), "cpu")
    assert agreed == 0 and difference == pytest.approx(0.5, rel=1e-3)
    error, torch_error = measure.errors(problem, with_new(small(problem), lambda a, b: 1.001 * (a @ b)), "cpu")
    assert error == pytest.approx(1e-3, rel=1e-2) and torch_error < 1e-6
    with pytest.raises(ValueError, match=r"\(20, 1\).*\(20, 20\)"):
        measure.correctness(with_new(small(problem), lambda a, b: (a @ b)[:, :1]), "cpu")
    with pytest.raises(ValueError, match="float64"):
        measure.correctness(with_new(small(problem), lambda a, b: (a @ b).double()), "cpu")


def test_what_is_wrong_in_one_part_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = torch.ones(20, 3)
    monkeypatch.setattr(measure, "PART_BYTES", 100)
    assert measure.compare(expected, expected.clone()) == (True, 0.0)
    for row in (0, 10, 19):
        for wrong, difference in ((1.5, 0.5), (float("nan"), float("nan"))):
            actual = expected.clone()
            actual[row, 1] = wrong
            assert measure.compare(expected, actual) == (False, pytest.approx(difference, nan_ok=True))


def test_errors_are_those_of_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = BY_NUMBER[1]
    whole = measure.errors(problem, small(problem), "cpu", **EMULATE)
    monkeypatch.setattr(measure, "PART_BYTES", 500)
    assert measure.errors(problem, small(problem), "cpu", **EMULATE) == pytest.approx(whole, rel=1e-12)


def test_what_is_not_a_number_stays_so() -> None:
    problem = BY_NUMBER[1]

    def spoiled(a: Any, b: Any) -> Any:
        c = a @ b
        c[0, 0] = float("nan")
        return c

    agreed, difference = measure.correctness(with_new(small(problem), spoiled), "cpu")
    assert agreed == 0 and difference != difference
    error, _ = measure.errors(problem, with_new(small(problem), spoiled), "cpu")
    assert error != error


def test_each_trial_has_other_inputs_and_each_run_the_same() -> None:
    seen: list[list[float]] = []
    for _ in range(2):
        seen.append([])
        module = with_new(small(BY_NUMBER[1]), lambda a, b: (seen[-1].append(float(a[0, 0])), a @ b)[1])
        assert measure.correctness(module, "cpu") == (measure.CORRECTNESS_TRIALS, 0.0)
    assert seen[0] == seen[1] and len(set(seen[0])) == measure.CORRECTNESS_TRIALS


def test_calls_take_turns() -> None:
    taken: list[tuple[object, int]] = []

    def block(call: Callable[[], object], count: int) -> list[float]:
        taken.append((call(), count))
        return [float(len(taken))] * count

    times = measure.take_turns({"a": lambda: "a", "b": lambda: "b"}, 13, block)
    assert [name for name, _ in taken] == ["a", "b"] * measure.ROUNDS
    assert [len(of.trials) for of in times.values()] == [13, 13]
    assert [count for name, count in taken if name == "a"] == [3, 3, 3, 2, 2]
    assert len(measure.take_turns({"a": lambda: "a"}, 2, block)["a"].trials) == 2


def test_times_are_summed_up_by_medians_and_quartiles() -> None:
    times = Times([5.0, 1.0, 2.0, 3.0, 4.0])
    assert (times.median, times.spread, times.mean) == (3.0, 2.0, 3.0)
    assert Times([2.0]).spread == 0


def test_ways_of_writing_write_everything() -> None:
    tensor = torch.full((3, 5), -1.0)
    ways = measure.ways_of_writing(tensor)
    assert len(ways) == 3 and all(name.startswith(WRITING) for name in ways)
    for call in ways.values():
        tensor.fill_(-1.0)
        call()
        # A float64 is two floats: of an odd number of these, one is left.
        assert (tensor.flatten()[:14] != -1).all()


def test_the_kernel_is_the_one_that_is_explained() -> None:
    inputs = measure.make_inputs(small(BY_NUMBER[4]), "cpu")
    assert measure.kernel_of(BY_NUMBER[4], NO_MODEL, inputs, **EMULATE).startswith("gemv_")
    inputs = measure.make_inputs(small(BY_NUMBER[18]), "cpu")
    assert measure.kernel_of(BY_NUMBER[18], NO_MODEL, inputs, **EMULATE).startswith("gemm_")
    inputs = [torch.ones(3, 3), torch.ones(3, 3)]
    assert measure.kernel_of(BY_NUMBER[14], NO_MODEL, inputs, **EMULATE).startswith("gemm_")
    assert measure.kernel_of(BY_NUMBER[5], NO_MODEL, (), **EMULATE) == ""


class FakeEvent:
    """A CUDA event whose time is that of a clock of ours."""

    clock = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.time = FakeEvent.clock

    def elapsed_time(self, end: FakeEvent) -> float:
        return end.time - self.time


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """torch.cuda as far as it is used, on the CPU; what is called, in order."""
    called: list[str] = []
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: called.append("wait"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: called.append("empty"))
    monkeypatch.setattr(measure, "FLUSHED_BYTES", 64)
    return called


def test_a_block_is_timed_as_kernelbench_does_it(fake_cuda: list[str]) -> None:
    def call() -> None:
        fake_cuda.append("call")
        FakeEvent.clock += len(fake_cuda)

    times = measure.cuda_block("cpu")(call, 2)
    warm = ["call", "wait"] * 3
    assert fake_cuda == [*warm, "empty", *["wait", "call", "wait"] * 3]
    # The first of three trials is left out.
    assert times == [12.0, 15.0]


def test_a_problem_is_measured_from_end_to_end(fake_cuda: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    problem = BY_NUMBER[7]
    module = small(problem)
    new = module.ModelNew

    def counting(*inputs: Any) -> Any:
        FakeEvent.clock += 1.0
        return new(**EMULATE)(*inputs)

    monkeypatch.setattr(Problem, "load", lambda *_: with_new(module, counting))
    monkeypatch.setattr(measure, "kernel_of", lambda *_: "gemm_of_tests")
    result = measure.measure(problem, 6, False, "cpu")
    assert set(result.times) == {EAGER, OURS, *measure.ways_of_writing(torch.empty(2))}
    assert result.times[OURS].trials == [1.0] * 6 and len(result.times[EAGER].trials) == 6
    assert result.agreed == 5 and 0 < result.error < 3e-7 and result.kernel == "gemm_of_tests"
    assert result.share_of_writing == 0 and result.speed_up == 0
