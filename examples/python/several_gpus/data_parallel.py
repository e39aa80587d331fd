"""Transformer blocks of which each GPU has its own part of the batch: DistributedDataParallel, and FSDP2, which divides parameters too.

    torchrun --standalone --nproc-per-node 2 data_parallel.py
    torchrun --standalone --nproc-per-node 2 data_parallel.py --by fsdp

Nothing of the model knows of Tilewright: the switch takes the products.
"""

from __future__ import annotations

import argparse

import model
import several
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard


def divide(by: str, here: several.Several) -> nn.Module:
    whole = model.blocks(here.options, here.device)
    if by == "ddp":
        return nn.parallel.DistributedDataParallel(whole)
    for block in whole:
        fully_shard(block, mesh=here.mesh)
    return fully_shard(whole, mesh=here.mesh)


@record
def main() -> None:
    parser = argparse.ArgumentParser(description="a batch divided among GPUs")
    model.add_options(parser)
    parser.add_argument("--by", choices=["ddp", "fsdp"], help="only this one")
    here = several.start(parser)
    if here.options.batch % here.count:
        parser.error(f"--batch {here.options.batch} is not divisible among {here.count} GPUs")

    def average(loss: float) -> float:
        total = torch.tensor([loss], dtype=torch.float64, device=here.device)
        dist.all_reduce(total)
        return total.item() / here.count

    for by in [here.options.by] if here.options.by else ["ddp", "fsdp"]:
        here.say(by)
        x, target = (tensor.chunk(here.count)[here.rank] for tensor in model.data(here.options, here.device))
        model.check_and_measure(here, by, divide(by, here), x, target, average)
    here.end()


if __name__ == "__main__":
    main()
