"""The C text of convolutions in which each channel has a filter of its own; it follows that of c_conv_text.py."""

from __future__ import annotations

EACH_TEXT = """
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

/* m neighbouring positions of LANES channels. */
static inline __attribute__((always_inline)) void conv_each_positions(
    const int m, const float *x, int64_t x_step, const int64_t *offset, int64_t taps, const float *w, int64_t C,
    const float *bias, float *y, int64_t y_step, int64_t y_filter, int64_t add)
{
    lanes a[8];
    float v[LANES];
    for (int j = 0; j < m; j++) a[j] = tile_all(0);
    if (add && y_filter == 1) for (int j = 0; j < m; j++) a[j] = tile_load(y + j * y_step);
    for (int64_t t = 0; t < taps; t++) {
        const lanes b = tile_load(w + t * C);
        const float *s = x + offset[t];
        for (int j = 0; j < m; j++) a[j] = tile_fma(tile_load(s + j * x_step), b, a[j]);
    }
    const lanes b = bias ? tile_load(bias) : tile_all(0);
    if (y_filter == 1) { for (int j = 0; j < m; j++) tile_store(y + j * y_step, a[j] + b); return; }
    for (int j = 0; j < m; j++) {
        tile_store(v, a[j] + b);
        for (int l = 0; l < LANES; l++) {
            float *to = y + j * y_step + l * y_filter;
            *to = add ? *to + v[l] : v[l];
        }
    }
}

/* arrays as for conv_rows. */
void conv_each_rows(void *const *arrays, int64_t begin, int64_t end)
{
    const conv_sizes *g = arrays[4];
    const int64_t *offset = arrays[5], C = g->channels, T = g->runs;
    const float *w = arrays[1], *bias = arrays[2];
    void *held;
    float *scratch = conv_scratch(g, &held);
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t r0 = piece % g->row_blocks * g->block_rows, n0 = piece / g->row_blocks * g->block_images;
        const int64_t rows = conv_least(g->block_rows, g->out_height - r0), images = conv_least(g->block_images, g->images - n0);
        const conv_block b = conv_take(g, arrays[0], scratch, n0, images, r0, rows);
        float *y0 = (float *)arrays[3] + g->y_offset + n0 * g->y_image + r0 * g->y_row;
        for (int64_t i = 0; i < images; i++)
            for (int64_t r = 0; r < rows; r++)
                for (int64_t k = 0, m; k < g->out_width; k += m) {
                    const int64_t left = g->out_width - k;
                    const float *x = b.data + i * b.image_step + r * b.row_step + k * b.column_step;
                    float *y = y0 + i * g->y_image + r * g->y_row + k * g->y_column;
                    int64_t c = 0;
                    m = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
#define EACH_POSITIONS(n) conv_each_positions(n, x + c, b.column_step, offset, T, w + c, C, bias ? bias + c : 0, \\
                                              y + c * g->y_filter, g->y_column, g->y_filter, g->add)
                    for (; c + LANES <= C; c += LANES) {
                        if (m == 8) EACH_POSITIONS(8);
                        else if (m == 4) EACH_POSITIONS(4);
                        else if (m == 2) EACH_POSITIONS(2);
                        else EACH_POSITIONS(1);
                    }
                    for (; c < C; c++)
                        for (int64_t j = 0; j < m; j++) {
                            float *to = y + j * g->y_column + c * g->y_filter, sum = g->add ? *to : 0;
                            for (int64_t t = 0; t < T; t++) sum += x[offset[t] + j * b.column_step + c] * w[t * C + c];
                            *to = bias ? sum + bias[c] : sum;
                        }
                }
    }
    free(held);
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
    void *held, *held_row;
    float *scratch = conv_scratch(g, &held), *turned = conv_memory(g->y_filter == 1 ? 0 : g->out_width * C, &held_row);
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
                            for (int64_t f = 0; f < C; f++)
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
    free(held_row);
    free(held);
}
"""
