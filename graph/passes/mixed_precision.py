"""Mixed precision in a graph: casts of the inputs of operators, by lists of operator names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...dtype import DTYPE_TO_FLAG, FLAG_TO_DTYPE, float32, is_float
from ...errors import DTypeError
from ...kernels.op import Op, builtin, registered
from ...kernels.params import Params
from ..symbol.node import Entry, Node, topological

_CASTS = ("amp_cast", "amp_multicast")


class CastRules(NamedTuple):
    """In which dtype operators are computed, by the names of operators in the registry.

    low:          the dtype of `narrow`, float16 or bfloat16.
    narrow:       computed in the low dtype.
    full:         computed in float32.
    conditional:  {operator: (parameter, values)}: computed in float32 for these values.
    widest:       inputs are cast to the widest dtype among them.
    excluded:     names of nodes without casts.
    All other operators are computed in the dtype of their inputs.
    """

    low: np.dtype
    narrow: frozenset[str]
    full: frozenset[str]
    conditional: Mapping[str, Sequence[tuple[str, Collection[str]]]]
    widest: frozenset[str]
    excluded: frozenset[str] = frozenset()

    def dtype_of(self, op: Op, parameter: Mapping[str, object]) -> np.dtype | None:
        """Return the dtype in which op is computed with these parameters; None for that of its inputs."""
        if op.name in self.narrow:
            return self.low
        if op.name in self.full or any(parameter.get(k) in values for k, values in self.conditional.get(op.name, ())):
            return float32
        return None


def canonical(names: Collection[str], listed: Collection[str] = ()) -> frozenset[str]:
    """Return the registry's names of operators given by any of their names. Unknown names are left out.

    listed: names that stand in other lists: an alias does not move an operator from there.
    """
    known = registered()
    return frozenset(known[n].name for n in names if n in known and (known[n].name in names or known[n].name not in listed))


def is_amp(dtype: np.dtype | None) -> bool:
    """Return True for float dtypes of at most 32 bits, which casts change."""
    return dtype is not None and is_float(dtype) and dtype.itemsize <= 4


def cast_inputs(node: Node, rules: CastRules) -> None:
    """Insert casts before a node whose inputs' dtypes are unknown: each input is cast, or all to the widest dtype."""
    op = node.op
    if op is None or op.name in _CASTS:
        return
    count = len(node.inputs) - len(node.auxiliary_inputs())
    to = rules.dtype_of(op, node.attrs)
    if to is not None:
        node.inputs[:count] = [_cast(e, to, f"{node.name}_{i}") for i, e in enumerate(node.inputs[:count])]
    elif op.name in rules.widest and count > 1:
        node.inputs[:count] = _multicast(node.inputs[:count], node.name)


def insert_casts(heads: Sequence[Entry], rules: CastRules, data_names: Collection[str], cast_optional_params: bool = False
                 ) -> list[Entry]:
    """Return the heads of a copy of a float32 graph with casts where dtypes need them.

    data_names:            variables that are inputs; all others are parameters.
    cast_optional_params:  parameters that are only used in the low dtype are of that dtype, instead of being cast.
    Parameters that must be of the low dtype, since they meet such data in an operator without casts, always are. Each
    parameter's dtype is its attribute `__dtype__`. The heads are float32 again.
    """
    made: dict[int, Node] = {}
    dtypes: dict[tuple[int, int], np.dtype | None] = {}
    casts: dict[tuple[int, int, str], Entry] = {}
    kept: set[int] = set()  # new variables that are used otherwise than by a cast to the low dtype
    cast_to_low: dict[int, tuple[Node, Node]] = {}  # variables and their casts

    def known(e: Entry) -> np.dtype | None:
        return dtypes.get((id(e[0]), e[1]))

    def cast(e: Entry, to: np.dtype) -> Entry:
        if not is_amp(known(e)) or known(e) == to:
            kept.add(id(e[0]))
            return e
        key = (id(e[0]), e[1], to.name)
        if key not in casts:
            name = e[0].name if e[0].op is None else e[0].output_names()[e[1]]
            casts[key] = _cast(e, to, name, f"_amp_cast_{to.name}")
            dtypes[id(casts[key][0]), 0] = to
        if e[0].op is None and to == rules.low:
            cast_to_low[id(e[0])] = e[0], casts[key][0]
        else:
            kept.add(id(e[0]))
        return casts[key]

    for node in topological(n for n, _ in heads):
        new = made[id(node)] = Node(node.op, node.name, node.params, dict(node.attrs), [(made[id(n)], i) for n, i in node.inputs])
        if node.op is None:
            declared = node.attrs.get("__dtype__")
            dtypes[id(new), 0] = float32 if declared in (None, "-1") else FLAG_TO_DTYPE[int(declared)]
            continue
        count = len(new.inputs) - len(new.auxiliary_inputs())
        to = None if node.name in rules.excluded else rules.dtype_of(node.op, node.attrs)
        if node.name in rules.excluded:
            to = float32
        if to is not None:
            new.inputs[:count] = [cast(e, to) for e in new.inputs[:count]]
        else:
            new.inputs[:count] = _follow(new, count, rules, data_names, dtypes, kept, cast)
        found = _outputs_of(new, [known(e) for e in new.inputs])
        dtypes.update({(id(new), i): d for i, d in enumerate(found)})
    dropped = {id(c): v for i, (v, c) in cast_to_low.items()
               if cast_optional_params and i not in kept and v.name not in data_names}
    for node in made.values():
        node.inputs = [(dropped[id(n)], 0) if id(n) in dropped else (n, i) for n, i in node.inputs]
        if node.op is None and node.name not in data_names:
            low = rules.low if any(node is v for v in dropped.values()) else dtypes[id(node), 0] or float32
            node.attrs["__dtype__"] = str(DTYPE_TO_FLAG[low])
    return [cast((made[id(n)], i), float32) for n, i in heads]


def _follow(node: Node, count: int, rules: CastRules, data_names: Collection[str],
            dtypes: dict[tuple[int, int], np.dtype | None], kept: set[int], cast: Callable[[Entry, np.dtype], Entry]
            ) -> list[Entry]:
    """Return inputs of one dtype for an operator without a dtype of its own: parameters take that of the data, data the
    widest."""
    entries = node.inputs[:count]
    given = [dtypes.get((id(n), i)) for n, i in entries]
    data = [d for (n, _), d in zip(entries, given) if is_amp(d) and not (n.op is None and n.name not in data_names)]
    if len(set(data)) > 1:
        return [cast(e, float32) for e in entries]
    if data and data[0] == rules.low:
        for (n, i), d in zip(entries, _inputs_of(node, [d if d in data else None for d in given])):
            if n.op is None and n.name not in data_names and d == rules.low:
                dtypes[id(n), i] = d
    kept.update(id(n) for n, _ in entries)
    return entries


def _inputs_of(node: Node, given: list[np.dtype | None]) -> Sequence[np.dtype | None]:
    op, p = _use(node)
    try:
        return op.infer_dtype(p, [*given, *[None] * (len(node.inputs) - len(given))])[0]
    except DTypeError:
        return given


def _outputs_of(node: Node, given: list[np.dtype | None]) -> Sequence[np.dtype | None]:
    op, p = _use(node)
    try:
        return op.infer_dtype(p, given)[1]
    except DTypeError:
        return [next((d for d in given if d is not None), None)] * node.n_outputs()


def _use(node: Node) -> tuple[Op, Params]:
    assert node.op is not None
    return node.op, node.use


def _cast(entry: Entry, to: np.dtype, name: str, suffix: str = "_amp_cast") -> Entry:
    op = builtin("amp_cast")
    attrs = {"dtype": to.name}
    return Node(op, name + suffix, op.parse(attrs), attrs, [entry]), 0


def _multicast(entries: Sequence[Entry], name: str) -> list[Entry]:
    op = builtin("amp_multicast")
    attrs = {"num_outputs": str(len(entries))}
    node = Node(op, f"{name}_amp_multicast", op.parse(attrs), attrs, entries)
    return [(node, i) for i in range(len(entries))]


def remove_casts(heads: Sequence[Entry]) -> list[Entry]:
    """Return the heads of a copy of a graph without the casts of mixed precision; the graph itself if it has none."""
    order = topological(n for n, _ in heads)
    if not any(n.op is not None and n.op.name in _CASTS for n in order):
        return list(heads)
    made: dict[int, Node] = {}

    def without(entry: Entry) -> Entry:
        node, i = entry
        while node.op is not None and node.op.name in _CASTS:
            node, i = node.inputs[i]
        return made[id(node)], i

    for node in order:
        if node.op is None or node.op.name not in _CASTS:
            made[id(node)] = Node(node.op, node.name, node.params, dict(node.attrs), [without(e) for e in node.inputs])
    return [without(e) for e in heads]
