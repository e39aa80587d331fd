"""KernelBench's level 1, problems 1 to 18: what is known of each, besides its file, and what is wanted of its speed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import tilewright
import torch

#: KernelBench's problems are defined, and its evaluation is done, as of this commit of March 2026.
KERNELBENCH = "423217d"

#: What the speed-ups of all problems should have as their geometric mean, at least, and what would be better still.
WANTED_MEAN, MEAN_GOAL = 2.5, 3.0

#: The part of the speed of writing that a problem has to reach if it is bound by it.
WANTED_SHARE_OF_WRITING = 0.8

#: Sums of this many terms and more may have the larger of the two errors.
MANY_TERMS, ERROR_OF_FEW, ERROR_OF_MANY = 2048, 3e-7, 7e-7


@dataclass(frozen=True)
class Problem:
    """What the runner has to know of a problem."""

    number: int
    shape: str
    #: How many terms each sum has.
    terms: int
    #: The least speed-up over torch.
    wanted: float
    #: For each input, which of its extents is the first one of the result, or None where each part of the result needs all
    #: of that input: by this, a result can be computed by parts.
    cut: tuple[int | None, ...] | None = None
    #: What `tilewright.explain` has to be asked, if it can tell about this problem.
    operands: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]] | None = None
    #: Whether most of the time goes into writing the result, which then is compared with writing alone.
    writes: bool = False
    #: Which part of the product is wanted.
    part: tilewright.Part = "all"

    @property
    def file(self) -> Path:
        """The file that defines it."""
        (file,) = (Path(__file__).parent / "level1").glob(f"{self.number:02}_*.py")
        return file

    @property
    def name(self) -> str:
        """Its number and its name."""
        return self.file.stem.replace("_", " ")

    @property
    def error_bound(self) -> float:
        """The error that is fine in any case; as large an error as torch's is, too."""
        return ERROR_OF_FEW if self.terms < MANY_TERMS else ERROR_OF_MANY

    def load(self) -> ModuleType:
        """The module that defines it, executed anew."""
        specification = importlib.util.spec_from_file_location(f"kernelbench_{self.file.stem}", self.file)
        if specification is None or specification.loader is None:
            raise ImportError(f"{self.file} is no module of Python")
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        return module


def _as_given(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return a, b


PROBLEMS = (
    Problem(1, "4096x4096 . 4096x4096", 4096, 2.8, (0, None), _as_given),
    Problem(2, "2048x8192 . 8192x4096", 8192, 2.8, (0, None), _as_given),
    Problem(3, "128 times 512x1024 . 1024x2048", 1024, 2.4, (0, 0), _as_given),
    Problem(4, "2048x1048576 . 1048576x1", 1048576, 1.15, (0, None), _as_given),
    Problem(5, "65536x16384 . 3.14", 1, 0.99, (0, None)),
    Problem(6, "256x524288 . 524288x256", 524288, 3.0, (0, None), _as_given),
    Problem(7, "32768x64 . 64x32768", 64, 2.8, (0, None), _as_given, writes=True),
    Problem(8, "8205x2949 . 2949x5921", 2949, 2.2, (0, None), _as_given),
    Problem(9, "32768x32 . 32x32768", 32, 1.8, (0, None), _as_given, writes=True),
    Problem(10, "16x1024x2048 . 2048x768", 2048, 2.8, (0, None), _as_given),
    Problem(11, "8x256x512x256 . 256x768", 256, 2.2, (0, None), _as_given),
    Problem(12, "diag(4096) . 4096x4096", 1, 0.99, (0, 0)),
    Problem(13, "4096x4096 . 4096x4096", 4096, 2.8, (0, None), _as_given),
    Problem(14, "triu 4096x4096 . triu 4096x4096", 4096, 7.0, None, _as_given, part="upper"),
    Problem(15, "tril 4096x4096 . tril 4096x4096", 4096, 7.0, None, _as_given, part="lower"),
    Problem(16, "(8192x2048)T . 8192x4096", 8192, 3.2, (1, None), lambda a, b: (a.T, b)),
    Problem(17, "2048x8192 . (4096x8192)T", 8192, 3.3, (0, None), lambda a, b: (a, b.T)),
    Problem(18, "(8192x2048)T . (4096x8192)T", 8192, 2.8, (1, None), lambda a, b: (a.T, b.T)),
)
