"""What is reported of KernelBench's problems, and the runner: with measurements that are made up."""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here: `cargo xtask test --with-torch` runs these")

# Not in front: the package that is tested is the one that is installed.
sys.path.append(str(Path(__file__).parents[1] / "kernelbench"))

import measure  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402
from measure import COMPILED, EAGER, OURS, WRITING, Measurement, Times  # noqa: E402
from problems import LEVEL_2, PROBLEMS, Problem  # noqa: E402
from report import Environment, Failure, Outcome  # noqa: E402

BY_NUMBER = {problem.number: problem for problem in PROBLEMS}
ENVIRONMENT = Environment("NVIDIA Test", "1.2.3", "2.11.0", "13.0", "0.1.0", "2026-11-21T12:00:00+00:00", 3)


def measured(problem: Problem, speed_up: float | None = None) -> Measurement:
    """A measurement as it is wanted, or with another speed-up."""
    ours = 2.0
    ratio = max(problem.wanted, 2.5) if speed_up is None else speed_up
    times = {EAGER: Times([ours * ratio] * 3), OURS: Times([ours, ours + 0.1, ours - 0.1]), COMPILED: Times([3.0] * 3)}
    if problem.writes:
        times |= {f"{WRITING} slowly": Times([1.9] * 3), f"{WRITING} fast": Times([1.8] * 3)}
    return Measurement(times, measure.CORRECTNESS_TRIALS, 1e-5, 2e-7, 1e-7, "gemm_of_tests")


def as_wanted() -> list[Outcome]:
    return [Outcome(problem, measured(problem)) for problem in PROBLEMS]


def row_of(text: str, problem: Problem) -> str:
    (row,) = (line for line in text.splitlines() if line.startswith(f"| {problem.name} "))
    return row


def test_the_table_shows_what_was_measured() -> None:
    outcomes = as_wanted()
    text = report.table(outcomes)
    lines = text.splitlines()
    assert len(lines) == 20 and len({len(line) for line in lines}) == 1
    assert len({line.count("|") for line in lines}) == 1
    row = row_of(text, BY_NUMBER[7])
    for cell in ("gemm_of_tests", "5.6000", "2.0000", "3.0000", "0.1000", "2.800", "met 2.80", "1.500", "90.0% met 80%"):
        assert f" {cell} " in row
    for cell in ("5 of 5", "1.0e-05", "2.0e-07", "1.0e-07", "met 3.0e-07"):
        assert f" {cell} " in row
    assert "NOT MET" not in text and report.is_as_wanted(outcomes)
    assert "18 of 18" in report.summary(outcomes) and "met 2.5, goal 3.0 met" in report.summary(outcomes)


@pytest.mark.parametrize(
    ("number", "change", "check"),
    [
        (17, {"times": {EAGER: Times([3.29]), OURS: Times([1.0])}}, "speed-up"),
        (7, {"times": {EAGER: Times([9.0]), OURS: Times([1.0]), WRITING: Times([0.79])}}, "share of writing"),
        (3, {"agreed": 4}, "correct"),
        (3, {"error": 3.1e-7}, "error"),
        (1, {"error": 7.1e-7}, "error"),
        (1, {"error": float("nan")}, "error"),
        (1, {"error": 8e-7, "torch_error": float("nan")}, "error"),
    ],
)
def test_what_is_not_as_wanted_is_shown(number: int, change: dict[str, Any], check: str) -> None:
    outcomes = as_wanted()
    assert all(outcomes[number - 1].checks.values())
    outcomes[number - 1] = Outcome(BY_NUMBER[number], replace(measured(BY_NUMBER[number]), **change))
    assert [name for name, met in outcomes[number - 1].checks.items() if not met] == [check]
    assert row_of(report.table(outcomes), BY_NUMBER[number]).count("NOT MET") == 1
    assert f"- {BY_NUMBER[number].name} NOT MET: {check}" in report.summary(outcomes)
    assert "17 of 18" in report.summary(outcomes)
    assert not report.is_as_wanted(outcomes)
    entry = json.loads(report.as_json(outcomes, ENVIRONMENT))["problems"][number - 1]
    assert entry["checks"][check] is False


def test_weights_that_each_call_packs_have_their_columns() -> None:
    def outcome(problem: Problem, unpacked: float) -> Outcome:
        result = measured(problem, 3.0)
        return Outcome(problem, replace(result, times=result.times | {measure.UNPACKED: Times([unpacked])}))

    outcomes = [outcome(problem, 2.4 if place % 2 else 2.5) for place, problem in enumerate(LEVEL_2)]
    row = row_of(report.table(outcomes), LEVEL_2[1])
    assert " 2.4000 " in row and " 2.500 " in row
    mean = report.geometric_mean_unpacked(outcomes)
    assert mean is not None and 2.4 < mean < 2.5
    assert f"each call packs, the geometric mean is {mean:.3f}." in report.summary(outcomes)
    document = json.loads(report.as_json(outcomes, ENVIRONMENT))
    assert document["geometric_mean_unpacked"] == mean and document["problems"][1]["speed_up_unpacked"] == 2.5
    assert "tilewright.nn.Linear" in report.markdown(outcomes, ENVIRONMENT)
    # Not of some of them, and nothing is said of what was not measured.
    assert report.geometric_mean_unpacked(outcomes[:-1]) is None
    plain = [Outcome(problem, measured(problem, 3.0)) for problem in LEVEL_2]
    assert "each call packs" not in report.summary(plain) and report.geometric_mean_unpacked(plain) is None


def test_an_error_as_large_as_that_of_torch_is_fine() -> None:
    result = replace(measured(BY_NUMBER[1]), error=9e-7, torch_error=1e-6)
    outcome = Outcome(BY_NUMBER[1], result)
    assert outcome.checks["error"] and outcome.error_bound == 1e-6
    # An error of torch's that is not a number is no excuse, and no fault of ours.
    outcome = Outcome(BY_NUMBER[1], replace(measured(BY_NUMBER[1]), torch_error=float("nan")))
    assert outcome.checks["error"] and outcome.error_bound == 7e-7


def test_the_geometric_mean_is_that_of_all_problems_and_counts() -> None:
    outcomes = as_wanted()
    mean = report.geometric_mean(outcomes)
    assert mean is not None and mean > 3
    assert report.geometric_mean(outcomes[:-1]) is None and "No geometric mean" in report.summary(outcomes[:-1])
    low = [replace(outcome, result=measured(outcome.problem, outcome.problem.wanted)) for outcome in outcomes]
    mean = report.geometric_mean(low)
    # The least that each problem has to reach is more than the mean has to be.
    assert mean is not None and mean >= 2.5 and report.is_as_wanted(low)
    slow = [replace(of, problem=replace(of.problem, wanted=1.0), result=measured(of.problem, 2.0)) for of in outcomes]
    assert all(all(outcome.checks.values()) for outcome in slow)
    assert not report.is_as_wanted(slow) and "2.000, NOT MET 2.5" in report.summary(slow)


def test_of_level_2_the_mean_is_told_without_the_best_too() -> None:
    ratios = [1.0 + place / 10 for place in range(len(LEVEL_2))]
    outcomes = [Outcome(problem, measured(problem, ratio)) for problem, ratio in zip(LEVEL_2, ratios)]
    mean, rest = report.geometric_mean(outcomes), report.geometric_mean(outcomes, 5)
    assert mean == pytest.approx(statistics.geometric_mean(ratios))
    assert rest == pytest.approx(statistics.geometric_mean(ratios[:-5]))
    text = report.summary(outcomes)
    assert f"Without the 5 best: {rest:.3f}. The least: 1.000." in text and "37 of 37" in text
    document = json.loads(report.as_json(outcomes[::-1], ENVIRONMENT))
    assert document["level"] == 2 and document["least_speed_up"] == 1.0
    assert document["geometric_mean_without_the_5_best"] == pytest.approx(rest)
    assert "KernelBench level 2, the 37 problems" in report.markdown(outcomes, ENVIRONMENT)
    assert "No geometric mean: it is that of all 37" in report.summary(outcomes[1:])


def test_the_json_has_everything() -> None:
    outcomes = as_wanted()
    outcomes[2] = Outcome(BY_NUMBER[3], Failure("OutOfMemoryError: too little"))
    outcomes[0] = Outcome(BY_NUMBER[1], replace(measured(BY_NUMBER[1]), largest_difference=float("nan")))
    document = json.loads(report.as_json(outcomes, ENVIRONMENT))
    assert document["environment"]["gpu"] == "NVIDIA Test" and document["environment"]["driver"] == "1.2.3"
    assert document["method"]["kernelbench"] == "423217d" and document["as_wanted"] is False
    assert [entry["number"] for entry in document["problems"]] == list(range(1, 19))
    assert document["problems"][2]["failure"] == "OutOfMemoryError: too little"
    first = document["problems"][0]
    assert first["times"][OURS] == {
        "median_ms": 2.0,
        "mean_ms": pytest.approx(2.0),
        "spread_ms": pytest.approx(0.1),
        "fastest_ms": 1.9,
        "trials_ms": [2.0, 2.1, 1.9],
    }
    assert first["largest_difference"] == "nan" and first["speed_up"] == pytest.approx(2.8)


def test_a_file_is_written_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "report.md"
    report.write(file, "old µ")
    report.write(file, "new µ")
    assert file.read_text(encoding="utf-8") == "new µ" and list(tmp_path.iterdir()) == [file]
    beside = tmp_path / "beside"
    beside.touch()
    assert file.stat().st_mode == beside.stat().st_mode
    beside.unlink()
    with pytest.raises(UnicodeEncodeError):
        report.write(file, "half \ud800")
    assert file.read_text(encoding="utf-8") == "new µ" and list(tmp_path.iterdir()) == [file]


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that the runner asks a GPU, answered."""
    monkeypatch.setattr(run, "prepare", lambda device, trials: replace(ENVIRONMENT, trials=trials))
    monkeypatch.setattr(measure, "release", lambda: None)


def test_the_runner_measures_what_is_chosen_and_writes_it(
    without_gpu: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []

    def fake(problem: Problem, trials: int, compiled: bool, device: str, kernelbench: Path | None, unpacked: bool) -> Measurement:
        asked.append((problem.number, trials, compiled, device, unpacked))
        return measured(problem)

    monkeypatch.setattr(measure, "measure", fake)
    files = tmp_path / "a.json", tmp_path / "a.md"
    assert run.main(["--json", str(files[0]), "--markdown", str(files[1])]) == 0
    assert asked == [(number, 100, True, "cuda", False) for number in range(1, 19)]
    printed = capsys.readouterr().out
    text = files[1].read_text(encoding="utf-8")
    assert report.table(as_wanted()) in printed and report.table(as_wanted()) in text
    assert "NVIDIA Test" in text and "driver 1.2.3" in text and "100 trials" in text
    assert json.loads(files[0].read_text(encoding="utf-8"))["as_wanted"] is True

    asked.clear()
    options = ["--problem", "5", "--problem", "3", "--trials", "7", "--skip-compile", "--unpacked", "--device", "cuda:1"]
    assert run.main(options) == 0
    assert asked == [(3, 7, False, "cuda:1", True), (5, 7, False, "cuda:1", True)]


def test_a_problem_that_fails_does_not_keep_others_from_being_measured(
    without_gpu: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fake(problem: Problem, *_: Any) -> Measurement:
        if problem.number == 4:
            raise RuntimeError("no such kernel\nmore of it")
        return measured(problem)

    monkeypatch.setattr(measure, "measure", fake)
    file = tmp_path / "a.md"
    assert run.main(["--markdown", str(file)]) == 1
    captured = capsys.readouterr()
    assert "FAILED" in row_of(captured.out, BY_NUMBER[4]) and "5.6000" in row_of(captured.out, BY_NUMBER[18])
    assert "- 04 matrix vector FAILED: RuntimeError: no such kernel" in captured.out
    assert "more of it" in captured.err and "FAILED" in file.read_text(encoding="utf-8")


def test_a_target_that_is_not_met_sets_the_exit_status(without_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "measure", lambda problem, *_: measured(problem, problem.wanted * 0.99))
    assert run.main(["--problem", "1"]) == 1
    monkeypatch.setattr(measure, "measure", lambda problem, *_: measured(problem, problem.wanted))
    assert run.main(["--problem", "1"]) == 0


def test_wrong_options_are_refused_before_anything_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = (["--json", str(tmp_path / "no" / "a.json")], ["--markdown", str(tmp_path)])
    for options in (["--problem", "19"], ["--trials", "0"], *files):
        with pytest.raises(SystemExit) as exit_:
            run.main(options)
        assert exit_.value.code == 2, options
    capsys.readouterr()


def test_other_conditions_than_those_that_are_meant_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="no GPU"):
        run.prepare("cuda", 3)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(SystemExit, match="no GPU"):
        run.prepare("cpu", 3)
    try:
        torch.backends.cuda.matmul.allow_tf32 = True
        with pytest.raises(SystemExit, match="TF32"):
            run.prepare("cuda", 3)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
