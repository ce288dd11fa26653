"""The C text of convolution: c_conv.py calls its functions and says how they work.

Convolutions with a filter for each channel have a file of their own, which few networks need: c_depthwise_text.py.
"""

from __future__ import annotations

#: Numbers of the struct conv_sizes, in order.
FIELDS = (
    "groups", "channels", "filters", "height", "width", "out_height", "out_width", "step_y", "step_x", "first_y",
    "first_x", "span_y", "span_x", "x_image", "x_channel", "x_row", "x_column", "y_image", "y_filter", "y_row",
    "y_column", "y_offset", "copied", "images", "block_images", "block_rows", "row_blocks", "filter_blocks",
    "filter_block", "runs", "chunks", "depth", "add", "rectified",
)

#: What the files of convolutions begin with.
SHARED = """
#include <pthread.h>
#include <stdlib.h>

typedef struct { int64_t %(fields)s; } conv_sizes;

static inline int64_t conv_least(int64_t a, int64_t b) { return a < b ? a : b; }

#define PANELS(filters) (((filters) + COLUMNS - 1) / COLUMNS)

/* Scratch memory of a thread, kept until the thread ends: fresh pages cost more than what fills them. */
typedef struct { int64_t size; char apart[56]; } conv_held;

static pthread_key_t conv_keys[2];
static pthread_once_t conv_once = PTHREAD_ONCE_INIT;

static void conv_keep(void) { for (int i = 0; i < 2; i++) pthread_key_create(conv_keys + i, free); }

/* Memory for n floats, in whole vectors; two at a time. */
static float *conv_memory(int which, int64_t n)
{
    pthread_once(&conv_once, conv_keep);
    conv_held *held = pthread_getspecific(conv_keys[which]);
    if (!held || held->size < n) {
            if (posix_memalign((void **)&held, 64, sizeof *held + sizeof(float) * n)) abort();
        held->size = n;
        pthread_setspecific(conv_keys[which], held);
    }
    return (float *)(held + 1);
}

/* Copy the data of `rows` rows from y0 on into a block [rows][columns][channels], zero outside of the data. */
static void conv_fill(const conv_sizes *g, const float *x, float *block, int64_t y0, int64_t rows, int64_t columns)
{
    const int64_t C = g->channels, from = g->first_x < 0 ? 0 : g->first_x;
    const int64_t to = conv_least(g->first_x + columns, g->width), n = to > from ? to - from : 0;
    for (int64_t r = 0; r < rows; r++) {
        float *d = block + r * columns * C;
        if (y0 + r < 0 || y0 + r >= g->height || !n) { memset(d, 0, sizeof(float) * columns * C); continue; }
        const float *s = x + (y0 + r) * g->x_row + from * g->x_column;
        const int64_t before = from - g->first_x;
        memset(d, 0, sizeof(float) * before * C);
        d += before * C;
        memset(d + n * C, 0, sizeof(float) * (columns - before - n) * C);
        if (g->x_channel == 1 && g->x_column == C) memcpy(d, s, sizeof(float) * n * C);
        else if (g->x_channel == 1) for (int64_t k = 0; k < n; k++) memcpy(d + k * C, s + k * g->x_column, sizeof(float) * C);
        else if (C == 3 && g->x_column == 1) {
            const float *s1 = s + g->x_channel, *s2 = s1 + g->x_channel;
            for (int64_t k = 0; k < n; k++) { d[3 * k] = s[k]; d[3 * k + 1] = s1[k]; d[3 * k + 2] = s2[k]; }
        } else if (g->x_column == 1) conv_turn(s, g->x_channel, d, C, n, C);
        else for (int64_t k0 = 0; k0 < n; k0 += 16) {
            const int64_t k1 = conv_least(k0 + 16, n);
            for (int64_t c = 0; c < C; c++)
                for (int64_t k = k0; k < k1; k++) d[k * C + c] = s[c * g->x_channel + k * g->x_column];
        }
    }
}

/* A block of images and rows: where its data begins, and the steps from position to position. */
typedef struct { int64_t image, images, row, rows; const float *data; int64_t image_step, row_step, column_step; } conv_block;

static conv_block conv_take(const conv_sizes *g, const float *x, float *scratch, int64_t image, int64_t images, int64_t row,
                            int64_t rows)
{
    conv_block b = {image, images, row, rows, x + image * g->x_image, g->x_image, g->x_row * g->step_y, g->x_column * g->step_x};
    const int64_t y0 = row * g->step_y + g->first_y;
    if (!g->copied) { b.data += y0 * g->x_row + g->first_x * g->x_column; return b; }
    const int64_t high = (rows - 1) * g->step_y + g->span_y + 1, wide = (g->out_width - 1) * g->step_x + g->span_x + 1;
    for (int64_t i = 0; i < images; i++)
        conv_fill(g, b.data + i * g->x_image, scratch + i * high * wide * g->channels, y0, high, wide);
    b.data = scratch;
    b.image_step = high * wide * g->channels;
    b.row_step = wide * g->channels * g->step_y;
    b.column_step = g->channels * g->step_x;
    return b;
}

static float *conv_scratch(const conv_sizes *g)
{
    const int64_t high = (g->block_rows - 1) * g->step_y + g->span_y + 1, wide = (g->out_width - 1) * g->step_x + g->span_x + 1;
    return conv_memory(0, g->copied ? g->block_images * high * wide * g->channels : 0);
}

/* Copy n numbers, fewer than a tile has columns. */
static inline void conv_some(float *to, const float *from, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) tile_store(to + i, tile_load(from + i));
    for (; i < n; i++) to[i] = from[i];
}

#define SOME_POSITIONS 504  /* positions that share what is computed about them: a multiple of all heights of tiles */

/* Compute some filters of group q for a block of data; y: the first of the group's filters at the block's first position. offset:
   the runs, as for conv_rows. */
static void conv_tiles(const conv_sizes *g, const conv_block *b, const float *weights, const float *bias, float *y,
                       const int64_t *offset, int64_t q, int64_t first, int64_t last)
{
    const int64_t *length = offset + g->runs, *chunk = length + g->runs, *above = chunk + g->chunks + 1;
    float tile[TILE_ROWS * COLUMNS], *in_tile[TILE_ROWS];
    for (int i = 0; i < TILE_ROWS; i++) in_tile[i] = tile + i * COLUMNS;
    const float *xs[SOME_POSITIONS];
    float *ys[SOME_POSITIONS];
    const int64_t all = b->images * b->rows * g->out_width, height = tile_height(all), row = g->out_width * b->column_step;
    const int64_t apart = b->row_step == row && (b->images == 1 || b->image_step == b->rows * row) ? b->column_step : 0;
    int64_t i = 0, r = 0, k = 0;
    for (int64_t before = 0; before < all; before += SOME_POSITIONS) {
        const int64_t positions = conv_least(SOME_POSITIONS, all - before), column = k;
        for (int64_t p = 0, n; p < positions; p += n) {  /* a row at a time, without a branch for each position */
            const float *const x = b->data + i * b->image_step + r * b->row_step + k * b->column_step;
            float *const to = y + i * g->y_image + r * g->y_row + k * g->y_column + first * g->y_filter;
            n = conv_least(g->out_width - k, positions - p);
            for (int64_t j = 0; j < n; j++) { xs[p + j] = x + j * b->column_step; ys[p + j] = to + j * g->y_column; }
            if ((k += n) == g->out_width) { k = 0; if (++r == b->rows) { r = 0; i++; } }
        }
        for (int64_t c = 0; c < g->chunks; c++) {
            for (int64_t f = first; f < last; f += COLUMNS) {
                const int64_t panel = q * PANELS(g->filters) + f / COLUMNS, first_run = chunk[c];
                const int64_t runs = chunk[c + 1] - first_run, columns = conv_least(last - f, COLUMNS);
                const float *w = weights + (panel * g->depth + above[c]) * COLUMNS;
                const float floor = g->rectified && c == g->chunks - 1 ? 0 : NO_FLOOR;
                const int narrow = columns <= LANES, load = c || g->add;
                const int in_place = g->y_filter == 1 && columns == (narrow ? LANES : COLUMNS);
                float added[COLUMNS] = {0};
                /* the rows of tiles share the work of fetching the weights that follow these; where there are fewer weights than
                   data, and it is read in place, the first panel fetches the data that the next tile reads */
                const int fetches_data = f == first && !g->copied && g->runs == 1 && g->step_x == 1
                    && g->x_column == g->channels && all > last - first;
                const int64_t tiles = (positions + height - 1) / height;
                const int64_t deep = (c + 1 < g->chunks ? above[c + 1] : g->depth) - above[c];
                const int64_t step = (sizeof(float) * COLUMNS + tiles - 1) / tiles;
                const char *ahead = (const char *)(f + COLUMNS < last ? w + g->depth * COLUMNS : w + deep * COLUMNS
                    - (f - first) * g->depth);
                if (bias && c == g->chunks - 1) memcpy(added, bias + q * g->filters + f, sizeof(float) * columns);
                for (int64_t p = 0, at = column, m; p < positions; p += m, ahead += step * deep) {
                    m = tile_next(height, positions - p);
                    const int64_t even = apart || at + m > g->out_width ? apart : b->column_step;
                    for (at += m; at >= g->out_width;) at -= g->out_width;
                    if (!in_place && load)
                        for (int64_t j = 0; j < m; j++)
                            for (int64_t l = 0; l < columns; l++) in_tile[j][l] = ys[p + j][l * g->y_filter];
                    tile_rows(m, xs + p, even, in_place ? ys + p : in_tile, offset + first_run, length + first_run, runs, w,
                              COLUMNS, added, floor, load, narrow, fetches_data ? (const char *)(xs[p] + m * g->channels) : ahead,
                              fetches_data ? 4 * m : step);
                    if (!in_place && g->y_filter == 1)
                        for (int64_t j = 0; j < m; j++) conv_some(ys[p + j], in_tile[j], columns);
                    else if (!in_place && ys[p + m - 1] == ys[p] + m - 1)
                        conv_turn(tile, COLUMNS, ys[p], g->y_filter, columns, m);
                    else if (!in_place)
                        for (int64_t l = 0; l < columns; l++)
                            for (int64_t j = 0; j < m; j++) ys[p + j][l * g->y_filter] = in_tile[j][l];
                }
                for (int64_t p = 0; p < positions; p++) ys[p] += COLUMNS * g->y_filter;
            }
            if (c + 1 < g->chunks)
                for (int64_t p = 0; p < positions; p++) ys[p] -= (last - first + COLUMNS - 1) / COLUMNS * COLUMNS * g->y_filter;
        }
    }
}

"""

TEXT = """
/* arrays: data, packed weights, bias or null, output, sizes, then offsets and lengths of the runs, the first run and the first
   row of packed weights of each chunk. */
void conv_rows(void *const *arrays, int64_t begin, int64_t end)
{
    const conv_sizes *g = arrays[4];
    float *scratch = conv_scratch(g);
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t at = piece;
        const int64_t fb = at %% g->filter_blocks; at /= g->filter_blocks;
        const int64_t q = at %% g->groups; at /= g->groups;
        const int64_t r0 = at %% g->row_blocks * g->block_rows, n0 = at / g->row_blocks * g->block_images;
        const int64_t rows = conv_least(g->block_rows, g->out_height - r0);
        const int64_t images = conv_least(g->block_images, g->images - n0);
        const float *x = (const float *)arrays[0] + q * g->channels * g->x_channel;
        const conv_block b = conv_take(g, x, scratch, n0, images, r0, rows);
        float *y = (float *)arrays[3] + g->y_offset + n0 * g->y_image + r0 * g->y_row + q * g->filters * g->y_filter;
        const int64_t first = fb * g->filter_block, last = conv_least(first + g->filter_block, g->filters);
        conv_tiles(g, &b, arrays[1], arrays[2], y, arrays[5], q, first, last);
    }
}

/* Copy some columns of dy in a row to d, [out_width][COLUMNS]; the others are zero. */
static void conv_columns(const conv_sizes *g, const float *dy, float *d, int64_t columns)
{
    const int64_t n = g->out_width;
    if (columns < COLUMNS) memset(d, 0, sizeof(float) * n * COLUMNS);
    if (g->y_filter == 1)
        for (int64_t k = 0; k < n; k++) memcpy(d + k * COLUMNS, dy + k * g->y_column, sizeof(float) * columns);
    else if (g->y_column == 1) conv_turn(dy, g->y_filter, d, COLUMNS, n, columns);
    else
        for (int64_t l = 0; l < columns; l++)
            for (int64_t k = 0; k < n; k++) d[k * COLUMNS + l] = dy[l * g->y_filter + k * g->y_column];
}

/* arrays: data, dy, partial sums [slots][groups][panels][depth][COLUMNS], those of the bias as doubles [slots][groups * filters]
   or null, sizes, runs, the first image of each slot. */
void conv_outer(void *const *arrays, int64_t begin, int64_t end)
{
    const conv_sizes *g = arrays[4];
    const int64_t *offset = arrays[5], *length = offset + g->runs, *slots = arrays[6];
    const int64_t most = g->block_images * g->block_rows * g->out_width;
    float *scratch = conv_scratch(g), *panel = conv_memory(1, most * COLUMNS);
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t at = piece;
        const int64_t fb = at %% g->filter_blocks; at /= g->filter_blocks;
        const int64_t q = at %% g->groups, slot = at / g->groups;
        const int64_t first = fb * g->filter_block, last = conv_least(first + g->filter_block, g->filters);
        float *partial = (float *)arrays[2] + (slot * g->groups + q) * PANELS(g->filters) * g->depth * COLUMNS;
        double *sums = arrays[3] ? (double *)arrays[3] + (slot * g->groups + q) * g->filters : 0;
        for (int64_t f = first; f < last; f += COLUMNS) memset(partial + f * g->depth, 0, sizeof(float) * g->depth * COLUMNS);
        if (sums) for (int64_t f = first; f < last; f++) sums[f] = 0;
        for (int64_t n0 = slots[slot]; n0 < slots[slot + 1]; n0 += g->block_images)
            for (int64_t r0 = 0; r0 < g->out_height; r0 += g->block_rows) {
                const int64_t rows = conv_least(g->block_rows, g->out_height - r0);
                const int64_t images = conv_least(g->block_images, slots[slot + 1] - n0);
                const float *x = (const float *)arrays[0] + q * g->channels * g->x_channel;
                const conv_block b = conv_take(g, x, scratch, n0, images, r0, rows);
                for (int64_t f = first; f < last; f += COLUMNS) {
                    const int64_t columns = conv_least(last - f, COLUMNS);
                    const float *dy = (const float *)arrays[1] + g->y_offset + (q * g->filters + f) * g->y_filter;
                    const float none[COLUMNS] = {0};
                    float *d = panel, total[COLUMNS] = {0};
                    for (int64_t i = n0; i < n0 + images; i++)
                        for (int64_t r = r0; r < r0 + rows; r++, d += g->out_width * COLUMNS) {
                            conv_columns(g, dy + i * g->y_image + r * g->y_row, d, columns);
                            for (int64_t k = 0; sums && k < g->out_width; k++)
                                for (int l = 0; l < COLUMNS; l++) total[l] += d[k * COLUMNS + l];
                        }
                    if (sums) for (int64_t l = 0; l < columns; l++) sums[f + l] += total[l];
                    for (int64_t i = 0; i < images; i++) {
                        const float *di = panel + i * rows * g->out_width * COLUMNS, *xi = b.data + i * b.image_step;
                        float *out = partial + f * g->depth;
                        for (int64_t r = 0; r < g->runs; r++)
                            for (int64_t m = 0; m < length[r]; m += TILE_ROWS) {
                                const int64_t p = conv_least(TILE_ROWS, length[r] - m);
                                float *ys[TILE_ROWS];
                                for (int64_t j = 0; j < p; j++) ys[j] = out + j * COLUMNS;
                                tile_outer(p, xi + offset[r] + m, rows, b.row_step, g->out_width, b.column_step, di, COLUMNS,
                                           ys, none, 1, columns <= LANES);
                                out += p * COLUMNS;
                            }
                    }
                }
            }
    }
}

/* sizes: filters, channels, taps, pieces of a group, steps of filter, channel and group, slots, groups, add; then the taps.
   A piece is MOST_COLUMNS filters. Calls DO(out, w) for each element of a panel, in an order that reads w as it lies. */
#define CONV_EACH(DO) do { \
    const int64_t C = s[1], T = s[2], F = s[4], K = s[5], first_channels = T > 1 && taps[1] - taps[0] == 1; \
    if (F == 1) \
        for (int64_t t = 0; t < T; t++) for (int64_t c = 0; c < C; c++) \
            for (int64_t l = 0; l < columns; l++) DO((t * C + c) * COLUMNS + l, taps[t] + c * K + l); \
    else if (F < K) \
        for (int64_t c = 0; c < C; c++) for (int64_t l = 0; l < columns; l++) \
            for (int64_t t = 0; t < T; t++) DO((t * C + c) * COLUMNS + l, taps[t] + c * K + l * F); \
    else if (first_channels) \
        for (int64_t b = 0; b < C; b += 16) for (int64_t l = 0; l < columns; l++) \
            for (int64_t c = b; c < C && c < b + 16; c++) \
                for (int64_t t = 0; t < T; t++) DO((t * C + c) * COLUMNS + l, taps[t] + c * K + l * F); \
    else \
        for (int64_t t = 0; t < T; t++) for (int64_t b = 0; b < C; b += 32) for (int64_t l = 0; l < columns; l++) \
            for (int64_t c = b; c < C && c < b + 32; c++) DO((t * C + c) * COLUMNS + l, taps[t] + c * K + l * F); \
    } while (0)

void conv_pack(void *const *arrays, int64_t begin, int64_t end)
{
    const int64_t *s = arrays[2], *taps = s + 10, depth = s[1] * s[2];
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t q = piece / s[3], first = piece %% s[3] * MOST_COLUMNS;
        for (int64_t f = first; f < s[0] && f < first + MOST_COLUMNS; f += COLUMNS) {
            const float *w = (const float *)arrays[0] + q * s[6] + f * s[4];
            float *out = (float *)arrays[1] + (q * PANELS(s[0]) + f / COLUMNS) * depth * COLUMNS;
            const int64_t columns = conv_least(s[0] - f, COLUMNS);
            if (columns < COLUMNS) memset(out, 0, sizeof(float) * depth * COLUMNS);
#define CONV_DO(to, from) out[to] = w[from]
            CONV_EACH(CONV_DO);
#undef CONV_DO
        }
    }
}

/* The same with partial sums in place of packed weights: the sum of the slots becomes the derivative, or is added to it. */
void conv_unpack(void *const *arrays, int64_t begin, int64_t end)
{
    const int64_t *s = arrays[2], *taps = s + 10, depth = s[1] * s[2], slot = s[8] * PANELS(s[0]) * depth * COLUMNS;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t q = piece / s[3], first = piece %% s[3] * MOST_COLUMNS;
        for (int64_t f = first; f < s[0] && f < first + MOST_COLUMNS; f += COLUMNS) {
            float *w = (float *)arrays[0] + q * s[6] + f * s[4];
            float *in = (float *)arrays[1] + (q * PANELS(s[0]) + f / COLUMNS) * depth * COLUMNS;
            const int64_t columns = conv_least(s[0] - f, COLUMNS);
            for (int64_t k = 1; k < s[7]; k++)
                for (int64_t i = 0; i < depth * COLUMNS; i++) in[i] += in[k * slot + i];
            if (s[9]) {
#define CONV_DO(from, to) w[to] += in[from]
                CONV_EACH(CONV_DO);
            } else {
#undef CONV_DO
#define CONV_DO(from, to) w[to] = in[from]
                CONV_EACH(CONV_DO);
#undef CONV_DO
            }
        }
    }
}
"""

BIAS = """
/* arrays: sums of dy as doubles [slots][filters], the derivative by the bias, then slots, filters, add. */
void %(name)s(void *const *arrays, int64_t begin, int64_t end)
{
    const int64_t *s = arrays[2];
    const double *sums = arrays[0];
    float *out = arrays[1];
    (void)begin; (void)end;
    for (int64_t f = 0; f < s[1]; f++) {
        double total = 0;
        for (int64_t k = 0; k < s[0]; k++) total += sums[k * s[1] + f];
        out[f] = s[2] ? out[f] + (float)total : (float)total;
    }
}
"""
