"""Runs the programs, each in a process of its own, and gathers their JSON.

    python run_all.py --output DIRECTORY --library target/release/libtilewright_cublas.so
    python run_all.py --output DIRECTORY --only gpt --only clusters

With the sizes here they take about five minutes on an H100. A program that is wrong, or takes too long, does not keep the others from running.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# A name, the program, its options.
PROGRAMS: list[tuple[str, str, list[str]]] = [
    ("clusters", "clusters.py", []),
    ("gaussian-process", "gaussian_process.py", []),
    ("physics-informed", "physics_informed.py", []),
    ("diffusion", "diffusion.py", []),
    ("gpt", "gpt.py", []),
    ("gpt2", "gpt.py", ["--shape", "gpt2", "--batch", "8", "--steps", "50", "--seeds", "1", "--skip-exact"]),
    ("cupy", "with_cupy.py", []),
    ("jax", "with_jax.py", []),
]


def main() -> None:
    parser = argparse.ArgumentParser(description="runs the programs one after the other")
    parser.add_argument("--output", type=Path, required=True, help="a directory for JSON and what the programs print")
    parser.add_argument("--library", help="libtilewright_cublas.so, for CuPy and JAX; they are left out without it")
    parser.add_argument("--only", action="append", choices=[name for name, _, _ in PROGRAMS])
    parser.add_argument("--time-limit", type=float, default=150, help="seconds for each")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    failed: list[str] = []
    for name, program, arguments in PROGRAMS:
        if options.only and name not in options.only:
            continue
        if program.startswith("with_"):
            if not options.library:
                print(f"{name} is left out: it needs --library", flush=True)
                continue
            arguments = [*arguments, "--library", options.library]
        start = time.perf_counter()
        command = [sys.executable, "-u", str(HERE / program), *arguments, "--json", str(options.output / f"{name}.json")]
        try:
            process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=options.time_limit, check=False)
            said, well = process.stdout, process.returncode == 0
        except subprocess.TimeoutExpired as late:
            printed = late.stdout or b""
            said = (printed.decode(errors="replace") if isinstance(printed, bytes) else printed) + f"\nnot done in {options.time_limit:.0f} s\n"
            well = False
        (options.output / f"{name}.txt").write_text(said, encoding="utf-8")
        print(said, end="")
        print(f"{name}: {'all right' if well else 'NOT RIGHT'}, {time.perf_counter() - start:.0f} s", flush=True)
        if not well:
            failed.append(name)
    if failed:
        raise SystemExit(f"not right: {', '.join(failed)}")


if __name__ == "__main__":
    main()
