"""The order in which to compute the nodes of an index formula: loops, and what each of their steps computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .expr import Expr, topological
from .indexed import ACC, FOLD, free_levels


@dataclass(eq=False)
class Loop:
    """One loop of a schedule.

    number:        of the loop in its program: two that repeat the same have one number.
    accumulators:  {j: (first value, new value)} of those that are read.
    items:         what one step computes, in order, before the accumulators get their new values, all at once.
    results:       the fold nodes whose values it leaves in the accumulators.
    """

    number: int
    level: int
    extent: Expr
    accumulators: dict[int, tuple[Expr, Expr]]
    items: list[Item]
    results: list[Expr]


Item = Expr | Loop


class _Scope:
    def __init__(self, level: int):
        self.level, self.items, self.done = level, list[Item](), set[object]()


class Schedule:
    """The nodes of a program in the order in which to compute them, each in the innermost loop whose counter it needs.

    items:   nodes that are not leaves, and loops.
    levels:  by id of each node, the levels of the loops whose counters or accumulators it reads.
    """

    def __init__(self, roots: Sequence[Expr]):
        self.levels = free_levels(roots)
        self._folds: dict[object, list[Expr]] = {}  # the results of a loop that are read
        self._numbers: dict[object, int] = {}
        for x in topological(roots):
            if x.op == FOLD:
                self._folds.setdefault(_loop_key(x), []).append(x)
        top = _Scope(-1)
        self._fill(roots, [top])
        self.items = top.items

    def _fill(self, wanted: Sequence[Expr], chain: list[_Scope]) -> None:
        for x in outside_loops(wanted):
            level = max(self.levels[id(x)], default=-1)
            depth = next(i for i, s in enumerate(chain) if s.level == level)
            scope, key = chain[depth], _loop_key(x) if x.op == FOLD else id(x)
            if key in scope.done or not x.args:
                continue
            scope.done.add(key)
            scope.items.append(x if x.op != FOLD else self._loop(x, key, chain[:depth + 1]))

    def _loop(self, x: Expr, key: object, chain: list[_Scope]) -> Loop:
        level, n, _ = x.value
        needed, waiting = set[int](), [f.value[2] for f in self._folds[key]]
        while waiting:
            j = waiting.pop()
            if j not in needed:
                needed.add(j)
                waiting += [a.value[1] for a in topological([x.args[1 + n + j]]) if a.op == ACC and a.value[0] == level]
        inner = _Scope(level)
        self._fill([x.args[1 + n + j] for j in sorted(needed)], [*chain, inner])
        number = self._numbers.setdefault(key, len(self._numbers))
        return Loop(number, level, x.args[0], {j: (x.args[1 + j], x.args[1 + n + j]) for j in sorted(needed)}, inner.items,
                    self._folds[key])


def _loop_key(fold: Expr) -> object:
    return (fold.value[0], *map(id, fold.args))


def outside_loops(roots: Sequence[Expr]) -> list[Expr]:
    """Return the nodes that roots need before any loop runs, arguments before their users; of a loop, the result alone."""
    seen, order, stack = set[int](), list[Expr](), [(r, False) for r in reversed(roots)]
    while stack:
        x, ready = stack.pop()
        if id(x) in seen:
            continue
        if ready:
            seen.add(id(x))
            order.append(x)
            continue
        stack.append((x, True))
        args = x.args[:1 + x.value[1]] if x.op == FOLD else x.args
        stack += [(a, False) for a in reversed(args)]
    return order
