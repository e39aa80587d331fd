"""Transformer blocks whose layers are divided among GPUs, by torch's `parallelize_module`, with torch's products and with ours.

    torchrun --standalone --nproc-per-node 2 tensor_parallel.py

The first layer of each pair is divided by its outputs (`ColwiseParallel`), the second by its inputs (`RowwiseParallel`), whose sums are
added up by an all-reduce. Nothing of the model knows of Tilewright: the switch takes the products of the parts.
"""

from __future__ import annotations

import argparse

import model
import several
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


@record
def main() -> None:
    parser = argparse.ArgumentParser(description="layers divided among GPUs")
    model.add_options(parser)
    here = several.start(parser)
    divided = model.blocks(here.options, here.device)
    for block in divided:
        parallelize_module(
            block,
            here.mesh,
            {
                **{name: ColwiseParallel() for name in ("q", "k", "v", "up")},
                **{name: RowwiseParallel() for name in ("o", "down")},
            },
        )
    x, target = model.data(here.options, here.device)
    model.check_and_measure(here, "tensor parallel", divided, x, target, average=lambda loss: loss)
    here.end()


if __name__ == "__main__":
    main()
