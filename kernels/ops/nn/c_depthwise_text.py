"""The C text of convolutions in which each channel has a filter of its own; it follows that of c_conv_text.py.

Neighbouring lanes are channels. Up to eight positions of a row are computed together: a vector of data that is loaded is used by
all taps of a row of the window that reach it. Data is read in place: what lies beyond its edges counts as zero.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Taps side by side that share what they load, and the stride: for others each tap is by itself, with any stride.
KINDS = ((1, 1), (2, 1), (3, 1), (3, 2), (5, 1), (5, 2))
_POSITIONS = (8, 4, 2, 1)
_BESIDE = 7  # positions of two rows that are computed together: images are often a multiple of seven wide


def kind_of(columns: Sequence[int], stride: int) -> int:
    """Return the number in KINDS for taps in these columns of the data."""
    beside = list(columns) == list(range(columns[0], columns[0] + len(columns)))
    return KINDS.index((len(columns), stride)) if beside and (len(columns), stride) in KINDS else 0


def _columns(taps: int, stride: int, m: int, edge: int) -> str:
    """Return the function that computes m positions for all whole vectors of channels. edge: some columns are not in the data."""
    each = range(m)
    lines = [f"static void each_columns_{taps}_{stride}_{m}_{edge}({_ARGUMENTS})", "{",
             "    const lanes least = tile_all(floor);",
             "    for (int64_t c = 0; c + LANES <= C; c += LANES) {", "        const float *f = w + c;",
             *(f"        lanes a{j} = load ? tile_load(y + {j} * y_step + c) : tile_all(0);" for j in each),
             f"        for (int64_t i = 0; i < groups; i++, f += {taps} * C) {{",
             "            const float *s = x + down[i] * row + right[i] * column + c;",
             *(f"            const lanes f{q} = tile_load(f + {q} * C);" for q in range(taps))]
    if edge:
        lines.append("            const int64_t from = low - right[i], to = high - right[i];")
    for u in range((m - 1) * stride + taps):
        inside = f"{u} * unit >= from && {u} * unit < to" if taps == 1 else f"{u} >= from && {u} < to"
        load = f"tile_load(s + {u} * step)"
        lines.append(f"            const lanes v{u} = {f'{inside} ? {load} : tile_all(0)' if edge else load};")
        lines += [f"            a{(u - q) // stride} = tile_fma(v{u}, f{q}, a{(u - q) // stride});"
                  for q in range(taps) if (u - q) % stride == 0 and 0 <= (u - q) // stride < m]
    return "\n".join([*lines, "        }", "        const lanes b = bias ? tile_load(bias + c) : tile_all(0);",
                      *(f"        tile_store(y + {j} * y_step + c, tile_most(least, a{j} + b));" for j in each), "    }", "}"])


def _two_rows(stride: int) -> str:
    """Return the function that computes neighbouring positions of two rows with windows of 3 × 3: the rows of data that both
    windows reach are loaded once. Each sum is taken in the order of `_columns`. left, right: the first, the last column lies
    beyond the data."""
    m = _BESIDE
    each = [(o, j) for o in (0, 1) for j in range(m)]
    lines = [f"static void each_two_rows_{stride}({_TWO_ARGUMENTS})", "{",
             "    const lanes least = tile_all(floor);",
             "    for (int64_t c = 0; c + LANES <= C; c += LANES) {",
             *(f"        lanes a{o}_{j} = load ? tile_load(y + {o} * y_row + {j} * y_step + c) : tile_all(0);" for o, j in each),
             *(f"        const lanes f{i}_{q} = tile_load(w + {3 * i + q} * C + c);" for i in range(3) for q in range(3))]
    last = (m - 1) * stride + 2
    for i in range(3 + stride):
        lines += ["        {", f"            const float *s = x + {i} * row + c;"]
        reached = [(o, i - o * stride) for o in (0, 1) if 0 <= i - o * stride < 3]
        for u in range(last + 1):
            load = f"tile_load(s + {u} * step)"
            outside = {0: "left ? tile_all(0) : ", last: "right ? tile_all(0) : "}.get(u, "")
            lines.append(f"            const lanes v{u} = {outside}{load};")
            lines += [f"            a{o}_{(u - q) // stride} = tile_fma(v{u}, f{t}_{q}, a{o}_{(u - q) // stride});"
                      for o, t in reached for q in range(3) if (u - q) % stride == 0 and 0 <= (u - q) // stride < m]
        lines.append("        }")
    return "\n".join([*lines, "        const lanes b = bias ? tile_load(bias + c) : tile_all(0);",
                      *(f"        tile_store(y + {o} * y_row + {j} * y_step + c, tile_most(least, a{o}_{j} + b));"
                        for o, j in each), "    }", "}"])


_ARGUMENTS = ("const float *x, int64_t row, int64_t step, int64_t column, const int64_t *down, const int64_t *right, "
              "int64_t groups, const float *w, int64_t C, const float *bias, float floor, float *y, int64_t y_step, "
              "int64_t load, int64_t low, int64_t high, int64_t unit")
_TWO_ARGUMENTS = ("const float *x, int64_t row, int64_t step, const float *w, int64_t C, const float *bias, float floor, "
                  "float *y, int64_t y_row, int64_t y_step, int64_t load, int64_t left, int64_t right")


def each_text() -> str:
    """Return the C text."""
    sizes = [(m, edge) for m in _POSITIONS for edge in (0, 1)]
    one = [_columns(*kind, *size) for kind in KINDS for size in sizes]
    names = [f"each_columns_{taps}_{stride}_{m}_{edge}" for taps, stride in KINDS for m, edge in sizes]
    table = f"static void (*const each_columns[{len(KINDS)}][{len(_POSITIONS)}][2])({_ARGUMENTS}) = {{{', '.join(names)}}};"
    two = ["#if TILE_ROWS == 12  /* there are as many registers as that takes */",
           f"#define EACH_BESIDE {_BESIDE}", _two_rows(1), _two_rows(2), "#endif"]
    return "\n".join([*one, table, *two, _TEXT])


_TEXT = """
/* sizes as for conv_pack. The packed weight is [tap][channel]. */
void conv_each_pack(void *const *arrays, int64_t begin, int64_t end)
{
    const int64_t *s = arrays[2], C = s[0], T = s[2], *taps = s + 10;
    const float *w = arrays[0];
    float *out = arrays[1];
    for (int64_t t = 0; t < T; t++)
        for (int64_t c = 0; c < C; c++) out[t * C + c] = w[c * s[4] + taps[t]];
}

void conv_each_unpack(void *const *arrays, int64_t begin, int64_t end)
{
    const int64_t *s = arrays[2], C = s[0], T = s[2], *taps = s + 10;
    float *w = arrays[0], *in = arrays[1];
    for (int64_t k = 1; k < s[7]; k++)
        for (int64_t i = 0; i < T * C; i++) in[i] += in[k * T * C + i];
    for (int64_t t = 0; t < T; t++)
        for (int64_t c = 0; c < C; c++) {
            float *to = w + c * s[4] + taps[t];
            *to = s[9] ? *to + in[t * C + c] : in[t * C + c];
        }
}

/* Where data lies: in place, or in a block with its padding. top, left: the row and column under the first tap of the first
   position. */
typedef struct { const float *data; int64_t row, column, height, width, top, left; } each_view;

/* Taps by groups of neighbours in a row: the group's row and column, and how many taps it has. */
typedef struct { int64_t kind, together, groups, at[]; } each_taps;

/* The channels that are no whole vector, of m positions from position k on; taps: from one to another. */
static void conv_each_rest(const conv_sizes *g, const each_view *v, const each_taps *taps, int64_t row, int64_t k, int64_t m,
                           int64_t from, int64_t to, const float *w, const float *bias, float *y, int64_t y_step, int64_t load)
{
    const int64_t C = g->channels, *down = taps->at, *right = down + taps->groups, Q = taps->together;
    const float floor = g->rectified ? 0 : NO_FLOOR;
    for (int64_t c = C / LANES * LANES; c < C; c++)
        for (int64_t j = k; j < k + m; j++) {
            float *to_y = y + j * y_step + c, sum = load ? *to_y : 0;
            for (int64_t i = from; i < to; i++)
                for (int64_t q = 0; q < Q; q++) {
                    const int64_t at = v->left + j * g->step_x + right[i] + q;
                    if (at >= 0 && at < v->width)
                        sum += v->data[(row + down[i]) * v->row + at * v->column + c] * w[(i * Q + q) * C + c];
                }
            if (bias) sum += bias[c];
            *to_y = sum < floor ? floor : sum;
        }
}

/* The positions of one row of the output from k on, y[position * y_step + channel]; `load`: they are added to. */
static void conv_each_row(const conv_sizes *g, const each_view *v, const each_taps *taps, int64_t row, int64_t k, const float *w,
                          const float *bias, float *y, int64_t y_step, int64_t load)
{
    const int64_t C = g->channels, *down = taps->at, *right = down + taps->groups, Q = taps->together;
    const int64_t unit = Q == 1 ? g->step_x : 1;
    const float floor = g->rectified ? 0 : NO_FLOOR;
    int64_t from = 0, to = taps->groups;
    while (from < to && row + down[from] < 0) from++;
    while (to > from && row + down[to - 1] >= v->height) to--;
    for (int64_t m; k < g->out_width; k += m) {
        const int64_t left = g->out_width - k, column = v->left + k * g->step_x;
        const int size = left >= 8 ? 0 : left >= 4 ? 1 : left >= 2 ? 2 : 3;
        m = 8 >> size;
        const int edge = column < 0 || column + (m - 1) * g->step_x + g->span_x >= v->width;
        const float *x = v->data + row * v->row + column * v->column;
        each_columns[taps->kind][size][edge](x, v->row, v->column * unit, v->column, down + from, right + from, to - from,
            w + from * Q * C, C, bias, floor, y + k * y_step, y_step, load, -column, v->width - column, unit);
        conv_each_rest(g, v, taps, row, k, m, from, to, w, bias, y, y_step, load);
    }
}

/* The same of this row and, if that takes less time, of the next one, y_row further: where their windows are 3 x 3 and in the
   data but for one column on each side. most: rows that are left. Returns how many were computed. */
static int64_t conv_each_rows_of(const conv_sizes *g, const each_view *v, const each_taps *taps, int64_t row, int64_t most,
                                 const float *w, const float *bias, float *y, int64_t y_row, int64_t y_step, int64_t load)
{
#if TILE_ROWS == 12
    const int64_t C = g->channels, *down = taps->at, s = g->step_x;
    const float floor = g->rectified ? 0 : NO_FLOOR;
    if (most > 1 && taps->together == 3 && taps->groups == 3 && down[1] == 1 && down[2] == 2 && g->step_y == s && row >= 0
            && row + s + 2 < v->height && v->left >= -1 && v->left + (g->out_width - 1) * s + 2 <= v->width) {
        int64_t k = 0;
        for (; k + EACH_BESIDE <= g->out_width; k += EACH_BESIDE) {
            const int64_t column = v->left + k * s;
            const int right = column + (EACH_BESIDE - 1) * s + 2 >= v->width;
            const float *x = v->data + row * v->row + column * v->column;
            (s == 1 ? each_two_rows_1 : each_two_rows_2)(x, v->row, v->column, w, C, bias, floor, y + k * y_step, y_row, y_step,
                load, column < 0, right);
            for (int64_t r = 0; r < 2; r++)
                conv_each_rest(g, v, taps, row + r * s, k, EACH_BESIDE, 0, 3, w, bias, y + r * y_row, y_step, load);
        }
        for (int64_t r = 0; r < 2; r++) conv_each_row(g, v, taps, row + r * s, k, w, bias, y + r * y_row, y_step, load);
        return 2;
    }
#endif
    conv_each_row(g, v, taps, row, 0, w, bias, y, y_step, load);
    return 1;
}

/* arrays: data, packed weights, bias or null, output, the function that follows each row of the output or null, its arrays,
   sizes, taps. Channels are last, or the block under the positions is copied so. */
void conv_each_rows(void *const *arrays, int64_t begin, int64_t end)
{
    const conv_sizes *g = arrays[6];
    const each_taps *taps = arrays[7];
    void (*const follow)(void *const *, int64_t, int64_t) = arrays[4];
    const int64_t C = g->channels, line = g->out_width * C;
    const float *w = arrays[1], *bias = arrays[2];
    float *scratch = conv_scratch(g), *turned = conv_memory(1, g->y_filter == 1 ? 0 : line);
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t r0 = piece % g->row_blocks * g->block_rows, n0 = piece / g->row_blocks * g->block_images;
        const int64_t rows = conv_least(g->block_rows, g->out_height - r0), images = conv_least(g->block_images, g->images - n0);
        const conv_block b = conv_take(g, arrays[0], scratch, n0, images, r0, rows);
        for (int64_t i = 0; i < images; i++)
            for (int64_t r = 0, done = 1; r < rows; r += done) {
                const int64_t n = n0 + i, at = n * g->out_height + r0 + r;
                float *y = (float *)arrays[3] + g->y_offset + n * g->y_image + (r0 + r) * g->y_row;
                each_view v = {(const float *)arrays[0] + n * g->x_image, g->x_row, g->x_column, g->height, g->width,
                               (r0 + r) * g->step_y + g->first_y, g->first_x};
                if (g->copied)
                    v = (each_view){b.data + i * b.image_step, b.row_step / g->step_y, C, (rows - 1) * g->step_y + g->span_y + 1,
                                    (g->out_width - 1) * g->step_x + g->span_x + 1, r * g->step_y, 0};
                if (g->y_filter == 1) {
                    done = conv_each_rows_of(g, &v, taps, v.top, rows - r, w, bias, y, g->y_row, g->y_column, g->add);
                    if (follow) follow(arrays[5], at * line, (at + done) * line);
                    continue;
                }
                conv_each_row(g, &v, taps, v.top, 0, w, bias, turned, C, 0);
                if (g->y_column == 1 && !g->add) conv_turn(turned, C, y, g->y_filter, C, g->out_width);
                else for (int64_t c = 0; c < C; c++)
                    for (int64_t k = 0; k < g->out_width; k++) {
                        float *to = y + c * g->y_filter + k * g->y_column;
                        *to = g->add ? *to + turned[k * C + c] : turned[k * C + c];
                    }
            }
    }
}

/* The sums of n neighbouring taps over the positions of a row, for LANES channels. */
static inline __attribute__((always_inline)) void conv_each_taps(
    const int n, const float *x, int64_t x_step, const int64_t *offset, const float *dy, int64_t dy_step, int64_t positions,
    float *sums, int64_t C)
{
    lanes a[4];
    for (int q = 0; q < n; q++) a[q] = tile_load(sums + q * C);
    for (int64_t k = 0; k < positions; k++) {
        const lanes d = tile_load(dy + k * dy_step);
        for (int q = 0; q < n; q++) a[q] = tile_fma(tile_load(x + offset[q] + k * x_step), d, a[q]);
    }
    for (int q = 0; q < n; q++) tile_store(sums + q * C, a[q]);
}

/* arrays as for conv_outer; partial sums are [slots][tap][channel]. A piece is a slot. */
void conv_each_outer(void *const *arrays, int64_t begin, int64_t end)
{
    const conv_sizes *g = arrays[4];
    const int64_t *offset = arrays[5], *slots = arrays[6], C = g->channels, T = g->runs;
    float *scratch = conv_scratch(g), *turned = conv_memory(1, g->y_filter == 1 ? 0 : g->out_width * C);
    for (int64_t slot = begin; slot < end; slot++) {
        float *partial = (float *)arrays[2] + slot * T * C;
        double *sums = arrays[3] ? (double *)arrays[3] + slot * C : 0;
        memset(partial, 0, sizeof(float) * T * C);
        if (sums) for (int64_t c = 0; c < C; c++) sums[c] = 0;
        for (int64_t n0 = slots[slot]; n0 < slots[slot + 1]; n0 += g->block_images)
            for (int64_t r0 = 0; r0 < g->out_height; r0 += g->block_rows) {
                const int64_t rows = conv_least(g->block_rows, g->out_height - r0);
                const int64_t images = conv_least(g->block_images, slots[slot + 1] - n0);
                const conv_block b = conv_take(g, arrays[0], scratch, n0, images, r0, rows);
                for (int64_t i = 0; i < images; i++)
                    for (int64_t r = 0; r < rows; r++) {
                        const float *x = b.data + i * b.image_step + r * b.row_step;
                        const float *dy = (const float *)arrays[1] + g->y_offset + (n0 + i) * g->y_image + (r0 + r) * g->y_row;
                        int64_t step = g->y_column, c = 0;
                        if (g->y_filter != 1) {
                            if (g->y_column == 1) conv_turn(dy, g->y_filter, turned, C, g->out_width, C);
                            else for (int64_t f = 0; f < C; f++)
                                for (int64_t k = 0; k < g->out_width; k++)
                                    turned[k * C + f] = dy[f * g->y_filter + k * g->y_column];
                            dy = turned;
                            step = C;
                        }
                        if (sums)
                            for (int64_t f = 0; f < C; f++) {
                                float total = 0;
                                for (int64_t k = 0; k < g->out_width; k++) total += dy[k * step + f];
                                sums[f] += total;
                            }
                        for (; c + LANES <= C; c += LANES) {
                            int64_t t = 0;
#define EACH_TAPS(n) conv_each_taps(n, x + c, b.column_step, offset + t, dy + c, step, g->out_width, partial + t * C + c, C)
                            for (; t + 4 <= T; t += 4) EACH_TAPS(4);
                            for (; t < T; t++) EACH_TAPS(1);
                        }
                        for (; c < C; c++)
                            for (int64_t t = 0; t < T; t++)
                                for (int64_t k = 0; k < g->out_width; k++)
                                    partial[t * C + c] += x[offset[t] + k * b.column_step + c] * dy[k * step + c];
                    }
            }
    }
}
"""
