"""KernelBench's level 2 by tilewright, with few elements: the problems are KernelBench's own, so they need a copy of it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here: `cargo xtask test --with-torch` runs these")

# Not in front: the package that is tested is the one that is installed.
sys.path.append(str(Path(__file__).parents[1] / "kernelbench"))

import measure  # noqa: E402
import run  # noqa: E402
import source  # noqa: E402
import tilewright  # noqa: E402
from problems import LEVEL_2, Problem  # noqa: E402

EMULATE: Any = {"on_cpu": "emulate"}
NUMBERS = "9 12 14 18 22 28 29 30 33 37 39 40 41 45 51 53 55 56 59 62 63 64 66 68 70 75 76 80 81 84 86 88 94 95 97 98 99"

KERNELBENCH = source.from_environment()
needs_kernelbench = pytest.mark.skipif(
    KERNELBENCH is None,
    reason="KERNELBENCH names no copy of KernelBench: `python python/kernelbench/source.py DIRECTORY` gets one",
)
all_problems = pytest.mark.parametrize("problem", LEVEL_2, ids=lambda problem: problem.file.stem)

#: In place of the published sizes, where a problem has one of this name: groups and pools have to fit.
SMALL = {
    "batch_size": 6,
    "in_features": 24,
    "input_size": 24,
    "hidden_size": 32,
    "out_features": 32,
    "output_size": 32,
    "num_groups": 4,
}


def small(problem: Problem) -> ModuleType:
    """The problem with few elements."""
    assert KERNELBENCH is not None
    (file,) = source.level_2(KERNELBENCH).glob(f"{problem.number}_*.py")
    text = file.read_text(encoding="utf-8")
    return problem.load(sizes={name: size for name, size in SMALL.items() if re.search(rf"^{name} *=", text, re.MULTILINE)})


def test_there_are_37_problems_and_as_many_files() -> None:
    assert [problem.number for problem in LEVEL_2] == [int(number) for number in NUMBERS.split()]
    files = (Path(run.__file__).parent / "level2").glob("*.py")
    assert sorted(files) == sorted(problem.file for problem in LEVEL_2)


# Problem 28 has an instance norm of other features than it is given, and torch says so.
@pytest.mark.filterwarnings("ignore:input's size at dim=1 does not match num_features")
@needs_kernelbench
@all_problems
def test_it_agrees_with_kernelbench(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    module = small(problem)
    products: list[tuple[int, ...]] = []
    fused = tilewright._linear.fused
    # As on a GPU, weights are packed once; the executor's plans read them as they are all the same.
    monkeypatch.setattr(tilewright._native, "reads_packed", lambda *_: True)

    def counting(function: str, a: Any, b: Any, *arguments: Any) -> Any:
        x, w = (a, b) if function == "linear" else (b.mT, a)
        products.append((*x.shape, *w.shape))
        return fused(function, a, b, *arguments)

    monkeypatch.setattr(tilewright._linear, "fused", counting)
    agreed, difference, _ = measure.correctness(module, "cpu", **EMULATE)
    assert agreed == measure.CORRECTNESS_TRIALS and difference <= 1e-4
    error, torch_error = measure.errors(problem, module, "cpu", **EMULATE)
    # Few elements are no measure of which of two errors is larger: that of large problems is compared on a GPU.
    assert error <= max(problem.error_bound, 2 * torch_error)
    # The whole product, each time, and one more call where errors are measured, so that weights are packed.
    layers = [(6, 24, 32, 24), (6, 32, 32, 32)] if problem.number == 45 else [(6, 24, 32, 24)]
    assert products == layers * (measure.CORRECTNESS_TRIALS + 2)


# Problem 28 has an instance norm of other features than it is given, and torch says so.
@pytest.mark.filterwarnings("ignore:input's size at dim=1 does not match num_features")
@needs_kernelbench
@all_problems
@pytest.mark.parametrize("training", [True, False])
def test_it_agrees_whatever_the_parameters_are(problem: Problem, training: bool) -> None:
    """As they are made, norms multiply by one and add zero."""
    module = small(problem)
    measure.seed(1)
    models = [kind(*module.get_init_inputs(), **options).train(training) for kind, options in ((module.Model, {}), (module.ModelNew, EMULATE))]
    with torch.no_grad():
        for parameters in zip(*(model.parameters() for model in models), strict=True):
            value = torch.randn_like(parameters[0]).mul_(0.5)
            for parameter in parameters:
                parameter.copy_(value)
        inputs = module.get_inputs(measure.signed)
        results = []
        for model in models:
            measure.seed(2)
            results.append(model(*inputs))
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)
        # Such as a norm's sums over batches.
        for ours, theirs in zip(models[1].buffers(), models[0].buffers(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


# Problem 28 has an instance norm of other features than it is given, and torch says so.
@pytest.mark.filterwarnings("ignore:input's size at dim=1 does not match num_features")
@needs_kernelbench
@all_problems
def test_the_published_sizes_are_those_of_the_table(problem: Problem) -> None:
    module = problem.load()
    inputs = measure.make_inputs(module, "meta")
    with torch.device("meta"):
        model = module.ModelNew(*module.get_init_inputs())
        shape = module.Model(*module.get_init_inputs())(*inputs).shape
    layers = [part for part in model.modules() if isinstance(part, tilewright.nn.Linear)]
    assert len(layers) == len(problem.shape.split(" . ")) - 1 and all(layer.on_cpu == "move" for layer in layers)
    weights = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    rows = inputs[0].shape[0]
    assert problem.shape == f"{rows}x{inputs[0].shape[1]}" + "".join(f" . ({n}x{k})T" for n, k in (w.shape for w in weights))
    assert problem.terms == max(weight.shape[1] for weight in weights)
    # Without memory, ours is as far known as torch's.
    assert model(*inputs).shape == shape


# Problem 28 has an instance norm of other features than it is given, and torch says so.
@pytest.mark.filterwarnings("ignore:input's size at dim=1 does not match num_features")
@needs_kernelbench
@all_problems
def test_its_evaluator_finds_weights_packed(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """KernelBench's evaluator times models where derivatives are recorded."""
    monkeypatch.setattr(tilewright._native, "reads_packed", lambda *_: True)
    module = small(problem)
    model = module.ModelNew(*module.get_init_inputs(), **EMULATE)
    for packed in (False, True):
        assert not model(*module.get_inputs()).requires_grad
        assert (tilewright.nn.packed_bytes(model) > 0) == packed


@needs_kernelbench
def test_inputs_can_have_another_distribution() -> None:
    (x,) = small(LEVEL_2[0]).get_inputs(measure.signed)
    assert x.shape == (6, 24) and x.min() < -0.5 and x.max() > 0.5
    (x,) = small(LEVEL_2[0]).get_inputs()
    assert x.min() >= 0


@needs_kernelbench
def test_what_is_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = next(problem for problem in LEVEL_2 if problem.number == 95)
    module = small(problem)
    linear = tilewright.linear

    def without_the_last_step(x: Any, w: Any, bias: Any, steps: Any, *arguments: Any, **options: Any) -> Any:
        return linear(x, w, bias, steps[:-2], *arguments, **options)

    monkeypatch.setattr(tilewright.nn, "linear", without_the_last_step)
    agreed, difference, _ = measure.correctness(module, "cpu", **EMULATE)
    assert agreed == 0 and difference > 1e-2


@needs_kernelbench
def test_a_problem_is_measured_from_end_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = next(problem for problem in LEVEL_2 if problem.number == 45)
    module = small(problem)

    class OnCpu(module.ModelNew):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, **EMULATE)

    module.ModelNew = OnCpu
    explain = tilewright.explain
    loaded: list[Any] = []
    monkeypatch.setattr(tilewright, "explain", lambda *operands, **options: explain(*operands, **options, **EMULATE))
    monkeypatch.setattr(Problem, "load", lambda _, kernelbench: (loaded.append(kernelbench), module)[1])
    monkeypatch.setattr(measure, "cuda_block", lambda device: lambda call, count: [float(len(call()))] * count)
    result = measure.measure(problem, 7, False, "cpu", Path("there"))
    # A row for each vector of a batch.
    assert result.times[measure.OURS].trials == [6.0] * 7 == result.times[measure.EAGER].trials
    assert result.agreed == measure.CORRECTNESS_TRIALS and 0 < result.error < 1e-6
    assert result.kernel.startswith("gemm_") and loaded == [Path("there")]


def test_another_copy_is_refused(tmp_path: Path) -> None:
    (tmp_path / "KernelBench" / "level2").mkdir(parents=True)
    (tmp_path / "KernelBench" / "level2" / "9_Matmul.py").write_text("batch_size = 1\n")
    with pytest.raises(SystemExit, match="source.py"):
        source.level_2(tmp_path)
    with pytest.raises(SystemExit, match="not empty"):
        source.get(tmp_path)


def test_without_a_copy_it_is_said_how_to_get_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("KERNELBENCH", raising=False)
    with pytest.raises(FileNotFoundError, match="source.py"):
        LEVEL_2[0].load()
    with pytest.raises(SystemExit):
        run.parse(["--level", "2"])
    assert "source.py" in capsys.readouterr().err
