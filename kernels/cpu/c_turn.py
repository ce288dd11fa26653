"""Transposing a matrix in C: square blocks are turned in vector registers, so that each cache line is read and written once."""

from __future__ import annotations


def turn_text(name: str, element: str, size: int, lanes: int) -> str:
    """Return the C text of two functions of elements of a C type, size bytes each, in squares of so many lanes.

    NAME_square(x, s, y, d): y[i * d + j] = x[i + j * s] for i, j < lanes.
    NAME_turn(x, s, y, d, high, wide): the same for i < high, j < wide.
    """
    return _TEXT % {"name": name, "T": element, "lanes": lanes, "bytes": lanes * size, "bits": 8 * size,
                    "square": _square(name, lanes)}


_TEXT = """
#ifdef __clang__
#define TURN_MIX(V, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define TURN_MIX(V, a, b, ...) __builtin_shuffle(a, b, (V){__VA_ARGS__})
#endif
typedef %(T)s %(name)s_lanes __attribute__((vector_size(%(bytes)d)));
typedef int%(bits)d_t %(name)s_mask __attribute__((vector_size(%(bytes)d)));

static inline void %(name)s_square(const %(T)s *x, int64_t s, %(T)s *y, int64_t d)
{
%(square)s
}

static inline void %(name)s_turn(const %(T)s *x, int64_t s, %(T)s *y, int64_t d, int64_t high, int64_t wide)
{
    int64_t i = 0;
    for (; i + %(lanes)d <= high; i += %(lanes)d) {
        int64_t j = 0;
        for (; j + %(lanes)d <= wide; j += %(lanes)d) %(name)s_square(x + i + j * s, s, y + i * d + j, d);
        for (; j < wide; j++) for (int64_t k = i; k < i + %(lanes)d; k++) y[k * d + j] = x[k + j * s];
    }
    for (; i < high; i++) for (int64_t j = 0; j < wide; j++) y[i * d + j] = x[i + j * s];
}
"""


def _square(name: str, lanes: int) -> str:
    """Return the statements that turn a square of so many elements a side: in each round lanes change places at a distance."""
    lines = [f"{name}_lanes a{i}; memcpy(&a{i}, x + {i} * s, sizeof a{i});" for i in range(lanes)]
    step = 1
    while step < lanes:
        low = [lane if not lane & step else lanes + lane - step for lane in range(lanes)]
        high = [lane + step if not lane & step else lanes + lane for lane in range(lanes)]
        lines.append("{")
        for i in (i for i in range(lanes) if not i & step):
            lines.append(f"const {name}_lanes p{i} = TURN_MIX({name}_mask, a{i}, a{i + step}, {', '.join(map(str, low))}), "
                         f"q{i} = TURN_MIX({name}_mask, a{i}, a{i + step}, {', '.join(map(str, high))});")
            lines.append(f"a{i} = p{i}; a{i + step} = q{i};")
        lines.append("}")
        step *= 2
    lines += [f"memcpy(y + {i} * d, &a{i}, sizeof a{i});" for i in range(lanes)]
    return "\n".join(f"    {t}" for t in lines)
