"""The switch: `enable`, `disable` and `enabled`. This module imports torch, so it is imported only when one of them is called.

    settings  [enable's, with-block's, with-block's of another thread, …]      the last one holds, for the whole process

The kernels are in the native half: they stand in the place of torch's own for one dispatch key, and nothing in Python is called when a
product is computed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from tilewright import _native

__all__ = ["disable", "enable", "enabled"]

_VERBOSE = "TILEWRIGHT_VERBOSE"


@dataclass(eq=False)
class _Setting:
    """What the switch is set to. Each is itself alone, equal to no other."""

    precision: str
    only_faster: bool
    device: Literal["cuda", "cpu"]


_lock = threading.RLock()
_base: list[_Setting] = []
_blocks: list[_Setting] = []


def enable(precision: str, *, only_faster: bool, device: Literal["cuda", "cpu"] = "cuda") -> None:
    """See `tilewright.enable`. The device is that whose tensors' products are taken; on the CPU, the executor computes, for tests."""
    with _lock:
        before = _base[:]
        _base[:] = [_Setting(precision, only_faster, device)]
        try:
            _apply()
        except BaseException:
            _base[:] = before
            raise


def disable() -> None:
    """See `tilewright.disable`."""
    with _lock:
        _base.clear()
        _blocks.clear()
        _apply()


@contextmanager
def enabled(precision: str, *, only_faster: bool, device: Literal["cuda", "cpu"] = "cuda") -> Generator[None]:
    """See `tilewright.enabled`."""
    setting = _Setting(precision, only_faster, device)
    with _lock:
        _blocks.append(setting)
        try:
            _apply()
        except BaseException:
            _blocks.remove(setting)
            raise
    try:
        yield
    finally:
        with _lock:
            # `disable` has ended it, too.
            if setting in _blocks:
                _blocks.remove(setting)
                _apply()


def _apply() -> None:
    """Sets the native half to what holds now."""
    settings = _base + _blocks
    if not settings:
        _native.switch_off()
        return
    setting = settings[-1]
    key = torch._C.DispatchKey.CPU if setting.device == "cpu" else torch._C.DispatchKey.CUDA  # pyright: ignore[reportPrivateUsage]
    _native.switch_on(
        str(Path(torch.__file__).parent / "lib"),
        int(key),
        setting.precision,
        only_faster=setting.only_faster,
        on_cpu=setting.device == "cpu",
        verbose=os.environ.get(_VERBOSE, "0") not in ("", "0"),
    )
