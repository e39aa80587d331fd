"""KernelBench's problems that are products: what is known of each, besides its file, and what is wanted of its speed."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import source
import tilewright
import torch

#: KernelBench's problems are defined, and its evaluation is done, as of this commit of March 2026.
KERNELBENCH = source.COMMIT[:7]

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
    level: int = 1

    @property
    def file(self) -> Path:
        """The file with our solution, and at level 1 with the problem."""
        (file,) = (Path(__file__).parent / f"level{self.level}").glob(f"{self.number:02}_*.py")
        return file

    @property
    def name(self) -> str:
        """Its number and its name."""
        return self.file.stem.replace("_", " ")

    @property
    def error_bound(self) -> float:
        """The error that is fine in any case; as large an error as torch's is, too."""
        return ERROR_OF_FEW if self.terms < MANY_TERMS else ERROR_OF_MANY

    def load(self, kernelbench: Path | None = None, sizes: Mapping[str, int] | None = None) -> ModuleType:
        """A module with the problem and our solution, executed anew; with other sizes, by the names of the module.

        Problems of level 2 are KernelBench's own: `kernelbench` is a copy of it, or the environment names one.
        """
        module = self._execute()
        if self.level == 1:
            vars(module).update(sizes or {})
            return module
        kernelbench = kernelbench or source.from_environment()
        if kernelbench is None:
            raise FileNotFoundError(
                "problems of level 2 are read from a copy of KernelBench: `python kernelbench/source.py DIRECTORY` gets one, and the "
                "option --source, or the environment variable KERNELBENCH, names it"
            )
        (file,) = source.level_2(kernelbench).glob(f"{self.number}_*.py")
        text = file.read_text(encoding="utf-8")
        for name, size in (sizes or {}).items():
            text, count = re.subn(rf"^{name}( *)=.*$", f"{name} = {size}", text, flags=re.MULTILINE)
            if count != 1:
                raise ValueError(f"{file} sets {name} {count} times")
        problem = ModuleType(f"kernelbench_{file.stem}")
        exec(compile(text, str(file), "exec"), vars(problem))
        vars(problem).update(ModelNew=module.ModelNew, get_inputs=_with_random(problem.get_inputs))
        return problem

    def _execute(self) -> ModuleType:
        """Our file, executed."""
        specification = importlib.util.spec_from_file_location(f"kernelbench_{self.file.stem}", self.file)
        if specification is None or specification.loader is None:
            raise ImportError(f"{self.file} is no module of Python")
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        return module


@dataclass(frozen=True)
class Level:
    """The problems that are reported together."""

    number: int
    what: str
    problems: tuple[Problem, ...]
    #: What the speed-ups of all problems should have as their geometric mean, at least, and what would be better still.
    wanted_mean: float
    mean_goal: float


def _with_random(get_inputs: Callable[[], list[torch.Tensor]]) -> Callable[..., list[torch.Tensor]]:
    """The same inputs, or ones of the same shapes by another distribution."""

    def get(random: Callable[..., torch.Tensor] | None = None) -> list[torch.Tensor]:
        inputs = get_inputs()
        return inputs if random is None else [random(*value.shape) for value in inputs]

    return get


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


def _linear(number: int, m: int, k: int, n: int) -> Problem:
    """A linear layer of `n` features, of `m` vectors of `k`, and what comes after it."""
    return Problem(number, f"{m}x{k} . ({n}x{k})T", k, 1.0, level=2)


#: Those with a linear layer, or a product, and without a convolution.
LEVEL_2 = (
    *(_linear(number, 1024, 8192, 8192) for number in (9, 12, 14, 18, 22, 28, 29, 30, 33)),
    _linear(37, 32768, 1024, 4096),
    *(_linear(number, 16384, 4096, 4096) for number in (39, 40, 41)),
    Problem(45, "16384x2048 . (4096x2048)T . (1024x4096)T", 4096, 1.0, level=2),
    *(_linear(number, 2048, 8192, 8192) for number in (51, 53)),
    *(_linear(number, 128, 32768, 32768) for number in (55, 56, 59)),
    *(_linear(number, 1024, 8192, 8192) for number in (62, 63, 64)),
    *(_linear(number, 128, 16384, 16384) for number in (66, 68)),
    *(_linear(number, 1024, 8192, 8192) for number in (70, 75, 76, 80, 81, 84, 86, 88, 94, 95, 97, 98, 99)),
)

LEVELS = {
    1: Level(1, "level 1, problems 1 to 18", PROBLEMS, 2.5, 3.0),
    2: Level(2, "level 2, the 37 problems with a linear layer or a product", LEVEL_2, 3.5, 4.0),
}
