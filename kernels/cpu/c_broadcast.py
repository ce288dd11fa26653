"""C text that spreads broadcast inputs over blocks of elements of the full shape. Sizes are read at run time.

An input of one element fills its block once. One that has the last axes alone repeats: a table of one period and a block is made
once, and every block begins somewhere in it. Any other is copied or filled run by run along the last axis, with an index of each
axis that is carried from block to block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.coalesce import BroadcastLayout


def _repeats(present: Sequence[bool]) -> bool:
    """Return whether an input has the last axes alone."""
    return present[-1] and list(present) == sorted(present)


def _by_runs(inputs: Sequence[int], layout: BroadcastLayout) -> list[int]:
    return [i for i in inputs if any(layout.present[i]) and not _repeats(layout.present[i])]


def spread_prologue(inputs: Sequence[int], kinds: Mapping[int, str], layout: BroadcastLayout, block: int, sizes: str
                    ) -> list[str]:
    """Return the lines before the loop over blocks.

    inputs: the broadcast ones; kinds: their C types. sizes: the C text of the address of the layout's sizes.
    """
    axes = range(len(layout.dims))
    lines = [f"const int64_t *const sizes = {sizes};", *(f"const int64_t d{a} = sizes[{a}];" for a in axes)]
    for i in inputs:
        present, kind = layout.present[i], kinds[i]
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
    lines += ["for (int64_t j = 0, m; j < n; j += m) {", f"    m = d{last} - c{last} < n - j ? d{last} - c{last} : n - j;"]
    for i in by_runs:
        present = layout.present[i]
        at = " + ".join(f"c{a} * s{i}_{a}" for a in range(last + 1) if present[a])
        lines.append(f"    const int64_t p{i} = {at};")
        if present[last]:
            lines += [f"    if (m == {block}) v{i} = x{i} + p{i};", f"    else COPY(b{i} + j, x{i} + p{i}, m);"]
        else:
            lines += [f"    if (p{i} != f{i}) for (int64_t l = 0; l < m; l++) b{i}[j + l] = x{i}[p{i}];",
                      f"    f{i} = m == {block} ? p{i} : -1;"]
    lines.append(f"    c{last} += m;")
    carry = f"c{last} = 0;"
    for a in reversed(range(last)):
        carry += f" if (++c{a} == d{a}) {{ c{a} = 0;" if a else " c0++;"
    lines += [f"    if (c{last} == d{last}) {{ {carry}{' }' * (last - 1)} }}", "}"]
    return lines + [f"CLEAR(b{i}, n, {block});" for i in by_runs]
