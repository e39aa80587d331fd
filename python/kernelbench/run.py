"""ModelNew against Model, for KernelBench's problems that are products: the same problems, measured as KernelBench does.

    python run.py --json kernelbench.json --markdown kernelbench.md
    python run.py --level 2 --source DIRECTORY          # where `source.py DIRECTORY` has put KernelBench

It exits with 0 only if each problem could be measured, agrees with torch, and is as fast and as accurate as is wanted of it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import traceback
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import measure
import report
import source
import tilewright
import torch
from problems import LEVELS, Problem
from report import Environment, Failure, Outcome


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--level", type=int, default=1, choices=sorted(LEVELS), help="of KernelBench (default: %(default)s)")
    parser.add_argument(
        "--source", type=Path, metavar="DIRECTORY", help="a copy of KernelBench, for level 2 (default: what KERNELBENCH names)"
    )
    parser.add_argument("--problem", type=int, action="append", metavar="N", help="only this one; may be given repeatedly")
    parser.add_argument(
        "--trials", type=_count, default=100, metavar="N", help="how often each is timed (default: %(default)s)"
    )
    parser.add_argument("--json", type=_file, metavar="FILE", help="where to write everything, with each trial")
    parser.add_argument("--markdown", type=_file, metavar="FILE", help="where to write the report")
    parser.add_argument("--skip-compile", action="store_true", help="leave out torch.compile, which takes a while")
    parser.add_argument(
        "--unpacked", action="store_true", help="also time level 2 with weights that each call packs, where they are packed once otherwise"
    )
    parser.add_argument("--device", default="cuda", help="as torch calls it (default: %(default)s)")
    options = parser.parse_args(arguments)
    numbers = [problem.number for problem in LEVELS[options.level].problems]
    if unknown := set(options.problem or ()).difference(numbers):
        parser.error(f"there is no problem {min(unknown)} of level {options.level} here: there are {numbers}")
    options.source = options.source or source.from_environment()
    if options.level == 2:
        if options.source is None:
            parser.error("--level 2 needs a copy of KernelBench: `python source.py DIRECTORY` gets one, --source names it")
        source.level_2(options.source)
    return options


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{count} trials are too few for a median")
    return count


def _file(text: str) -> Path:
    """Refuses what could not be written, before minutes are spent on what is to be written."""
    file = Path(text)
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no file in a directory that exists")
    return file


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, writes; the exit status."""
    options = parse(arguments)
    environment = prepare(options.device, options.trials)
    chosen = [problem for problem in LEVELS[options.level].problems if not options.problem or problem.number in options.problem]
    outcomes: list[Outcome] = []
    for problem in chosen:
        print(f"{problem.name} ...", file=sys.stderr, flush=True)
        outcomes.append(attempt(problem, options.trials, not options.skip_compile, options.device, options.source, options.unpacked))
    print(report.table(outcomes))
    print()
    print(report.summary(outcomes))
    if options.json is not None:
        report.write(options.json, report.as_json(outcomes, environment))
    if options.markdown is not None:
        report.write(options.markdown, report.markdown(outcomes, environment))
    return 0 if report.is_as_wanted(outcomes) else 1


def attempt(problem: Problem, trials: int, compiled: bool, device: str, kernelbench: Path | None, unpacked: bool = False) -> Outcome:
    """Measures a problem. An error is an outcome like any other: the problems behind it are measured all the same."""
    try:
        # What the problem before has used: some take many GB.
        measure.release()
        return Outcome(problem, measure.measure(problem, trials, compiled, device, kernelbench, unpacked))
    except Exception as error:
        traceback.print_exc()
        text = str(error).strip() or "no message"
        return Outcome(problem, Failure(f"{type(error).__name__}: {text.splitlines()[0]}"))


def prepare(device: str, trials: int) -> Environment:
    """Makes sure that what is measured is what is meant, and tells with what."""
    if not torch.cuda.is_available() or torch.device(device).type != "cuda":
        raise SystemExit(f"there is no GPU here that torch can use as {device}")
    # With TF32, torch would be faster and a thousand times less accurate: it would not be the same product.
    if torch.backends.cuda.matmul.allow_tf32 or torch.get_float32_matmul_precision() != "highest":
        raise SystemExit("torch is told to compute float32 by TF32: unset what says so (TORCH_ALLOW_TF32_CUBLAS_OVERRIDE)")
    torch.cuda.set_device(torch.device(device).index or 0)
    return Environment(
        gpu=torch.cuda.get_device_name(),
        driver=driver(),
        torch=torch.__version__,
        cuda=torch.version.cuda or "none",
        tilewright=tilewright.__version__,
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        trials=trials,
    )


def driver() -> str:
    """The version of NVIDIA's driver, which torch does not know."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({error})"
    return answer.split("\n")[0].strip()


if __name__ == "__main__":
    raise SystemExit(main())
