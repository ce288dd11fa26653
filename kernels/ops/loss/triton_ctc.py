"""Triton: CTCLoss. One program adds up the alignments of one sequence, forwards and backwards in time."""

from __future__ import annotations

import numpy as np

from ....integers import cdiv, next_power_of_2
from ...gpu.launch import launch, wide_float
from ...gpu.source import tl, triton
from ...gpu.target import interpreting, tile_size
from ...kernel import DeviceArray, Run
from ...op import Req, Reqs


@triton.jit
def _log_sums(x, sums, rows: tl.int64, K, WIDE: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    # narrow: rows of K classes, which need not divide by anything
    r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    at = x + (r * K)[:, None]
    top = tl.full((BR, 1), float("-inf"), WIDE)
    for start in range(0, K, BC):
        c = (start + tl.arange(0, BC))[None, :]
        live = (r < rows)[:, None] & (c < K)
        v = tl.load(at + c, mask=live, other=float("-inf")).to(WIDE)
        top = tl.maximum(top, tl.max(v, axis=1, keep_dims=True))
    total = tl.zeros((BR, 1), WIDE)
    for start in range(0, K, BC):
        c = (start + tl.arange(0, BC))[None, :]
        live = (r < rows)[:, None] & (c < K)
        v = tl.load(at + c, mask=live, other=0).to(WIDE)
        total += tl.sum(tl.where(live, tl.exp(v - top), 0), axis=1, keep_dims=True)
    tl.store(sums + r[:, None], top + tl.log(total), mask=(r < rows)[:, None])


@triton.jit
def _state(label, s, M, K, BLANK: tl.constexpr, live):
    # the class of state s, of a label that begins at `label`: odd states are its classes, the others blanks
    c = tl.load(label + s // 2, mask=live & (s % 2 == 1), other=0).to(tl.int64)
    c = tl.minimum(tl.maximum(c, 0), K - 1)
    return tl.where(s % 2 == 1, c, K - 1 if BLANK else 0)


@triton.jit
def _log_add(a, b, c):
    # log (eᵃ + eᵇ + eᶜ), -inf if all are
    top = tl.maximum(tl.maximum(a, b), c)
    top = tl.where(top == float("-inf"), 0, top)
    return top + tl.log(tl.exp(a - top) + tl.exp(b - top) + tl.exp(c - top))


@triton.jit
def _align(x, label, steps, counts, sums, ahead, onward, total, span, loss, T, N: tl.int64, K: tl.int64, M, HELD,
           STEPS: tl.constexpr, COUNTS: tl.constexpr, BLANK: tl.constexpr, LOSS: tl.constexpr, ADD: tl.constexpr,
           GRADIENT: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # narrow: lanes read the classes of the label. In log space: ahead [HELD, N, 2 M + 1] holds the alignments that reach a
    # state at a time, and later the state's share of all; onward [2, N, 2 M + 1] those that go on from it
    b = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    label += b * M
    end = T
    if STEPS:
        end = tl.minimum(tl.maximum(tl.load(steps + b).to(tl.int32), 0), T)
    count = M
    if COUNTS:
        count = tl.minimum(tl.maximum(tl.load(counts + b).to(tl.int32), 0), M)
    else:
        for start in range(0, M, BLOCK):
            j = start + lane
            c = tl.load(label + j, mask=j < M, other=0).to(tl.int64)
            count = tl.minimum(count, tl.min(tl.where((j < M) & (c == (-1 if BLANK else 0)), j, M)))
    last = 2 * count
    width = 2 * M + 1
    for i in range(tl.maximum(end, 1)):
        row = i * N + b
        norm = tl.load(sums + row)
        for start in range(0, last + 1, BLOCK):
            s = start + lane
            live = s <= last
            state = _state(label, s, M, K, BLANK, live)
            v = (tl.load(x + row * K + state, mask=live, other=0).to(WIDE) - norm).to(tl.float64)
            old = ahead + (((i + HELD - 1) % HELD) * N + b) * width + s
            jump = live & (s >= 3) & (s % 2 == 1)
            jump = jump & (state != _state(label, s - 2, M, K, BLANK, jump))
            stay = tl.load(old, mask=live & (i > 0), other=float("-inf"))
            step = tl.load(old - 1, mask=live & (i > 0) & (s > 0), other=float("-inf"))
            leap = tl.load(old - 2, mask=jump & (i > 0), other=float("-inf"))
            now = tl.where((i == 0) & (s <= 1), 0, _log_add(stay, step, leap))
            tl.store(ahead + ((i % HELD) * N + b) * width + s, now + v, mask=live)
        tl.debug_barrier()
    final = ahead + ((tl.maximum(end - 1, 0) % HELD) * N + b) * width + last
    one = tl.load(final)
    two = tl.load(final - 1, mask=last > 0, other=float("-inf"))
    every = _log_add(one, two, two - float("inf"))
    if LOSS:
        out = (-every).to(WIDE)
        if ADD:
            out += tl.load(loss + b).to(WIDE)
        tl.store(loss + b, out.to(loss.dtype.element_ty))
    if GRADIENT:
        tl.store(total + b, every)
        tl.store(span + b, end)
        tl.store(span + N + b, last)
        finite = every - every == 0
        for d in range(end):
            i = end - 1 - d
            row = i * N + b
            norm = tl.load(sums + row)
            for start in range(0, last + 1, BLOCK):
                s = start + lane
                live = s <= last
                state = _state(label, s, M, K, BLANK, live)
                v = (tl.load(x + row * K + state, mask=live, other=0).to(WIDE) - norm).to(tl.float64)
                old = onward + (((i + 1) % 2) * N + b) * width + s
                jump = (s % 2 == 1) & (s + 2 <= last)
                jump = jump & (state != _state(label, s + 2, M, K, BLANK, jump))
                stay = tl.load(old, mask=live & (d > 0), other=float("-inf"))
                step = tl.load(old + 1, mask=(s + 1 <= last) & (d > 0), other=float("-inf"))
                leap = tl.load(old + 2, mask=jump & (d > 0), other=float("-inf"))
                now = tl.where((d == 0) & (s >= last - 1), 0, _log_add(stay, step, leap))
                tl.store(onward + ((i % 2) * N + b) * width + s, now + v, mask=live)
                at = ahead + row * width + s
                here = tl.load(at, mask=live, other=float("-inf"))
                tl.store(at, tl.where(finite, tl.exp(here + now - every), 0), mask=live)
            tl.debug_barrier()


@triton.jit
def _gradient(x, label, sums, share, span, dx, rows: tl.int64, N: tl.int64, K: tl.int64, M, BLANK: tl.constexpr,
              ADD: tl.constexpr, WIDE: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    # narrow: rows of K classes. The probability of each class, less the shares of its states
    r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    c = (tl.program_id(1) * BC + tl.arange(0, BC)).to(tl.int64)[None, :]
    here = r < rows
    b = r % N
    last = tl.load(span + N + b, mask=here & (r // N < tl.load(span + b, mask=here, other=0)), other=-1)
    norm = tl.load(sums + r, mask=here, other=0)[:, None]
    live = here[:, None] & (c < K)
    at = r[:, None] * K + c
    v = tl.exp(tl.load(x + at, mask=live, other=0).to(WIDE) - norm)
    taken = tl.zeros((BR, BC), WIDE)
    for s in range(tl.max(last) + 1):
        inside = s <= last
        state = _state(label + b * M, s + tl.zeros((BR,), tl.int32), M, K, BLANK, inside)
        part = tl.load(share + r * (2 * M + 1) + s, mask=inside, other=0).to(WIDE)
        taken += tl.where(state[:, None] == c, part[:, None], 0)
    v = tl.where((last >= 0)[:, None], v - taken, 0)
    if ADD:
        v += tl.load(dx + at, mask=live, other=0).to(WIDE)
    tl.store(dx + at, v.to(dx.dtype.element_ty), mask=live)


def ctc(run: Run, arrays: list[DeviceArray], steps: DeviceArray | None, counts: DeviceArray | None, loss: DeviceArray,
        gradient: DeviceArray, *, blank_last: bool, reqs: Reqs) -> None:
    """loss [n] and its derivative [time, n, classes] = (or +=) those of arrays: data [time, n, classes] and label [n, m].

    steps, counts: [n], the lengths of the sequences and of the labels, or None.
    """
    x, label = arrays
    t, n, k = x.shape
    m = label.shape[1]
    width, rows = 2 * m + 1, t * n
    wide, wants = wide_float(x), reqs[1] != Req.NULL
    held = t if wants else 2
    sums = run.workspace((rows,), np.dtype(wide.name))
    ahead, onward = run.workspace((held, n, width), np.float64), run.workspace((2, n, width), np.float64)
    total, span = run.workspace((n,), np.float64), run.workspace((2, n), np.int32)
    bc = tile_size(k, 128)
    br = min(next_power_of_2(rows), 256 if interpreting() else 512 // bc)
    launch(_log_sums, (cdiv(rows, br),), x, sums, rows, k, stream=run.stream, WIDE=wide, BR=br, BC=bc)
    block = tile_size(width, 256, 4096)
    launch(_align, (n,), x, label, label if steps is None else steps, label if counts is None else counts, sums, ahead, onward,
           total, span, sums if loss is None else loss, t, n, k, m, held, stream=run.stream, num_stages=1,
           num_warps=max(1, min(4, block // 32)), STEPS=steps is not None, COUNTS=counts is not None, BLANK=blank_last,
           LOSS=reqs[0] != Req.NULL, ADD=reqs[0] == Req.ADD, GRADIENT=wants, WIDE=wide, BLOCK=block)
    if wants and k:
        launch(_gradient, (cdiv(rows, br), cdiv(k, bc)), x, label, sums, ahead, span, gradient, rows, n, k, m, stream=run.stream,
               BLANK=blank_last, ADD=reqs[1] == Req.ADD, WIDE=wide, BR=br, BC=bc)
