"""Products of float32 by whatever is there: times and energy in turns in one process, and errors by the protocol of GEMMul8.

    python peers.py --gemmul8 CHECKOUT-OR-LIBRARY --json FILE --markdown FILE
    python peers.py --problem 8192x8192x8192 --only "tilewright fp32" --only "torch fp32"
    python peers.py --device cpu --problem 64x64x64 --accuracy-terms 64     # without a GPU: to see that it runs

Beside Tilewright: cuBLAS in fp32 and in TF32, by torch; what `torch.compile` chooses with "max-autotune"; Triton with tf32x3; GEMMul8 on
INT8 tensor cores (`peers_gemmul8.py`). What is not installed is left out, and said so.

- Times are medians of turns, because a GPU at its limit of power changes its clocks: each turn multiplies several times between two
  events. GEMMul8 waits for the GPU between its parts, which its times include.
- Energy is the GPU's own counter (NVML) before and after `--seconds` of products, one behind the other.
- Errors are those of GEMMul8's test: 128 x k times k x 128, elements (u - 1/2)·exp(phi·z) with u uniform and z normal, or z alone for
  phi < 0; the largest and the median relative error of an element against float64. Beside them, the largest error as a part of the sum of
  the magnitudes of an element's terms, which does not grow where terms cancel.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tilewright
from peers_gemmul8 import GemMul8, build

torch: Any = importlib.import_module("torch")
Product = Callable[[Any, Any], Any]

PROBLEMS = ["2048x4096x8192", "4096x4096x4096", "8192x8192x8192", "256x256x65536"]
PHI = [-1.0, 0.0, 0.5, 1.0, 2.0, 4.0]
#: No result of any of these is as wrong as this: it would not be what was asked for at all.
WRONG = 1e-2


def extents(problem: str) -> tuple[int, int, int]:
    m, n, k = (int(extent) for extent in problem.split("x"))
    return m, n, k


def contenders(options: argparse.Namespace) -> dict[str, Product]:
    """Everybody who is there, by name."""
    on_gpu = options.device == "cuda"
    found: dict[str, Product] = {"torch fp32": torch.matmul}
    precisions = ["fp32", "fp32-normwise", "fp32-ozaki", "fp32-strict", "tf32"]
    for precision in precisions if on_gpu else precisions[:1]:
        how: Any = {"precision": precision, "on_cpu": "refuse" if on_gpu else "emulate"}
        found[f"tilewright {precision}"] = lambda a, b, how=how: tilewright.matmul(a, b, **how)
    if on_gpu:
        found["torch TF32"] = by_tf32
        found |= by_triton() | by_gemmul8(options.gemmul8, options.moduli)
        if not options.skip_compile:
            found["torch.compile max-autotune"] = torch.compile(by_operator, mode="max-autotune-no-cudagraphs", dynamic=False)
    return {name: product for name, product in found.items() if not options.only or name in options.only}


def by_operator(a: Any, b: Any) -> Any:
    return a @ b


def by_tf32(a: Any, b: Any) -> Any:
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return torch.matmul(a, b)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def by_triton() -> dict[str, Product]:
    if importlib.util.find_spec("triton") is None:
        print("Triton is not installed")
        return {}
    return {"Triton tf32x3": importlib.import_module("peers_triton").multiply}


def by_gemmul8(path: Path | None, moduli: list[str]) -> dict[str, Product]:
    if path is None:
        print("GEMMul8 is left out: --gemmul8 names its checkout, or a library that peers_gemmul8.py has made")
        return {}
    library = path
    if path.is_dir():
        library = Path("libgemmul8_for_peers.so").resolve()
        major, minor = torch.cuda.get_device_capability()
        start = time.perf_counter()
        build(path, library, arch=f"{major}{minor}")
        print(f"GEMMul8 was compiled in {time.perf_counter() - start:.0f} s")
    gemmul8 = GemMul8(library, torch)
    found: dict[str, Product] = {}
    for what in moduli:
        count, fast = int(what[:-1]), what.endswith("f")
        name = f"GEMMul8 {count} {'fast' if fast else 'accurate'}"
        found[name] = lambda a, b, count=count, fast=fast: gemmul8.multiply(a, b, count, fast)
    return found


class Energy:
    """The counter of a GPU's energy, by NVML."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._nvml: Any = None
        if options.device != "cuda":
            return
        try:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
            self._device = ctypes.c_void_p()
            uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}".encode()
            if nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(self._device)) == 0:
                self._nvml = nvml
                self._nvml = nvml if self.joules() is not None else None
        except (OSError, AttributeError) as error:
            print(f"no energy is measured: {error}")

    def joules(self) -> float | None:
        if self._nvml is None:
            return None
        millijoules = ctypes.c_ulonglong()
        if self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._device, ctypes.byref(millijoules)) != 0:
            return None
        return millijoules.value / 1e3


def wait(options: argparse.Namespace) -> None:
    if options.device == "cuda":
        torch.cuda.synchronize()


def milliseconds(product: Product, a: Any, b: Any, calls: int, options: argparse.Namespace) -> float:
    if options.device != "cuda":
        start = time.perf_counter()
        for _ in range(calls):
            product(a, b)
        return (time.perf_counter() - start) / calls * 1e3
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(calls):
        product(a, b)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / calls


def measure(problem: str, products: dict[str, Product], energy: Energy, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A line for each contender: its time, its energy, its error."""
    m, n, k = extents(problem)
    torch.manual_seed(1)
    a, b = torch.randn(m, k, device=options.device), torch.randn(k, n, device=options.device)
    exact = a.double() @ b.double()
    lines: dict[str, dict[str, Any]] = {}
    for name, product in products.items():
        # The first call loads, compiles and tunes.
        error = float(torch.linalg.norm(product(a, b).double() - exact) / torch.linalg.norm(exact))
        lines[name] = {"problem": problem, "way": name, "error": error, "right": error < WRONG, "times": []}
    del exact
    calls: dict[str, int] = {}
    for round_ in range(options.rounds + 1):
        for name, product in products.items():
            passed = milliseconds(product, a, b, calls.get(name, 1), options)
            if round_:  # the first was for warming up, and says how many make ten milliseconds
                lines[name]["times"].append(passed)
            else:
                calls[name] = max(1, min(50, round(10 / max(passed, 1e-3))))
    for name, line in lines.items():
        line["ms"] = statistics.median(line["times"])
        line["tflops"] = 2 * m * n * k / line["ms"] / 1e9
        line |= consumption(products[name], a, b, line["ms"], energy, options)
    return list(lines.values())


def consumption(product: Product, a: Any, b: Any, ms: float, energy: Energy, options: argparse.Namespace) -> dict[str, Any]:
    """Joules of a product and watts, of products one behind the other."""
    count = max(1, round(options.seconds / ms * 1e3))
    if energy.joules() is None or options.seconds <= 0:
        return {"joules": None, "watts": None, "hot_ms": None}
    wait(options)
    # The counter is brought up to date every tenth of a second or so.
    before, start = energy.joules(), time.perf_counter()
    for i in range(count):
        product(a, b)
        if i % 32 == 31:
            wait(options)  # so that the queue does not outgrow memory
    wait(options)
    passed, after = time.perf_counter() - start, energy.joules()
    assert before is not None and after is not None
    return {"joules": (after - before) / count, "watts": (after - before) / passed, "hot_ms": passed / count * 1e3}


def errors(k: int, phi: float, products: dict[str, Product], options: argparse.Namespace) -> list[dict[str, Any]]:
    size = options.accuracy_size

    def matrix(seed: int, *shape: int) -> Any:
        generator = torch.Generator(device=options.device).manual_seed(seed)
        uniform = torch.rand(*shape, generator=generator, device=options.device, dtype=torch.float64)
        normal = torch.randn(*shape, generator=generator, device=options.device, dtype=torch.float64)
        return (normal if phi < 0 else (uniform - 0.5) * (normal * phi).exp()).float()

    a, b = matrix(12345, size, k), matrix(54321, k, size)
    exact = a.double() @ b.double()
    magnitudes = a.double().abs() @ b.double().abs()
    lines: list[dict[str, Any]] = []
    for name, product in products.items():
        differences = (product(a, b).double() - exact).abs()
        relative = differences / exact.abs()
        lines.append(
            {
                "k": k,
                "phi": phi,
                "way": name,
                "largest": relative.max().item(),
                "median": relative.median().item(),
                "of_magnitudes": (differences / magnitudes).max().item(),
            }
        )
    return lines


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def document(result: dict[str, Any]) -> str:
    """The tables."""
    text = [f"# Products of float32 in turns\n\n{result['about']}\n\n## Times\n\nMilliseconds; joules of a product; error, relative to the Frobenius norm.\n"]
    problems = list(dict.fromkeys(line["problem"] for line in result["times"]))
    by_place = {(line["problem"], line["way"]): line for line in result["times"]}
    ways = list(dict.fromkeys(line["way"] for line in result["times"]))

    def cell(problem: str, way: str) -> str:
        line = by_place.get((problem, way))
        if line is None:
            return ""
        joules = "" if line["joules"] is None else f"; {line['joules']:.3g} J"
        return f"{line['ms']:.3f}{joules}; {line['error']:.1e}"

    text.append(table(["", *problems], [[way, *(cell(problem, way) for problem in problems)] for way in ways]))
    for what, title in (
        ("largest", "Largest relative error of an element"),
        ("median", "Median relative error of an element"),
        ("of_magnitudes", "Largest error as a part of the sum of the magnitudes of an element's terms"),
    ):
        for k in dict.fromkeys(line["k"] for line in result["errors"]):
            lines = {(line["way"], line["phi"]): line for line in result["errors"] if line["k"] == k}
            text.append(f"\n## {title}, {k} terms\n")
            rows = [[way, *(f"{lines[way, phi][what]:.1e}" for phi in PHI)] for way in dict.fromkeys(way for way, _ in lines)]
            text.append(table(["", *(f"phi = {phi:g}" if phi >= 0 else "normal" for phi in PHI)], rows))
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="products of float32 by whatever is there")
    parser.add_argument("--problem", action="append", help="MxNxK; may be given several times")
    parser.add_argument("--only", action="append", help="a contender by its name; may be given several times")
    parser.add_argument("--gemmul8", type=Path, help="its checkout, or a library that peers_gemmul8.py has made")
    parser.add_argument("--moduli", nargs="+", default=["7f", "8f", "8a", "9a"], help="how many, f: fast or a: accurate")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.8, help="of each contender, for its energy; 0: none is measured")
    parser.add_argument("--accuracy-size", type=int, default=128)
    parser.add_argument("--accuracy-terms", type=int, nargs="*", default=[1024, 8192, 65536])
    parser.add_argument("--skip-compile", action="store_true", help="leave out torch.compile, whose search takes long")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    products = contenders(options)
    if not products:
        parser.error(f"none of {options.only} is there")
    energy = Energy(options)
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU executor"
    result: dict[str, Any] = {"about": f"{name}, torch {torch.__version__}, tilewright {tilewright.__version__}", "times": [], "errors": []}
    print(result["about"])
    for problem in options.problem or PROBLEMS:
        start = time.perf_counter()
        for line in measure(problem, products, energy, options):
            result["times"].append(line)
            joules = "" if line["joules"] is None else f"{line['joules']:9.3f} J {line['watts']:5.0f} W"
            print(f"{problem:18} {line['way']:28} {line['ms']:9.3f} ms {line['tflops']:7.1f} TFLOP/s {joules} {line['error']:.1e}", flush=True)
        print(f"{problem} took {time.perf_counter() - start:.0f} s", flush=True)
    # What is compiled for one problem would be compiled again for each of these.
    asked = {name: product for name, product in products.items() if not name.startswith("torch.compile")}
    for k in options.accuracy_terms:
        for phi in PHI:
            result["errors"] += errors(k, phi, asked, options)
    text = document(result)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2), encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")
    print(text)
    wrong = [f"{line['way']} of {line['problem']}" for line in result["times"] if not line["right"]]
    if wrong:
        raise SystemExit(f"wrong: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
