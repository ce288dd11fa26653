"""The statements of a C function that compute a formula for a block of elements beside each other, and what becomes of them.

Statements form short loops, and an exponential or the like is a call for the whole block. A loop goes over a number of elements
at each step that a compiler knows. So a block is as long as a multiple of it, and what lies behind its end is computed as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...dtype import float32, float64, is_float, is_half
from ..ir.expr import CAST, CONST, Expr, typed
from ..ir.primitives import PRIMITIVES
from .c_math import BLOCKWISE, STORED, TYPES
from .c_printer import CHANGING, RUN, NoSpelling, constant, exchanged, spelled

BLOCK = 512  # elements of a block: a few arrays of them lie in a first-level cache
LANES, FEW_LANES = 64, 16  # elements of a step of a loop, and numbers that a sum along the block is kept in
SHORT_LINE = 32  # elements of a line up to which these are few
_PLAIN = (0.0, 1.0, -1.0, 2.0, 0.5)  # constants that stand in the text; others are arguments, so that one text serves all


@dataclass(frozen=True, slots=True)
class Sink:
    """A use of a value.

    lines:   the statements of its use, given its C text.
    masked:  those where the elements from the end on do not count, if they are others.
    last:    whether it must follow all reads of the block, as a store where an input may lie.
    """

    node: Expr
    lines: Callable[[str], list[str]]
    masked: Callable[[str], list[str]] | None = None
    last: bool = False


@dataclass
class _Loop:
    lines: list[str] = field(default_factory=list)
    ends: list[Sink] = field(default_factory=list)
    call: bool = False


class Values:
    """The C texts of the values of one function.

    names:    the texts of values that need no more computation, by the node's id; `[j]` ends those of a block.
    numbers:  constants that are arguments of the function, with their dtypes.
    lanes:    elements of a step of a loop.
    """

    def __init__(self, lanes: int = LANES) -> None:
        self.lanes = lanes
        self.names: dict[int, str] = {}
        self.uses: set[str] = set()
        self.numbers: dict[tuple[str, np.dtype], str] = {}
        self.number: dict[int, int] = {}
        self.scratch: dict[str, str] = {}  # blocks on the stack, with their C types

    def index(self, x: Expr) -> int:
        """Return the number of a node in the function's names."""
        return self.number.setdefault(id(x), len(self.number))

    def leaf(self, x: Expr) -> str | None:
        """Return the text of a constant, or of a value that is known; None for what must be computed."""
        if x.op != CONST:
            return self.names.get(id(x))
        dtype = typed(x)
        if not is_float(dtype) or x.value in _PLAIN:
            return constant(x.value if is_float(dtype) else int(x.value), dtype)
        return self.numbers.setdefault((float(x.value).hex(), dtype), f"c{len(self.numbers)}")

    def spelled(self, x: Expr, args: list[str]) -> str:
        """Return the text that computes x from the texts of its arguments."""
        if x.op == CAST:
            return exchanged(args[0], typed(x.args[0]), typed(x), self.uses)
        if any(is_half(typed(y)) for y in (x, *x.args)):
            raise NoSpelling(f"{x.op} of half precision")
        return spelled(x.op, args, typed(x), self.uses)

    def scalar(self, x: Expr) -> str:
        """Return the statement that computes x, which is one number, and name it."""
        args = [self._known(a) for a in x.args]
        name = f"r{self.index(x)}"
        line = f"const {STORED[typed(x).name]} {name} = {self.spelled(x, args)};"
        self.names[id(x)] = name
        return line

    def _known(self, x: Expr) -> str:
        found = self.leaf(x)
        assert found is not None, x
        return found

    def arguments(self, first: int) -> tuple[list[str], tuple[float, ...]]:
        """Return the statements that read the constants, which follow `first` scalars, and their values."""
        return ([f"const {TYPES[d.name]} {name} = ({TYPES[d.name]})numbers[{first + k}];"
                 for k, ((_, d), name) in enumerate(self.numbers.items())],
                tuple(float.fromhex(value) for value, _ in self.numbers))

    def is_call(self, x: Expr) -> bool:
        """Return whether x is computed by a call for a whole block. Such a call computes multiples of LANES."""
        return x.op in BLOCKWISE and typed(x) == float32 and self.lanes == LANES

    def block(self, sinks: Sequence[Sink], homes: Mapping[int, str]) -> list[str]:
        """Return the statements that compute sinks for a block of n elements, m with those that fill the last step.

        homes: pointers to where a value is also kept, by the node's id.
        """
        nodes = self.missing([s.node for s in sinks])
        loop_of: dict[int, int] = {}
        cost = at = 0
        for x in nodes:
            if self.is_call(x):
                at += 1
                loop_of[id(x)] = at
                cost, at = 0, at + 1
                continue
            if cost and cost + node_cost(x) > RUN:
                cost, at = 0, at + 1
            loop_of[id(x)] = at
            cost += node_cost(x)
        loops = [_Loop() for _ in range(at + 1)]
        places: dict[int, int] = {}
        for k, s in enumerate(sinks):
            here = loop_of.get(id(s.node), at)
            places[k] = at if s.last or here == at else here + self.is_call(s.node)
        far = {id(a) for x in nodes for a in x.args if loop_of.get(id(a), loop_of[id(x)]) != loop_of[id(x)]}
        far |= {id(s.node) for k, s in enumerate(sinks) if loop_of.get(id(s.node), places[k]) != places[k]}
        far |= {id(x) for x in nodes if self.is_call(x)} | {id(x) for x in nodes if id(x) in homes}

        def home(x: Expr) -> str:
            if id(x) in homes:
                return homes[id(x)]
            name = f"b{self.index(x)}"
            self.scratch[name] = STORED[typed(x).name]
            return name

        def value(a: Expr, loop: int) -> str:
            known = self.leaf(a)
            if known is not None:
                return known
            return f"t{self.index(a)}" if loop_of[id(a)] == loop and not self.is_call(a) else f"{home(a)}[j]"

        for x in nodes:
            loop = loops[loop_of[id(x)]]
            args = [value(a, loop_of[id(x)]) for a in x.args]
            if self.is_call(x):
                name = self.spelled(x, args).partition("(")[0]
                if not args[0].endswith("[j]"):
                    raise NoSpelling(f"{x.op} of a number that no array holds")
                loop.call = True
                loop.lines.append(f"all_{name}({args[0].removesuffix('[j]')}, {home(x)}, m);")
            else:
                loop.lines.append(f"const {STORED[typed(x).name]} t{self.index(x)} = {self.spelled(x, args)};")
                if id(x) in far:
                    loop.lines.append(f"{home(x)}[j] = t{self.index(x)};")
        for k, s in enumerate(sinks):
            loops[places[k]].ends.append(s)
        lines: list[str] = []
        for k, loop in enumerate(loops):
            if loop.call:
                lines += loop.lines
            elif loop.lines or loop.ends:
                lines += _steps(loop.lines, loop.ends, lambda s, k=k: value(s.node, k), self.lanes)
        return lines

    def missing(self, roots: Sequence[Expr]) -> list[Expr]:
        """Return the nodes that must be computed for roots, arguments before their users."""
        order: list[Expr] = []
        seen: set[int] = set()
        for root in roots:
            stack = [root]
            while stack:
                x = stack[-1]
                waiting = [] if id(x) in seen or self.leaf(x) is not None else [
                    a for a in reversed(x.args) if id(a) not in seen and self.leaf(a) is None]
                if waiting:
                    stack += waiting
                    continue
                stack.pop()
                if id(x) not in seen and self.leaf(x) is None:
                    seen.add(id(x))
                    order.append(x)
        return order


def _steps(lines: list[str], ends: list[Sink], text: Callable[[Sink], str], lanes: int) -> list[str]:
    """Return the loop over the block, so many elements at each step."""
    whole = [t for s in ends for t in s.lines(text(s))]
    tail = [t for s in ends for t in (s.masked or s.lines)(text(s))]

    def inner(statements: list[str]) -> list[str]:
        return ["    #pragma GCC ivdep", f"    for (int64_t l = 0; l < {lanes}; l++) {{", "        const int64_t j = c + l;",
                *(f"        {t}" for t in (*lines, *statements)), "    }"]

    once = "#pragma GCC unroll 1"  # a compiler that knows how short a block is would write each of its steps: twice the time
    if whole == tail:
        return [once, f"for (int64_t c = 0; c < m; c += {lanes}) {{", *inner(whole), "}"]
    return ["{", "int64_t c = 0;", once, f"for (; c + {lanes} <= n; c += {lanes}) {{", *inner(whole), "}",
            "if (c < n) {", *inner(tail), "}", "}"]


def node_cost(x: Expr) -> int:
    """Return the cost of one element of a node, in additions."""
    return PRIMITIVES[x.op].cost if x.op in PRIMITIVES else 1


def accumulated(combine: str, a: str, b: str, dtype: np.dtype, uses: set[str]) -> str:
    """Return the text of a and b combined, in dtype."""
    function = CHANGING.get({"max": "maximum"}.get(combine, combine))
    if function is not None:
        uses.add(f"{function}_{dtype}")
        return f"{function}_{dtype}({a}, {b})"
    text = spelled({"sum": "add"}.get(combine, combine), [a, b], dtype, uses)
    return text if is_float(dtype) else f"({TYPES[dtype.name]})({text})"


def wide(combine: str, dtype: np.dtype) -> np.dtype:
    """Return the dtype in which parts are combined: sums of floats in float64."""
    return float64 if combine in ("add", "sum") and is_float(dtype) else dtype
