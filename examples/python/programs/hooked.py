"""Programs of libraries that know nothing of Tilewright, with and without `libtilewright_cublas.so` in front of cuBLAS.

    LD_PRELOAD=libtilewright_cublas.so python program.py

is all that changes. A program's cases run in two processes, one as it is and one with the library. Each case is computed in float64, too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

#: How much more than cuBLAS's error one with the library may have, and what is as good as none.
TIMES, NONE = 3.0, 1e-6


def show(case: str, error: float, ms: float, **more: Any) -> None:
    """A case's line, in the process that computes it."""
    print(json.dumps({"case": case, "error": error, "ms": ms, **more}), flush=True)


def cases_of(options: argparse.Namespace, library: str | None, environment: dict[str, str]) -> tuple[dict[str, dict[str, Any]], str]:
    """What a process says of all cases, and how many calls the library took."""
    variables = os.environ | environment
    if library is not None:
        variables |= {"LD_PRELOAD": library, "TILEWRIGHT_VERBOSE": "1"}
    command = [sys.executable, sys.argv[0], "--child", "--size", str(options.size), *(["--try"] if options.try_ else [])]
    process = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise SystemExit(f"{'as it is' if library is None else 'with the library'}:\n{process.stdout}\n{process.stderr}")
    lines = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    counts = [line for line in process.stderr.splitlines() if line.startswith("TILEWRIGHT at the end")]
    return {line["case"]: line for line in lines}, " ".join(counts)


def main(about: str, cases: Callable[[argparse.Namespace], None], size: int, environment: dict[str, str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--library", help="the path of libtilewright_cublas.so")
    parser.add_argument("--size", type=int, default=size, help="of the largest matrices")
    parser.add_argument("--json", help="write all numbers to this file")
    parser.add_argument("--try", dest="try_", action="store_true", help="without a GPU and the library: only that the cases run")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        cases(options)
        return
    if not options.try_ and (options.library is None or not os.path.exists(options.library)):
        parser.error(f"there is no library {options.library}: cargo build -p tilewright-cublas --release")
    before, _ = cases_of(options, None, environment or {})
    after, counts = (before, "") if options.try_ else cases_of(options, os.path.abspath(options.library), environment or {})
    print(f"{about}: {counts}")
    print(f"{'case':36} {'before ms':>10} {'after ms':>10} {'times':>6} {'error before':>13} {'after':>10}")
    wrong: list[str] = []
    for case, old in before.items():
        new = after[case]
        right = new["error"] <= TIMES * old["error"] + NONE
        if not right:
            wrong.append(case)
        print(
            f"{case:36} {old['ms']:10.3f} {new['ms']:10.3f} {old['ms'] / new['ms']:6.2f} {old['error']:13.2e} {new['error']:10.2e}{'' if right else '  WRONG'}"
        )
    if not options.try_ and ("calls taken" not in counts or " 0 calls taken" in counts):
        wrong.append("no call was taken")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"about": about, "counts": counts, "before": list(before.values()), "after": list(after.values())}, file, indent=2)
    if wrong:
        raise SystemExit(f"wrong: {', '.join(wrong)}")
