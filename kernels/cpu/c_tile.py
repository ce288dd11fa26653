"""The inner loop of products and convolutions in C: a tile of results stays in registers while a sum runs.

A tile has a few rows and one or two vectors of columns. Its text is printed here, with one variable for each register, for the
vector units that C compilers know: AVX-512, AVX2, NEON, or whatever the compiler makes of plain vectors. The text does not depend
on any size, so a machine compiles a template that contains it once.
"""

from __future__ import annotations

#: Rows of a tile by the number of vector registers; the remaining rows of a matrix are computed by smaller tiles.
_ROWS = {16: (6, 4, 2, 1), 32: (12, 8, 7, 4, 2, 1)}
#: Rows of a tile from which on those that are evenly apart have a kernel of their own, on x86 processors.
_EVEN = 8
#: Columns of a tile are at most so many, on every machine: columns are handed to threads in multiples of this.
MOST_COLUMNS = 32

_VECTORS = """
#if defined(__AVX512F__)
#include <immintrin.h>
typedef __m512 lanes;
#define LANES 16
#define TILE_ROWS 12
#define tile_load _mm512_loadu_ps
#define tile_store _mm512_storeu_ps
#define tile_all _mm512_set1_ps
#define tile_fma _mm512_fmadd_ps
#define tile_most _mm512_max_ps
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
typedef __m256 lanes;
#define LANES 8
#define TILE_ROWS 6
#define tile_load _mm256_loadu_ps
#define tile_store _mm256_storeu_ps
#define tile_all _mm256_set1_ps
#define tile_fma _mm256_fmadd_ps
#define tile_most _mm256_max_ps
#else
#if defined(__aarch64__)
#define LANES 4
#define TILE_ROWS 12
#else
#define LANES 4
#define TILE_ROWS 6
#endif
typedef float lanes __attribute__((vector_size(4 * LANES)));
static inline lanes tile_load(const float *p) { lanes a; memcpy(&a, p, sizeof a); return a; }
static inline void tile_store(float *p, lanes a) { memcpy(p, &a, sizeof a); }
static inline lanes tile_all(float s) { return (lanes){s, s, s, s}; }
static inline lanes tile_most(lanes a, lanes b) { for (int i = 0; i < LANES; i++) if (b[i] < a[i]) b[i] = a[i]; return b; }
#if defined(__aarch64__)
#include <arm_neon.h>
static inline lanes tile_fma(lanes a, lanes b, lanes c)
{
    return (lanes)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
#else
static inline lanes tile_fma(lanes a, lanes b, lanes c) { return a * b + c; }
#endif
#endif
#define COLUMNS (2 * LANES)
#define NO_FLOOR (-__builtin_inff())

#if defined(__x86_64__) && TILE_ROWS == 12
#define TILE_EVEN  /* there are kernels for rows that are evenly apart */
#endif

/* The rows of a tile of which so many rows are best cut into: a few single rows at the end would wait for their own sums. */
static inline int64_t tile_height(int64_t rows)
{
    return TILE_ROWS == 6 ? rows % 6 && rows % 4 == 0 ? 4 : 6 : rows % 7 == 0 && rows % 2 && rows % 12 != 7 ? 7 : 12;
}

/* The rows of the next tile. Two tiles of 7 or 8 rows take less time than one of 12 and a small one. */
static inline int64_t tile_next(int64_t height, int64_t left)
{
    return left <= height ? left : height == 12 && left <= 16 ? (left + 1) / 2 : height;
}
"""


def vectors_text() -> str:
    """Return the C text of a vector of floats: the type `lanes` of LANES numbers, tile_load, tile_store, tile_all, tile_fma, and
    tile_most(a, b), the larger one, b where it is NaN."""
    return f"#ifndef LANES\n{_VECTORS}#endif\n"


def tile_text() -> str:
    """Return the C text of the tiles, with `vectors_text`.

    tile_rows(p, x, apart, y, offset, length, runs, w, w_step, bias, floor, load, narrow, ahead, step): p rows. y[i][j] =
        (load: y[i][j]) + sum over runs r and k < length[r] of x[i][offset[r] + k] * w[k' * w_step + j], where k' counts on over
        all runs, + bias[j]; or floor, where that is less: NO_FLOOR or 0.
        apart: the elements from each row of x to the next one; 0: not the same for all, which takes longer.
        w_step is COLUMNS for what is packed. The bias is added last, as where a product is computed first: small sums are not
        rounded to the bias's last digit. Meanwhile memory that is wanted next is fetched: ahead, `step` bytes for each k'.
    tile_outer(p, x, rows, row_step, columns, column_step, d, d_step, y, bias, load, narrow): y[i][j] = (load: y[i][j]) + sum over
        rows and columns of x[i] * d[j] + bias[j], where x moves by the steps and d by d_step.
    Both take p up to TILE_ROWS, and compute COLUMNS columns, or LANES alone where `narrow` is set.
    """
    parts = [vectors_text()]
    for registers, rows in _ROWS.items():
        parts.append("#if TILE_ROWS == 12" if registers == 32 else "#if TILE_ROWS == 6")
        parts += [_rows_kernel(p, v) for p in rows for v in (2, 1)]
        if registers == 32:
            parts += ["#ifdef TILE_EVEN", *(_rows_kernel(p, 2, even=True) for p in rows if p >= _EVEN), "#endif"]
        parts += [_outer_kernel(p, v) for p in rows for v in (2, 1)]
        parts.append(_dispatch(rows))
        parts.append("#endif")
    return "\n".join(parts)


def _begin(each: list[tuple[int, int]]) -> list[str]:
    return [*(f"    lanes a{i}_{v} = tile_all(0);" for i, v in each),
            "    if (load) {", *(f"        a{i}_{v} = tile_load(y[{i}] + {v} * LANES);" for i, v in each), "    }"]


def _end(each: list[tuple[int, int]], vectors: int, value: str = "{0}") -> list[str]:
    return [*(f"    const lanes b{v} = tile_load(bias + {v} * LANES);" for v in range(vectors)),
            *(f"    float *const y{i} = y[{i}];" for i in sorted({i for i, _ in each})),
            *(f"    tile_store(y{i} + {v} * LANES, {value.format(f'a{i}_{v} + b{v}')});" for i, v in each), "}"]


def _rows_kernel(p: int, vectors: int, even: bool = False) -> str:
    """Return the kernel of p rows. even: the rows of x are `apart` from each other, so that four of them lead to the others.

    Twelve pointers are more than an x86 processor has registers for: they take a twentieth of the time of long sums."""
    each = [(i, v) for i in range(p) for v in range(vectors)]
    name, x = (f"tile_even_{p}_{vectors}", "const float *x, int64_t apart") if even else (f"tile_rows_{p}_{vectors}",
                                                                                          "const float *const *x")
    lines = [f"static void {name}({x}, float *const *y, const int64_t *offset, "
             "const int64_t *length, int64_t runs, const float *w, int64_t w_step, const float *bias, float floor, "
             "int load, const char *ahead, int64_t step)",
             "{", *_begin(each)]
    lines += [*(f"    if (!load) __builtin_prefetch(y[{i}] + {v} * LANES, 1);" for i, v in each)]
    leads = range(0, p, 3) if even else range(p)
    origin = "x + {0} * apart" if even else "x[{0}]"
    lines += ["    for (int64_t r = 0; r < runs; r++) {",
              *(f"        const float *x{i} = {origin.format(i)} + offset[r];" for i in leads)]
    lines += ["        for (int64_t k = 0, n = length[r]; k < n; k++, w += w_step, ahead += step) {",
              "            __builtin_prefetch(ahead, 0, 2);",
              *(f"            const lanes w{v} = tile_load(w + {v} * LANES);" for v in range(vectors))]
    for i in range(p):
        lines.append(f"            const lanes s{i} = tile_all({f'x{i // 3 * 3}[{i % 3} * apart]' if even else f'x{i}[k]'});")
        lines += [f"            a{i}_{v} = tile_fma(s{i}, w{v}, a{i}_{v});" for v in range(vectors)]
    if even:
        lines.append(f"            {' '.join(f'x{i}++;' for i in leads)}")
    lines += ["        }", "    }", "    const lanes least = tile_all(floor);"]
    return "\n".join([*lines, *_end(each, vectors, "tile_most(least, {0})")])


def _outer_kernel(p: int, vectors: int) -> str:
    each = [(i, v) for i in range(p) for v in range(vectors)]
    lines = [f"static void tile_outer_{p}_{vectors}(const float *x, int64_t rows, int64_t row_step, int64_t columns, "
             "int64_t column_step, const float *d, int64_t d_step, float *const *y, const float *bias, int load)", "{",
             *_begin(each)]
    lines += ["    for (int64_t r = 0; r < rows; r++) {", "        const float *q = x + r * row_step;",
              "        for (int64_t k = 0; k < columns; k++, q += column_step, d += d_step) {",
              *(f"            const lanes d{v} = tile_load(d + {v} * LANES);" for v in range(vectors))]
    for i in range(p):
        lines.append(f"            const lanes s{i} = tile_all(q[{i}]);")
        lines += [f"            a{i}_{v} = tile_fma(s{i}, d{v}, a{i}_{v});" for v in range(vectors)]
    return "\n".join([*lines, "        }", "    }", *_end(each, vectors)])


def _dispatch(rows: tuple[int, ...]) -> str:
    """Return functions that compute any number of rows up to TILE_ROWS with the tiles there are."""
    lines = ["static void tile_rows(int64_t p, const float *const *x, int64_t apart, float *const *y, const int64_t *offset, "
             "const int64_t *length, int64_t runs, const float *w, int64_t w_step, const float *bias, float floor, int load, "
             "int narrow, const char *ahead, int64_t step)", "{", "    while (p > 0) {"]
    for n in rows:
        arguments = "y, offset, length, runs, w, w_step, bias, floor, load, ahead, step"
        lines.append(f"        if (p >= {n}) {{")
        if n >= _EVEN:
            lines += ["#ifdef TILE_EVEN",
                      f"            if (!narrow && apart) tile_even_{n}_2(x[0], apart, {arguments});",
                      "            else", "#endif"]
        lines += [f"            (narrow ? tile_rows_{n}_1 : tile_rows_{n}_2)(x, {arguments});",
                  f"            p -= {n}; x += {n}; y += {n}; continue;", "        }"]
    lines += ["    }", "}"]
    lines += ["static void tile_outer(int64_t p, const float *x, int64_t rows, int64_t row_step, int64_t columns, "
              "int64_t column_step, const float *d, int64_t d_step, float *const *y, const float *bias, int load, int narrow)",
              "{", "    while (p > 0) {"]
    for n in rows:
        lines += [f"        if (p >= {n}) {{",
                  f"            (narrow ? tile_outer_{n}_1 : tile_outer_{n}_2)(x, rows, row_step, columns, column_step, d, "
                  "d_step, y, bias, load);",
                  f"            p -= {n}; x += {n}; y += {n}; continue;", "        }"]
    return "\n".join([*lines, "    }", "}"])
