"""Triton: the templates of matrix product. triton_gemm.py chooses one and its blocks.

Every matrix is contiguous along rows or columns. TA: a [M, K] is stored as [K, M]; TB: b [K, N] is stored as [N, K]; c is
row-major. Sizes and leading dimensions are given in units of UNIT, so that the compiler knows what divides them.
"""

from __future__ import annotations

from ...gpu.epilogue import epilogue, epilogue_flat
from ...gpu.source import tl, triton


@triton.jit
def _place(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    # tiles that run at the same time share rows and columns, so that both stay in the cache
    group = tile // (GROUP * tiles_n)
    first = group * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    within = tile % (GROUP * tiles_n)
    return first + within % height, within // height


@triton.jit
def gemm_pointer(a, b, c, bias, M, N, K, lda: tl.int64, ldb: tl.int64, ldc: tl.int64, a_b: tl.int64, b_b: tl.int64,
                 c_b: tl.int64, splits, per_split, UNIT: tl.constexpr, TA: tl.constexpr, TB: tl.constexpr, SPLIT: tl.constexpr,
                 ADD: tl.constexpr, BIAS: tl.constexpr, WIDE: tl.constexpr, CAST: tl.constexpr,
                 PRECISION: tl.constexpr, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    # splits: each part of K leaves its own [M, N] sums in c, one after another
    M = M * UNIT
    N = N * UNIT
    K = K * UNIT
    lda = lda * UNIT
    ldb = ldb * UNIT
    ldc = ldc * UNIT
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    tile = tl.program_id(0) % (tiles_m * tiles_n)
    part = tl.program_id(0) // (tiles_m * tiles_n)
    batch = (part // splits).to(tl.int64)
    split = part % splits
    tile_m, tile_n = _place(tile, tiles_m, tiles_n, GROUP)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    first = 0
    last = K
    if SPLIT:
        first = split * (per_split * 16)
        last = tl.minimum(first + per_split * 16, K)
    if TA:
        pa = a + batch * (a_b * UNIT) + m.to(tl.int64)[:, None]
    else:
        pa = a + batch * (a_b * UNIT) + m.to(tl.int64)[:, None] * lda
    if TB:
        pb = b + batch * (b_b * UNIT) + n.to(tl.int64)[None, :] * ldb
    else:
        pb = b + batch * (b_b * UNIT) + n.to(tl.int64)[None, :]
    total = tl.zeros((BM, BN), WIDE)
    for start in range(first, last, BK):
        k = start + tl.arange(0, BK)
        k64 = k.to(tl.int64)
        if TA:
            x = tl.load(pa + k64[None, :] * lda, mask=(m[:, None] < M) & (k[None, :] < last), other=0)
        else:
            x = tl.load(pa + k64[None, :], mask=(m[:, None] < M) & (k[None, :] < last), other=0)
        if TB:
            y = tl.load(pb + k64[:, None], mask=(n[None, :] < N) & (k[:, None] < last), other=0)
        else:
            y = tl.load(pb + k64[:, None] * ldb, mask=(n[None, :] < N) & (k[:, None] < last), other=0)
        if CAST:
            x = x.to(WIDE)
            y = y.to(WIDE)
        total = tl.dot(x, y, total, input_precision=PRECISION, out_dtype=WIDE)
    at = c + part.to(tl.int64) * (c_b * UNIT) + m.to(tl.int64)[:, None] * ldc + n.to(tl.int64)[None, :]
    keep = (m[:, None] < M) & (n[None, :] < N)
    if BIAS:
        total += tl.load(bias + n, mask=n < N, other=0).to(WIDE)[None, :]
    total = epilogue(total, n, n < N)
    if ADD:
        total += tl.load(at, mask=keep, other=0).to(WIDE)
    tl.store(at, total.to(c.dtype.element_ty), mask=keep)


@triton.jit
def gemm_tma(a, b, c, bias, M, N, K, lda: tl.int64, ldb: tl.int64, ldc: tl.int64, programs, UNIT: tl.constexpr,
             TA: tl.constexpr, TB: tl.constexpr, ADD: tl.constexpr, BIAS: tl.constexpr,
             WIDE: tl.constexpr, CAST: tl.constexpr, PRECISION: tl.constexpr, SPECIALISE: tl.constexpr, SEND: tl.constexpr,
             HALVES: tl.constexpr, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    # each program walks over tiles; the copy engine fetches, zeros beyond the edges included, and with SEND stores. HALVES: the
    # parts in which a tile is stored: storing takes shared memory, and a wide tile needs that for its operands.
    # Only N and ldc are in units of UNIT
    N = N * UNIT
    ldc = ldc * UNIT
    if TA:
        da = tl.make_tensor_descriptor(a, [K, M], [lda, 1], [BK, BM])
    else:
        da = tl.make_tensor_descriptor(a, [M, K], [lda, 1], [BM, BK])
    if TB:
        db = tl.make_tensor_descriptor(b, [N, K], [ldb, 1], [BN, BK])
    else:
        db = tl.make_tensor_descriptor(b, [K, N], [ldb, 1], [BK, BN])
    if SEND:
        dc = tl.make_tensor_descriptor(c, [M, N], [ldc, 1], [BM, BN // HALVES])
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, programs, flatten=not SPECIALISE):
        tile_m, tile_n = _place(tile, tiles_m, tiles_n, GROUP)
        if SEND:  # known before the loop over K, where they take fewer registers than behind it
            first_m = tile_m * BM
            first_n = tile_n * BN
        total = tl.zeros((BM, BN), WIDE)
        for turn in tl.range(0, tl.cdiv(K, BK), warp_specialize=SPECIALISE):
            if TA:
                x = da.load([turn * BK, tile_m * BM]).T
            else:
                x = da.load([tile_m * BM, turn * BK])
            if TB:
                y = db.load([tile_n * BN, turn * BK]).T
            else:
                y = db.load([turn * BK, tile_n * BN])
            if CAST:
                x = x.to(WIDE)
                y = y.to(WIDE)
            total = tl.dot(x, y, total, input_precision=PRECISION, out_dtype=WIDE)
        m = tile_m * BM + tl.arange(0, BM)
        for half in tl.static_range(HALVES):
            part = total
            if HALVES == 2:
                left, right = tl.split(tl.permute(tl.reshape(total, (BM, 2, BN // 2)), (0, 2, 1)))
                part = left
                if half == 1:
                    part = right
            n = tile_n * BN + half * (BN // HALVES) + tl.arange(0, BN // HALVES)
            at = c + m.to(tl.int64)[:, None] * ldc + n.to(tl.int64)[None, :]
            keep = (m[:, None] < M) & (n[None, :] < N)
            if BIAS:
                part += tl.load(bias + n, mask=n < N, other=0).to(WIDE)[None, :]
            part = epilogue(part, n, n < N)
            if ADD:
                part += tl.load(at, mask=keep, other=0).to(WIDE)
            if SEND:
                dc.store([first_m, first_n + half * (BN // HALVES)], part.to(c.dtype.element_ty))
            else:
                tl.store(at, part.to(c.dtype.element_ty), mask=keep)


@triton.jit
def gemm_sum_splits(parts, c, bias, M, N, ldc: tl.int64, batches: tl.int64, c_b: tl.int64, splits,
                    UNIT: tl.constexpr, DENSE: tl.constexpr, ADD: tl.constexpr, BIAS: tl.constexpr,
                    WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # the parts of K, added in their order
    N = N * UNIT
    size = M * N.to(tl.int64)
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    keep = i < batches * size
    batch = i // size
    within = i % size
    n = (within % N).to(tl.int32)
    total = tl.zeros((BLOCK,), WIDE)
    for s in tl.range(splits, loop_unroll_factor=8):  # so many loads are on their way at once
        total += tl.load(parts + (batch * splits + s) * size + within, mask=keep, other=0)
    if BIAS:
        total += tl.load(bias + n, mask=keep, other=0).to(WIDE)
    total = epilogue_flat(total, n, keep)
    if DENSE:
        at = c + i
    else:
        at = c + batch * (c_b * UNIT) + within // N * (ldc * UNIT) + n
    if ADD:
        total += tl.load(at, mask=keep, other=0).to(WIDE)
    tl.store(at, total.to(c.dtype.element_ty), mask=keep)


@triton.jit
def gemv(a, x, y, bias, M, K, lda: tl.int64, x_step: tl.int64, y_step: tl.int64, UNIT: tl.constexpr, TA: tl.constexpr,
         ADD: tl.constexpr, BIAS: tl.constexpr, ROW_BIAS: tl.constexpr, WIDE: tl.constexpr,
         BM: tl.constexpr, BK: tl.constexpr):
    # y [M] = a [M, K] · x [K]: reads a once, as wide as memory gives it
    M = M * UNIT
    K = K * UNIT
    lda = lda * UNIT
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    total = tl.zeros((BM, BK), WIDE)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        keep = (m[:, None] < M) & (k[None, :] < K)
        if TA:
            w = tl.load(a + k.to(tl.int64)[None, :] * lda + m[:, None], mask=keep, other=0).to(WIDE)
        else:
            w = tl.load(a + m.to(tl.int64)[:, None] * lda + k[None, :], mask=keep, other=0).to(WIDE)
        total += w * tl.load(x + k * x_step, mask=k < K, other=0).to(WIDE)[None, :]
    folded = tl.sum(total, axis=1)
    n = m * ROW_BIAS  # y is a row of the result, or its only column
    if BIAS:
        folded += tl.load(bias + n, mask=m < M, other=0).to(WIDE)
    folded = epilogue_flat(folded, n, m < M)
    if ADD:
        folded += tl.load(y + m * y_step, mask=m < M, other=0).to(WIDE)
    tl.store(y + m * y_step, folded.to(y.dtype.element_ty), mask=m < M)
