"""Kernels in Triton's language: copies between strided views, one element a lane or by tiles, and fill."""

from .source import tl, triton


@triton.jit
def converted(x, CUT: tl.constexpr, WIDE: tl.constexpr):
    # converts x for adding and storing: WIDE to float32, CUT to integers
    if WIDE:
        x = x.to(tl.float32)
    if CUT:
        x = x.to(tl.int64)
    return x


@triton.jit
def put_tile(x, at, keep, ADD: tl.constexpr, WIDE: tl.constexpr):
    if ADD:
        old = tl.load(at, mask=keep)
        if WIDE:
            old = old.to(tl.float32)
        x = x.to(old.dtype) + old
    tl.store(at, x.to(at.dtype.element_ty), mask=keep)


@triton.jit
def copy_tiles(src, dst, src_base: tl.int64, dst_base: tl.int64, rows: tl.int64, columns: tl.int64,
               d1: tl.int64, d2: tl.int64, d3: tl.int64,
               s0: tl.int64, s1: tl.int64, s2: tl.int64, s3: tl.int64, t0: tl.int64, t1: tl.int64, t2: tl.int64, t3: tl.int64,
               s_row: tl.int64, s_column: tl.int64, t_row: tl.int64, t_again: tl.int64,
               HOW: tl.constexpr, FLAT: tl.constexpr, UNIT_R: tl.constexpr, UNIT_C: tl.constexpr, UNIT_S: tl.constexpr,
               UNIT_T: tl.constexpr, REPEAT: tl.constexpr, AGAIN: tl.constexpr, ADD: tl.constexpr, CUT: tl.constexpr,
               WIDE: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    # HOW: the contiguous axis of the source is "along" that of the target, "turned" (its rows), or "apart" (the source has none)
    # FLAT: a turned tile is contiguous in the "source", which has just BR rows, or in the "target"; with three colours and other
    # counts that are not powers of two, as tile sizes must be, one side is narrow
    # every element is written REPEAT times in a row, and the tile AGAIN times at distance t_again
    rows = rows * UNIT_R
    columns = columns * UNIT_C
    tiles_r = tl.cdiv(rows, BR)
    tiles_c = tl.cdiv(columns, BC)
    place = tl.program_id(0).to(tl.int64)
    top = (place // tiles_c % tiles_r) * BR
    r = top + tl.arange(0, BR)[:, None]
    left = (place % tiles_c) * BC
    c = left + tl.arange(0, BC)[None, :]
    place = place // tiles_c // tiles_r
    i3 = place % d3
    place = place // d3
    i2 = place % d2
    place = place // d2
    i1 = place % d1
    i0 = place // d1
    a = src + (src_base + i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3) * UNIT_S
    b = dst + (dst_base + i0 * t0 + i1 * t1 + i2 * t2 + i3 * t3) * UNIT_T
    inside = (r < rows) & (c < columns)
    if FLAT == "source":
        at = left * BR + tl.arange(0, BR * BC)
        x = tl.trans(tl.reshape(tl.load(a + at, mask=at < columns * BR), (BC, BR)))
    elif HOW == "along":
        x = tl.load(a + r * (s_row * UNIT_S) + c, mask=inside)
    elif HOW == "turned":
        x = tl.load(a + r + c * (s_column * UNIT_S), mask=inside)
    else:
        x = tl.load(a + r * (s_row * UNIT_S) + c * (s_column * UNIT_S), mask=inside)
    x = converted(x, CUT, WIDE)
    if FLAT == "target":
        x = tl.reshape(x, (BR * BC,))
        c = top * BC + tl.arange(0, BR * BC)
        inside = c < rows * BC
        b += c
    else:
        if REPEAT > 1:
            x = tl.reshape(tl.broadcast_to(x[:, :, None], (BR, BC, REPEAT)), (BR, BC * REPEAT))
            c = left * REPEAT + tl.arange(0, BC * REPEAT)[None, :]
            inside = (r < rows) & (c < columns * REPEAT)
        b += r * (t_row * UNIT_T) + c
    for _ in tl.static_range(AGAIN):
        put_tile(x, b, inside, ADD, WIDE)
        b += t_again * UNIT_T


@triton.jit
def copy_strided(src, dst, src_base: tl.int64, dst_base: tl.int64, n: tl.int64,
          d1: tl.int64, d2: tl.int64, d3: tl.int64, d4: tl.int64, d5: tl.int64,
          s0: tl.int64, s1: tl.int64, s2: tl.int64, s3: tl.int64, s4: tl.int64, s5: tl.int64,
          t0: tl.int64, t1: tl.int64, t2: tl.int64, t3: tl.int64, t4: tl.int64, t5: tl.int64,
          ADD: tl.constexpr, CUT: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # narrow: used for views that no tile fits, contiguous in one array and strided in the other
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    keep = i < n
    i5 = i % d5
    r = i // d5
    i4 = r % d4
    r = r // d4
    i3 = r % d3
    r = r // d3
    i2 = r % d2
    r = r // d2
    i1 = r % d1
    i0 = r // d1
    x = tl.load(src + src_base + i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3 + i4 * s4 + i5 * s5, mask=keep)
    at = dst + dst_base + i0 * t0 + i1 * t1 + i2 * t2 + i3 * t3 + i4 * t4 + i5 * t5
    put_tile(converted(x, CUT, WIDE), at, keep, ADD, WIDE)


@triton.jit
def fill_block(dst, begin: tl.int64, n: tl.int64, bits: tl.int64, UNIT: tl.constexpr, INTEGER: tl.constexpr,
               BLOCK: tl.constexpr):
    # n elements from element begin · UNIT on become the one whose bits are those of an integer of their size
    dst += begin * UNIT
    base = tl.program_id(0).to(tl.int64) * BLOCK
    i = base + tl.arange(0, BLOCK)
    element = (tl.zeros((BLOCK,), tl.int64) + bits).to(INTEGER)
    if dst.dtype.element_ty == tl.int1:
        v = element != 0
    else:
        v = element.to(dst.dtype.element_ty, bitcast=True)
    if base + BLOCK <= n:
        tl.store(dst + i, v)
    else:
        tl.store(dst + i, v, mask=i < n)


@triton.jit
def write_place(dst, held, seed: tl.int64, offset: tl.int64, HELD: tl.constexpr):
    # dst [2] becomes seed and offset, or those in held with offset added to the second
    # narrow: two numbers
    if HELD:
        seed = tl.load(held)
        offset += tl.load(held + 1)
    tl.store(dst, seed)
    tl.store(dst + 1, offset)
