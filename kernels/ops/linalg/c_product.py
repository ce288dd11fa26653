"""Matrix products in C: tiles of the result in registers, from one matrix as it lies and one that is packed into panels.

The sum of a tile runs along rows of the first matrix or along its columns, whichever lie in memory. Either operand may be the one
that is packed: then the result is computed as its transpose. What costs less by the sizes is done, so that a product of a small
batch and a large weight packs the batch and reads the weight once. Sizes alone decide, so results have the same bits for any
number of threads.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ....integers import cdiv
from ...configs import active as active_configs
from ...configs.key import Key, key
from ...cpu.c_team import Follower, Phases, Scratch, Step, aligned, int64s
from ...cpu.c_template import Call, Template, address, pays
from ...cpu.c_tile import MOST_COLUMNS, tile_text
from ...kernel import BoundKernel
from . import c_narrow

LEAST, LEAST_BOUND = 1 << 15, 1 << 12  # multiplications from which on C computes; in a bound graph, where all is one call
NARROW = 8  # rows and columns from which on it does: below, BLAS multiplies a matrix and a vector
DEPTH = 1024  # elements of a sum between which a tile is stored
PANELS = 1 << 17  # elements of the panels that are read again and again: they stay in the second cache
WORK, PIECES = 1 << 20, 16  # multiplications that are worth a piece of their own; pieces of a product, about
SLICE = 192  # elements of a sum between which a tile is stored, where both matrices are packed
FEW_ROWS, SHALLOW = 96, 256  # rows and depth up to which panels are read where they lie
COPY = 1 << 13  # elements of a piece that are packed
LANES = 16  # of a vector, for the estimate of what a product costs

_TEXT = """
typedef struct {
    int64_t rows, columns, depth, x_row, x_depth, y_row, y_column, row_block, row_blocks, column_block, column_blocks, add, chunk,
        x_next, w_next, y_next, w_row, packed_from, w_matrix;
} product_sizes;

#define LEAST(a, b) ((a) < (b) ? (a) : (b))

/* Return the panel of matrix i that begins in column f, from row k on, and set the step to its next row: where the second matrix
   is read as it lies, only what is left over beside whole panels is packed. */
static inline const float *product_panel(const product_sizes *g, void *const *arrays, int64_t i, int64_t f, int64_t k,
                                         int narrow, int64_t *step)
{
    if (g->w_row && f + (narrow ? LANES : COLUMNS) <= g->columns) {
        *step = g->w_row;
        return (const float *)arrays[6] + i * g->w_matrix + k * g->w_row + f;
    }
    *step = COLUMNS;
    return (const float *)arrays[1] + i * g->w_next + (f - g->packed_from) * g->depth + k * COLUMNS;
}

/* arrays: the matrix, its panels [matrix][panel][depth][COLUMNS], then depth, columns, the steps of both, the depth and the
   columns of a piece, and the steps to the next matrix and its panels. */
void product_pack(void *const *arrays, int64_t begin, int64_t end)
{
    const int64_t *s = arrays[2], K = s[0], N = s[1], down = s[2], along = s[3];
    const int64_t high = (K + s[4] - 1) / s[4], wide = (N + s[5] - 1) / s[5];
    for (int64_t piece = begin; piece < end; piece++) {
        const float *b = (const float *)arrays[0] + piece / (high * wide) * s[6];
        float *panels = (float *)arrays[1] + piece / (high * wide) * s[7];
        const int64_t first = piece % wide * s[5], last = LEAST(first + s[5], N);
        const int64_t from = piece / wide % high * s[4], to = LEAST(from + s[4], K);
        if (along == 1)
            for (int64_t k = from; k < to; k++)
                for (int64_t f = first; f < last; f += COLUMNS) {
                    float *out = panels + f * K + k * COLUMNS;
                    if (f + COLUMNS <= N) { memcpy(out, b + k * down + f, sizeof(float) * COLUMNS); continue; }
                    memset(out, 0, sizeof(float) * COLUMNS);
                    memcpy(out, b + k * down + f, sizeof(float) * (N - f));
                }
        else for (int64_t f = first; f < last; f += COLUMNS) {
            float *out = panels + f * K;
            const int64_t columns = LEAST(COLUMNS, N - f);
            if (columns < COLUMNS) memset(out + from * COLUMNS, 0, sizeof(float) * (to - from) * COLUMNS);
            for (int64_t k0 = from; k0 < to; k0 += 16) {
                const int64_t n = LEAST(16, to - k0);
                for (int64_t l = 0; l < columns; l++)
                    for (int64_t k = k0; k < k0 + n; k++) out[k * COLUMNS + l] = b[(f + l) * along + k * down];
            }
        }
    }
}

/* arrays: a matrix, panels, a number added to each column or null, one added to each row or null, the result, sizes, the second
   matrix. */
void product_rows(void *const *arrays, int64_t begin, int64_t end)
{
    const product_sizes *g = arrays[5];
    const int64_t K = g->depth, none = 0;
    const float *bias = arrays[2], *row_bias = arrays[3];
    float tile[TILE_ROWS * COLUMNS], *in_tile[TILE_ROWS];
    for (int i = 0; i < TILE_ROWS; i++) in_tile[i] = tile + i * COLUMNS;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t r0 = piece % g->row_blocks * g->row_block, r1 = LEAST(r0 + g->row_block, g->rows);
        const int64_t f0 = piece / g->row_blocks % g->column_blocks * g->column_block;
        const int64_t f1 = LEAST(f0 + g->column_block, g->columns), i = piece / (g->row_blocks * g->column_blocks);
        for (int64_t k = 0; k < K; k += g->chunk) {
            const int64_t n = LEAST(g->chunk, K - k), ends = k + n == K;
            const int load = k || g->add;
            for (int64_t r = r0, m; r < r1; r += m) {
                m = tile_next(TILE_ROWS, r1 - r);
                const float *x = (const float *)arrays[0] + i * g->x_next + r * g->x_row + k * g->x_depth, *xs[TILE_ROWS];
                for (int64_t j = 0; j < m; j++) xs[j] = x + j * g->x_row;
                for (int64_t f = f0; f < f1; f += COLUMNS) {
                    const int64_t columns = LEAST(COLUMNS, f1 - f);
                    float *y = (float *)arrays[4] + i * g->y_next + r * g->y_row + f * g->y_column;
                    float *ys[TILE_ROWS], added[COLUMNS] = {0};
                    const int narrow = columns <= LANES;
                    int64_t w_step;
                    const float *w = product_panel(g, arrays, i, f, k, narrow, &w_step);
                    const int in_place = !row_bias && g->y_column == 1 && columns == (narrow ? LANES : COLUMNS);
                    if (bias && ends) memcpy(added, bias + f, sizeof(float) * columns);
                    for (int64_t j = 0; j < m; j++) ys[j] = y + j * g->y_row;
                    if (!in_place && load)
                        for (int64_t l = 0; l < columns; l++)
                            for (int64_t j = 0; j < m; j++) in_tile[j][l] = ys[j][l * g->y_column];
                    if (g->x_depth == 1) tile_rows(m, xs, g->x_row, in_place ? ys : in_tile, &none, &n, 1, w, w_step, added,
                                                   NO_FLOOR, load, narrow, (const char *)w, 0);
                    else tile_outer(m, x, 1, 0, n, g->x_depth, w, w_step, in_place ? ys : in_tile, added, load, narrow);
                    if (in_place) continue;
                    if (row_bias && ends)
                        for (int64_t j = 0; j < m; j++)
                            for (int64_t l = 0; l < columns; l++) tile[j * COLUMNS + l] += row_bias[r + j];
                    for (int64_t l = 0; l < columns; l++)
                        for (int64_t j = 0; j < m; j++) ys[j][l * g->y_column] = in_tile[j][l];
                }
            }
        }
    }
}

#define STRIP (11 * TILE_ROWS)  /* rows of the first matrix that are packed at a time */

/* As product_rows, where the rows of the first matrix lie next to each other (x_row is 1): strips of them are packed in turn, so
   that all panels read them in order. */
void product_columns(void *const *arrays, int64_t begin, int64_t end)
{
    const product_sizes *g = arrays[5];
    const int64_t K = g->depth;
    const float *bias = arrays[2], *row_bias = arrays[3];
    float strip[SLICE * STRIP], tile[TILE_ROWS * COLUMNS];
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t r0 = piece % g->row_blocks * g->row_block, r1 = LEAST(r0 + g->row_block, g->rows);
        const int64_t f0 = piece / g->row_blocks % g->column_blocks * g->column_block;
        const int64_t f1 = LEAST(f0 + g->column_block, g->columns), i = piece / (g->row_blocks * g->column_blocks);
        for (int64_t k = 0; k < K; k += SLICE)
        for (int64_t s = r0; s < r1; s += STRIP) {
            const int64_t n = LEAST(SLICE, K - k), ends = k + n == K, rows = LEAST(STRIP, r1 - s);
            const int load = k || g->add;
            const float *x = (const float *)arrays[0] + i * g->x_next + s + k * g->x_depth;
            for (int64_t j = 0; j < n; j++, x += g->x_depth)
                for (int64_t r = 0; r < rows; r += TILE_ROWS) {
                    float *to = strip + r * n + j * TILE_ROWS;
                    if (r + TILE_ROWS <= rows) memcpy(to, x + r, sizeof(float) * TILE_ROWS);
                    else memcpy(to, x + r, sizeof(float) * (rows - r));
                }
            for (int64_t f = f0; f < f1; f += COLUMNS) {
                const int64_t columns = LEAST(COLUMNS, f1 - f);
                const int narrow = columns <= LANES;
                int64_t w_step;
                const float *w = product_panel(g, arrays, i, f, k, narrow, &w_step);
                const int in_place = !row_bias && g->y_column == 1 && columns == (narrow ? LANES : COLUMNS);
                float added[COLUMNS] = {0};
                if (bias && ends) memcpy(added, bias + f, sizeof(float) * columns);
                for (int64_t r = 0; r < rows; r += TILE_ROWS) {
                    const int64_t m = LEAST(TILE_ROWS, rows - r);
                    float *y = (float *)arrays[4] + i * g->y_next + (s + r) * g->y_row + f * g->y_column, *ys[TILE_ROWS];
                    for (int64_t j = 0; j < m; j++) ys[j] = in_place ? y + j * g->y_row : tile + j * COLUMNS;
                    if (!in_place && load)
                        for (int64_t l = 0; l < columns; l++)
                            for (int64_t j = 0; j < m; j++) ys[j][l] = y[j * g->y_row + l * g->y_column];
                    tile_outer(m, strip + r * n, 1, 0, n, TILE_ROWS, w, w_step, ys, added, load, narrow);
                    if (in_place) continue;
                    for (int64_t j = 0; j < m; j++)
                        for (int64_t l = 0; l < columns; l++)
                            y[j * g->y_row + l * g->y_column] = ys[j][l] + (row_bias && ends ? row_bias[s + r + j] : 0);
                }
            }
        }
    }
}
"""

TEMPLATE = Template(lambda: f"{tile_text()}\n#define SLICE {SLICE}\n{_TEXT}", ("product_pack", "product_rows", "product_columns"))


class Operand(NamedTuple):
    """Matrices: the elements from one row, one column and one matrix to the next. One of the first two is 1."""

    row: int
    column: int
    matrix: int = 0

    @property
    def turned(self) -> Operand:
        return Operand(self.column, self.row, self.matrix)


@dataclass(frozen=True, slots=True)
class _Roles:
    """A product as C computes it: rows of one matrix, panels of the other.

    turned:  the result is computed as its transpose.
    """

    batch: int
    rows: int
    columns: int
    depth: int
    x: Operand
    w: Operand
    y: Operand
    turned: bool

    @property
    def packed_from(self) -> int:
        """Return the column from which on the second matrix is packed: only what is left over, where it is read few times."""
        few = self.rows <= FEW_ROWS or (self.depth <= SHALLOW and self.rows <= 8 * FEW_ROWS)
        return self.columns // MOST_COLUMNS * MOST_COLUMNS if few and self.w.column == 1 else 0

    def cost(self) -> float:
        """Return about how many half cycles it takes."""
        vectors = self.rows * cdiv(self.columns, LANES) * self.depth
        packed = self.depth * (self.columns - self.packed_from) * (2.0 if self.w.row == 1 else 0.2)
        stored = self.rows * self.columns * (2.0 if self.y.column > 1 else 0.2)
        return self.batch * (vectors + stored) + (self.batch if self.w.matrix else 1) * packed


def gemm_key(batch: int, m: int, n: int, k: int, dtype: np.dtype) -> Key:
    """Return the tuning key of a product, in C or by BLAS."""
    return key("cpu gemm", dtype.name, "", batch=batch, m=m, n=n, k=k)


def in_c(batch: int, m: int, n: int, k: int, *, in_graph: bool = False) -> bool:
    """Return whether C computes a product in float32: that depends on its sizes and the machine alone.

    in_graph:  for arrays that it is bound to. There C also computes narrow products (c_narrow).
    """
    return min(m, n) >= NARROW and TEMPLATE.serves(batch * m * n * k, LEAST_BOUND if in_graph else LEAST)


def c_files(batch: int, m: int, n: int, k: int) -> list[Template]:
    """Return the C files of a product in a graph; none where it is not computed in C."""
    return [TEMPLATE] if min(m, n) >= NARROW and pays(batch * m * n * k, LEAST_BOUND) else []


def packing(matrices: int, depth: int, columns: int, steps: Sequence[int], panels: int) -> Call:
    """Return the call that packs matrices. steps: from row to row, column and matrix. panels: elements of a packed matrix.

    A piece is some rows as they lie in memory: a thread packs what it wrote before, and others leave it in its cache.
    """
    deep, wide = (cdiv(COPY, columns), columns) if steps[1] == 1 else (depth, cdiv(COPY, depth * MOST_COLUMNS) * MOST_COLUMNS)
    pieces = matrices * cdiv(depth, deep) * cdiv(columns, wide)
    return Call(TEMPLATE, "product_pack", pieces, int64s(depth, columns, *steps[:2], deep, wide, steps[2], panels))


class Product:
    """out [batch, m, n] = (or +=) a [batch, m, k] @ b [batch, k, n] + bias [n], each given by its steps."""

    def __init__(self, batch: int, m: int, n: int, k: int, a: Operand, b: Operand, out: Operand, add: bool, piece: int,
                 threads: int, packs_b: bool = False):
        straight = _Roles(batch, m, n, k, a, b, out, False)
        other = _Roles(batch, n, m, k, b.turned, a.turned, out.turned, True)
        roles = self.roles = straight if packs_b else min(straight, other, key=_Roles.cost)
        first = 0 if packs_b else roles.packed_from
        left = roles.columns - first
        panels, matrices = k * cdiv(left, MOST_COLUMNS) * MOST_COLUMNS, batch if roles.w.matrix else 1
        self.threads, self.packed, self._first = threads, matrices * panels, first
        self.pack: Call | None = None
        if left:
            self.pack = packing(matrices, k, left, roles.w, panels)
        row_block, column_block = _blocks(roles, piece)
        row_blocks, column_blocks = cdiv(roles.rows, row_block), cdiv(roles.columns, column_block)
        by = "product_rows" if roles.x.column == 1 else "product_columns"
        self.rows = Call(TEMPLATE, by, batch * row_blocks * column_blocks, int64s(
            roles.rows, roles.columns, k, *roles.x[:2], *roles.y[:2], row_block, row_blocks, column_block, column_blocks, add,
            DEPTH, roles.x.matrix, panels if matrices > 1 else 0, roles.y.matrix, roles.w.row if first else 0, first,
            roles.w.matrix))

    def prepare(self, a: np.ndarray, b: np.ndarray, out: np.ndarray | None, bias: np.ndarray | None
                ) -> tuple[list[Step], Step, list[Scratch]]:
        """Return the steps that pack, the one that computes, and the memory for what is packed."""
        if self.roles.turned:
            a, b = b, a
        sides = (None, bias) if self.roles.turned else (bias, None)
        rows = self.rows.prepare(a, None, *sides, out)
        held, rows.addresses = rows.addresses, (ctypes.c_void_p * 7)(*rows.addresses, address(b))
        rows.held = rows.held, b, held
        if self.pack is None:
            return [], rows, []
        pack = self.pack.prepare(b, None)
        pack.addresses[0] += 4 * self._first
        return [pack], rows, [Scratch(self.packed, ((pack.addresses, 1), (rows.addresses, 1)))]


def _blocks(r: _Roles, piece: int) -> tuple[int, int]:
    """Return rows and columns of a piece, of about so many multiplications."""
    depth = min(r.depth, DEPTH if r.x.column == 1 else SLICE)
    columns = max(MOST_COLUMNS, min(cdiv(r.columns, MOST_COLUMNS), PANELS // (depth * MOST_COLUMNS)) * MOST_COLUMNS)
    rows = r.rows
    pieces = cdiv(r.batch * r.rows * r.columns * r.depth // (piece if r.x.column == 1 else 2 * piece), r.batch)
    while cdiv(r.rows, rows) * cdiv(r.columns, columns) < pieces and rows > 24:
        rows = cdiv(cdiv(rows, 2), 4) * 4 if rows >= 96 else cdiv(cdiv(rows, 2), 12) * 12
    while cdiv(r.rows, rows) * cdiv(r.columns, columns) < pieces and columns > MOST_COLUMNS:
        columns = cdiv(columns // MOST_COLUMNS, 2) * MOST_COLUMNS
    return rows, columns


_product = functools.lru_cache(maxsize=1024)(Product)


def planned(a: np.ndarray, b: np.ndarray, out: np.ndarray, add: bool, *, in_graph: bool = False, packs_b: bool = False
            ) -> Product | None:
    """Return the product of these matrices, or None if C cannot compute it, or if BLAS is better.

    in_graph:  see `in_c`. packs_b: b is packed, whatever the cost.
    """
    if not a.dtype == b.dtype == out.dtype == np.float32 or not a.ndim == b.ndim == out.ndim or out.ndim not in (2, 3):
        return None
    (m, n), k, batch = out.shape[-2:], a.shape[-1], len(out) if out.ndim > 2 else 1
    steps = [Operand(*(s // 4 for s in (*x.strides[-2:], x.strides[0] if x.ndim > 2 and len(x) > 1 else 0))) for x in (a, b, out)]
    if not in_c(batch, m, n, k, in_graph=in_graph) or any(1 not in s[:2] or min(s[:2]) < 1 or s[2] < 0 for s in steps):
        return None
    chosen = {"piece": max(WORK, batch * m * n * k // PIECES), "threads": 0}
    if active_configs.active():
        chosen = active_configs.choice(gemm_key(batch, m, n, k, out.dtype), chosen)
    return _product(batch, m, n, k, *steps, add, chosen["piece"], chosen["threads"], packs_b)


def sharing(a: np.ndarray, b: np.ndarray, out: np.ndarray, y: np.ndarray | None, add: bool, bias: np.ndarray | None,
            made: dict[Any, Any]) -> tuple[list[list[Step]], int] | None:
    """Return the phases and threads of a product with a matrix b that other products of a program read too; see `Kernel.share`.

    out: an array like the result; y: the result, if its place is known. The first product with b packs it in each pass.
    """
    product = planned(a, b, out, add, in_graph=True, packs_b=True)
    if product is None:
        return None
    (pack,), rows, _ = product.prepare(a, b, y, bias)
    key = b.ctypes.data, b.shape, b.strides
    first = key not in made
    panels = made[key] = aligned(None, product.packed) if first else made[key]
    for step in (pack, rows):
        step.addresses[1] = panels.ctypes.data
        step.held = step.held, panels
    return [[pack], [rows]] if first else [[rows]], product.threads


class Forward:
    """The product of a layer, data [m, k] and weight [n, k], which a function in C may follow. See `in_pieces`."""

    keeps, shares = (), 1

    def __init__(self, m: int, n: int, k: int, bias: bool):
        self._sizes, self._bias, self.work = (m, n, k), bias, m * n * k

    @staticmethod
    def serves(m: int, n: int, k: int) -> bool:
        """Return whether C computes a product of these sizes in a bound graph."""
        return c_narrow.in_c(m, n, k) if c_narrow.better(m, n, k, NARROW) else in_c(1, m, n, k, in_graph=True)

    def bind(self, inputs: Sequence[Any], y: Any, after: Follower | None = None, made: dict[Any, Any] | None = None
             ) -> BoundKernel:
        """Return a function (run) that computes y = data · weightᵀ + bias, and then what follows, all in one call.

        y may be None, if only `after` reads it. made: for a weight that others read too; see `Kernel.share`.
        """
        m, n, k = self._sizes
        a, b = inputs[0].reshape(m, k), inputs[1].T
        out = np.lib.stride_tricks.as_strided(np.empty(1, np.float32), (m, n), (4 * n, 4)) if y is None else y.reshape(m, n)
        bias = inputs[2] if self._bias else None
        rows, phases, scratch, threads = c_narrow.prepare(a, b, out, False, bias), [], [], 0
        shared = None if made is None else sharing(a, b, out, y, False, bias, made)
        if shared is not None:
            (*phases, (rows,)), threads = shared
        elif rows is None or not c_narrow.better(m, n, k, NARROW):
            product = planned(a, b, out, False, in_graph=True)
            assert product is not None
            pack, rows, scratch = product.prepare(a, b, y, bias)
            phases.append(pack)
            threads = product.threads
        phases.append([rows])
        if after is not None:
            scratch += after.read(rows, 4, y, m * n)
            phases.append([after.step(m * n)])
        return Phases(phases, threads, scratch=scratch)

    keep = bind


def bound(given: Sequence[tuple[Product, np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]]) -> BoundKernel:
    """Return a function (run) that computes independent products: (product, a, b, out, bias) each."""
    calls = [p.prepare(a, b, out, bias) for p, a, b, out, bias in given]
    scratch = [s for *_, each in calls for s in each]
    threads = 0 if any(p.threads == 0 for p, *_ in given) else max(p.threads for p, *_ in given)
    return Phases([[step for pack, *_ in calls for step in pack], [rows for _, rows, _ in calls]], threads, scratch=scratch)
