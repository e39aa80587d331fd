"""Products of matrices that lie in parts on several GPUs, by torch's DTensor: divided by rows, by columns, and by terms.

    torchrun --standalone --nproc-per-node 2 sharded_products.py
    torchrun --standalone --nproc-per-node 2 sharded_products.py --problem 8192x8192x8192 --json FILE

    divided by    A on a GPU    B on a GPU    then
    rows          m/p x k       k x n         nothing: C is divided by rows
    columns       m x k         k x n/p       nothing: C is divided by columns
    terms         m x k/p       k/p x n       an all-reduce, by NCCL, of m x n partial sums

Each is computed by torch, by torch with Tilewright's switch on, and by Tilewright's own operator, in turns. Every result is compared
with float64. `overlapped.py` has what hides the all-reduce behind the product.
"""

from __future__ import annotations

import argparse

import several
import tilewright
import torch
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor

DIVISIONS: dict[str, tuple[Placement, Placement]] = {
    "rows": (Shard(0), Replicate()),
    "columns": (Replicate(), Shard(1)),
    "terms": (Shard(1), Shard(0)),
}


@record
def main() -> None:
    parser = argparse.ArgumentParser(description="products of matrices in parts on several GPUs")
    parser.add_argument("--problem", action="append", help="MxNxK; may be given several times")
    here = several.start(parser)
    on_cpu = "emulate" if here.device.type == "cpu" else "refuse"
    for problem in here.options.problem or ["256x256x524288", "2048x4096x8192", "8192x8192x8192"]:
        m, n, k = (int(extent) for extent in problem.split("x"))
        a, b = torch.randn(m, k, device=here.device), torch.randn(k, n, device=here.device)
        for name, (of_a, of_b) in DIVISIONS.items():
            here.say(f"{problem}, divided by {name}")
            part_a, part_b = (distribute_tensor(x, here.mesh, [by]) for x, by in ((a, of_a), (b, of_b)))

            def by_torch(a: DTensor = part_a, b: DTensor = part_b, name: str = name) -> DTensor:
                c = torch.mm(a, b)
                return c.redistribute(placements=[Replicate()]) if name == "terms" else c

            def by_operator(a: DTensor = part_a, b: DTensor = part_b, name: str = name) -> DTensor:
                c = tilewright.matmul(a, b, on_cpu=on_cpu)
                return c.redistribute(placements=[Replicate()]) if name == "terms" else c

            ways = {"torch": (False, by_torch), "torch, the switch on": (True, by_torch), "tilewright.matmul": (False, by_operator)}
            for way, (on, run) in ways.items():
                tilewright.reset_stats()
                with here.switched(on):
                    c = run().full_tensor()
                here.check(f"{problem} by {name}, {way}", several.largest_error(c, a, b), several.ALLOWED_ERROR)
            here.in_turns(f"{problem} by {name}", ways)
            del part_a, part_b, c
        if m * k + k * n <= 1 << 28:
            here.say(f"{problem}, whole, on each GPU")
            here.in_turns(f"{problem} whole", {"torch": (False, lambda: torch.mm(a, b)), "torch, the switch on": (True, lambda: torch.mm(a, b))})
    here.end()


if __name__ == "__main__":
    main()
