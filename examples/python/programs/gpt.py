"""A GPT of nanoGPT's shapes, trained in fp32 on text that every Python has: its own library's.

    python gpt.py                                   # the small shape: 3 seeds, 200 steps, and one run in float64
    python gpt.py --shape gpt2 --seeds 1 --steps 50 --batch 8 --skip-exact
    python gpt.py --device cpu --shape tiny --steps 2 --seeds 1

The loss curves of torch's fp32, TF32 and ours, of several seeds: each way has the same weights at the beginning, and the same text in the
same order. Curves of the same seed drift apart, because training multiplies any difference; how fast, beside a run in float64, says which
way computes what was meant. In the end the loss on text that was not trained on is compared.
"""

from __future__ import annotations

import argparse
import statistics
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch
from common import OURS, TORCH, WAYS, Program, relative
from torch import nn


@dataclass
class Shape:
    layers: int
    heads: int
    width: int
    length: int
    batch: int


# nanoGPT's config/train_shakespeare_char.py, its default, which is GPT-2, and one for a CPU. Letters are bytes here, and there is no dropout.
SHAPES = {"small": Shape(6, 6, 384, 256, 64), "gpt2": Shape(12, 12, 768, 1024, 12), "tiny": Shape(2, 2, 32, 16, 2)}
LETTERS = 256


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.first, self.second = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.qkv, self.out = nn.Linear(shape.width, 3 * shape.width), nn.Linear(shape.width, shape.width)
        self.up, self.down = nn.Linear(shape.width, 4 * shape.width), nn.Linear(4 * shape.width, shape.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.first(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attention = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class Gpt(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, shape.width), nn.Embedding(shape.length, shape.width)
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))
        self.last = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, LETTERS, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                narrow = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * shape.layers) ** 0.5 if narrow else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        self.head.weight = self.letters.weight

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.letters(text[:, :-1]) + self.places.weight[: text.shape[1] - 1]
        logits = self.head(self.last(self.blocks(x)))
        return nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


def text(megabytes: float) -> torch.Tensor:
    """The first bytes of Python's own library, in the order of its files' names."""
    found, wanted = bytearray(), int(megabytes * 1e6)
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        found += path.read_bytes()
        if len(found) >= wanted:
            break
    return torch.frombuffer(found[:wanted], dtype=torch.uint8).long()


def train(program: Program, shape: Shape, data: torch.Tensor, seed: int, dtype: torch.dtype) -> tuple[list[float], float]:
    """The losses, and that on the last tenth of the text, which is not trained on."""
    options = program.options
    torch.manual_seed(seed)
    model = Gpt(shape).to(program.device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), options.rate, betas=(0.9, 0.99), weight_decay=0.1)
    warm = max(1, options.steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warm))
    generator = torch.Generator().manual_seed(seed)
    window = torch.arange(shape.length + 1)
    trained = len(data) * 9 // 10

    def batch(first: int, end: int) -> torch.Tensor:
        starts = torch.randint(first, end - shape.length - 1, (shape.batch, 1), generator=generator)
        return data[(starts + window).to(program.device)]

    losses: list[torch.Tensor] = []
    for _ in range(options.steps):
        optimizer.zero_grad()
        loss = model(batch(0, trained))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    with torch.no_grad():
        unseen = torch.stack([model(batch(trained, len(data))) for _ in range(5)]).mean()
    return torch.stack(losses).tolist(), unseen.item()


def gradient(program: Program, shape: Shape, data: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Of the loss, at the beginning of training, where nothing has drifted yet."""
    torch.manual_seed(1)
    model = Gpt(shape).to(program.device, dtype)
    starts = torch.arange(shape.batch).unsqueeze(1) * (len(data) // (2 * shape.batch))
    model(data[(starts + torch.arange(shape.length + 1)).to(program.device)]).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


def apart(one: list[float], other: list[float]) -> float:
    """How far two curves are from each other in the middle of their second halves."""
    half = len(one) // 2
    return statistics.median(abs(a - b) for a, b in zip(one[half:], other[half:], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=list(SHAPES), default="small")
    parser.add_argument("--batch", type=int, help="in place of the shape's own")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--megabytes", type=float, default=4, help="of text")
    parser.add_argument("--skip-exact", action="store_true", help="nothing in float64")
    program = Program("a GPT", parser)
    options = program.options
    shape = SHAPES[options.shape]
    shape.batch = options.batch or shape.batch
    data = text(options.megabytes).to(program.device)
    if not options.skip_exact:
        exact = gradient(program, shape, data, torch.float64)
        off: dict[str, float] = {}
        for way in WAYS:
            with program.way(way):
                off[way] = relative(gradient(program, shape, data, torch.float32), exact)
            program.note(what="gradient", way=way, from_float64=off[way])
        program.check("gradient, beside torch's fp32", off[OURS], 3 * off[TORCH] + 1e-6)
        del exact
    ends: dict[str, list[float]] = {way: [] for way in WAYS}
    # Loads kernels, and brings the GPU to its temperature.
    steps, options.steps = options.steps, 3
    for way in WAYS:
        with program.way(way):
            train(program, shape, data, 0, torch.float32)
    options.steps = steps
    for seed in range(1, options.seeds + 1):
        curves: dict[str, list[float]] = {}
        if seed == 1 and not options.skip_exact:
            curves["float64"], unseen = train(program, shape, data, seed, torch.float64)
            program.note(what="training", seed=seed, way="float64", last=curves["float64"][-1], unseen=unseen, losses=curves["float64"])
        for way in WAYS:
            found: list[tuple[list[float], float]] = []
            with program.way(way):
                seconds = program.seconds(lambda seed=seed: found.append(train(program, shape, data, seed, torch.float32)))
            curves[way], unseen = found[0]
            ends[way].append(unseen)
            program.note(what="training", seed=seed, way=way, last=curves[way][-1], unseen=unseen, seconds=seconds, losses=curves[way])
        right = "float64" if "float64" in curves else TORCH
        for way in WAYS:
            if way != right:
                program.note(what=f"apart from {right}", seed=seed, way=way, apart=apart(curves[way], curves[right]), first_step=abs(curves[way][0] - curves[right][0]))
    for way in WAYS:
        program.note(what="loss on unseen text", way=way, mean=statistics.mean(ends[way]), of_seeds=ends[way])
    between = max(ends[TORCH]) - min(ends[TORCH])
    program.check("loss on unseen text, from torch's fp32", abs(statistics.mean(ends[OURS]) - statistics.mean(ends[TORCH])), max(between, 0.02))
    program.end()


if __name__ == "__main__":
    main()
