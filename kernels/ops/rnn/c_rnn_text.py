"""The C text of recurrent layers: c_rnn.py calls its functions and says how they work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....dtype import float32
from ...cpu.c_math import definitions
from ...cpu.c_printer import constant, spelled
from ...cpu.c_tile import rows_kernel, tile_text
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

/* rows, columns: of a block; each: steps in a phase; start: the derivative by the first states is wanted. */
typedef struct {
    int64_t steps, batch, hidden, reverse, rows, row_blocks, columns, column_blocks, each, start, add;
} rnn_sizes;

/* y [rows][columns] = (load: y) + x [rows][depth] times a panel + added; y_step, x_step: from row to row. */
static void rnn_product(int64_t rows, const float *x, int64_t x_step, int64_t depth, const float *w, float *y, int64_t y_step,
                        int64_t columns, const float *added, int load)
{
    const int64_t none = 0;
    const int narrow = columns <= LANES, in_place = columns == (narrow ? LANES : COLUMNS);
    float tile[RNN_ROWS * COLUMNS];
    for (int64_t r = 0; r < rows; r += RNN_ROWS, x += RNN_ROWS * x_step, y += RNN_ROWS * y_step) {
        const int64_t m = LEAST(RNN_ROWS, rows - r);
        const float *xs[RNN_ROWS];
        float *ys[RNN_ROWS];
        for (int64_t j = 0; j < m; j++) { xs[j] = x + j * x_step; ys[j] = in_place ? y + j * y_step : tile + j * COLUMNS; }
        if (!in_place)
            for (int64_t j = 0; j < m; j++) memcpy(ys[j], y + j * y_step, sizeof(float) * columns);
        if (m == RNN_ROWS && !narrow) RNN_TILE(xs, ys, &none, &depth, 1, w, added, load);
        else tile_rows(m, xs, ys, &none, &depth, 1, w, added, load, narrow);
        if (!in_place)
            for (int64_t j = 0; j < m; j++) memcpy(y + j * y_step, ys[j], sizeof(float) * columns);
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
                if (s > 0)
                    for (int64_t gate = 0; gate < GATES; gate++)
                        rnn_product(r1 - r0, dgates + (SLOT(gate) * T + later) * step + r0 * H, H, H,
                                    panels + (f * GATES + gate * COLUMNS) * H, dh + r0 * H + f, H, columns, none,
                                    gate || (SLOTS > GATES));
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

def names(mode: str) -> tuple[str, str, str]:
    """Return the names of the functions for a kind of cell: forward, backward, and the sums for biases."""
    return f"{mode}_forward", f"{mode}_backward", f"{mode}_biases"


def rnn_text(mode: str) -> str:
    """Return the C text for a kind of cell."""
    made, uses = cell(mode), set[str]()
    lstm, gru = made.gates == 4, made.slots > made.gates
    ins = 2 + lstm + made.slots * (lstm or gru) + 1 + lstm
    bodies = [_body("rnn_cell", made.forward, made.slots + (lstm or gru), uses),
              _body("rnn_cell_backward", made.backward, ins, uses)]
    return "\n".join([_HEAD, tile_text(), _rows(), definitions(uses), *_sizes(made), *bodies, _TEXT.replace("MODE", mode)])


def _rows() -> str:
    """Return the tile of a batch: batches are often a multiple of 8."""
    return "\n".join(["#if TILE_ROWS == 12", "#define RNN_ROWS 8", "#define RNN_TILE tile_rows_8_2", rows_kernel(8, 2), "#else",
                      "#define RNN_ROWS TILE_ROWS", "#define RNN_TILE tile_rows_6_2", "#endif"])


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
