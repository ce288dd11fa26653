"""Sorted order, the first of it, and extremes along an axis, in C: by integer keys whose order is that of the numbers.

A key and the index of its element make one integer. All are different, so the order of equal elements is known. A line is sorted
digit by digit, a short one by counting the elements before each. Of a line whose first few elements are wanted, only those that
may be among them are kept. NaN is larger than every number, -0.0 equals 0.0. Each dtype has a C file of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from ...integers import cdiv
from .c_math import TYPES
from .c_team import Phases, Scratch, int64s
from .c_template import Call, Template

LEAST = 1 << 12  # elements for which C is compiled at once
PIECE = 1 << 14  # elements of a piece
PIECES = 64  # at most: each has scratch memory
KEPT, FEW = 512, 32  # up to so many wanted elements, of FEW times as many, are kept in order while the others are read
RANKED = 128  # elements of a line up to which each is compared with each
COLUMNS = 512  # lines beside each other whose extremes are found together
#: How indices are written, by their dtype.
KINDS = {"int64": 1, "int32": 2, "float32": 3, "float64": 4}

_TEXT = """
typedef struct {
    int64_t outer, n, inner, k, down, kind, lines, scratch, first;  /* of a piece: lines, bytes of scratch; first: few are kept */
} order_sizes;

static inline K order_key(T x, int64_t down, K nan)
{
    %(key)s
    key = down ? ~key : key;
    return %(nan)s ? nan : key;
}

static inline void order_put(void *y, int64_t kind, int64_t at, int64_t index)
{
    if (kind == 1) ((int64_t *)y)[at] = index;
    else if (kind == 2) ((int32_t *)y)[at] = (int32_t)index;
    else if (kind == 3) ((float *)y)[at] = (float)index;
    else ((double *)y)[at] = (double)index;
}

/* Sort a[0..n) by digits of so many bits; b: as much memory. Equal keys keep their order. Returns where they are. */
static inline W *order_digits(W *a, W *b, int64_t n, const int digit)
{
    const int digits = (8 * (int)sizeof(K) + digit - 1) / digit;
    const K mask = ((K)1 << digit) - 1;
    uint32_t counts[2048];
    for (int d = 0; d < digits; d++) {
        memset(counts, 0, sizeof *counts << digit);
        for (int64_t i = 0; i < n; i++) counts[KEY(a[i]) >> d * digit & mask]++;
        if (counts[KEY(a[0]) >> d * digit & mask] == n) continue;
        for (uint32_t i = 0, sum = 0; i <= mask; i++) { const uint32_t c = counts[i]; counts[i] = sum; sum += c; }
        for (int64_t i = 0; i < n; i++) b[counts[KEY(a[i]) >> d * digit & mask]++] = a[i];
        W *const c = a; a = b; b = c;
    }
    return a;
}

static W *order_sort(W *a, W *b, int64_t n)
{
    if (n > 4096) return order_digits(a, b, n, 11);
    if (n > %(ranked)d) return order_digits(a, b, n, 8);
    K keys[%(ranked)d];
    for (int64_t i = 0; i < n; i++) keys[i] = KEY(a[i]);
    for (int64_t i = 0; i < n; i++) {  /* its place is the number of elements before it */
        const K key = keys[i];
        K less = 0, same = 0;
        for (int64_t j = 0; j < n; j++) less += keys[j] < key, same += keys[j] == key;
        for (int64_t j = 0; same > 1 && j < i; j++) less += keys[j] == key;
        b[less] = a[i];
    }
    return b;
}

/* The first k of a line, in order, in a: only elements before the last of them are looked at. */
static void order_first(const T *x, int64_t step, int64_t n, int64_t k, int64_t down, W *a)
{
    const K nan = down ? 0 : (K)~(K)0;
    K keys[32], most = 0;
    int64_t have = 0;
    for (int64_t i0 = 0; i0 < n; i0 += 32) {
        const int64_t m = n - i0 < 32 ? n - i0 : 32;
        K any = 0;
        if (step == 1) for (int64_t i = 0; i < m; i++) keys[i] = order_key(x[i0 + i], down, nan);
        else for (int64_t i = 0; i < m; i++) keys[i] = order_key(x[(i0 + i) * step], down, nan);
        for (int64_t i = 0; i < m; i++) any |= keys[i] < most;
        if (have == k && !any) continue;
        for (int64_t i = 0; i < m; i++) {
            if (have == k && !(i & 7) && i + 8 <= m) {
                for (int64_t j = any = 0; j < 8; j++) any |= keys[i + j] < most;
                if (!any) { i += 7; continue; }
            }
            if (have == k && keys[i] >= most) continue;
            int64_t low = 0;  /* after all that are not larger */
            if (k > 16)
                for (int64_t high = have; low < high;) {
                    const int64_t middle = (low + high) / 2;
                    if (KEY(a[middle]) <= keys[i]) low = middle + 1; else high = middle;
                }
            have += have < k;
            if (k > 16) memmove(a + low + 1, a + low, (have - 1 - low) * sizeof *a);
            else for (low = have - 1; low && KEY(a[low - 1]) > keys[i]; low--) a[low] = a[low - 1];
            a[low] = MAKE(keys[i], i0 + i);
            most = KEY(a[have - 1]);
        }
    }
}

/* arrays: data [outer][n][inner]; values and indices [outer][k][inner], and a mask like data, each or null; scratch; sizes. */
void order_%(name)s(void *const *arrays, int64_t begin, int64_t end)
{
    const order_sizes *g = arrays[5];
    const int64_t n = g->n, k = g->k, inner = g->inner, all = g->outer * inner;
    const K nan = g->down ? 0 : (K)~(K)0;
    for (int64_t piece = begin; piece < end; piece++) {
        W *const a = (W *)((char *)arrays[4] + piece * g->scratch), *found = a;
        for (int64_t line = piece * g->lines; line < (piece + 1) * g->lines && line < all; line++) {
            const int64_t o = line / inner, c = line %% inner;
            const T *const x = (const T *)arrays[0] + o * n * inner + c;
            if (g->first) order_first(x, inner, n, k, g->down, a);
            else {
                for (int64_t i = 0; i < n; i++) a[i] = MAKE(order_key(x[i * inner], g->down, nan), i);
                found = order_sort(a, a + n, n);
            }
            if (arrays[1]) {
                T *const y = (T *)arrays[1] + o * k * inner + c;
                for (int64_t i = 0; i < k; i++) y[i * inner] = x[INDEX(found[i]) * inner];
            }
            if (arrays[2]) for (int64_t i = 0; i < k; i++)
                order_put(arrays[2], g->kind, (o * k + i) * inner + c, (int64_t)INDEX(found[i]));
            if (arrays[3]) {
                T *const y = (T *)arrays[3] + o * n * inner + c;
                for (int64_t i = 0; i < n; i++) y[i * inner] = 0;
                for (int64_t i = 0; i < k; i++) y[INDEX(found[i]) * inner] = 1;
            }
        }
    }
}

/* The first element of the least key in a dense line. */
static int64_t order_least(const T *x, int64_t n, int64_t down)
{
    int64_t at = 0;
    K best = (K)~(K)0;
    for (int64_t i0 = 0; i0 < n; i0 += 1024) {
        const int64_t m = n - i0 < 1024 ? n - i0 : 1024;
        K lanes[64], least = (K)~(K)0;
        int64_t i = 0;
        for (int l = 0; l < 64; l++) lanes[l] = least;
        for (; i + 64 <= m; i += 64)
            for (int l = 0; l < 64; l++) {
                const K key = order_key(x[i0 + i + l], down, 0);
                lanes[l] = key < lanes[l] ? key : lanes[l];
            }
        for (; i < m; i++) { const K key = order_key(x[i0 + i], down, 0); least = key < least ? key : least; }
        for (int l = 0; l < 64; l++) least = lanes[l] < least ? lanes[l] : least;
        if (least < best) best = least, at = i0;
    }
    for (; order_key(x[at], down, 0) != best; at++);
    return at;
}

/* arrays: data, indices [outer][inner], sizes. A piece is some dense lines, or up to %(columns)d lines beside each other. */
void extreme_%(name)s(void *const *arrays, int64_t begin, int64_t end)
{
    const order_sizes *g = arrays[2];
    const int64_t n = g->n, inner = g->inner, down = g->down, cuts = (inner + %(columns)d - 1) / %(columns)d;
    K best[%(columns)d], at[%(columns)d];
    for (int64_t piece = begin; piece < end; piece++) {
        if (inner == 1) {
            for (int64_t line = piece * g->lines; line < (piece + 1) * g->lines && line < g->outer; line++)
                order_put(arrays[1], g->kind, line, order_least((const T *)arrays[0] + line * n, n, down));
            continue;
        }
        for (int64_t part = piece * g->lines; part < (piece + 1) * g->lines && part < g->outer * cuts; part++) {
            const int64_t o = part / cuts, c = part %% cuts * %(columns)d, m = inner - c < %(columns)d ? inner - c : %(columns)d;
            const T *x = (const T *)arrays[0] + o * n * inner + c;
            for (int64_t j = 0; j < m; j++) best[j] = order_key(x[j], down, 0), at[j] = 0;
            for (int64_t i = 1; i < n; i++) {
                x += inner;
                for (int64_t j = 0; j < m; j++) {
                    const K key = order_key(x[j], down, 0);
                    at[j] = key < best[j] ? (K)i : at[j];
                    best[j] = key < best[j] ? key : best[j];
                }
            }
            for (int64_t j = 0; j < m; j++) order_put(arrays[1], g->kind, o * inner + c + j, (int64_t)at[j]);
        }
    }
}
"""

_WIDE = """
typedef struct { uint64_t key, index; } order_pair;
typedef uint64_t K;
typedef order_pair W;
#define KEY(w) (w).key
#define INDEX(w) (w).index
#define MAKE(key, index) ((order_pair){key, index})
"""
_NARROW = """
typedef uint32_t K;
typedef uint64_t W;
#define KEY(w) (uint32_t)((w) >> 32)
#define INDEX(w) (uint32_t)(w)
#define MAKE(key, index) ((uint64_t)(key) << 32 | (uint64_t)(index))
"""


def _key(dtype: np.dtype) -> tuple[str, str]:
    """Return the statements that declare the key of x, and the C text of the question whether x is NaN."""
    wide = dtype.itemsize == 8
    bits = 64 if wide else 32
    if dtype.kind == "f":
        zero = "0.0" if wide else "0.0f"
        return (f"const T v = x + {zero}; K key; memcpy(&key, &v, sizeof key); "
                f"key ^= (K)((int{bits}_t)key >> {bits - 1}) | (K)1 << {bits - 1};", "x != x")
    if dtype.kind == "i":
        return f"K key = (K)(int{bits}_t)x ^ (K)1 << {bits - 1};", "0"
    return "K key = x;", "0"


@functools.cache
def template(dtype: np.dtype) -> Template:
    """Return the functions for a dtype that has a C type."""
    key, nan = _key(dtype)

    def text() -> str:
        head = f"typedef {TYPES[dtype.name]} T;{_WIDE if dtype.itemsize == 8 else _NARROW}"
        return head + _TEXT % {"name": dtype.name, "key": key, "nan": nan, "columns": COLUMNS, "ranked": RANKED}

    return Template(text, (f"order_{dtype.name}", f"extreme_{dtype.name}"))


def orders(dtype: np.dtype, lines: tuple[int, int, int]) -> bool:
    """Return whether C sorts lines [outer, n, inner] along n and finds their extremes. The order is NumPy's."""
    outer, n, inner = lines
    return dtype.name in TYPES and n < 2**31 and template(dtype).serves(outer * n * inner, LEAST, exact=True)


def ordered(dtype: np.dtype, lines: tuple[int, int, int], k: int, down: bool, kind: int) -> Callable[..., Phases]:
    """Return bind(x, values, indices, mask), whose run sorts the first k elements of each line [outer, n, inner].

    It writes what is not None: values and indices [outer, k, inner], and ones at these elements in a mask like x.
    kind: how indices are written, of KINDS.
    """
    outer, n, inner = lines
    first = k <= KEPT and FEW * k <= n
    count = (k if first else 2 * n) * (2 if dtype.itemsize == 8 else 1)  # numbers of 64 bits
    each = max(1, PIECE // n, cdiv(outer * inner, PIECES))
    numbers = int64s(outer, n, inner, k, int(down), kind, each, 8 * count, int(first))
    call = Call(template(dtype), f"order_{dtype.name}", cdiv(outer * inner, each), numbers)

    def bind(x: np.ndarray, values: np.ndarray | None, indices: np.ndarray | None, mask: np.ndarray | None) -> Phases:
        step = call.prepare(x, values, indices, mask, None)
        return Phases([[step]], scratch=[Scratch(2 * count * call.pieces, [(step.addresses, 4)])])

    return bind


def extreme(dtype: np.dtype, lines: tuple[int, int, int], low: bool, kind: int) -> Call:
    """Return the C function of (x, indices) that writes the index of the first largest or smallest element of each line.

    Lines are [outer, n, inner]; NaN wins. kind: as for `ordered`.
    """
    outer, n, inner = lines
    parts = outer if inner == 1 else outer * cdiv(inner, COLUMNS)
    each = max(1, 2 * PIECE // (n * min(inner, COLUMNS)), cdiv(parts, PIECES))
    numbers = int64s(outer, n, inner, 1, int(not low), kind, each, 0, 0)
    return Call(template(dtype), f"extreme_{dtype.name}", cdiv(parts, each), numbers)
