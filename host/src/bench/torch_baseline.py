"""Times torch.matmul on the products that `tilewright bench` measures, and prints JSON for `tilewright bench --torch`.

    tilewright bench --print-torch-script | python3 - > torch.json
    tilewright bench --torch torch.json

fp32 is torch's default (no TF32); tf32 is torch.backends.cuda.matmul.allow_tf32. Inputs are uniform in [0, 1). As in the
benchmark: a warm-up, then medians of 30 runs between events; what is short is timed in batches; operands go through sets
that together exceed twice the second-level cache.
"""

import json
import statistics
import sys

import torch

RUNS = 30
PRODUCTS = [  # m, n, k, layout, fp32 or tf32
    (2048, 1, 1048576, "NN", "fp32"),
    (256, 256, 524288, "NN", "fp32"),
    (8205, 5921, 2949, "NN", "fp32"),
    (4096, 4096, 64, "NN", "fp32"),
    (32768, 32768, 32, "NN", "fp32"),
    *[(2048, 4096, 8192, layout, "fp32") for layout in ("NN", "NT", "TN", "TT")],
    *[(2048, 4096, 8192, layout, "tf32") for layout in ("NT", "TN")],
    *[(size, size, size, "NN", "fp32") for size in (512, 1024, 2048, 4096, 8192)],
]


def operands(m, n, k, layout):
    a = torch.rand((k, m), device="cuda").t() if layout[0] == "T" else torch.rand((m, k), device="cuda")
    b = torch.rand((n, k), device="cuda").t() if layout[1] == "T" else torch.rand((k, n), device="cuda")
    return a, b, torch.empty((m, n), device="cuda")


def median_ms(m, n, k, layout):
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    size = 4 * (m * k + k * n + m * n)
    sets = [operands(m, n, k, layout) for _ in range(1 if size > 2 * cache else 2 * cache // size + 1)]
    turn = 0

    def run(launches):
        nonlocal turn
        for _ in range(launches):
            a, b, c = sets[turn % len(sets)]
            torch.matmul(a, b, out=c)
            turn += 1

    def measure(launches, runs):
        events = [(torch.cuda.Event(True), torch.cuda.Event(True)) for _ in range(runs)]
        for start, end in events:
            start.record()
            run(launches)
            end.record()
        torch.cuda.synchronize()
        return statistics.median(start.elapsed_time(end) for start, end in events) / launches

    rough = measure(1, 5)
    rough = measure(1, max(5, int(200 / max(rough, 0.01)) if rough < 40 else 5))
    return measure(1 if rough >= 0.05 else min(256, int(0.5 / rough) + 1), RUNS)


def main():
    results = []
    for m, n, k, layout, math in PRODUCTS:
        torch.backends.cuda.matmul.allow_tf32 = math == "tf32"
        results.append({"m": m, "n": n, "k": k, "layout": layout, "math": math, "median_ms": median_ms(m, n, k, layout)})
        torch.cuda.empty_cache()
    report = {"schema": "tilewright-torch", "schema_version": 1, "torch": torch.__version__,
              "device": torch.cuda.get_device_name(0), "results": results}
    json.dump(report, sys.stdout, indent=2)
    print()


main()
