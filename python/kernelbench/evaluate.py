"""KernelBench's own evaluator, asked about each ModelNew of level 2: is it correct, and how fast?

    python source.py DIRECTORY
    python evaluate.py DIRECTORY [--problem N] [--json FILE]

The evaluator is the function `eval_kernel_against_ref` of that copy. It calls both models with random inputs, compares each result with
`torch.allclose` at 1e-4, and times them between CUDA events. It exits with 0 only if the evaluator calls every one correct, and none
slower than torch.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import source
import torch
from problems import LEVELS, Problem

#: What the evaluator's package imports to ask language models, which nobody does here. Where they are not installed, empty modules take their place.
NOT_NEEDED = {"requests": [], "dotenv": ["load_dotenv"], "openai": ["OpenAI"], "litellm": ["completion"], "tqdm": ["tqdm"]}


def _nothing(*_arguments: Any, **_options: Any) -> None:
    """What stands in for functions that are not needed."""


def evaluator(directory: Path) -> ModuleType:
    """The module of the evaluator in a copy of KernelBench."""
    for name, contents in NOT_NEEDED.items():
        try:
            importlib.import_module(name)
        except ImportError:
            module = ModuleType(name)
            for content in contents:
                setattr(module, content, _nothing)
            sys.modules[name] = module
    sys.path.insert(0, str(directory / "src"))
    return importlib.import_module("kernelbench.eval")


def evaluate(module: ModuleType, problem: Problem, problems: Path, trials: int, device: torch.device) -> dict[str, Any]:
    """What the evaluator says of a problem."""
    (reference,) = problems.glob(f"{problem.number}_*.py")
    result: Any = module.eval_kernel_against_ref(
        reference.read_text(encoding="utf-8"),
        problem.file.read_text(encoding="utf-8"),
        num_correct_trials=5,
        num_perf_trials=trials,
        measure_performance=True,
        device=device,
    )
    told: dict[str, Any] = {"problem": problem.name, "compiled": bool(result and result.compiled), "correct": bool(result and result.correctness)}
    if result is not None:
        told["metadata"] = {key: str(value)[:300] for key, value in result.metadata.items()}
    if result is not None and told["correct"]:
        told["ms"], told["torch ms"] = result.runtime, result.ref_runtime
        told["to torch"] = result.ref_runtime / result.runtime
    return told


def is_evaluable(module: ModuleType, problem: Problem, problems: Path, device: torch.device) -> bool:
    """Whether the evaluator calls the problem's own model correct, compared with itself: not if it draws other random numbers in each call."""
    (reference,) = problems.glob(f"{problem.number}_*.py")
    text = reference.read_text(encoding="utf-8")
    result = module.eval_kernel_against_ref(text, f"{text}\n\nclass ModelNew(Model):\n    pass\n", num_correct_trials=1, device=device)
    return bool(result and result.correctness)


def main(arguments: Sequence[str] | None = None) -> int:
    """Evaluates, prints, writes; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path, help="a copy of KernelBench, as `source.py` gets it")
    parser.add_argument("--problem", type=int, action="append", metavar="N", help="only this one; may be given repeatedly")
    parser.add_argument("--trials", type=int, default=100, metavar="N", help="how often each is timed (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write what was said")
    parser.add_argument("--device", default="cuda:0", help="as torch calls it (default: %(default)s)")
    options = parser.parse_args(arguments)
    problems = source.level_2(options.directory)
    module = evaluator(options.directory)
    told: list[dict[str, Any]] = []
    for problem in LEVELS[2].problems:
        if options.problem and problem.number not in options.problem:
            continue
        one = evaluate(module, problem, problems, options.trials, torch.device(options.device))
        told.append(one)
        if not one["correct"]:
            one["its own model is correct"] = is_evaluable(module, problem, problems, torch.device(options.device))
        speed = f"{one['to torch']:.3f} times torch, {one['ms']:.4f} ms" if one["correct"] else str(one.get("metadata"))
        print(f"{problem.name}: {'correct' if one['correct'] else 'NOT CORRECT'}, {speed}", flush=True)
        if one.get("its own model is correct") is False:
            print("    nor is the problem's own model, compared with itself", flush=True)
    ratios: list[float] = [one["to torch"] for one in told if one["correct"]]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{len(ratios)} of {len(told)} are correct; geometric mean {mean:.3f} times torch, the least {min(ratios):.3f}")
    if options.json:
        options.json.write_text(json.dumps(told, indent=1), encoding="utf-8")
    return 0 if told and len(ratios) == len(told) and min(ratios) >= 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
