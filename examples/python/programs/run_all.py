"""Runs the programs, each in a process of its own, and gathers their JSON.

    python run_all.py --output DIRECTORY --library target/release/libtilewright_cublas.so
    python run_all.py --output DIRECTORY --only gpt --only clusters
    python run_all.py --output DIRECTORY --try        # without a GPU

With the sizes here they take about five minutes on an H100. A program that is wrong, or takes too long, does not keep the others from running.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# A name, the program, its options, and those with which it runs in seconds without a GPU.
PROGRAMS: list[tuple[str, str, str, str]] = [
    ("clusters", "clusters.py", "", "--device cpu --points 120 --dimensions 20 --clusters 7 --components 4"),
    (
        "gaussian-process",
        "gaussian_process.py",
        "",
        "--device cpu --points 60 --tests 10 --right-hand-sides 3 --steps 60 --training 2 --noise 0.1",
    ),
    ("physics-informed", "physics_informed.py", "", "--device cpu --width 8 --layers 2 --points 16 --steps 2"),
    ("diffusion", "diffusion.py", "", "--device cpu --width 32 --layers 1 --heads 2 --side 4 --batch 1 --steps 2"),
    ("gpt", "gpt.py", "", "--device cpu --shape tiny --steps 2 --seeds 1"),
    ("gpt2", "gpt.py", "--shape gpt2 --batch 8 --steps 50 --seeds 1 --skip-exact", "--device cpu --shape tiny --steps 2 --seeds 1 --skip-exact"),
    ("cupy", "with_cupy.py", "", "--try --size 64"),
    ("jax", "with_jax.py", "", "--try --size 64"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description="runs the programs one after the other")
    parser.add_argument("--output", type=Path, required=True, help="a directory for JSON and what the programs print")
    parser.add_argument("--library", help="libtilewright_cublas.so, for CuPy and JAX; they are left out without it")
    parser.add_argument("--only", action="append", choices=[name for name, *_ in PROGRAMS])
    parser.add_argument("--try", dest="try_", action="store_true", help="without a GPU, in small sizes: only that they run and are right")
    parser.add_argument("--time-limit", type=float, default=150, help="seconds for each")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    failed: list[str] = []
    for name, program, usual, small in PROGRAMS:
        if options.only and name not in options.only:
            continue
        arguments = (small if options.try_ else usual).split()
        if program.startswith("with_") and not options.try_:
            if not options.library:
                print(f"{name} is left out: it needs --library", flush=True)
                continue
            arguments += ["--library", options.library]
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
