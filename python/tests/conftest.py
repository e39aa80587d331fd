"""What several tests use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def largest_error(c: Any, a: Any, b: Any) -> float:
    """The largest error of an element of `c = a·b`, as a part of the sum of the magnitudes of its terms."""
    a, b, c = (np.asarray(x, dtype=np.float64) for x in (a, b, c))
    magnitudes = np.matmul(np.abs(a), np.abs(b))
    errors = np.abs(c - np.matmul(a, b))
    assert np.isfinite(errors).all()
    return float(np.max(errors / np.maximum(magnitudes, np.finfo(np.float32).tiny), initial=0.0))


#: The largest error that each precision may have for as few terms as tests here have.
TOLERANCES = {"fp32": 1e-6, "fp32-strict": 1e-6, "fp32-rounded": 2.0**-24, "fp32-ozaki": 1e-6, "fp32-normwise": 1e-5, "tf32": 1.1e-3, "bf16": 9e-3, "fp16": 1.1e-3}


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(20261121)
