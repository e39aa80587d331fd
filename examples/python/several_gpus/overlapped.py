"""A product divided by terms, C = A₀·B₀ + A₁·B₁ + …, whose sums travel between the GPUs while the next rows are multiplied.

    torchrun --standalone --nproc-per-node 2 overlapped.py
    torchrun --standalone --nproc-per-node 2 overlapped.py --problem 8192x8192x8192 --chunks 3:1 1:1 --json FILE

Three ways:

    product, then all-reduce     one product, one all-reduce by NCCL: by torch, and with Tilewright's switch on
    all-reduce by chunks         the product by chunks of rows; NCCL sums up one while the next is multiplied: likewise
    around a ring                each block of rows goes around the GPUs; each adds its own product to what it was sent, as `linear` adds a residual

The last needs no kernel for the sums, and with symmetric memory, where copy engines write into the memory of another GPU, none for the
transport either: all multiprocessors go on multiplying. Of p GPUs, GPU r multiplies the blocks r−1, r−2, …, r, and sends each to GPU r+1:

    GPU 0   rows 1 ────────►  rows 0 + what came, then to all
    GPU 1   rows 0 ────────►  rows 1 + what came, then to all

A block is sent in chunks, each as soon as it has been multiplied: `3:1` are three quarters of its rows, and then the last one. Nothing is multiplied while the last one
travels, and products of few rows take longer for each: of two H200s, `1:1` was the fastest. B is packed once for all chunks, in each call (`PackedMatrix`), where the GPU has
kernels for packed operands: those of compute capability 9.0.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import several
import tilewright
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def sizes(rows: int, weights: list[int]) -> list[int]:
    """How many rows each chunk has."""
    ends = [round(rows * end / sum(weights)) for end in accumulate(weights, initial=0)]
    return [end - start for start, end in pairwise(ends)]


def product_then_sum(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    torch.mm(a, b, out=out)
    dist.all_reduce(out)
    return out


def sum_by_chunks(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, weights: list[int]) -> torch.Tensor:
    """NCCL has a stream of its own: it waits for what is queued here when it is called, and for nothing that comes later."""
    rows = sizes(len(a), weights)
    sums: list[Any] = []
    for rows_of_a, rows_of_out in zip(a.split(rows), out.split(rows), strict=True):
        torch.mm(rows_of_a, b, out=rows_of_out)
        sums.append(dist.all_reduce(rows_of_out, async_op=True))
    for sum_ in sums:
        sum_.wait()
    return out


class Ring:
    """Where the sums of blocks are, chunk by chunk, and what is common to all ways to send them. Step s of GPU r is its product for block r−1−s.

    Subclasses make `out`, for the result, and `sums` and `came`, which have a block for each step but one. The sums of the last step, which are those of
    this GPU's own block, are made in the result. Those of other steps are made in `sums`, and sent to `came` of the GPU behind this one.
    """

    sums: torch.Tensor
    came: torch.Tensor
    out: torch.Tensor

    def __init__(self, m: int, here: several.Several, weights: list[int]) -> None:
        self.rank, self.count, self.chunks = here.rank, here.count, len(weights)
        self.on_cpu: tilewright.OnCpu = "emulate" if here.device.type == "cpu" else "refuse"
        self.before, self.behind = (here.rank - 1) % here.count, (here.rank + 1) % here.count
        self.blocks = [len(block) for block in torch.arange(m).tensor_split(here.count)]
        self.rows = [sizes(block, weights) for block in self.blocks]
        self.others = [(here.rank + 1 + i) % here.count for i in range(here.count - 1)]

    def rows_of(self, buffer: torch.Tensor, block: int, chunk: int) -> torch.Tensor:
        """Those of a chunk, in a buffer that is for one block at a time."""
        return buffer.narrow(0, sum(self.rows[block][:chunk]), self.rows[block][chunk])

    def rows_of_result(self, result: torch.Tensor, block: int, chunk: int) -> torch.Tensor:
        """Those of a chunk, in a result."""
        return self.rows_of(result.narrow(0, sum(self.blocks[:block]), self.blocks[block]), block, chunk)

    def begin(self) -> None:
        """Before the first product of a call."""

    def made(self, step: int, block: int, chunk: int) -> torch.Tensor:
        """Where this GPU's sums of a step are."""
        if step == self.count - 1:
            return self.rows_of_result(self.out, block, chunk)
        return self.rows_of(self.sums[step], block, chunk)

    def wait_for(self, step: int, block: int, chunk: int) -> torch.Tensor:
        """What the GPU before this one has sent for a step, when it is there."""
        raise NotImplementedError

    def pass_on(self, step: int, block: int, chunk: int) -> None:
        """Sends what this step has made to the GPU behind this one, and what the last step has made to all."""
        raise NotImplementedError

    def result(self) -> torch.Tensor:
        """All blocks of all GPUs."""
        raise NotImplementedError

    def packed(self, b: torch.Tensor) -> torch.Tensor | tilewright.PackedMatrix:
        """What `linear` multiplies by, for several products."""
        if b.is_cuda and torch.cuda.get_device_capability(b.device)[0] != 9:
            return b.T
        return tilewright.PackedMatrix(b.T, on_cpu=self.on_cpu)

    def multiply(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """The sum of all GPUs' products."""
        self.begin()
        weights = self.packed(b)
        blocks = [block.split(rows) for block, rows in zip(a.split(self.blocks), self.rows, strict=True)]
        for step in range(self.count):
            block = (self.rank - 1 - step) % self.count
            for chunk, rows_of_a in enumerate(blocks[block]):
                came = self.wait_for(step, block, chunk) if step > 0 else None
                tilewright.linear(rows_of_a, weights, residual=came, out=self.made(step, block, chunk), on_cpu=self.on_cpu)
                self.pass_on(step, block, chunk)
        return self.result()

    def multiply_alone(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        """As many products as `multiply` has, and nothing between them: what the chunks cost."""
        weights = self.packed(b)
        for rows_of_a, rows_of_out in zip(a.split(sum(self.rows, [])), out.split(sum(self.rows, [])), strict=True):
            tilewright.linear(rows_of_a, weights, out=rows_of_out, on_cpu=self.on_cpu)


class ByMessages(Ring):
    """Sends and receives of the process group: NCCL, or gloo on CPUs."""

    def __init__(self, m: int, n: int, here: several.Several, weights: list[int]) -> None:
        super().__init__(m, here, weights)
        self.sums, self.came = (torch.empty(here.count - 1, max(self.blocks), n, device=here.device) for _ in range(2))
        self.out = torch.empty(m, n, device=here.device)
        self.arriving: dict[tuple[int, int], list[Any]] = {}
        self.leaving: list[Any] = []

    def wait_for(self, step: int, block: int, chunk: int) -> torch.Tensor:
        for message in self.arriving.pop((step, chunk)):
            message.wait()
        return self.rows_of(self.came[step - 1], block, chunk)

    def pass_on(self, step: int, block: int, chunk: int) -> None:
        made = self.made(step, block, chunk)
        if step < self.count - 1:
            # The GPU before this one has the block before this one in this step.
            comes = self.rows_of(self.came[step], (block - 1) % self.count, chunk)
            messages = [dist.P2POp(dist.isend, made, self.behind), dist.P2POp(dist.irecv, comes, self.before)]
            self.arriving[step + 1, chunk] = dist.batch_isend_irecv(messages)
        elif self.others:
            messages = [dist.P2POp(dist.isend, made, other) for other in self.others]
            messages += [dist.P2POp(dist.irecv, self.rows_of_result(self.out, other, chunk), other) for other in self.others]
            self.leaving += dist.batch_isend_irecv(messages)

    def result(self) -> torch.Tensor:
        for message in self.leaving:
            message.wait()
        self.leaving.clear()
        return self.out


class BySymmetricMemory(Ring):
    """Copies into the memory of other GPUs, by copy engines, and flags there that tell of them.

    No buffer is overwritten too soon. At the beginning of a call each GPU tells the one before it that all it had queued until then, such as
    reading the last result, is done; that one sends nothing before. And a GPU sends the sums of its own block to all when each of them has
    added to these in this call.
    """

    def __init__(self, m: int, n: int, here: several.Several, weights: list[int]) -> None:
        from torch.distributed import _symmetric_memory as memory

        super().__init__(m, here, weights)
        shape = (max(here.count - 1, 1), max(self.blocks), n)
        self.sums = torch.empty(*shape, device=here.device)
        self.came = memory.empty(*shape, device=here.device, dtype=torch.float32)
        self.out = memory.empty(m, n, device=here.device, dtype=torch.float32)
        group = dist.group.WORLD.group_name
        self.of_came, self.of_out = memory.rendezvous(self.came, group), memory.rendezvous(self.out, group)
        self.came_behind = self.of_came.get_buffer(self.behind, shape, torch.float32)
        self.outs = [self.of_out.get_buffer(other, (m, n), torch.float32) for other in range(here.count)]
        self.copies = torch.cuda.Stream(priority=-1)
        self.ready = here.count * self.chunks  # the flag's number, behind those of chunks

    def begin(self) -> None:
        if not self.others:
            return
        self.of_came.put_signal(self.before, self.ready)
        with torch.cuda.stream(self.copies):
            self.of_came.wait_signal(self.behind, self.ready)

    def wait_for(self, step: int, block: int, chunk: int) -> torch.Tensor:
        self.of_came.wait_signal(self.before, (step - 1) * self.chunks + chunk)
        return self.rows_of(self.came[step - 1], block, chunk)

    def pass_on(self, step: int, block: int, chunk: int) -> None:
        made = self.made(step, block, chunk)
        self.copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.copies):
            if step < self.count - 1:
                self.rows_of(self.came_behind[step], block, chunk).copy_(made)
                self.of_came.put_signal(self.behind, step * self.chunks + chunk)
                return
            for other in self.others:
                self.rows_of_result(self.outs[other], block, chunk).copy_(made)
                self.of_out.put_signal(other, chunk)

    def result(self) -> torch.Tensor:
        for chunk in range(self.chunks):
            for other in self.others:
                self.of_out.wait_signal(other, chunk)
        torch.cuda.current_stream().wait_stream(self.copies)
        return self.out


def by_torch_async(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """What torch has for tensor parallelism: a product whose chunks are exchanged by symmetric memory, and an all-gather."""
    rows = torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b, "sum", 0, dist.group.WORLD.group_name)
    dist.all_gather_into_tensor(out, rows)
    return out


def rings_of(here: several.Several, m: int, n: int) -> dict[str, Ring]:
    """A ring for each list of chunks: by symmetric memory, or by messages where there is none."""
    kinds: list[tuple[str, type[ByMessages] | type[BySymmetricMemory]]] = [("messages", ByMessages)]
    if here.device.type == "cuda":
        kinds.insert(0, ("symmetric memory", BySymmetricMemory))
    for name, kind in kinds:
        try:
            return {f"ring by {name}, {chunks}": kind(m, n, here, weights_of(chunks)) for chunks in here.options.chunks}
        except (RuntimeError, ImportError) as why:
            # All processes are on one host and have the same torch: it fails in all or in none.
            here.say(f"  no ring by {name}: {str(why).splitlines()[0]}")
    return {}


def weights_of(chunks: str) -> list[int]:
    return [int(weight) for weight in chunks.split(":")]


@record
def main() -> None:
    parser = argparse.ArgumentParser(description="a product divided by terms, with its sums on their way while it is multiplied")
    parser.add_argument("--problem", action="append", help="MxNxK; may be given several times")
    parser.add_argument("--chunks", nargs="+", default=["1:1", "3:1", "5:2:1"], help="how many rows of a block each chunk has, of all")
    parser.add_argument("--torch-async", action="store_true", help="also torch's fused_matmul_reduce_scatter")
    here = several.start(parser)
    for problem in here.options.problem or ["2048x4096x8192", "8192x8192x8192"]:
        m, n, k = (int(extent) for extent in problem.split("x"))
        a, b = torch.randn(m, k, device=here.device), torch.randn(k, n, device=here.device)
        own_a, own_b = (x.tensor_split(here.count, dim)[here.rank].contiguous() for x, dim in ((a, 1), (b, 0)))
        here.say(f"{problem}, {k} terms divided among {here.count}")
        out = torch.empty(m, n, device=here.device)
        rings = rings_of(here, m, n)
        ways: dict[str, Callable[[], torch.Tensor]] = {"product, then all-reduce": lambda: product_then_sum(own_a, own_b, out)}
        for chunks in here.options.chunks:
            ways[f"all-reduce by chunks, {chunks}"] = lambda chunks=chunks: sum_by_chunks(own_a, own_b, out, weights_of(chunks))
        for name, ring in rings.items():
            ways[name] = lambda ring=ring: ring.multiply(own_a, own_b)
        if here.options.torch_async and here.device.type == "cuda" and m % here.count == 0:
            from torch.distributed._symmetric_memory import enable_symm_mem_for_group

            enable_symm_mem_for_group(dist.group.WORLD.group_name)
            ways["torch's async tensor parallelism"] = lambda: by_torch_async(own_a, own_b, out)
        for name, run in ways.items():
            # (A ring knows of Tilewright by itself.)
            for on in (True,) if name in rings else (False, True):
                with here.switched(on):
                    # Three in a row: what one call leaves behind, or is still about, must not spoil the next.
                    results = [run().clone() for _ in range(3)]
                worst = max(several.largest_error(result, a, b) for result in results)
                here.check(f"{problem} {name}{', the switch on' if on else ''}", worst, several.ALLOWED_ERROR)
        del a, b, results
        measured: dict[str, tuple[bool, Callable[[], object]]] = {"torch: product, then all-reduce": (False, ways["product, then all-reduce"])}
        for name, run in ways.items():
            measured[f"tilewright: {name}"] = (True, run)
        for name, ring in rings.items():
            measured[f"tilewright: products of {name}, alone"] = (True, lambda ring=ring: ring.multiply_alone(own_a, own_b, out))
        measured["tilewright: one product alone"] = (True, lambda: torch.mm(own_a, own_b, out=out))
        measured["all-reduce alone"] = (False, lambda: dist.all_reduce(out))
        here.in_turns(problem, measured)
    here.end()


if __name__ == "__main__":
    main()
