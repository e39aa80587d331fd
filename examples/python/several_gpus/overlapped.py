"""A product divided by terms, C = A₀·B₀ + A₁·B₁ + …, whose sums travel between the GPUs while the next rows are multiplied.

    torchrun --standalone --nproc-per-node 2 overlapped.py
    torchrun --standalone --nproc-per-node 2 overlapped.py --problem 8192x8192x8192 --chunks 2 4 8 --json FILE

Three ways, each by torch and with Tilewright's switch on:

    product, then all-reduce     one product, one all-reduce by NCCL
    all-reduce by chunks         the product by chunks of rows; NCCL sums up one while the next is multiplied
    around a ring                each block of rows goes around the GPUs; each adds its own product to what it was sent, as `addmm` does

The last needs no kernel for the sums, and with symmetric memory, where copy engines write into the memory of another GPU, none for the
transport either: all multiprocessors go on multiplying. Of p GPUs, GPU r multiplies the blocks r−1, r−2, …, r, and sends each to GPU r+1:

    GPU 0   rows 1 ────────►  rows 0 += what came, then to all
    GPU 1   rows 0 ────────►  rows 1 += what came, then to all

A block is sent in chunks, each as soon as it has been multiplied.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, Protocol

import several
import torch
import torch.distributed as dist


def product_then_sum(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    torch.mm(a, b, out=out)
    dist.all_reduce(out)
    return out


def sum_by_chunks(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, chunks: int) -> torch.Tensor:
    """NCCL has a stream of its own: it waits for what is queued here when it is called, and for nothing that comes later."""
    sums: list[Any] = []
    for rows_of_a, rows in zip(a.tensor_split(chunks), out.tensor_split(chunks), strict=True):
        torch.mm(rows_of_a, b, out=rows)
        sums.append(dist.all_reduce(rows, async_op=True))
    for sum_ in sums:
        sum_.wait()
    return out


class Transport(Protocol):
    """Where chunks of blocks are, and how they get to other GPUs. Step s of GPU r is its product for block r−1−s."""

    def chunk(self, step: int, block: int, chunk: int) -> torch.Tensor:
        """Where the sum of this step is made. From step 1 on, the sum that the GPU before this one has sent is there, after `wait_for`."""
        ...

    def pass_on(self, step: int, block: int, chunk: int) -> None:
        """Sends what this step has made to the GPU behind this one, and what the last step has made to all."""
        ...

    def wait_for(self, step: int, block: int, chunk: int) -> None: ...

    def result(self) -> torch.Tensor:
        """All blocks of all GPUs."""
        ...


def around_a_ring(a: torch.Tensor, b: torch.Tensor, transport: Transport, count: int, rank: int, chunks: int) -> torch.Tensor:
    blocks = [block.tensor_split(chunks) for block in a.tensor_split(count)]
    for step in range(count):
        block = (rank - 1 - step) % count
        for chunk, rows_of_a in enumerate(blocks[block]):
            sum_ = transport.chunk(step, block, chunk)
            if step == 0:
                torch.mm(rows_of_a, b, out=sum_)
            else:
                transport.wait_for(step, block, chunk)
                sum_.addmm_(rows_of_a, b)
            transport.pass_on(step, block, chunk)
    return transport.result()


class Parts:
    """The rows of a matrix by blocks of GPUs, and those by chunks; none need be of the same size."""

    def __init__(self, m: int, count: int, chunks: int) -> None:
        self.rows = [[int(chunk.numel()) for chunk in block.tensor_split(chunks)] for block in torch.arange(m).tensor_split(count)]
        self.largest_block = max(sum(block) for block in self.rows)

    def within_block(self, block: int, chunk: int) -> tuple[int, int]:
        """The first row of a chunk in its block, and how many there are."""
        return sum(self.rows[block][:chunk]), self.rows[block][chunk]

    def within_matrix(self, block: int, chunk: int) -> tuple[int, int]:
        first, rows = self.within_block(block, chunk)
        return sum(sum(rows) for rows in self.rows[:block]) + first, rows


class ByMessages:
    """Sends and receives of the process group: NCCL, or gloo on CPUs."""

    def __init__(self, m: int, n: int, here: several.Several, chunks: int) -> None:
        self.parts, self.rank, self.count, self.chunks = Parts(m, here.count, chunks), here.rank, here.count, chunks
        self.sums = torch.empty(here.count, self.parts.largest_block, n, device=here.device)
        self.out = torch.empty(m, n, device=here.device)
        self.arriving: dict[tuple[int, int], list[Any]] = {}
        self.leaving: list[Any] = []

    def chunk(self, step: int, block: int, chunk: int) -> torch.Tensor:
        return self.sums[step].narrow(0, *self.parts.within_block(block, chunk))

    def pass_on(self, step: int, block: int, chunk: int) -> None:
        operations: list[Any] = []
        if step < self.count - 1:
            before = (block - 1) % self.count  # the block that the GPU before this one has in this step
            operations.append(dist.P2POp(dist.isend, self.chunk(step, block, chunk), (self.rank + 1) % self.count))
            operations.append(dist.P2POp(dist.irecv, self.chunk(step + 1, before, chunk), (self.rank - 1) % self.count))
            self.arriving[step + 1, chunk] = dist.batch_isend_irecv(operations)
            return
        own = self.chunk(step, block, chunk)
        self.out.narrow(0, *self.parts.within_matrix(self.rank, chunk)).copy_(own)
        for other in range(self.count):
            if other != self.rank:
                operations.append(dist.P2POp(dist.isend, own, other))
                operations.append(dist.P2POp(dist.irecv, self.out.narrow(0, *self.parts.within_matrix(other, chunk)), other))
        if operations:
            self.leaving += dist.batch_isend_irecv(operations)

    def wait_for(self, step: int, block: int, chunk: int) -> None:
        for message in self.arriving.pop((step, chunk)):
            message.wait()

    def result(self) -> torch.Tensor:
        for message in self.leaving:
            message.wait()
        self.leaving.clear()
        return self.out


class BySymmetricMemory:
    """Copies into the memory of other GPUs, by copy engines, and flags there that tell of them.

    No buffer is overwritten too soon. A GPU can finish a call only when all others have sent their last sums, which they do when they
    have read all that they were sent; and no GPU sends a last sum of the next call before every other GPU has begun to add to it, behind
    all that it had queued to read the result of this one.
    """

    def __init__(self, m: int, n: int, here: several.Several, chunks: int) -> None:
        from torch.distributed import _symmetric_memory as memory

        self.parts, self.rank, self.count, self.chunks, self.n = Parts(m, here.count, chunks), here.rank, here.count, chunks, n
        self.rows_of_sums = self.parts.largest_block
        group = dist.group.WORLD.group_name
        sums = (here.count, self.rows_of_sums, n)
        self.sums = memory.empty(*sums, device=here.device, dtype=torch.float32)
        self.out = memory.empty(m, n, device=here.device, dtype=torch.float32)
        self.of_sums, self.of_out = memory.rendezvous(self.sums, group), memory.rendezvous(self.out, group)
        behind = (here.rank + 1) % here.count
        self.sums_behind = self.of_sums.get_buffer(behind, sums, torch.float32)
        self.behind, self.before = behind, (here.rank - 1) % here.count
        self.outs = [self.of_out.get_buffer(other, (m, n), torch.float32) for other in range(here.count)]
        self.stream = torch.cuda.Stream(priority=-1)

    def chunk(self, step: int, block: int, chunk: int) -> torch.Tensor:
        return self.sums[step].narrow(0, *self.parts.within_block(block, chunk))

    def pass_on(self, step: int, block: int, chunk: int) -> None:
        made = self.chunk(step, block, chunk)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            if step < self.count - 1:
                self.sums_behind[step + 1].narrow(0, *self.parts.within_block(block, chunk)).copy_(made)
                self.of_sums.put_signal(self.behind, step * self.chunks + chunk)
                return
            place = self.parts.within_matrix(self.rank, chunk)
            # The one behind first, so that not all write to the same.
            others = [(self.rank + 1 + i) % self.count for i in range(self.count - 1)]
            for other in (*others, self.rank):
                self.outs[other].narrow(0, *place).copy_(made)
            # When all has been read: who has this may send sums of the next call to where it was.
            for other in others:
                self.of_out.put_signal(other, chunk)

    def wait_for(self, step: int, block: int, chunk: int) -> None:
        self.of_sums.wait_signal(self.before, (step - 1) * self.chunks + chunk)

    def result(self) -> torch.Tensor:
        for chunk in range(self.chunks):
            for other in range(self.count):
                if other != self.rank:
                    self.of_out.wait_signal(other, chunk)
        torch.cuda.current_stream().wait_stream(self.stream)
        return self.out


def by_torch_async(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """What torch has for tensor parallelism: a product whose chunks are exchanged by symmetric memory, and an all-gather."""
    rows = torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b, "sum", 0, dist.group.WORLD.group_name)
    dist.all_gather_into_tensor(out, rows)
    return out


def ways_of(here: several.Several, a: torch.Tensor, b: torch.Tensor) -> dict[str, Callable[[], torch.Tensor]]:
    m, n, options = a.shape[0], b.shape[1], here.options
    out = torch.empty(m, n, device=here.device)
    ways: dict[str, Callable[[], torch.Tensor]] = {"product, then all-reduce": lambda: product_then_sum(a, b, out)}
    for chunks in options.chunks:
        ways[f"all-reduce by {chunks} chunks"] = lambda chunks=chunks: sum_by_chunks(a, b, out, chunks)
    kinds: list[tuple[str, type[ByMessages] | type[BySymmetricMemory]]] = [("messages", ByMessages)]
    if here.device.type == "cuda":
        kinds.append(("symmetric memory", BySymmetricMemory))
    for name, kind in kinds:
        for chunks in options.chunks:
            try:
                transport = kind(m, n, here, chunks)
            except (RuntimeError, ImportError) as why:
                # All processes are on one host and have the same torch: it fails in all or in none.
                here.say(f"  no ring by {name}: {str(why).splitlines()[0]}")
                break
            ways[f"ring by {name}, {chunks} chunks"] = lambda t=transport, chunks=chunks: around_a_ring(a, b, t, here.count, here.rank, chunks)
    if here.device.type == "cuda" and m % here.count == 0 and options.torch_async:
        from torch.distributed._symmetric_memory import enable_symm_mem_for_group

        enable_symm_mem_for_group(dist.group.WORLD.group_name)
        ways["torch's async tensor parallelism, all-gather"] = lambda: by_torch_async(a, b, out)
    return ways


def main() -> None:
    parser = argparse.ArgumentParser(description="a product divided by terms, with its sums on their way while it is multiplied")
    parser.add_argument("--problem", action="append", help="MxNxK; may be given several times")
    parser.add_argument("--chunks", type=int, nargs="+", default=[2, 4, 8], help="chunks of rows that a GPU multiplies before the next")
    parser.add_argument("--torch-async", action="store_true", help="also torch's fused_matmul_reduce_scatter")
    here = several.start(parser)
    for problem in here.options.problem or ["2048x4096x8192", "8192x8192x8192"]:
        m, n, k = (int(extent) for extent in problem.split("x"))
        a, b = torch.randn(m, k, device=here.device), torch.randn(k, n, device=here.device)
        own_a, own_b = (x.tensor_split(here.count, dim)[here.rank].contiguous() for x, dim in ((a, 1), (b, 0)))
        here.say(f"{problem}, {k} terms divided among {here.count}")
        ways = ways_of(here, own_a, own_b)
        for name, run in ways.items():
            for on in (False, True):
                with here.switched(on):
                    # Twice: what one call leaves behind must not spoil the next.
                    for _ in range(2):
                        c = run().clone()
                here.check(f"{problem} {name}{', the switch on' if on else ''}", several.largest_error(c, a, b), several.ALLOWED_ERROR)
        del a, b
        measured: dict[str, tuple[bool, Callable[[], object]]] = {}
        for name, run in ways.items():
            # Torch's products take so long that chunks make little of a difference: once will do.
            if "product" in name or "async" in name or f"{here.options.chunks[-1]} chunks" in name:
                measured[f"torch: {name}"] = (False, run)
            measured[f"tilewright: {name}"] = (True, run)
        local = torch.empty(m, n, device=here.device)
        measured["tilewright: product alone, no sums"] = (True, lambda: torch.mm(own_a, own_b, out=local))
        measured["all-reduce alone"] = (False, lambda: dist.all_reduce(local))
        here.in_turns(problem, measured)
    here.end()


if __name__ == "__main__":
    main()
