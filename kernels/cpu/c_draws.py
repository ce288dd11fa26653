"""Random numbers in C: Philox 4x32-10 as in `kernels/philox.py`. Words and fractions have its bits; normal numbers in float32 are
within the tolerance, by a logarithm, a sine and a cosine of our own."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..ir.coalesce import full_shape
from ..ir.draws import Draw, as_inputs
from ..kernel import Kernel
from ..op import Expression, Reqs, Spec, Specs
from .c_compile import Loaded
from .c_math import definitions
from .c_moving import Places, Ready, moved, places_of
from .c_team import KEPT, Phases, Step, step_of_elements
from .c_template import Template, address

LEAST = 1 << 6  # numbers from which on C is worth compiling: NumPy needs 60 microseconds for any count
LEAST_NORMAL = 1 << 9  # the same for normal numbers
PIECE = 1 << 14  # numbers of a piece, an even one

_TEXT = """
#define DRAWN 64

/* Words 4 * first and on of the generator, for DRAWN values of its counter. */
static void draw_block(uint64_t first, uint64_t seed, uint32_t *restrict out)
{
    uint32_t a[DRAWN], b[DRAWN], c[DRAWN], d[DRAWN], k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < DRAWN; i++) a[i] = (uint32_t)(first + i), b[i] = (uint32_t)((first + i) >> 32), c[i] = d[i] = 0;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < DRAWN; i++) {
            const uint64_t p = (uint64_t)a[i] * 0xD2511F53u, q = (uint64_t)c[i] * 0xCD9E8D57u;
            a[i] = (uint32_t)(q >> 32) ^ b[i] ^ k0;
            b[i] = (uint32_t)q;
            c[i] = (uint32_t)(p >> 32) ^ d[i] ^ k1;
            d[i] = (uint32_t)p;
        }
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < DRAWN; i++) out[4 * i] = a[i], out[4 * i + 1] = b[i], out[4 * i + 2] = c[i], out[4 * i + 3] = d[i];
}

#define DRAW(T, OF) { \\
    T *const y = arrays[0]; \\
    const uint64_t *const s = arrays[1];  /* seed, offset, random bits of a fraction */ \\
    const int drop = 32 - (int)s[2]; \\
    const double unit = 1.0 / (double)((uint64_t)1 << s[2]);  /* exact in float, too */ \\
    (void)drop, (void)unit; \\
    uint32_t words[4 * DRAWN]; \\
    for (int64_t i = begin; i < end;) { \\
        const uint64_t at = s[1] + i, skip = at %% 4; \\
        const int64_t n = end - i < 4 * DRAWN - (int64_t)skip ? end - i : 4 * DRAWN - (int64_t)skip; \\
        draw_block(at / 4, s[0], words); \\
        const uint32_t *const w = words + skip; \\
        for (int64_t j = 0; j < n; j++) y[i + j] = OF; \\
        i += n; \\
    } }

/* arrays: result; seed, offset and bits. Result i is number i after the offset. */
void draw_words(void *const *arrays, int64_t begin, int64_t end) DRAW(uint32_t, w[j])
void draw_float32(void *const *arrays, int64_t begin, int64_t end) DRAW(float, (float)(w[j] >> drop) * (float)unit)
void draw_float64(void *const *arrays, int64_t begin, int64_t end) DRAW(double, (double)(w[j] >> drop) * unit)

/* The same for normal numbers, by Box and Muller: element 2 p and the next are made of the words of the same numbers. begin is
   even. Of an angle the nearest multiple of pi / 2 is taken, whose first two parts have so few digits that this is exact. */
void draw_normal(void *const *arrays, int64_t begin, int64_t end)
{
    float *const y = arrays[0];
    const uint64_t *const s = arrays[1];
    uint32_t words[4 * DRAWN];
    float pairs[4 * DRAWN];
    for (int64_t i = begin; i < end;) {
        const uint64_t at = s[1] + i, skip = at %% 4;
        const int64_t room = (4 * DRAWN - (int64_t)skip) / 2 * 2, n = end - i < room ? end - i : room;
        draw_block(at / 4, s[0], words);
        const uint32_t *const w = words + skip;
        for (int64_t j = 0; j < room / 2; j++) {
            const float radius = sqrtf(-2.0f * log_float32((float)((w[2 * j] >> 8) + 1) * 0x1p-24f));
            const float angle = (float)(w[2 * j + 1] >> 8) * %(turn)s;
            const int32_t quarter = (int32_t)(angle * %(inverse)s + 0.5f);
            const float q = (float)quarter, a = angle - q * 0x1.92p+0f - q * 0x1.fb4p-12f - q * %(rest)s, t = a * a;
            const float c = %(cos)s, d = a * %(sin)s;
            const float x = quarter & 1 ? d : c, z = quarter & 1 ? c : d;
            pairs[2 * j] = radius * ((quarter + 1) & 2 ? -x : x);
            pairs[2 * j + 1] = radius * (quarter & 2 ? -z : z);
        }
        memcpy(y + i, pairs, n * sizeof *y);
        i += n;
    }
}
"""


def _series(first: int) -> str:
    """Return the C text of the sum of (-t)**i / (first + 2 i)! for i from 0 to 4; t = a**2. first 0: cos a; 1: sin a by a."""
    text = "0.0f"
    for i in range(4, -1, -1):
        text = f"FMA({text}, t, {float(np.float32((-1) ** i / math.factorial(first + 2 * i))).hex()}f)"
    return text


def _text() -> str:
    numbers = {"turn": 2 * math.pi / 2**24, "inverse": 2 / math.pi, "rest": math.pi / 2 - 1.5703125 - 4.837512969970703125e-4}
    terms = {**{k: f"{float(np.float32(v)).hex()}f" for k, v in numbers.items()}, "cos": _series(0), "sin": _series(1)}
    return definitions({"log_float32"}) + _TEXT % terms


TEMPLATE = Template(_text, ("draw_words", "draw_float32", "draw_float64", "draw_normal"))


def draw_numbers(draw: Draw, run: Any, seed: int, offset: int, out: np.ndarray) -> None:
    """Fill out with the numbers of a draw, which begin at offset; not for normal numbers in float64."""
    function = _function(draw.kind, draw.dtype)
    state, size = State(seed & (2**64 - 1), offset, draw.bits), out.size
    addresses = _Addresses(address(out), ctypes.addressof(state))
    if size <= PIECE:
        function.short(addresses, 0, size)
    else:
        Phases([[step_of_elements(function, addresses, size, PIECE, (out, state))]])(run)


State, _Addresses = ctypes.c_uint64 * 3, ctypes.c_void_p * 2  # State: seed, offset, bits of a number


def drawing_step(kind: str, dtype: np.dtype, n: int, state: ctypes.Array, held: Any = None) -> Step:
    """Return the step that draws n numbers, with the seed and the offset that are in state when it runs.

    held: the array for them; None: the address is set before it runs.
    """
    addresses = _Addresses(None if held is None else address(held), ctypes.addressof(state))
    return step_of_elements(_function(kind, dtype), addresses, n, PIECE, (state, held))


@functools.cache
def _function(kind: str, dtype: np.dtype) -> Loaded:
    functions = TEMPLATE.functions()
    assert functions is not None
    return functions[f"draw_{dtype.name}" if kind == "uniform" else "draw_words" if kind == "word" else "draw_normal"]


def drawing_kernel(e: Expression, ins: Specs, outs: Specs, reqs: Reqs, name: str, make: Callable[..., Kernel]) -> Kernel | None:
    """Return the kernel of an expression with draws that are made in C, into scratch memory; None where NumPy makes them.

    make: returns the kernel of an expression without draws, called with the other arguments.
    """
    rest, specs, placed = as_inputs(e, ins, full_shape([s.shape for s in (*ins, *outs)]))
    draws, scratch = list(placed.values()), specs[len(ins):]
    normal = [d.draw.dtype for d in draws if d.draw.kind == "normal"]
    if any(dtype != np.float32 for dtype in normal):
        return None
    if not TEMPLATE.serves(min((s.size for s in scratch), default=0), LEAST_NORMAL if normal else LEAST):
        return None
    return _DrawingKernel(make(rest, specs, outs, reqs, name=name), list(ins), list(outs), draws, scratch)


class DrawnTogether:
    """Calls that draw few numbers and compute with them, for arrays that differ from run to run.

    ins, outs:  the layouts of the arrays.
    bind:       bind(inputs, outputs) returns a call with its draws; None as long as not all of it is C.
    """

    def __init__(self, ins: Specs, outs: Specs, bind: Callable[[Sequence[Any], Sequence[Any]], Drawn | None]):
        n = len(ins) + len(outs)
        self._specs, self._n_in, self._bind, self._ready = [*ins, *outs], len(ins), bind, list[tuple[Ready, Drawn]]()
        self._places, self._fixed = Places(self._specs, range(n), range(len(ins), n)), False

    def run(self, run: Any, inputs: Sequence[Any], outputs: Sequence[Any], scalars: tuple, random: tuple[int, int]) -> bool:
        """Compute, and return True; False where that is not possible."""
        arrays = (*inputs[:self._n_in], *outputs)
        places = None if self._fixed or any(a is None for a in arrays) else places_of(arrays)
        if places is None or not self._places.fit(places):
            return False
        try:
            made = self._ready.pop()
        except IndexError:  # other runs have them all
            found = self._made()
            if found is None:
                return False
            made = found
        call, drawn = made
        drawn.at(random)
        if scalars:
            drawn.last.hold(scalars)
        call.place(places)
        call.call(run)
        self._ready.append(made)
        return True

    def _made(self) -> tuple[Ready, Drawn] | None:
        """Return a call without arrays."""
        arrays = [np.empty(s.shape, s.dtype) for s in self._specs]
        drawn, places = self._bind(arrays[:self._n_in], arrays[self._n_in:]), places_of(arrays)
        if drawn is None or places is None:
            return None
        call = moved(Phases.join(drawn.parts), places, [a.nbytes for a in arrays])
        self._fixed = call is None
        return None if call is None else (call, drawn)


class Drawn(NamedTuple):
    """Bound parts of a call, and the states of its draws with their bases. Run-time scalars are those of the last part."""

    parts: list[Phases]
    states: list[tuple[Any, int]]

    @property
    def last(self) -> Phases:
        return self.parts[-1]

    def at(self, random: tuple[int, int]) -> None:
        """Set the seed, and the offsets from the one that is given."""
        seed, offset = random[0] & (1 << 64) - 1, random[1]
        for state, base in self.states:
            state[0], state[1] = seed, offset + base


def drawn_in_turn(first: Kernel | None, then: Kernel, ins: Specs, outs: Specs, made: Spec, held: Sequence[np.ndarray]
                  ) -> DrawnTogether:
    """Return the calls of a kernel that draws, and of one that reads the rows of what it made.

    first:  inputs -> [made]; None: there is none. then: the inputs and the rows of made -> outs; it may draw too.
    held:   arrays that are the inputs, instead of those of a run.
    """
    def bind(inputs: Sequence[Any], outputs: Sequence[Any]) -> Drawn | None:
        given, rows = held or inputs, np.empty(made.shape, made.dtype)
        last = then.bind_drawing([*given, *rows], outputs)
        if last is None and then.at is not None:
            bound = then.bind([*given, *rows], outputs)
            last = Drawn([bound], []) if isinstance(bound, Phases) else None
        if first is None or last is None:
            return last
        drawn = first.bind_drawing(given, [rows])
        return None if drawn is None else Drawn([*drawn.parts, *last.parts], [*drawn.states, *last.states])

    return DrawnTogether(ins, outs, bind)


class _DrawingKernel(Kernel):
    """A kernel whose numbers are drawn into scratch memory, for another one that reads them behind its inputs.

    Few numbers are drawn in one call with that, once it is C: with memory of its own, which is kept.
    """

    __slots__ = ("_draws", "_inner", "_scratch", "_together")

    def __init__(self, inner: Kernel, ins: Specs, outs: Specs, draws: Sequence[Any], scratch: Specs):
        super().__init__(self._run)
        self._inner, self._draws, self._scratch = inner, draws, scratch
        self._together = DrawnTogether(ins, outs, self.bind_drawing)

    def _run(self, run: Any, inputs: Sequence[Any], outputs: Sequence[Any], scalars: tuple = (), *, random: tuple[int, int]
             ) -> None:
        if self._inner.at is not None and self._together.run(run, inputs, outputs, scalars, random):
            return
        seed, offset = random
        drawn = [run.workspace(s.shape, s.dtype) for s in self._scratch]
        for d, a in zip(self._draws, drawn):
            draw_numbers(d.draw, run, seed, offset + d.base, a)
        self._inner.run(run, [*inputs, *drawn], outputs, **({"scalars": scalars} if scalars else {}))

    def bind_drawing(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Drawn | None:
        """See Kernel."""
        if self._inner.at is None or sum(s.nbytes for s in self._scratch) > 4 * KEPT:
            return None
        drawn = [np.empty(s.shape, s.dtype) for s in self._scratch]
        inner = self._inner.bind([*inputs, *drawn], outputs)
        if not isinstance(inner, Phases):
            return None
        states = [(State(0, 0, d.draw.bits), d.base) for d in self._draws]
        steps = [drawing_step(d.draw.kind, d.draw.dtype, a.size, s, a) for d, a, (s, _) in zip(self._draws, drawn, states)]
        return Drawn([Phases([steps]), inner], states)
