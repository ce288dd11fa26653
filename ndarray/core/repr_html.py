"""The HTML of an array in a notebook: a table for one or two axes, NumPy's text for more, with the middle left out if large."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

_ROWS, _COLUMNS = 12, 10  # of a table; of more, the first and the last are shown
_CELL = "padding:0 .6em;text-align:right;font-family:monospace"


def to_html(a: np.ndarray, title: str) -> str:
    """Return HTML of the NumPy array a under a title."""
    head = f"<div><code>{escape(title)}</code></div>"
    if not 1 <= a.ndim <= 2 or not a.size:
        return f"{head}<pre>{escape(np.array2string(a, threshold=200))}</pre>"
    rows = a.reshape(1, -1) if a.ndim == 1 else a
    lines = "".join("<tr>" + "".join(_cell(rows, i, j) for j in _shown(rows.shape[1], _COLUMNS)) + "</tr>"
                    for i in _shown(rows.shape[0], _ROWS))
    return f"{head}<div style='overflow-x:auto'><table style='border-collapse:collapse'>{lines}</table></div>"


def _shown(n: int, most: int) -> list[int | None]:
    """Return the indices to show, of n; None in place of those left out."""
    if n <= most:
        return list(range(n))
    half = most // 2
    return [*range(half), None, *range(n - half, n)]


def _cell(rows: np.ndarray, i: int | None, j: int | None) -> str:
    text = "…" if i is None or j is None else _number(rows[i, j])
    return f"<td style='{_CELL}'>{escape(text)}</td>"


def _number(x: Any) -> str:
    return str(x) if x.dtype.kind in "iub" else f"{float(x):.6g}"
