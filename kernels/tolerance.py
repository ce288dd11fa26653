"""The one table of allowed differences, by dtype: (relative, absolute)."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from ..dtype import as_dtype

TOLERANCE: dict[str, tuple[float, float]] = {
    "float64": (1e-10, 1e-12),
    "float32": (1e-5, 1e-6),
    "float16": (4e-3, 1e-3),
    "bfloat16": (2e-2, 1e-2),
}


def tolerance(dtype: DTypeLike) -> tuple[float, float]:
    """(relative, absolute) for dtype; exact for integers and bool."""
    return TOLERANCE.get(as_dtype(dtype).name, (0.0, 0.0))


def differs(got: np.ndarray, want: np.ndarray, dtype: DTypeLike, *, scale: float = 1.0) -> str:
    """Return how got differs from want by more than the tolerance of dtype times scale; "" if it does not. NaN equals NaN."""
    if got.shape != want.shape:
        return f"shape {got.shape}, expected {want.shape}"
    rtol, atol = (scale * t for t in tolerance(dtype))
    g, w = got.astype("float64"), want.astype("float64")
    with np.errstate(invalid="ignore"):
        wrong = ~((g == w) | (np.abs(g - w) <= atol + rtol * np.abs(w)) | (np.isnan(g) & np.isnan(w)))
    if not wrong.any():
        return ""
    i = tuple(int(k) for k in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} elements differ; first at {i}: {g[i]!r}, expected {w[i]!r}"
