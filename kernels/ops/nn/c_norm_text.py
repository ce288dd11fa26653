"""The C text of BatchNorm: c_norm.py calls its functions and says how they work."""

from __future__ import annotations

from ...cpu.c_tile import vectors_text

_TEXT = """
#include <stdlib.h>

#ifdef __clang__
#define EACH _Pragma("clang loop vectorize(assume_safety)") for
#else
#define EACH _Pragma("GCC ivdep") for
#endif
#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#define WIDE 256    /* with channels last: columns at least, several positions side by side where channels are few */
#define BLOCK 4096  /* elements whose mean is taken before their squares are added: they stay in the first cache */

typedef struct { int64_t outer, channels, inner, slots, cut, plus, relu, add, rows; } norm_sizes;

/* `n` numbers more, of this sum and of these squared distances to their mean, for (mean, rest) of `before` numbers. */
static inline void norm_join(double before, double n, double sum, double squares, double *mean, double *rest)
{
    const double apart = sum / n - *mean;
    *mean += apart * (n / (before + n));
    *rest += squares + apart * apart * (before * n / (before + n));
}

static double norm_total(lanes a, lanes b)
{
    float v[LANES];
    double total = 0;
    tile_store(v, a + b);
    for (int i = 0; i < LANES; i++) total += v[i];
    return total;
}

/* Mean and squared distances of columns that lie next to each other, L at a time, in `groups` groups. */
static void norm_columns(const float *x, int64_t groups, int64_t L, double *mean, double *rest, float *a, float *b)
{
    const int64_t most = LEAST(groups, BLOCK / L > 8 ? BLOCK / L : 8);
    double before = 0;
    memset(mean, 0, sizeof(double) * L);
    memset(rest, 0, sizeof(double) * L);
    for (int64_t g = 0; g < groups; g += most) {
        const int64_t n = LEAST(most, groups - g);
        const float *block = x + g * L;
        memset(a, 0, sizeof(float) * L);
        memset(b, 0, sizeof(float) * L);
        for (int64_t i = 0; i < n; i++) EACH (int64_t l = 0; l < L; l++) a[l] += block[i * L + l];
        const float each = 1.0f / n;
        for (int64_t i = 0; i < n; i++)
            EACH (int64_t l = 0; l < L; l++) { const float d = block[i * L + l] - a[l] * each; b[l] += d * d; }
        const double part = n / (before + n), cross = before * n / (before + n), inverse = 1.0 / n;
        EACH (int64_t l = 0; l < L; l++) {
            const double d = a[l] * inverse - mean[l];
            mean[l] += d * part;
            rest[l] += b[l] + d * d * cross;
        }
        before += n;
    }
}

/* arrays: data, mean and squared distances of each slot as doubles [slots][2][channels], sizes. */
void norm_statistics(void *const *arrays, int64_t begin, int64_t end)
{
    const norm_sizes *g = arrays[2];
    const int64_t C = g->channels, inner = g->inner, cuts = (C + g->cut - 1) / g->cut;
    const int64_t reps = inner > 1 || C >= WIDE ? 1 : WIDE / C, L = C * reps;
    double *scratch = inner > 1 ? 0 : malloc(L * (2 * sizeof(double) + 2 * sizeof(float)));
    float *a = (float *)(scratch + 2 * L);
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t slot = piece / cuts, first = piece % cuts * g->cut, last = LEAST(first + g->cut, C);
        const int64_t from = g->outer * slot / g->slots, to = g->outer * (slot + 1) / g->slots;
        double *mean = (double *)arrays[1] + 2 * slot * C, *rest = mean + C;
        if (inner == 1) {
            const float *x = (const float *)arrays[0] + from * C;
            const int64_t groups = (to - from) / reps, left = (to - from) % reps;
            norm_columns(x, groups, L, scratch, scratch + L, a, a + L);
            memcpy(mean, scratch, sizeof(double) * C);
            memcpy(rest, scratch + L, sizeof(double) * C);
            if (groups)
                for (int64_t r = 1; r < reps; r++)
                    EACH (int64_t c = 0; c < C; c++) {
                        const double m = scratch[r * C + c];
                        norm_join(r * groups, groups, m * groups, scratch[L + r * C + c], mean + c, rest + c);
                    }
            if (left) {
                norm_columns(x + groups * L, left, C, scratch, scratch + L, a, a + L);
                EACH (int64_t c = 0; c < C; c++)
                    norm_join(groups * reps, left, scratch[c] * left, scratch[L + c], mean + c, rest + c);
            }
            continue;
        }
        for (int64_t c = first; c < last; c++) {
            double before = 0;
            mean[c] = rest[c] = 0;
            for (int64_t o = from; o < to; o++)
                for (int64_t k = 0; k < inner; k += BLOCK) {
                    const int64_t n = LEAST(BLOCK, inner - k);
                    const float *x = (const float *)arrays[0] + (o * C + c) * inner + k;
                    lanes s0 = tile_all(0), s1 = s0, q0 = s0, q1 = s0;
                    double sum = 0, squares = 0;
                    int64_t i = 0;
                    for (; i + 2 * LANES <= n; i += 2 * LANES) { s0 += tile_load(x + i); s1 += tile_load(x + i + LANES); }
                    for (; i < n; i++) sum += x[i];
                    sum += norm_total(s0, s1);
                    const float centre = sum / n;
                    const lanes all = tile_all(centre);
                    for (i = 0; i + 2 * LANES <= n; i += 2 * LANES) {
                        const lanes d0 = tile_load(x + i) - all, d1 = tile_load(x + i + LANES) - all;
                        q0 += d0 * d0;
                        q1 += d1 * d1;
                    }
                    for (; i < n; i++) { const float d = x[i] - centre; squares += d * d; }
                    norm_join(before, n, sum, squares + norm_total(q0, q1), mean + c, rest + c);
                    before += n;
                }
        }
    }
    free(scratch);
}

/* arrays: the slots of norm_statistics, gamma or null, beta, moving mean and variance, mean, 1 / sqrt(variance + eps),
   scale and shift [2][channels], sizes, then eps, momentum, and 1 if the statistics are those of the batch. */
void norm_finish(void *const *arrays, int64_t begin, int64_t end)
{
    const norm_sizes *g = arrays[8];
    const double *state = arrays[0], *number = arrays[9];
    const int64_t C = g->channels;
    const float *gamma = arrays[1], *beta = arrays[2], keep = number[1], new = 1 - number[1], eps = number[0];
    float *moving_mean = arrays[3], *moving_var = arrays[4], *mean = arrays[5], *inverse = arrays[6], *scale = arrays[7];
    for (int64_t c = 0; c < C; c++) {
        float m = moving_mean[c], var = moving_var[c];
        if (number[2]) {
            double before = 0, centre = 0, rest = 0;
            for (int64_t s = 0; s < g->slots; s++) {
                const double n = (g->outer * (s + 1) / g->slots - g->outer * s / g->slots) * g->inner;
                norm_join(before, n, state[2 * s * C + c] * n, state[(2 * s + 1) * C + c], &centre, &rest);
                before += n;
            }
            m = centre;
            var = rest / before;
            moving_mean[c] = moving_mean[c] * keep + new * m;
            moving_var[c] = moving_var[c] * keep + new * var;
        }
        const float r = 1 / sqrtf(var + eps), k = gamma ? r * gamma[c] : r;
        mean[c] = m;
        inverse[c] = r;
        scale[c] = k;
        scale[C + c] = beta[c] - m * k;
    }
}

static inline __attribute__((always_inline)) void norm_line(
    int64_t n, const float *x, const float *other, float *y, const float *scale, const float *shift,
    const int columns, const int plus, const int relu, const int add)
{
    const float s0 = *scale, t0 = *shift;
    EACH (int64_t i = 0; i < n; i++) {
        float v = x[i] * (columns ? scale[i] : s0) + (columns ? shift[i] : t0);
        if (plus) v += other[i];
        if (relu) v = v < 0 ? 0 : v;
        if (add) v += y[i];
        y[i] = v;
    }
}

/* A function for each choice of columns, plus, relu and add, found by number: a loop over lines stays one loop. */
#define EIGHT(DO, columns) \\
    DO(columns, 0, 0, 0) DO(columns, 0, 0, 1) DO(columns, 0, 1, 0) DO(columns, 0, 1, 1) \\
    DO(columns, 1, 0, 0) DO(columns, 1, 0, 1) DO(columns, 1, 1, 0) DO(columns, 1, 1, 1)
#define CHOICE(g) ((g)->inner > 1 ? 0 : 8) + ((g)->plus ? 4 : 0) + ((g)->relu ? 2 : 0) + ((g)->add ? 1 : 0)

typedef void norm_line_of(int64_t n, const float *x, const float *other, float *y, const float *scale, const float *shift);
#define LINE(columns, plus, relu, add) static void norm_line_##columns##plus##relu##add( \\
    int64_t n, const float *x, const float *other, float *y, const float *scale, const float *shift) \\
    { norm_line(n, x, other, y, scale, shift, columns, plus, relu, add); }
EIGHT(LINE, 0)
EIGHT(LINE, 1)
#undef LINE
#define LINE(columns, plus, relu, add) norm_line_##columns##plus##relu##add,
static norm_line_of *const norm_lines[16] = { EIGHT(LINE, 0) EIGHT(LINE, 1) };

/* Repeat some numbers of each channel for several positions side by side. Returns the positions; *to is to be freed. */
static int64_t norm_repeated(const float *from, int64_t C, int64_t numbers, float **to)
{
    const int64_t reps = C >= WIDE ? 1 : WIDE / C;
    *to = malloc(sizeof(float) * numbers * reps * C);
    for (int64_t k = 0; k < numbers; k++)
        for (int64_t r = 0; r < reps; r++) memcpy(*to + (k * reps + r) * C, from + k * C, sizeof(float) * C);
    return reps;
}

/* arrays: data, another array or null, result, scale and shift, sizes. A piece is `rows` positions, or rows of a channel. */
void norm_apply(void *const *arrays, int64_t begin, int64_t end)
{
    const norm_sizes *g = arrays[4];
    const int64_t C = g->channels, inner = g->inner, rows = inner > 1 ? g->outer * C : g->outer;
    const float *x = arrays[0], *other = arrays[1] ? arrays[1] : arrays[0], *scale = arrays[3];
    float *y = arrays[2], *wide = 0;
    norm_line_of *line = norm_lines[CHOICE(g)];
    const int64_t reps = inner > 1 ? 1 : norm_repeated(scale, C, 2, &wide), L = reps * C;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t first = piece * g->rows, last = LEAST(first + g->rows, rows);
        if (inner > 1)
            for (int64_t r = first; r < last; r++) {
                const int64_t at = r * inner, c = r % C;
                line(inner, x + at, other + at, y + at, scale + c, scale + C + c);
            }
        else
            for (int64_t at = first * C; at < last * C; at += L)
                line(LEAST(L, last * C - at), x + at, other + at, y + at, wide, wide + L);
    }
    free(wide);
}

/* ---- backward ---- */
#define MASKED(dy, y) ((y) > 0 ? (dy) : (y) * 0)

static inline __attribute__((always_inline)) void norm_add_columns(
    int64_t n, const float *dy, const float *x, const float *y, const float *mean, float *a, float *b, const int relu)
{
    EACH (int64_t i = 0; i < n; i++) {
        const float d = relu ? MASKED(dy[i], y[i]) : dy[i];
        a[i] += d;
        b[i] += d * (x[i] - mean[i]);
    }
}

/* arrays: dy, data, the result if a rectifier followed or null, mean, sums of dy and of dy * (x - mean) of each slot as doubles
   [slots][2][channels], sizes. */
void norm_sums(void *const *arrays, int64_t begin, int64_t end)
{
    const norm_sizes *g = arrays[5];
    const int64_t C = g->channels, inner = g->inner, cuts = (C + g->cut - 1) / g->cut;
    const float *dy = arrays[0], *x = arrays[1], *y = arrays[2], *mean = arrays[3];
    float *wide = 0;
    const int64_t reps = inner > 1 ? 1 : norm_repeated(mean, C, 1, &wide), L = reps * C;
    float *a = inner > 1 ? 0 : malloc(sizeof(float) * 2 * L), *b = a + L;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t slot = piece / cuts, first = piece % cuts * g->cut, last = LEAST(first + g->cut, C);
        const int64_t from = g->outer * slot / g->slots, to = g->outer * (slot + 1) / g->slots;
        double *one = (double *)arrays[4] + 2 * slot * C, *two = one + C;
        if (inner == 1) {
            const int64_t most = BLOCK / L > 8 ? BLOCK / L : 8;
            memset(one, 0, sizeof(double) * 2 * C);
            for (int64_t at = from * C; at < to * C; at += most * L) {
                const int64_t stop = LEAST(at + most * L, to * C);
                memset(a, 0, sizeof(float) * 2 * L);
                for (int64_t i = at; i < stop; i += L) {
                    const int64_t n = LEAST(L, stop - i);
                    if (y) norm_add_columns(n, dy + i, x + i, y + i, wide, a, b, 1);
                    else norm_add_columns(n, dy + i, x + i, x + i, wide, a, b, 0);
                }
                for (int64_t r = 0; r < reps; r++)
                    EACH (int64_t c = 0; c < C; c++) { one[c] += a[r * C + c]; two[c] += b[r * C + c]; }
            }
            continue;
        }
        for (int64_t c = first; c < last; c++) {
            double s = 0, t = 0;
            const lanes all = tile_all(mean[c]);
            for (int64_t o = from; o < to; o++)
                for (int64_t k = 0; k < inner; k += BLOCK) {
                    const int64_t n = LEAST(BLOCK, inner - k), at = (o * C + c) * inner + k;
                    lanes s0 = tile_all(0), t0 = s0, s1 = s0, t1 = s0;
                    float m[LANES];
                    int64_t i = 0;
                    for (; i + LANES <= n; i += LANES) {
                        lanes d = tile_load(dy + at + i);
                        if (y) {
                            EACH (int l = 0; l < LANES; l++) m[l] = MASKED(dy[at + i + l], y[at + i + l]);
                            d = tile_load(m);
                        }
                        s0 += d;
                        t0 += d * (tile_load(x + at + i) - all);
                    }
                    for (; i < n; i++) {
                        const float d = y ? MASKED(dy[at + i], y[at + i]) : dy[at + i];
                        s += d;
                        t += d * (x[at + i] - mean[c]);
                    }
                    s += norm_total(s0, s1);
                    t += norm_total(t0, t1);
                }
            one[c] = s;
            two[c] = t;
        }
    }
    free(wide);
    free(a);
}

/* arrays: the slots of norm_sums, gamma or null, mean, 1 / sqrt(variance + eps), derivatives of gamma and beta or null,
   numbers of norm_gradient [4][channels], sizes, then add to gamma's derivative, add to beta's, gamma is fixed, and 1 if the
   statistics are those of the batch. */
void norm_finish_sums(void *const *arrays, int64_t begin, int64_t end)
{
    const norm_sizes *g = arrays[7];
    const int64_t *how = arrays[8], C = g->channels;
    const double *sums = arrays[0], count = (double)g->outer * g->inner;
    const float *gamma = arrays[1], *mean = arrays[2], *inverse = arrays[3];
    float *d_gamma = arrays[4], *d_beta = arrays[5], *number = arrays[6];
    for (int64_t c = 0; c < C; c++) {
        double s = 0, t = 0;
        for (int64_t k = 0; k < g->slots; k++) { s += sums[2 * k * C + c]; t += sums[(2 * k + 1) * C + c]; }
        t *= inverse[c];
        if (d_gamma) d_gamma[c] = (how[0] ? d_gamma[c] : 0) + (how[2] ? 0 : (float)t);
        if (d_beta) d_beta[c] = (how[1] ? d_beta[c] : 0) + (float)s;
        number[c] = how[2] ? inverse[c] : inverse[c] * gamma[c];
        number[C + c] = mean[c];
        number[2 * C + c] = how[3] ? inverse[c] * (t / count) : 0;
        number[3 * C + c] = how[3] ? s / count : 0;
    }
}

static inline __attribute__((always_inline)) void norm_gradient_line(
    int64_t n, const float *dy, const float *x, const float *y, float *dx, float *other, const float *k, int64_t step,
    const int columns, const int plus, const int relu, const int add, const int64_t plus_adds)
{
    const float k0 = k[0], m0 = k[step], a0 = k[2 * step], b0 = k[3 * step];
    EACH (int64_t i = 0; i < n; i++) {
        const float d = relu ? MASKED(dy[i], y[i]) : dy[i];
        float v = d - ((x[i] - (columns ? k[step + i] : m0)) * (columns ? k[2 * step + i] : a0)
                       + (columns ? k[3 * step + i] : b0));
        v *= columns ? k[i] : k0;
        if (plus) other[i] = plus_adds ? other[i] + d : d;
        dx[i] = add ? dx[i] + v : v;
    }
}

#undef LINE
#define SLOPE_ARGUMENTS int64_t n, const float *dy, const float *x, const float *y, float *dx, float *other, const float *k, \\
    int64_t step, int64_t plus_adds
typedef void norm_slope_of(SLOPE_ARGUMENTS);
#define LINE(columns, plus, relu, add) static void norm_slope_##columns##plus##relu##add(SLOPE_ARGUMENTS) \\
    { norm_gradient_line(n, dy, x, y, dx, other, k, step, columns, plus, relu, add, plus_adds); }
EIGHT(LINE, 0)
EIGHT(LINE, 1)
#undef LINE
#define LINE(columns, plus, relu, add) norm_slope_##columns##plus##relu##add,
static norm_slope_of *const norm_slopes[16] = { EIGHT(LINE, 0) EIGHT(LINE, 1) };

/* arrays: dy, data, the result or null, derivative by data, derivative by the other array or null, the numbers of
   norm_finish_sums, sizes; plus: 1 write, 2 add to the other derivative. */
void norm_gradient(void *const *arrays, int64_t begin, int64_t end)
{
    const norm_sizes *g = arrays[6];
    const int64_t C = g->channels, inner = g->inner, rows = inner > 1 ? g->outer * C : g->outer, adds = g->plus > 1;
    const float *dy = arrays[0], *x = arrays[1], *y = arrays[2] ? arrays[2] : arrays[1], *numbers = arrays[5];
    float *dx = arrays[3], *other = arrays[4] ? arrays[4] : dx, *wide = 0;
    norm_slope_of *line = norm_slopes[CHOICE(g)];
    const int64_t reps = inner > 1 ? 1 : norm_repeated(numbers, C, 4, &wide), L = reps * C;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t first = piece * g->rows, last = LEAST(first + g->rows, rows);
        if (inner > 1)
            for (int64_t r = first; r < last; r++) {
                const int64_t at = r * inner;
                line(inner, dy + at, x + at, y + at, dx + at, other + at, numbers + r % C, C, adds);
            }
        else
            for (int64_t at = first * C; at < last * C; at += L)
                line(LEAST(L, last * C - at), dy + at, x + at, y + at, dx + at, other + at, wide, L, adds);
    }
    free(wide);
}
"""

NAMES = ("norm_statistics", "norm_finish", "norm_apply", "norm_sums", "norm_finish_sums", "norm_gradient")


def norm_text() -> str:
    return f"{vectors_text()}{_TEXT}"
