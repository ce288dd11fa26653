"""Triton: attention by tiles. A program keeps some queries, or some keys, and walks over the others.

Scores are in units of log 2, for exp2. Forward keeps a running maximum and sum of each row, and leaves the log-sum-exp; backward
computes the weights again from it: one kernel gives the derivative by the queries, one those by keys and values, so that nothing
is added atomically and the same inputs give the same bits. Each has one loop: where a sum goes from one loop on to another, the
compiler lets no product begin before the last has ended, so blocks at an edge are masked behind a branch.
Source: Dao 2023, arXiv:2307.08691.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ....integers import cdiv, next_power_of_2
from ...configs import active as active_configs
from ...configs import float32_matmul
from ...configs.key import alignment, key
from ...gpu.launch import dtype_of, launch, wide_float
from ...gpu.source import tl, triton
from ...gpu.target import compute_capability, interpreting, tile_size
from ...kernel import DeviceArray, Run
from ...op import Req, Reqs
from .attention_layout import Operand, Use

LOG2E, LN2 = math.log2(math.e), math.log(2)
NONE, CHOSEN, ADDED = range(3)  # masks: none, nonzero where a key takes part, numbers that are added


@triton.jit
def _rows(base, first, local, end, SIZE: tl.constexpr, BLOCK: tl.constexpr, CAST: tl.constexpr, WIDE: tl.constexpr):
    # the rows first + local of an operand; local: [rows], base: the address of row `first`'s offsets; zeros from row `end` on
    column = tl.arange(0, BLOCK)
    inside = (first + local < end)[:, None]
    if SIZE != BLOCK:
        inside = inside & (column < SIZE)[None, :]
    x = tl.load(base, mask=inside, other=0)
    if CAST:
        x = x.to(WIDE)
    return x


@triton.jit
def _places(base, local, step, BLOCK: tl.constexpr):
    # the addresses of the rows `local` of an operand
    return base + local.to(tl.int64)[:, None] * step + tl.arange(0, BLOCK)[None, :]


@triton.jit
def _unit(scale, WIDE: tl.constexpr):
    # the unit of the scores in log 2, above zero: with TURNED the scores have the scale's sign
    return tl.maximum(tl.abs(scale * 1.4426950408889634), 1e-30).to(WIDE)


@triton.jit
def _seen(s, by, mask, m, n, M, N, m_m, m_n, TURNED: tl.constexpr, MASK: tl.constexpr,
          WIDE: tl.constexpr):
    # the scores s with the mask, -inf where a key takes no part. m, n: the queries and keys, along their axes of s.
    # s are in units of `by`; with numbers that are added, the result is in units of 1
    if TURNED:
        s = -s
    if MASK != 0:
        at = mask + m.to(tl.int64) * m_m + n.to(tl.int64) * m_n
        w = tl.load(at, mask=(m < M) & (n < N), other=0).to(WIDE)
        if MASK == 2:
            s = s * by + w * 1.4426950408889634
        else:
            s = tl.where(w != 0, s, float("-inf"))
    return s


@triton.jit
def _cut(s, m, n, N, CAUSAL: tl.constexpr):
    # the scores s, -inf behind the last key, and where CAUSAL for keys behind the query
    keep = n < N
    if CAUSAL:
        keep = keep & (n <= m)
    return tl.where(keep, s, float("-inf"))


@triton.jit
def attention_forward(q, k, v, mask, out, lse, q_at: tl.int64, q_b: tl.int64, q_h: tl.int64, q_m: tl.int64, k_at: tl.int64,
                      k_b: tl.int64, k_h: tl.int64, k_n: tl.int64, v_at: tl.int64, v_b: tl.int64, v_h: tl.int64, v_n: tl.int64,
                      o_b: tl.int64, o_h: tl.int64, o_m: tl.int64, m_b: tl.int64, m_h: tl.int64, m_m: tl.int64, m_n: tl.int64, H,
                      M, N, scale: tl.float64, UNIT: tl.constexpr, TURNED: tl.constexpr, SIZE: tl.constexpr, BD: tl.constexpr,
                      VALUE: tl.constexpr, BV: tl.constexpr, CAUSAL: tl.constexpr, EDGE: tl.constexpr, MASK: tl.constexpr,
                      ADD: tl.constexpr, SUMS: tl.constexpr, CAST: tl.constexpr, PRECISION: tl.constexpr, WIDE: tl.constexpr,
                      BM: tl.constexpr, BN: tl.constexpr):
    # offsets and steps of q, k, v and out are in units of UNIT
    tiles = tl.cdiv(M, BM)
    tile = tl.program_id(0) % tiles
    if CAUSAL:
        tile = tiles - 1 - tile  # the longest first
    b = (tl.program_id(0) // tiles // H).to(tl.int64)
    h = (tl.program_id(0) // tiles % H).to(tl.int64)
    first = tile * BM
    local = tl.arange(0, BM)
    m = first + local
    q_m = q_m * UNIT
    o_m = o_m * UNIT
    q += (q_at + b * q_b + h * q_h) * UNIT + first.to(tl.int64) * q_m
    k += (k_at + b * k_b + h * k_h) * UNIT
    v += (v_at + b * v_b + h * v_h) * UNIT
    mask += b * m_b + h * m_h
    x = _rows(_places(q, local, q_m, BD), first, local, M, SIZE, BD, CAST, WIDE)
    k_n = k_n * UNIT
    v_n = v_n * UNIT
    other = tl.arange(0, BN)
    at_k = _places(k, other, k_n, BD)
    at_v = _places(v, other, v_n, BV)
    by = _unit(scale, WIDE)
    unit = 1.0 if MASK == 2 else by
    total = tl.zeros((BM, BV), WIDE)
    high = tl.zeros((BM,), WIDE) - float("inf")
    weight = tl.zeros((BM,), WIDE)
    end = N
    if CAUSAL:
        end = tl.minimum(N, first + BM)
        full = tl.minimum(N, first) // BN * BN
    else:
        full = N // BN * BN
    for start in range(0, end, BN):
        y = _rows(at_k + start * k_n, start, other, N, SIZE, BD, CAST, WIDE)
        s = tl.dot(x, tl.trans(y), input_precision=PRECISION, out_dtype=WIDE)
        s = _seen(s, by, mask, m[:, None], (start + other)[None, :], M, N, m_m, m_n, TURNED, MASK, WIDE)
        if EDGE:
            if start >= full:
                s = _cut(s, m[:, None], (start + other)[None, :], N, CAUSAL)
        above = tl.maximum(high, tl.max(s, 1))
        finite = above
        if MASK != 0:
            finite = tl.where(above == float("-inf"), 0.0, above)
        p = tl.exp2(s * unit - (finite * unit)[:, None])
        lowered = tl.exp2((high - finite) * unit)
        weight = weight * lowered + tl.sum(p, 1)
        total = total * lowered[:, None]
        z = _rows(at_v + start * v_n, start, other, N, VALUE, BV, CAST, WIDE)
        total = tl.dot(p.to(z.dtype), z, total, input_precision=PRECISION, out_dtype=WIDE)
        high = above
    empty = weight == 0
    some = tl.where(empty, 1.0, weight)
    total = total / some[:, None]
    column = tl.arange(0, BV)
    inside = (m < M)[:, None] & (column < VALUE)[None, :]
    at = _places(out + (b * o_b + h * o_h) * UNIT + first.to(tl.int64) * o_m, local, o_m, BV)
    if ADD:
        total += tl.load(at, mask=inside, other=0).to(WIDE)
    tl.store(at, total.to(out.dtype.element_ty), mask=inside)
    if SUMS:
        sums = tl.where(empty, float("inf"), (high * unit + tl.log2(some)) * 0.6931471805599453)
        tl.store(lse + (b * H + h) * M + m, sums, mask=m < M)


@triton.jit
def attention_query_gradient(q, k, v, mask, dy, out, lse, along, dq, q_at: tl.int64, q_b: tl.int64, q_h: tl.int64, q_m: tl.int64,
                             k_at: tl.int64, k_b: tl.int64, k_h: tl.int64, k_n: tl.int64, v_at: tl.int64, v_b: tl.int64,
                             v_h: tl.int64, v_n: tl.int64, o_b: tl.int64, o_h: tl.int64, o_m: tl.int64, m_b: tl.int64,
                             m_h: tl.int64, m_m: tl.int64, m_n: tl.int64, H, M, N, scale: tl.float64, UNIT: tl.constexpr,
                             TURNED: tl.constexpr, SIZE: tl.constexpr, BD: tl.constexpr, VALUE: tl.constexpr, BV: tl.constexpr,
                             CAUSAL: tl.constexpr, EDGE: tl.constexpr, MASK: tl.constexpr, WANTED: tl.constexpr,
                             ADD: tl.constexpr, CAST: tl.constexpr, PRECISION: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr,
                             BN: tl.constexpr):
    # along: the sum of dy · out of each query, which the other kernel reads too
    tiles = tl.cdiv(M, BM)
    tile = tl.program_id(0) % tiles
    if CAUSAL:
        tile = tiles - 1 - tile
    b = (tl.program_id(0) // tiles // H).to(tl.int64)
    h = (tl.program_id(0) // tiles % H).to(tl.int64)
    first = tile * BM
    local = tl.arange(0, BM)
    m = first + local
    q_m = q_m * UNIT
    o_m = o_m * UNIT
    whole = (b * o_b + h * o_h) * UNIT + first.to(tl.int64) * o_m
    d = _rows(_places(dy + whole, local, o_m, BV), first, local, M, VALUE, BV, CAST, WIDE)
    y = _rows(_places(out + whole, local, o_m, BV), first, local, M, VALUE, BV, CAST, WIDE)
    rows = (b * H + h) * M + m
    both = tl.sum(d.to(WIDE) * y.to(WIDE), 1)
    tl.store(along + rows, both, mask=m < M)
    if WANTED:
        at = (q_at + b * q_b + h * q_h) * UNIT + first.to(tl.int64) * q_m
        k += (k_at + b * k_b + h * k_h) * UNIT
        v += (v_at + b * v_b + h * v_h) * UNIT
        mask += b * m_b + h * m_h
        x = _rows(_places(q + at, local, q_m, BD), first, local, M, SIZE, BD, CAST, WIDE)
        sums = tl.load(lse + rows, mask=m < M, other=float("inf")) * 1.4426950408889634
        k_n = k_n * UNIT
        v_n = v_n * UNIT
        other = tl.arange(0, BN)
        at_k = _places(k, other, k_n, BD)
        at_v = _places(v, other, v_n, BV)
        by = _unit(scale, WIDE)
        unit = 1.0 if MASK == 2 else by
        total = tl.zeros((BM, BD), WIDE)
        end = N
        if CAUSAL:
            end = tl.minimum(N, first + BM)
            full = tl.minimum(N, first) // BN * BN
        else:
            full = N // BN * BN
        for start in range(0, end, BN):
            near = _rows(at_k + start * k_n, start, other, N, SIZE, BD, CAST, WIDE)
            s = tl.dot(x, tl.trans(near), input_precision=PRECISION, out_dtype=WIDE)
            s = _seen(s, by, mask, m[:, None], (start + other)[None, :], M, N, m_m, m_n, TURNED, MASK, WIDE)
            if EDGE:
                if start >= full:
                    s = _cut(s, m[:, None], (start + other)[None, :], N, CAUSAL)
            p = tl.exp2(s * unit - sums[:, None])
            z = _rows(at_v + start * v_n, start, other, N, VALUE, BV, CAST, WIDE)
            p = p * (tl.dot(d, tl.trans(z), input_precision=PRECISION, out_dtype=WIDE) - both[:, None])
            total = tl.dot(p.to(near.dtype), near, total, input_precision=PRECISION, out_dtype=WIDE)
        total = total * scale.to(WIDE)
        column = tl.arange(0, BD)
        inside = (m < M)[:, None] & (column < SIZE)[None, :]
        to = _places(dq + at, local, q_m, BD)
        if ADD:
            total += tl.load(to, mask=inside, other=0).to(WIDE)
        tl.store(to, total.to(dq.dtype.element_ty), mask=inside)


@triton.jit
def attention_key_gradient(q, k, v, mask, dy, lse, along, dk, dv, q_at: tl.int64, q_b: tl.int64, q_h: tl.int64, q_m: tl.int64,
                           k_at: tl.int64, k_b: tl.int64, k_h: tl.int64, k_n: tl.int64, v_at: tl.int64, v_b: tl.int64,
                           v_h: tl.int64, v_n: tl.int64, o_b: tl.int64, o_h: tl.int64, o_m: tl.int64, m_b: tl.int64,
                           m_h: tl.int64, m_m: tl.int64, m_n: tl.int64, H, M, N, scale: tl.float64, UNIT: tl.constexpr,
                           TURNED: tl.constexpr, SIZE: tl.constexpr, BD: tl.constexpr, VALUE: tl.constexpr, BV: tl.constexpr,
                           CAUSAL: tl.constexpr, EVEN: tl.constexpr, MASK: tl.constexpr, WANT_KEY: tl.constexpr,
                           WANT_VALUE: tl.constexpr, ADD_KEY: tl.constexpr, ADD_VALUE: tl.constexpr, CAST: tl.constexpr,
                           PRECISION: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    tiles = tl.cdiv(N, BN)
    tile = tl.program_id(0) % tiles
    b = (tl.program_id(0) // tiles // H).to(tl.int64)
    h = (tl.program_id(0) // tiles % H).to(tl.int64)
    first = tile * BN
    local = tl.arange(0, BN)
    n = first + local
    k_n = k_n * UNIT
    v_n = v_n * UNIT
    to_k = (k_at + b * k_b + h * k_h) * UNIT + first.to(tl.int64) * k_n
    to_v = (v_at + b * v_b + h * v_h) * UNIT + first.to(tl.int64) * v_n
    q += (q_at + b * q_b + h * q_h) * UNIT
    dy += (b * o_b + h * o_h) * UNIT
    row = (b * H + h) * (M // BM * BM if EVEN else M)  # EVEN: M is a multiple of BM
    lse += row
    along += row
    mask += b * m_b + h * m_h
    x = _rows(_places(k + to_k, local, k_n, BD), first, local, N, SIZE, BD, CAST, WIDE)
    z = _rows(_places(v + to_v, local, v_n, BV), first, local, N, VALUE, BV, CAST, WIDE)
    by = _unit(scale, WIDE)
    unit = 1.0 if MASK == 2 else by
    by_key = tl.zeros((BN, BD), WIDE)
    by_value = tl.zeros((BN, BV), WIDE)
    q_m = q_m * UNIT
    o_m = o_m * UNIT
    other = tl.arange(0, BM)
    at_q = _places(q, other, q_m, BD)
    at_d = _places(dy, other, o_m, BV)
    begin = 0
    if CAUSAL:  # the first queries that see a key of these
        begin = first // BM * BM
    for start in range(begin, M, BM):
        m = start + other
        y = _rows(at_q + start * q_m, start, other, M, SIZE, BD, CAST, WIDE)
        sums = (tl.load(lse + m) if EVEN else tl.load(lse + m, mask=m < M, other=float("inf"))) * 1.4426950408889634
        s = tl.dot(x, tl.trans(y), input_precision=PRECISION, out_dtype=WIDE)
        if MASK != 0 and tl.float64 == WIDE:
            if M > 0:  # always: Triton 3.6 lays float64 out by the width of a narrower mask that it sees before a product
                s = _seen(s, by, mask, m[None, :], n[:, None], M, N, m_m, m_n, TURNED, MASK, WIDE)
        else:
            s = _seen(s, by, mask, m[None, :], n[:, None], M, N, m_m, m_n, TURNED, MASK, WIDE)
        if CAUSAL:
            if start < first + BN:
                s = _cut(s, m[None, :], n[:, None], N, True)
        p = tl.exp2(s * unit - sums[None, :])
        d = _rows(at_d + start * o_m, start, other, M, VALUE, BV, CAST, WIDE)
        by_value = tl.dot(p.to(d.dtype), d, by_value, input_precision=PRECISION, out_dtype=WIDE)
        both = tl.load(along + m) if EVEN else tl.load(along + m, mask=m < M, other=0)
        p = p * (tl.dot(z, tl.trans(d), input_precision=PRECISION, out_dtype=WIDE) - both[None, :])
        by_key = tl.dot(p.to(y.dtype), y, by_key, input_precision=PRECISION, out_dtype=WIDE)
    inside = (n < N)[:, None]
    if WANT_KEY:
        by_key = by_key * scale.to(WIDE)
        column = tl.arange(0, BD)
        at = _places(dk + to_k, local, k_n, BD)
        if ADD_KEY:
            by_key += tl.load(at, mask=inside & (column < SIZE)[None, :], other=0).to(WIDE)
        tl.store(at, by_key.to(dk.dtype.element_ty), mask=inside & (column < SIZE)[None, :])
    if WANT_VALUE:
        column = tl.arange(0, BV)
        at = _places(dv + to_v, local, v_n, BV)
        if ADD_VALUE:
            by_value += tl.load(at, mask=inside & (column < VALUE)[None, :], other=0).to(WIDE)
        tl.store(at, by_value.to(dv.dtype.element_ty), mask=inside & (column < VALUE)[None, :])


FORWARD, QUERY, KEY = "forward", "query", "key"  # templates


@dataclass(frozen=True)
class Blocks:
    """Queries and keys of a tile, and launch options."""

    BM: int
    BN: int
    num_warps: int = 4
    num_stages: int = 2


#: Tiles that keep their sums in registers, by template, for heads of at most so many elements: of half types from sm_80, sm_90
#: and sm_100 on. Those of sm_90 up to 128 were the fastest on an H100.
_HALVES = {
    FORWARD: {64: (Blocks(128, 64, 8, 3), Blocks(64, 64, 4, 3), Blocks(128, 64, 8, 3)),
              128: (Blocks(128, 64, 8, 3), Blocks(64, 64, 4, 3), Blocks(128, 64, 8, 3)), 256: (Blocks(64, 32, 8),) * 3},
    QUERY: {64: (Blocks(128, 64, 8), Blocks(128, 64, 8, 3), Blocks(128, 64, 8)),
            128: (Blocks(64, 64, 8), Blocks(128, 64, 8, 3), Blocks(128, 64, 8)), 256: (Blocks(64, 32, 8),) * 3},
    KEY: {64: (Blocks(32, 128, 8, 1), Blocks(64, 64, 4, 3), Blocks(64, 128, 8)),
          128: (Blocks(32, 64, 8), Blocks(32, 128, 8, 3), Blocks(64, 128, 8)), 256: (Blocks(32, 32, 8),) * 3},
}


@functools.lru_cache(1024)
def choose(template: str, size: int, itemsize: int, tensor_cores: bool, capability: int) -> Blocks:
    """Choose the tile of a kernel by the padded size of a head and the GPU, never by timing.

    tensor_cores: the type and precision use them.
    """
    if itemsize == 2 and size <= 256:
        return _HALVES[template][max(64, size)][(capability >= 90) + (capability >= 100)]
    if tensor_cores and size <= 128:
        return Blocks(32, 32, 8) if template == QUERY and size > 64 else Blocks(64, 32, 8)
    if itemsize == 4 and size <= 128 and (size <= 64 or template == FORWARD):
        return Blocks(32, 32, 8, 1)
    return Blocks(16, 16, 8, 1)


class _Launches:
    """The arguments that the three kernels share."""

    def __init__(self, run: Run, use: Use, mask: DeviceArray | None, out: DeviceArray):
        self.run, self.use, self.out = run, use, out
        operands = (use.query, use.key, use.value, use.output)
        self.itemsize = out.dtype.itemsize
        numbers = [n for o in operands for n in (o.offset, *o.steps)]
        size, value = use.query.shape[3], use.value.shape[3]
        self.unit = 1 if any(n % 8 for n in (*numbers, size, value)) else 8
        self.how = float32_matmul.of_launch() if self.itemsize == 4 else "ieee"
        batch, heads, queries, keys = use.sizes
        self.heads = batch * heads
        lies = [n // self.unit for o in operands[:3] for n in (o.offset, *o.steps)] + [n // self.unit for n in use.output.steps]
        self.numbers = (*lies, *((0,) * 4 if mask is None else use.mask_steps()), heads, queries, keys, use.scale)
        kind = NONE if mask is None else ADDED if dtype_of(mask).name in _FLOATS else CHOSEN
        self.shared: dict[str, Any] = {
            "UNIT": self.unit, "TURNED": use.scale < 0, "SIZE": size, "BD": max(16, next_power_of_2(size)), "VALUE": value,
            "BV": max(16, next_power_of_2(value)), "CAUSAL": use.causal, "MASK": kind,
            "CAST": self.itemsize == 8 or interpreting(), "PRECISION": self.how, "WIDE": wide_float(out)}

    def blocks(self, template: str) -> Blocks:
        """Return the blocks of a kernel."""
        _, _, queries, keys = self.use.sizes
        cores = self.itemsize == 2 or (self.itemsize == 4 and self.how != "ieee")
        if interpreting():
            found = Blocks(tile_size(queries, 0), tile_size(keys, 0))
        else:
            found = choose(template, max(self.shared["BD"], self.shared["BV"]), self.itemsize, cores,
                           compute_capability(getattr(self.run.stream, "device_index", 0)))
        if active_configs.active():
            asked = key(f"gpu attention {template}", dtype_of(self.out).name, "causal" if self.use.causal else "whole",
                        alignment(8 * self.itemsize if self.unit == 8 else 1), heads=self.heads, m=queries, n=keys,
                        size=self.shared["SIZE"], value=self.shared["VALUE"])
            found = Blocks(**active_configs.choice(asked, asdict(found)))
        return found

    def run_kernel(self, kernel: Any, template: str, arrays: Sequence[DeviceArray], **options: Any) -> None:
        """Launch a kernel for its tiles of all heads."""
        b, (_, _, queries, keys) = self.blocks(template), self.use.sizes
        tiles = cdiv(keys, b.BN) if template == KEY else cdiv(queries, b.BM)
        if template == KEY:  # of the keys behind the last nothing is stored, so no mask is needed
            options["EVEN"] = queries % b.BM == 0
        else:
            options["EDGE"] = self.use.causal or keys % b.BN != 0
        launch(kernel, (tiles * self.heads,), *arrays, *self.numbers, **self.shared, **options, BM=b.BM, BN=b.BN,
               num_warps=b.num_warps, num_stages=b.num_stages, stream=self.run.stream)


_FLOATS = ("float16", "bfloat16", "float32", "float64")


def _operands(use: Use, inputs: Sequence[DeviceArray]) -> list[DeviceArray]:
    """Return the arrays of queries, keys, values and mask; those of the queries without a mask."""
    q, k, v = (inputs[o.array] for o in (use.query, use.key, use.value))
    return [q, k, v, q if use.mask is None else inputs[use.mask_array]]


def forward(run: Run, use: Use, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray], reqs: Reqs) -> None:
    """outputs = (or +=) the output and the log-sum-exp of each query's scores; +inf for one that sees no key."""
    out, arrays = outputs[0], _operands(use, inputs)
    kept = reqs[1] != Req.NULL
    launches = _Launches(run, use, None if use.mask is None else arrays[3], out)
    launches.run_kernel(attention_forward, FORWARD, [*arrays, out, outputs[1] if kept else out], ADD=reqs[0] == Req.ADD,
                        SUMS=kept)


def backward(run: Run, use: Use, arrays: Sequence[DeviceArray], derivatives: Sequence[DeviceArray], reqs: Reqs) -> None:
    """derivatives = (or +=) those by the inputs. arrays: the output's derivative, the inputs, the output, the log-sum-exp."""
    dy, *inputs, out, lse = arrays
    operands = _operands(use, inputs)
    launches = _Launches(run, use, None if use.mask is None else operands[3], out)
    along = run.workspace(use.sizes[:3], np.dtype("float64" if launches.itemsize == 8 else "float32"))

    def wanted(o: Operand) -> tuple[DeviceArray, bool, bool]:
        req = reqs[o.array]
        return (dy if req == Req.NULL else derivatives[o.array]), req != Req.NULL, req == Req.ADD

    dq, want, add = wanted(use.query)
    launches.run_kernel(attention_query_gradient, QUERY, [*operands, dy, out, lse, along, dq], WANTED=want, ADD=add)
    (dk, want_k, add_k), (dv, want_v, add_v) = wanted(use.key), wanted(use.value)
    if want_k or want_v:
        launches.run_kernel(attention_key_gradient, KEY, [*operands, dy, lse, along, dk, dv], WANT_KEY=want_k, WANT_VALUE=want_v,
                            ADD_KEY=add_k, ADD_VALUE=add_v)
