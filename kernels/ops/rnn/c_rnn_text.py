"""The C text of recurrent layers: c_rnn.py calls its functions and says how they work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....dtype import float32
from ...cpu.c_math import definitions
from ...cpu.c_printer import constant, spelled
from ...cpu.c_tile import vectors_text
from ...ir.expr import CONST, LOAD, as_expr, load, topological, typed
from .cells import Cell, cell

_HEAD = """
#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#ifdef __clang__
#define EACH _Pragma("clang loop vectorize(assume_safety)") for
#else
#define EACH _Pragma("GCC ivdep") for
#endif
"""

_TEXT = """
/* The slot in which the recurrent product of a gate is summed. */
#define SLOT(gate) ((gate) < SHARED ? (gate) : (gate) + SLOTS - GATES)

/* rows, columns: of a block of the steps; each: steps in a phase; start: the derivative by the first states is wanted;
   all_rows: of a block of the products of all steps, wide: its columns. */
typedef struct {
    int64_t steps, batch, hidden, reverse, rows, row_blocks, columns, column_blocks, each, start, add, inputs, all_rows, wide;
} rnn_sizes;

/* y [rows][columns] = (load: y) + x [rows][depth] times a panel + added; y_step, x_step: from row to row. */
static void rnn_product(int64_t rows, const float *x, int64_t x_step, int64_t depth, const float *w, float *y, int64_t y_step,
                        int64_t columns, const float *added, int load)
{
    float tile[RNN_ROWS * COLUMNS];
    while (rows > 0) {
        const int64_t m = rnn_tile_rows(rows);
        if (columns == COLUMNS) rnn_tile(m, x, x_step, depth, w, y, y_step, added, load);
        else {
            if (load) for (int64_t j = 0; j < m; j++) memcpy(tile + j * COLUMNS, y + j * y_step, sizeof(float) * columns);
            rnn_tile(m, x, x_step, depth, w, tile, COLUMNS, added, load);
            for (int64_t j = 0; j < m; j++) memcpy(y + j * y_step, tile + j * COLUMNS, sizeof(float) * columns);
        }
        rows -= m, x += m * x_step, y += m * y_step;
    }
}

/* Fetch columns of rows that will be read (write: written). */
static inline void rnn_fetch(const float *a, int64_t rows, int64_t H, int write)
{
    for (int64_t r = 0; r < rows; r++)
        for (int l = 0; l < COLUMNS; l += 16)
            if (write) __builtin_prefetch(a + r * H + l, 1); else __builtin_prefetch(a + r * H + l, 0);
}

/* arrays: the inputs of all steps [step * batch][inputs], panels [gate][panel][inputs][COLUMNS], gates, sizes.
   A piece is a block of rows of one gate. */
void MODE_enter(void *const *arrays, int64_t begin, int64_t end)
{
    const rnn_sizes *g = arrays[3];
    const int64_t H = g->hidden, I = g->inputs, R = g->steps * g->batch, wide = (H + COLUMNS - 1) / COLUMNS * COLUMNS;
    const float none[COLUMNS] = {0};
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t gate = piece % GATES, r0 = piece / GATES * g->all_rows, r1 = LEAST(r0 + g->all_rows, R);
        const float *x = (const float *)arrays[0] + r0 * I, *w = (const float *)arrays[1] + gate * wide * I;
        float *y = (float *)arrays[2] + (gate * R + r0) * H;
        for (int64_t f = 0; f < H; f += COLUMNS)
            rnn_product(r1 - r0, x, I, I, w + f * I, y + f, H, LEAST(COLUMNS, H - f), none, 0);
    }
}

/* arrays: derivatives of gates, panels [panel][gate][hidden][COLUMNS], derivatives of the inputs of all steps, sizes. */
void MODE_leave(void *const *arrays, int64_t begin, int64_t end)
{
    const rnn_sizes *g = arrays[3];
    const int64_t H = g->hidden, I = g->inputs, R = g->steps * g->batch, cuts = (I + g->wide - 1) / g->wide;
    const float none[COLUMNS] = {0};
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t r0 = piece / cuts * g->all_rows, r1 = LEAST(r0 + g->all_rows, R);
        const int64_t f0 = piece % cuts * g->wide, f1 = LEAST(f0 + g->wide, I);
        for (int64_t f = f0; f < f1; f += COLUMNS)
            for (int64_t gate = 0; gate < GATES; gate++)
                rnn_product(r1 - r0, (const float *)arrays[0] + (gate * R + r0) * H, H, H,
                            (const float *)arrays[1] + (f * GATES + gate * COLUMNS) * H, (float *)arrays[2] + r0 * I + f, I,
                            LEAST(COLUMNS, f1 - f), none, gate || g->add);
    }
}

/* The rows and columns of a piece, and its steps. */
#define RNN_PIECE(all_steps) \\
    const int64_t blocks = g->row_blocks * g->column_blocks, block = piece % blocks % g->row_blocks; \\
    const int64_t r0 = block * g->rows, r1 = LEAST(r0 + g->rows, N), f0 = piece % blocks / g->row_blocks * g->columns; \\
    const int64_t f1 = LEAST(f0 + g->columns, H), s0 = piece / blocks * g->each, s1 = LEAST(s0 + g->each, all_steps)

/* arrays: panels [gate][panel][hidden][COLUMNS], gates [slot][step][batch][hidden], hidden and cells [step + 1][batch][hidden],
   the biases of the input's product and of the recurrent one [gate][hidden], sizes. */
void MODE_forward(void *const *arrays, int64_t begin, int64_t end)
{
    const rnn_sizes *g = arrays[6];
    const int64_t T = g->steps, N = g->batch, H = g->hidden, step = N * H, wide = (H + COLUMNS - 1) / COLUMNS * COLUMNS;
    const float *panels = arrays[0], *bx = arrays[4], *bh = arrays[5];
    float *gates = arrays[1], *hidden = arrays[2], *cells = arrays[3];
    for (int64_t piece = begin; piece < end; piece++) {
        RNN_PIECE(T);
        for (int64_t s = s0; s < s1; s++) {
            const int64_t at = g->reverse ? T - 1 - s : s, before = at + (g->reverse ? 1 : 0), after = at + (g->reverse ? 0 : 1);
            for (int64_t f = f0; f < f1; f += COLUMNS) {
                const int64_t columns = LEAST(COLUMNS, f1 - f);
                if (columns == COLUMNS) {
                    rnn_fetch(hidden + after * step + r0 * H + f, r1 - r0, H, 1);
                    if (CELLS) rnn_fetch(cells + after * step + r0 * H + f, r1 - r0, H, 1);
                }
                for (int64_t slot = 0; slot < SLOTS; slot++) {
                    float *y = gates + (slot * T + at) * step + r0 * H + f, added[COLUMNS] = {0};
                    const int64_t gate = slot < SHARED ? slot : slot + GATES - SLOTS;
                    if (slot < GATES) for (int64_t l = 0; l < columns; l++) added[l] = bx[slot * H + f + l];
                    if (slot < SHARED || slot >= GATES)
                        for (int64_t l = 0; l < columns; l++) added[l] += bh[gate * H + f + l];
                    if (slot >= SHARED && slot < GATES) {
                        for (int64_t r = r0; r < r1; r++, y += H) EACH (int64_t l = 0; l < columns; l++) y[l] += added[l];
                        continue;
                    }
                    rnn_product(r1 - r0, hidden + before * step + r0 * H, H, H, panels + (gate * wide + f) * H, y, H, columns,
                                added, slot < GATES);
                }
                for (int64_t r = r0; r < r1; r++) {
                    float *a[16];
                    int n = 0;
                    const int64_t here = r * H + f;
                    for (int slot = 0; slot < SLOTS; slot++) a[n++] = gates + (slot * T + at) * step + here;
                    if (CELLS) a[n++] = cells + before * step + here;
                    else if (SLOTS > GATES) a[n++] = hidden + before * step + here;
                    if (CELLS || SLOTS > GATES) for (int slot = 0; slot < GATES; slot++) a[n++] = a[slot];
                    if (CELLS) a[n++] = cells + after * step + here;
                    a[n++] = hidden + after * step + here;
                    rnn_cell(a, columns);
                }
            }
        }
    }
}

/* arrays: panels [panel][gate][hidden][COLUMNS], derivatives of gates, gates, hidden, cells, derivatives of the outputs, of the
   states and of the cells after the last step, sums of the first over the rows of a block [block][slot][hidden], sizes.
   Each step first multiplies the derivatives of the step after it, then takes its own through the cell. */
void MODE_backward(void *const *arrays, int64_t begin, int64_t end)
{
    const rnn_sizes *g = arrays[9];
    const int64_t T = g->steps, N = g->batch, H = g->hidden, step = N * H;
    const float *panels = arrays[0], none[COLUMNS] = {0};
    float *dgates = arrays[1], *gates = arrays[2], *hidden = arrays[3], *cells = arrays[4], *dy = arrays[5], *dh = arrays[6];
    float *dc = arrays[7];
    for (int64_t piece = begin; piece < end; piece++) {
        RNN_PIECE(T + 1);
        for (int64_t s = s0; s < s1; s++) {
            const int64_t at = g->reverse ? s : T - 1 - s, later = g->reverse ? at - 1 : at + 1;
            const int64_t before = at + (g->reverse ? 1 : 0), after = at + (g->reverse ? 0 : 1);
            if (s == T && !g->start) continue;
            for (int64_t f = f0; f < f1; f += COLUMNS) {
                const int64_t columns = LEAST(COLUMNS, f1 - f);
                const int64_t first = r0 * H + f;
                if (columns == COLUMNS && s < T) {
                    rnn_fetch(dy + at * step + first, r1 - r0, H, 0);
                    if (CELLS) rnn_fetch(cells + before * step + first, r1 - r0, H, 0);
                }
                for (int64_t gate = 0; gate < GATES && s > 0; gate++) {
                    if (columns == COLUMNS && s < T) {
                        if (CELLS || SLOTS > GATES) rnn_fetch(gates + (gate * T + at) * step + first, r1 - r0, H, 0);
                        rnn_fetch(dgates + (gate * T + at) * step + first, r1 - r0, H, 1);
                    }
                    rnn_product(r1 - r0, dgates + (SLOT(gate) * T + later) * step + r0 * H, H, H,
                                panels + (f * GATES + gate * COLUMNS) * H, dh + first, H, columns, none,
                                gate || (SLOTS > GATES));
                }
                if (s == T) continue;
                for (int64_t r = r0; r < r1; r++) {
                    float *a[24];
                    int n = 0;
                    const int64_t here = r * H + f;
                    a[n++] = dh + here;
                    a[n++] = dy + at * step + here;
                    if (CELLS) a[n++] = dc + here;
                    if (CELLS || SLOTS > GATES)
                        for (int slot = 0; slot < SLOTS; slot++) a[n++] = gates + (slot * T + at) * step + here;
                    if (CELLS) { a[n++] = cells + after * step + here; a[n++] = cells + before * step + here; }
                    else a[n++] = hidden + (SLOTS > GATES ? before : after) * step + here;
                    for (int slot = 0; slot < SLOTS; slot++) a[n++] = dgates + (slot * T + at) * step + here;
                    if (CELLS) a[n++] = dc + here;
                    else if (SLOTS > GATES) a[n++] = dh + here;
                    rnn_cell_backward(a, columns);
                }
                for (int64_t slot = 0; slot < SLOTS; slot++) {
                    float *sums = (float *)arrays[8] + (block * SLOTS + slot) * H + f, total[COLUMNS] = {0};
                    const float *d = dgates + (slot * T + at) * step + r0 * H + f;
                    for (int64_t r = r0; r < r1; r++, d += H) EACH (int64_t l = 0; l < columns; l++) total[l] += d[l];
                    for (int64_t l = 0; l < columns; l++) sums[l] = (s ? sums[l] : 0) + total[l];
                }
            }
        }
    }
}

/* arrays: the sums of the derivative, the derivatives of both biases, sizes. */
void MODE_biases(void *const *arrays, int64_t begin, int64_t end)
{
    const rnn_sizes *g = arrays[3];
    const int64_t H = g->hidden;
    for (int64_t gate = 0; gate < GATES; gate++)
        for (int64_t l = 0; l < H; l++) {
            float *dx = (float *)arrays[1] + gate * H + l, *dh = (float *)arrays[2] + gate * H + l;
            float x = g->add ? *dx : 0, h = g->add ? *dh : 0;
            for (int64_t b = 0; b < g->row_blocks; b++) {
                const float *sums = (const float *)arrays[0] + b * SLOTS * H + l;
                x += sums[gate * H];
                h += sums[SLOT(gate) * H];
            }
            *dx = x;
            *dh = h;
        }
}
"""

_TILE_ARGUMENTS = ("const float *x, int64_t x_step, int64_t depth, const float *w, float *y, int64_t y_step, "
                   "const float *added, int load")


def names(mode: str) -> tuple[str, ...]:
    """Return the names of the functions for a kind of cell: those of inputs, forward, backward, and the sums for biases."""
    return tuple(f"{mode}_{name}" for name in ("enter", "leave", "forward", "backward", "biases"))


def rnn_text(mode: str) -> str:
    """Return the C text for a kind of cell."""
    made, uses = cell(mode), set[str]()
    lstm, gru = made.gates == 4, made.slots > made.gates
    ins = 2 + lstm + made.slots * (lstm or gru) + 1 + lstm
    bodies = [_body("rnn_cell", made.forward, made.slots + (lstm or gru), uses),
              _body("rnn_cell_backward", made.backward, ins, uses)]
    return "\n".join([_HEAD, vectors_text(), _tiles(), definitions(uses), *_sizes(made), *bodies, _TEXT.replace("MODE", mode)])


def _tiles() -> str:
    """Return the tiles of a few rows and one panel. Batches are often a multiple of 8, so that is the most rows, if they fit."""
    lines = []
    for condition, sizes in (("#if TILE_ROWS == 12", (8, 4, 2, 1)), ("#else", (6, 4, 2, 1))):
        lines += [condition, f"#define RNN_ROWS {sizes[0]}", *map(_tile, sizes)]
        at_least = [f"rows >= {p} ? {p} : " for p in sizes[:-1]]
        lines += ["static int64_t rnn_tile_rows(int64_t rows) { return " + "".join(at_least) + "1; }",
                  f"static void rnn_tile(int64_t rows, {_TILE_ARGUMENTS})", "{"]
        lines += [f"    if (rows == {p}) rnn_tile_{p}(x, x_step, depth, w, y, y_step, added, load);" for p in sizes]
        lines.append("}")
    return "\n".join([*lines, "#endif"])


def _tile(rows: int) -> str:
    """Return the tile of so many rows: its result is wanted in cache only at its end, and is fetched meanwhile."""
    each = [(i, v) for i in range(rows) for v in range(2)]
    return "\n".join([
        f"static void rnn_tile_{rows}({_TILE_ARGUMENTS})", "{",
        *(f"    lanes a{i}_{v} = tile_all(0);" for i, v in each),
        *(f"    const float *x{i} = x + {i} * x_step;" for i in range(rows)),
        *(f"    __builtin_prefetch(y + {i} * y_step + {v} * LANES, 1);" for i, v in each),
        "    for (int64_t k = 0; k < depth; k++, w += COLUMNS) {",
        *(f"        const lanes w{v} = tile_load(w + {v} * LANES);" for v in range(2)),
        *(f"        {text}" for i in range(rows) for text in (
            f"const lanes s{i} = tile_all(x{i}[k]);", *(f"a{i}_{v} = tile_fma(s{i}, w{v}, a{i}_{v});" for v in range(2)))),
        "    }",
        *(f"    const lanes b{v} = tile_load(added + {v} * LANES);" for v in range(2)),
        *(f"    a{i}_{v} += b{v};" for i, v in each),
        "    if (load) {", *(f"        a{i}_{v} += tile_load(y + {i} * y_step + {v} * LANES);" for i, v in each), "    }",
        *(f"    tile_store(y + {i} * y_step + {v} * LANES, a{i}_{v});" for i, v in each), "}"])


def _sizes(made: Cell) -> list[str]:
    return [f"#define {name} {value}" for name, value in (
        ("GATES", made.gates), ("SLOTS", made.slots), ("SHARED", made.shared), ("CELLS", int(made.gates == 4)))]


def _body(name: str, body: Callable[..., Any], count: int, uses: set[str]) -> str:
    """Return the C function of a traced body. a: the rows of its inputs, then of its outputs; n: their elements."""
    roots = body(*(load(i, float32) for i in range(count)))
    roots = [as_expr(r) for r in (roots if isinstance(roots, tuple) else (roots,))]
    names: dict[int, str] = {}
    lines: list[str] = []
    for x in topological(roots):
        if x.op == CONST:
            names[id(x)] = constant(x.value, typed(x))
            continue
        names[id(x)] = f"t{len(lines)}"
        text = f"a{x.value}[l]" if x.op == LOAD else spelled(x.op, [names[id(y)] for y in x.args], typed(x), uses)
        lines.append(f"const {'float' if typed(x) == float32 else 'int'} {names[id(x)]} = {text};")
    pointers = [f"    float *const a{i} = a[{i}];" for i in range(count + len(roots))]
    stores = [f"a{count + k}[l] = {names[id(r)]};" for k, r in enumerate(roots)]
    return "\n".join([f"static void {name}(float *const *a, int64_t n)", "{", *pointers, "    EACH (int64_t l = 0; l < n; l++) {",
                      *(f"        {line}" for line in (*lines, *stores)), "    }", "}"])
