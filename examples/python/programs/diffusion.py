"""Steps of a diffusion model with random weights: a transformer of the shape of DiT-XL/2 takes noise from an image's latents, DDIM's way.

    python diffusion.py
    python diffusion.py --device cpu --width 32 --layers 2 --heads 2 --side 8 --batch 2 --steps 3

Every step starts with what the last one has made, so what is rounded in one goes through all that follow. The latents at the end, and after
a single step, are compared with float64.
"""

from __future__ import annotations

import argparse
import math

import torch
from common import OURS, TORCH, WAYS, Program, relative
from torch import nn

PATCH, CHANNELS = 2, 4


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.of_time = nn.Linear(width, 6 * width)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.of_time(nn.functional.silu(time)).unsqueeze(1).chunk(6, -1)
        y = self.norm(x) * (1 + scale1) + shift1
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attention = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + gate1 * self.out(attention)
        y = self.norm(x) * (1 + scale2) + shift2
        return x + gate2 * self.down(nn.functional.gelu(self.up(y), approximate="tanh"))


class Denoiser(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        patches = (options.side // PATCH) ** 2
        self.first = nn.Linear(PATCH * PATCH * CHANNELS, options.width)
        self.places = nn.Parameter(torch.randn(patches, options.width) * 0.02)
        self.time = nn.Sequential(nn.Linear(256, options.width), nn.SiLU(), nn.Linear(options.width, options.width))
        self.blocks = nn.ModuleList(Block(options.width, options.heads) for _ in range(options.layers))
        self.last = nn.Linear(options.width, PATCH * PATCH * CHANNELS)

    def forward(self, latents: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        batch, _, side, _ = latents.shape
        patches = latents.unflatten(2, (-1, PATCH)).unflatten(4, (-1, PATCH)).permute(0, 2, 4, 3, 5, 1).flatten(1, 2).flatten(2)
        frequencies = torch.exp(-math.log(10000) * torch.arange(128, device=time.device, dtype=latents.dtype) / 128)
        angles = time.to(latents.dtype).unsqueeze(1) * frequencies
        of_time = self.time(torch.cat([angles.cos(), angles.sin()], 1))
        x = self.first(patches) + self.places
        for block in self.blocks:
            x = block(x, of_time)
        x = self.last(x).view(batch, side // PATCH, side // PATCH, PATCH, PATCH, CHANNELS)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(latents.shape)


@torch.no_grad()
def denoise(model: nn.Module, latents: torch.Tensor, steps: int, of: int) -> torch.Tensor:
    """The first `steps` of `of` steps from noise to latents."""
    left = torch.cos(torch.linspace(math.pi / 2 * 0.999, 0, of + 1, dtype=torch.float64)) ** 2
    for step in range(steps):
        now, then = left[step].item(), left[step + 1].item()
        time = torch.full((len(latents),), 1000 * (1 - step / of), device=latents.device)
        noise = model(latents, time)
        clean = ((latents - (1 - now) ** 0.5 * noise) / now**0.5).clamp(-3, 3)
        latents = then**0.5 * clean + (1 - then) ** 0.5 * noise
    return latents


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=1152)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--side", type=int, default=64, help="of the latents")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    program = Program("steps of a diffusion model", parser)
    options = program.options
    torch.manual_seed(1)
    model = Denoiser(options).to(program.device)
    noise = torch.randn(options.batch, CHANNELS, options.side, options.side, device=program.device)
    exact = [denoise(model.double(), noise.double(), steps, options.steps) for steps in (1, options.steps)]
    model = model.float()
    off: dict[str, list[float]] = {}
    for way in WAYS:
        with program.way(way):
            off[way] = [relative(denoise(model, noise, steps, options.steps), right) for steps, right in zip((1, options.steps), exact, strict=True)]
        program.note(what="latents", way=way, after_one_step=off[way][0], at_the_end=off[way][1])
    for i, when in enumerate(("after one step", "at the end")):
        program.check(f"latents {when}, beside torch's fp32", off[OURS][i], 3 * off[TORCH][i] + 1e-6)
    for way, passed in program.in_turns(lambda: denoise(model, noise, options.steps, options.steps), rounds=2).items():
        program.note(what="all steps", way=way, seconds=passed)
    program.end()


if __name__ == "__main__":
    main()
