"""The rows of an array in a random order, in C: random words are drawn, sorted with their numbers, and the rows copied.

Equal words keep their order, so it is that of a stable sort in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..kernel import KernelFunction, Run
from . import c_draws
from .c_moving import Ready, places_of
from .c_take import selected_rows, selects
from .c_team import Phases, Scratch, int64s
from .c_template import Call, Template

LEAST = 1 << 12  # rows for which C is compiled at once

_TEXT = """
#define RUN 16

/* arrays: words [n], their numbers in the order of the words [n], room [n], n. */
void words_order(void *const *arrays, int64_t begin, int64_t end)
{
    const uint32_t *const words = arrays[0];
    uint64_t *const order = arrays[1], *from = arrays[1], *to = arrays[2];
    const int64_t n = *(const int64_t *)arrays[3];
    for (int64_t first = 0; first < n; first += RUN)
        for (int64_t i = first; i < n && i < first + RUN; i++) {
            const uint64_t x = (uint64_t)words[i] << 32 | (uint64_t)i;
            int64_t j = i;
            for (; j > first && from[j - 1] > x; j--) from[j] = from[j - 1];
            from[j] = x;
        }
    for (int64_t width = RUN; width < n; width *= 2) {
        for (int64_t first = 0; first < n; first += 2 * width) {
            const int64_t middle = first + width < n ? first + width : n, last = middle + width < n ? middle + width : n;
            int64_t i = first, j = middle, k = first;
            while (i < middle && j < last) {
                const int right = from[j] < from[i];
                to[k++] = right ? from[j] : from[i];
                j += right, i += !right;
            }
            while (i < middle) to[k++] = from[i++];
            while (j < last) to[k++] = from[j++];
        }
        uint64_t *const sorted = to;
        to = from, from = sorted;
    }
    for (int64_t i = 0; i < n; i++) order[i] = from[i] & 0xFFFFFFFFu;
}
"""

_TEMPLATE = Template(lambda: _TEXT, ("words_order",))


def shuffles(n: int, inner: int, dtype: np.dtype) -> bool:
    """Return whether C shuffles n rows of so many elements: by sizes, dtype and what is compiled. The bits are NumPy's."""
    return n < 1 << 32 and selects(1, n, n, inner, dtype, np.dtype(np.int64)) and all(
        t.serves(n, LEAST, exact=True) for t in (c_draws.TEMPLATE, _TEMPLATE))


def shuffled(n: int, inner: int, dtype: np.dtype) -> KernelFunction:
    """Return kernel(run, [x], [y], random=(seed, offset)), which writes the rows of x [n, inner] to y in a random order."""
    ready: list[tuple[Ready, Any]] = []

    def make() -> tuple[Ready, Any]:
        state = c_draws.State(0, 0, 32)
        draw = c_draws.drawing_step("word", np.dtype(np.uint32), n, state)
        order = Call(_TEMPLATE, "words_order", 1, int64s(n)).prepare(None, None, None)
        rows = selected_rows(1, n, n, inner, dtype).prepare(None, None, None)
        scratch = [Scratch(n, [(draw.addresses, 0), (order.addresses, 0)]),
                   Scratch(2 * n, [(order.addresses, 1), (rows.addresses, 1)]), Scratch(2 * n, [(order.addresses, 2)])]
        phases = Phases([[draw], [order], [rows]], scratch=scratch)
        return Ready(phases, None, 0, [(rows.addresses, 0, 0), (rows.addresses, 2, 1)]), state

    def kernel(run: Run, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int]) -> None:
        places = places_of((*inputs, *outputs))
        assert places is not None  # arrays of a device are dense
        try:
            call, state = ready.pop()
        except IndexError:  # other runs have them all
            call, state = make()
        state[0], state[1] = random[0] & (1 << 64) - 1, random[1]
        call.place(places)
        call.call(run)
        ready.append((call, state))

    return kernel
