"""Attention on the CPU in tiles: some queries of some heads and some keys at a time, so that no array of all scores is made.

A running maximum and sum over the keys take the place of the row's softmax (Milakov, Gimelshein 2018, arXiv:1805.02867); backward
computes the weights again from the scores' log-sum-exp (Dao et al. 2022, arXiv:2205.14135). Sizes alone decide the tiles, so
results have the same bits for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....dtype import is_float
from ....integers import cdiv
from ...cpu.errstate import no_fp_warnings
from ...declare.operator_property import assign, math_dtype
from ...op import Req, Reqs
from .attention_layout import Operand, Use

QUERIES, KEYS = 128, 512  # of a tile
SCORES = 1 << 16  # elements of a tile of several heads: they stay in the second cache


def view(array: np.ndarray, o: Operand) -> np.ndarray:
    """Return the operand's [batch, heads, length, size]."""
    flat = array.reshape(-1)[o.offset:]
    return np.lib.stride_tricks.as_strided(flat, o.shape, [s * array.itemsize for s in (*o.steps, 1)])


def _mask_view(use: Use, array: np.ndarray) -> np.ndarray:
    """Return [batch, heads, queries, keys] of a mask: True where a key takes part, or numbers to add to the scores."""
    return np.lib.stride_tricks.as_strided(array, use.sizes, [s * array.itemsize for s in use.mask_steps()])


def _groups(use: Use) -> list[tuple[int, slice]]:
    """Return (batch, heads) of the pieces."""
    batch, heads, queries, keys = use.sizes
    some = max(1, SCORES // max(1, min(queries, QUERIES) * min(keys, KEYS)))
    return [(b, slice(h, min(h + some, heads))) for b in range(batch) for h in range(0, heads, some)]


def _last_key(use: Use, last_query: int) -> int:
    """Return the number of keys that queries below last_query see."""
    return min(last_query, use.sizes[3]) if use.causal else use.sizes[3]


def _scores(use: Use, x: np.ndarray, k: np.ndarray, mask: np.ndarray | None, m: slice, n: slice) -> np.ndarray:
    """Return the scores of a tile, -inf where a key takes no part. x: queries, times the scale. mask: of the tile's heads."""
    s = np.matmul(x, k.swapaxes(-1, -2))
    if mask is not None:
        tile = mask[:, m, n]
        if is_float(tile.dtype):
            s += tile.astype(s.dtype, copy=False)
        else:
            s[tile == 0] = -np.inf
    if use.causal and n.stop - 1 > m.start:
        s[:, np.arange(n.start, n.stop) > np.arange(m.start, m.stop)[:, None]] = -np.inf
    return s


def forward(use: Use, reqs: Reqs) -> Callable[..., None]:
    """Return the kernel f(run, inputs, outputs): the output, and the log-sum-exp of each row; +inf for one without keys."""
    groups, queries = _groups(use), use.sizes[2]
    tiles = cdiv(queries, QUERIES)

    def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        q, k, v = (view(inputs[o.array], o) for o in (use.query, use.key, use.value))
        mask = None if use.mask is None else _mask_view(use, inputs[use.mask_array])
        out = view(outputs[0], use.output)
        sums = None if reqs[1] == Req.NULL else outputs[1].reshape(use.sizes[:3])
        dtype = math_dtype(q.dtype)

        def piece(i: int) -> None:
            (b, h), m0 = groups[i // tiles], i % tiles * QUERIES
            m = slice(m0, min(m0 + QUERIES, queries))
            x = q[b, h, m].astype(dtype) * dtype.type(use.scale)
            high = np.full(x.shape[:2], -np.inf, dtype)
            total, weight = np.zeros((*x.shape[:2], v.shape[3]), dtype), np.zeros(x.shape[:2], dtype)
            for n0 in range(0, last := _last_key(use, m.stop), KEYS):
                n = slice(n0, min(n0 + KEYS, last))
                s = _scores(use, x, k[b, h, n].astype(dtype, copy=False), None if mask is None else mask[b, h], m, n)
                above = np.maximum(high, s.max(-1))
                finite = np.where(above == -np.inf, 0, above)
                s -= finite[..., None]
                np.exp(s, out=s)
                before = np.exp(high - finite)
                weight = weight * before + s.sum(-1)
                total = total * before[..., None] + np.matmul(s, v[b, h, n].astype(dtype, copy=False))
                high = above
            empty = weight == 0
            weight[empty] = 1
            assign(out[b, h, m], reqs[0], total / weight[..., None])
            if sums is not None:
                assign(sums[b, h, m], reqs[1], np.where(empty, np.inf, high + np.log(weight)))

        run.parallel(lambda i: no_fp_warnings(piece, i), len(groups) * tiles)

    return kernel


def backward(use: Use, reqs: Reqs) -> Callable[..., None]:
    """Return the kernel f(run, arrays, derivatives). arrays: the output's derivative, the inputs, the output, the log-sum-exp."""
    groups, (_, _, queries, keys) = _groups(use), use.sizes

    def kernel(run: Any, arrays: Sequence[Any], derivatives: Sequence[Any]) -> None:
        dy, *inputs, y, sums = arrays
        q, k, v = (view(inputs[o.array], o) for o in (use.query, use.key, use.value))
        mask = None if use.mask is None else _mask_view(use, inputs[use.mask_array])
        dy, y, sums = view(dy, use.output), view(y, use.output), sums.reshape(use.sizes[:3])
        dtype = math_dtype(q.dtype)

        def put(o: Operand, b: int, h: slice, rows: slice, value: np.ndarray) -> None:
            if reqs[o.array] != Req.NULL:
                assign(view(derivatives[o.array], o)[b, h, rows], reqs[o.array], value)

        def piece(i: int) -> None:
            b, h = groups[i]
            dk, dv = (np.zeros(a[b, h].shape, dtype) for a in (k, v))
            for m0 in range(0, queries, QUERIES):
                m = slice(m0, min(m0 + QUERIES, queries))
                x, d = q[b, h, m].astype(dtype) * dtype.type(use.scale), dy[b, h, m].astype(dtype, copy=False)
                along = (d * y[b, h, m].astype(dtype, copy=False)).sum(-1)[..., None]
                dx = np.zeros(x.shape, dtype)
                for n0 in range(0, last := _last_key(use, m.stop), KEYS):
                    n = slice(n0, min(n0 + KEYS, last))
                    near, there = k[b, h, n].astype(dtype, copy=False), v[b, h, n].astype(dtype, copy=False)
                    p = _scores(use, x, near, None if mask is None else mask[b, h], m, n)
                    p -= sums[b, h, m][..., None]
                    np.exp(p, out=p)
                    dv[:, n] += np.matmul(p.swapaxes(-1, -2), d)
                    p *= np.matmul(d, there.swapaxes(-1, -2)) - along
                    dx += np.matmul(p, near)
                    dk[:, n] += np.matmul(p.swapaxes(-1, -2), x)
                put(use.query, b, h, m, dx * dtype.type(use.scale))
            put(use.key, b, h, slice(0, keys), dk)
            put(use.value, b, h, slice(0, keys), dv)

        run.parallel(lambda i: no_fp_warnings(piece, i), len(groups))

    return kernel
