"""C text that spreads broadcast inputs over blocks of elements of the full shape. Sizes are read at run time.

An input of one element fills its block once. One that has the last axes alone repeats: a table of one period and a block is made
once, and every block begins somewhere in it. Any other is copied or filled run by run along the last axis, with an index of each
axis that is carried from block to block. Where all of these are one number along a long last axis, and one loop computes
everything, that loop goes through a block run by run, and takes the numbers from registers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..ir.coalesce import BroadcastLayout

LONG = 64  # elements of a last axis from which on a loop for each run takes less time than filling blocks


def _repeats(present: Sequence[bool]) -> bool:
    """Return whether an input has the last axes alone."""
    return present[-1] and list(present) == sorted(present)


def _by_runs(inputs: Sequence[int], layout: BroadcastLayout) -> list[int]:
    return [i for i in inputs if any(layout.present[i]) and not _repeats(layout.present[i])]


def numbers_of_runs(inputs: Sequence[int], layout: BroadcastLayout) -> list[int]:
    """Return the inputs that are one number for each run, if all of those that are read run by run are, and runs are long."""
    by_runs = _by_runs(inputs, layout)
    return by_runs if layout.dims[-1] >= LONG and not any(layout.present[i][-1] for i in by_runs) else []


def spread_prologue(inputs: Sequence[int], kinds: Mapping[int, str], layout: BroadcastLayout, block: int, sizes: str,
                    numbers: Sequence[int] = ()) -> list[str]:
    """Return the lines before the loop over blocks.

    inputs: the broadcast ones; kinds: their C types. sizes: the C text of the address of the layout's sizes.
    numbers: the inputs that `loop_of_runs` reads.
    """
    axes = range(len(layout.dims))
    lines = [f"const int64_t *const sizes = {sizes};", *(f"const int64_t d{a} = sizes[{a}];" for a in axes)]
    for i in inputs:
        present, kind = layout.present[i], kinds[i]
        if i in numbers:
            continue
        lines.append(f"{kind} b{i}[{block * (1 + _repeats(present))}];")
        if not any(present):
            lines.append(f"for (int j = 0; j < {block}; j++) b{i}[j] = x{i}[0];")
        elif _repeats(present):
            lines += [f"const int64_t e{i} = {' * '.join(f'd{a}' for a in axes if present[a])};",
                      f"if (e{i} <= {block}) {{", f"    COPY(b{i}, x{i}, e{i});",
                      f"    for (int64_t j = e{i}; j < {block} + e{i}; j++) b{i}[j] = b{i}[j - e{i}];", "}"]
    by_runs = _by_runs(inputs, layout)
    if by_runs:
        after = "begin"
        for a in reversed(axes):
            lines.append(f"int64_t c{a} = {f'{after} % d{a}' if a else after};")
            after = f"{after} / d{a}"
    for i in by_runs:
        step: list[str] = []
        for a in reversed(axes):
            if layout.present[i][a]:
                lines.append(f"const int64_t s{i}_{a} = {' * '.join(step) or '1'};")
                step.append(f"d{a}")
        if i not in numbers:
            lines.append(f"int64_t f{i} = -1;")
    return lines


def spread_text(inputs: Sequence[int], kinds: Mapping[int, str], layout: BroadcastLayout, block: int) -> list[str]:
    """Return the lines inside that loop: v{i} becomes the block of input i from element i on; what lies beyond the end is 0, or a
    later element."""
    lines: list[str] = []
    for i in inputs:
        lines.append(f"const {kinds[i]} *v{i} = b{i};")
        if _repeats(layout.present[i]):
            lines += [f"if (e{i} <= {block}) v{i} = b{i} + i % e{i};", "else {",
                      f"    const int64_t p = i % e{i}, m = e{i} - p < n ? e{i} - p : n;", f"    v{i} = x{i} + p;",
                      f"    if (m < {block}) {{ COPY(b{i}, v{i}, m); COPY(b{i} + m, x{i}, n - m); CLEAR(b{i}, n, {block}); "
                      f"v{i} = b{i}; }}", "}"]
    by_runs, last = _by_runs(inputs, layout), len(layout.dims) - 1
    if not by_runs:
        return lines
    run: list[str] = []
    for i in by_runs:
        run.append(f"const int64_t p{i} = {_place(i, layout)};")
        if layout.present[i][last]:
            run += [f"if (m == {block}) v{i} = x{i} + p{i};", f"else COPY(b{i} + j, x{i} + p{i}, m);"]
        else:
            run += [f"if (p{i} != f{i}) for (int64_t l = 0; l < m; l++) b{i}[j + l] = x{i}[p{i}];",
                    f"f{i} = m == {block} ? p{i} : -1;"]
    return [*lines, *_runs(run, layout, "j"), *(f"CLEAR(b{i}, n, {block});" for i in by_runs)]


def loop_of_runs(inputs: Sequence[int], kinds: Mapping[int, str], layout: BroadcastLayout, lines: Sequence[str]) -> list[str]:
    """Return the loop over a block whose statements are `lines`, where these inputs are one number for each run: see
    `numbers_of_runs`."""
    for i in inputs:
        lines = [re.sub(rf"\bv{i}\[j\]", f"u{i}", line) for line in lines]
    return _runs([*(f"const {kinds[i]} u{i} = x{i}[{_place(i, layout)}];" for i in inputs), "LANEWISE",
                  "for (int64_t j = first; j < first + m; j++) {", *(f"    {line}" for line in lines), "}"], layout, "first")


def _place(i: int, layout: BroadcastLayout) -> str:
    """Return the text of the number of the element of input i at the indices of all axes."""
    return " + ".join(f"c{a} * s{i}_{a}" for a, present in enumerate(layout.present[i]) if present)


def _runs(lines: Sequence[str], layout: BroadcastLayout, first: str) -> list[str]:
    """Return the loop over the runs of a block, of m elements from `first` on, in which these lines stand."""
    last = len(layout.dims) - 1
    carry = f"c{last} = 0;"
    for a in reversed(range(last)):
        carry += f" if (++c{a} == d{a}) {{ c{a} = 0;" if a else " c0++;"
    return [f"for (int64_t {first} = 0, m; {first} < n; {first} += m) {{",
            f"    m = d{last} - c{last} < n - {first} ? d{last} - c{last} : n - {first};", *(f"    {line}" for line in lines),
            f"    c{last} += m;", f"    if (c{last} == d{last}) {{ {carry}{' }' * (last - 1)} }}", "}"]
