"""Gets KernelBench's own problems, which are no part of this repository: those of level 2 are read from there.

    python kernelbench/source.py DIRECTORY

Then `run.py --level 2 --source DIRECTORY`, or the environment variable KERNELBENCH in place of the option.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

#: The commit of March 2026 by which problems are defined, and results evaluated.
COMMIT = "423217d9fda91e0c2d67e4a43bf62f96f6d104f1"
REPOSITORY = "https://github.com/ScalingIntelligence/KernelBench"
#: Of the files of level 2 in the order of their names.
DIGEST = "a59102e1aa87e319"


def level_2(directory: Path) -> Path:
    """The problems of level 2 in a copy of KernelBench, if they are those of the commit."""
    files = directory / "KernelBench" / "level2"
    found = digest(files)
    if found != DIGEST:
        raise SystemExit(
            f"{files} has not the problems of KernelBench {COMMIT[:7]} (their digest is {found}, not {DIGEST}): get them by "
            f"`python {Path(__file__).name} DIRECTORY`"
        )
    return files


def from_environment() -> Path | None:
    """A copy of KernelBench that the environment names."""
    named = os.environ.get("KERNELBENCH")
    return Path(named) if named else None


def digest(files: Path) -> str:
    """A digest of all problems in a directory."""
    all_of_them = hashlib.sha256()
    for file in sorted(files.glob("*.py")):
        all_of_them.update(f"{file.name}\n".encode())
        all_of_them.update(file.read_bytes())
    return all_of_them.hexdigest()[:16]


def get(directory: Path, repository: str = REPOSITORY) -> Path:
    """Gets the commit into a directory that is new or empty, with git."""
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise SystemExit(f"{directory} is not empty")
    for command in (["init", "--quiet"], ["fetch", "--quiet", "--depth", "1", repository, COMMIT], ["checkout", "--quiet", "FETCH_HEAD"]):
        subprocess.run(["git", "-C", str(directory), *command], check=True)
    return level_2(directory)


def main(arguments: Sequence[str] | None = None) -> None:
    """Gets it, and says where the problems are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path, help="where to put it: new or empty")
    parser.add_argument("--repository", default=REPOSITORY, help="another copy of it (default: %(default)s)")
    options = parser.parse_args(arguments)
    print(get(options.directory, options.repository))


if __name__ == "__main__":
    main()
