"""Nodes whose inputs are constants, such as computed shapes: they are computed when the file is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..library import onnx
from .graph import Use


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.trunc(a / b).astype(a.dtype) if a.dtype.kind in "iu" else a / b


def _slice(x: np.ndarray, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> np.ndarray:
    parts = [slice(None)] * x.ndim
    given = range(len(starts)) if axes is None else axes
    for a, b, e, s in zip(given, starts, ends, [1] * len(starts) if steps is None else steps):
        parts[int(a)] = slice(int(b), int(e), int(s))
    return x[tuple(parts)]


def _axes(use: Use) -> Sequence[int]:
    return use.ints("axes", 1) or ()


FOLDED: dict[str, Callable[..., np.ndarray]] = {
    "Add": lambda use, a, b: a + b, "Sub": lambda use, a, b: a - b, "Mul": lambda use, a, b: a * b,
    "Div": lambda use, a, b: _divide(a, b), "Identity": lambda use, a: a, "Neg": lambda use, a: -a,
    "Cast": lambda use, a: a.astype(onnx().helper.tensor_dtype_to_np_dtype(use.attr("to"))),
    "Concat": lambda use, *a: np.concatenate(a, axis=use.attr("axis", 0)),
    "Gather": lambda use, a, i: np.take(a, i, axis=use.attr("axis", 0)),
    "Unsqueeze": lambda use, a, *_: np.expand_dims(a, tuple(_axes(use))),
    "Squeeze": lambda use, a, *_: np.squeeze(a, tuple(_axes(use)) or None),
    "Slice": lambda use, a, *rest: _slice(a, *(rest or (use.attr("starts"), use.attr("ends"), use.attr("axes")))),
    "Reshape": lambda use, a, shape: a.reshape([int(n) or a.shape[i] for i, n in enumerate(shape)]),
    "Transpose": lambda use, a: a.transpose(use.attr("perm")), "Shape": lambda use, a: np.asarray(a.shape, np.int64),
    "Equal": lambda use, a, b: a == b, "Where": lambda use, c, a, b: np.where(c, a, b),
    "ReduceProd": lambda use, a, *_: np.prod(a, axis=tuple(use.ints("axes", 1) or ()) or None,
                                             keepdims=bool(use.attr("keepdims", 1))).astype(a.dtype),
    "Floor": lambda use, a: np.floor(a), "Ceil": lambda use, a: np.ceil(a), "Sqrt": lambda use, a: np.sqrt(a)}


def fold(use: Use) -> np.ndarray:
    """Return the result of a node whose inputs are constants."""
    return np.asarray(FOLDED[use.op](use, *(use.const(i) for i in range(len(use.inputs)) if use.has(i))))
