"""A stack of transformer blocks for `tensor_parallel.py` and `data_parallel.py`, and how its training is checked."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable

import several
import torch
from torch import nn
from torch.distributed.tensor import DTensor

HEAD = 64  # the width of a head of attention, unless the model is narrower
STEPS = 5
RATE = 0.05


class Block(nn.Module):
    """Attention and a feed-forward layer. How many heads there are the widths say, which are smaller where layers are divided."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head = min(HEAD, width // 4)
        self.before_attention, self.before_layer = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before_attention(x)
        q, k, v = (by(y).unflatten(-1, (-1, self.head)).transpose(1, 2) for by in (self.q, self.k, self.v))
        attention = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(attention.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.before_layer(x))))


def blocks(options: argparse.Namespace, device: torch.device) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*(Block(options.width) for _ in range(options.blocks))).to(device)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8, help="sequences of all GPUs together")
    parser.add_argument("--length", type=int, default=1024, help="of a sequence")


def data(options: argparse.Namespace, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """The inputs of all GPUs, and what the model shall learn to make of them."""
    torch.manual_seed(2)
    x = torch.randn(options.batch, options.length, options.width, device=device)
    return x, x.roll(1, dims=1).tanh()


def loss_of(model: nn.Module, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (model(x) - target).square().mean()


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    """The whole gradients, by the names that parameters have in a model that is not divided."""
    found: dict[str, torch.Tensor] = {}
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        assert gradient is not None, f"{name} has no gradient"
        found[name.removeprefix("module.")] = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
    return found


def largest_error(found: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> float:
    """Of all parameters' gradients, relative to each one's norm. Those of a bias that softmax cancels are nothing but rounding."""
    largest = max(gradient.norm() for gradient in exact.values())
    errors = [
        ((found[name].double() - gradient).norm() / gradient.norm()).item()
        for name, gradient in exact.items()
        if gradient.norm() > 1e-9 * largest
    ]
    return max(errors)


def check_and_measure(
    here: several.Several, what: str, divided: nn.Module, x: torch.Tensor, target: torch.Tensor, average: Callable[[float], float]
) -> None:
    """Compares a divided model's gradients with those of a whole one in float64, trains it, and measures steps and inference.

    x and target are this GPU's; `average` makes the loss of all of a GPU's own.
    """
    all_x, all_target = data(here.options, here.device)
    whole = blocks(here.options, here.device)
    start = copy.deepcopy(divided.state_dict())
    exact_model = copy.deepcopy(whole).double()
    loss_of(exact_model, all_x.double(), all_target.double()).backward()
    exact = gradients(exact_model)
    del exact_model
    loss_of(whole, all_x, all_target).backward()
    by_torch = largest_error(gradients(whole), exact)
    here.say(f"  gradients on one GPU, torch: {by_torch:.2e}")
    here.note(what=what, one_gpu_torch=by_torch)
    for on in (False, True):
        how = f"{what}{', the switch on' if on else ''}"
        divided.zero_grad()
        with here.switched(on):
            loss_of(divided, x, target).backward()
        here.check(f"gradients, {how}", largest_error(gradients(divided), exact), max(3 * by_torch, 1e-5))
    # Both learn the same.
    losses: dict[str, list[float]] = {}
    for how, model, on, own in (("one GPU, torch", whole, False, False), (what, divided, False, True), (f"{what}, the switch on", divided, True, True)):
        if own:
            divided.load_state_dict(start)
        # One parameter after the other: only some are divided, and torch's loops over all of them take one kind alone.
        optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9, foreach=False)
        losses[how] = []
        with here.switched(on):
            for _ in range(STEPS):
                optimizer.zero_grad()
                loss = loss_of(model, x, target) if own else loss_of(model, all_x, all_target)
                loss.backward()
                optimizer.step()
                losses[how].append(average(loss.item()) if own else loss.item())
    right = torch.tensor(losses["one GPU, torch"])
    here.say(f"  losses on one GPU: {', '.join(f'{loss:.6f}' for loss in right.tolist())}")
    for how, found in losses.items():
        here.note(what=how, losses=found)
        if how != "one GPU, torch":
            here.check(f"losses of {STEPS} steps, {how}", several.largest_difference(torch.tensor(found), right), 1e-4)

    optimizer = torch.optim.SGD(divided.parameters(), 0.0, foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        loss_of(divided, x, target).backward()
        optimizer.step()

    def infer() -> None:
        with torch.no_grad():
            divided(x)

    del whole
    here.in_turns(f"{what}, a step", {"step: torch": (False, step), "step: tilewright": (True, step)})
    here.in_turns(f"{what}, inference", {"inference: torch": (False, infer), "inference: tilewright": (True, infer)})
