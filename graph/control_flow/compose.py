"""mx.sym.contrib.foreach, while_loop and cond: Python functions on symbols, traced once into subgraphs of one node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeAlias

from ...errors import GraphError
from ...kernels import op as ops
from ..symbol.compose import AttrScope, NameManager
from ..symbol.node import Entry, Node, topological
from ..symbol.symbol import Symbol, create
from .mxnet_nodes import reordered
from .subgraph import Subgraph

_MARK = "__subgraph_name__"
Form: TypeAlias = "int | list[Form]"  # how symbols are nested, see flatten
Symbols: TypeAlias = "Symbol | Sequence[Symbols]"  # a symbol, or lists of them, nested


def foreach(body: Callable[[Any, Any], tuple[Any, Any]], data: Symbols, init_states: Symbols,
            name: str = "foreach") -> tuple[Any, Any]:
    """Call body(rows, states) -> (results, new states) for every row of data; return (stacked results, the last states).

    data, init_states: a symbol, or a list of them (lists may nest). body gets the same structure, one row of data at a time,
    and returns states in the structure it got. Symbols that body takes from outside are the same in every round.
    name: the name of the subgraph.
    """
    rows, rows_form = flatten(data, "foreach: data")
    states, states_form = flatten(init_states, "foreach: init_states")
    trace = _Trace(name)
    with trace.scope:
        in_rows, in_states = trace.variables(rows), trace.variables(states)
        results, new = body(regroup(in_rows, rows_form), regroup(in_states, states_form))
    outs, outs_form = flatten(results, "foreach: what body returns")
    new, new_form = flatten(new, "foreach: the states body returns")
    if new_form != states_form:
        raise GraphError(f"foreach: body was given {len(states)} states and returned {len(new)}, or grouped them otherwise.")
    sub, sources, at = trace.finish([*outs, *new])
    for what, variables in (("data", in_rows), ("state", in_states)):
        for i, v in enumerate(variables):
            if id(_node(v)) not in at:
                raise GraphError(f"foreach: body does not use {what} {i} ({_node(v).name}). Leave it out.")
    own = [at[id(_node(v))] for v in (*in_rows, *in_states)]
    rest = sorted((i for i in range(len(sources)) if i not in own), key=sub.states.__contains__)  # states last
    inputs = [*(_entry(s) for s in (*rows, *states)), *(sources[i] for i in rest)]
    made = _node_of("_foreach", inputs, [sub], len(outs) + len(new), {
        "in_data_locs": own[:len(rows)], "in_state_locs": own[len(rows):], "remain_locs": rest, "num_out_data": len(outs)})
    return regroup(made[:len(outs)], outs_form), regroup(made[len(outs):], new_form)


def while_loop(cond: Callable[..., Symbol], func: Callable[..., tuple[Any, Any]], loop_vars: Symbols,
               max_iterations: int | None = None, name: str = "while_loop") -> tuple[Any, Any]:
    """Call func(*variables) -> (results, new variables) while cond(*variables) is true.

    Returns (stacked results, the last variables). Results have max_iterations rows; rows that were not computed are zero.
    name: the name of the subgraphs.
    """
    if max_iterations is None or int(max_iterations) != max_iterations or max_iterations < 0:
        raise GraphError(f"while_loop: max_iterations is {max_iterations!r}: results have that many rows. "
                         f"Give an integer of at least 0.")
    variables, form = flatten(loop_vars, "while_loop: loop_vars")
    if not variables:
        raise GraphError("while_loop: loop_vars is empty. Give the variables that change from round to round.")
    test_trace, body_trace = _Trace(f"{name}_cond"), _Trace(f"{name}_func")
    with test_trace.scope:
        asked = test_trace.variables(variables)
        answers, _ = flatten(_call(cond, regroup(asked, form)), "while_loop: what cond returns")
    with body_trace.scope:
        inside = body_trace.variables(variables)
        results, new = _call(func, regroup(inside, form))
    outs, outs_form = flatten([] if results is None else results, "while_loop: what func returns")
    new, _ = flatten(new, "while_loop: the variables func returns")
    if len(new) != len(variables):
        raise GraphError(f"while_loop: func was given {len(variables)} variables and returned {len(new)}.")
    if len(answers) != 1:
        raise GraphError(f"while_loop: what cond returns: {len(answers)} symbols, not one.")
    test, test_sources, test_at = test_trace.finish(answers)
    body, body_sources, body_at = body_trace.finish([*outs, *new])
    for i, v in enumerate(inside):
        if id(_node(v)) not in body_at:
            raise GraphError(f"while_loop: func does not use variable {i} ({_node(v).name}). Leave it out, or return it through "
                             f"an operator.")
    inputs = list(test_sources)
    cond_locs = list(range(len(inputs)))
    home = {k: test_at[id(_node(v))] for k, v in enumerate(asked) if id(_node(v)) in test_at}
    of = {body_at[id(_node(v))]: k for k, v in enumerate(inside)}
    func_locs = []
    for i, source in enumerate(body_sources):
        if of.get(i) in home:
            func_locs.append(home[of[i]])
        else:
            func_locs.append(len(inputs))
            inputs.append(source)
    states = sorted({locs[i] for sub, locs in ((test, cond_locs), (body, func_locs)) for i in sub.states})
    inputs, new_at = reordered(inputs, states)
    made = _node_of("_while_loop", inputs, [test, body], len(outs) + len(new), {
        "cond_input_locs": [new_at[i] for i in cond_locs], "func_input_locs": [new_at[i] for i in func_locs],
        "func_var_locs": [body_at[id(_node(v))] for v in inside], "max_iterations": int(max_iterations),
        "num_out_data": len(outs)})
    return regroup(made[:len(outs)], outs_form), regroup(made[len(outs):], form)


def cond(pred: Symbol, then_func: Callable[[], Any], else_func: Callable[[], Any], name: str = "cond") -> Any:
    """Return then_func() if pred is not zero, else else_func(). Both give the same number of symbols, of the same shapes.

    The result is grouped as that of then_func.
    pred: a symbol of one element. name: the name of the subgraphs.
    """
    traces = [_Trace(f"{name}_{part}") for part in ("pred", "then", "else")]
    branches, forms = [], []
    for trace, call in zip(traces, (lambda: pred, then_func, else_func)):
        with trace.scope:
            flat, form = flatten(call(), f"{name}: what a branch returns")
        branches.append(flat)
        forms.append(form)
    if len(branches[1]) != len(branches[2]):
        raise GraphError(f"cond: then_func gives {len(branches[1])} symbols and else_func {len(branches[2])}. Give as many.")
    if len(branches[0]) != 1:
        raise GraphError(f"cond: pred has {len(branches[0])} outputs. Give one symbol of one element.")
    inputs: list[Entry] = []
    subgraphs, locs = [], []
    for trace, flat in zip(traces, branches):
        sub, sources, _ = trace.finish(flat)
        subgraphs.append(sub)
        locs.append(list(range(len(inputs), len(inputs) + len(sources))))
        inputs += sources
    then_at = {entry_key(inputs[i]): i for i in reversed(locs[1])}
    locs[2] = [then_at.get(entry_key(inputs[i]), i) for i in locs[2]]  # both branches read one input
    used = sorted({i for part in locs for i in part})
    inputs, locs = [inputs[i] for i in used], [[used.index(i) for i in part] for part in locs]
    inputs, new_at = reordered(inputs, sorted({part[i] for sub, part in zip(subgraphs, locs) for i in sub.states}))
    made = _node_of("_cond", inputs, subgraphs, len(branches[1]), {
        f"{key}_input_locs": [new_at[i] for i in part] for key, part in zip(("cond", "then", "else"), locs)})
    return regroup(made, forms[1])


class _Trace:
    """Builds one subgraph. Inside are the nodes made within `scope`, and nodes that read its variables (composed from older
    symbols); the subgraph reads all others from outside."""

    def __init__(self, name: str):
        outer = AttrScope.current().get(None).get(_MARK)
        self.name = NameManager.current().get(None, name if outer is None else f"{outer}${name}")
        self.scope = AttrScope(**{_MARK: self.name})
        self._given: dict[int, Entry] = {}
        self._inside: set[int] = set()

    def variables(self, symbols: Sequence[Symbol]) -> list[Symbol]:
        """Make variables that replace symbols inside; called within scope."""
        made = []
        for s in symbols:
            below, index = _entry(s)
            node = Node(None, f"{below.name}-{index}", None, AttrScope.current().get(None))
            self._given[id(node)] = (below, index)
            made.append(Symbol([(node, 0)]))
        return made

    def finish(self, heads: Sequence[Symbol]) -> tuple[Subgraph, list[Entry], dict[int, int]]:
        """Return the subgraph of heads, the outer entry of each of its inputs, and {id of a variable made here: its input}."""
        for node in topological(_node(s) for s in heads):
            if node.op is not None and (node.attrs.get(_MARK) == self.name or any(
                    id(n) in self._inside or id(n) in self._given for n, _ in node.inputs)):
                self._inside.add(id(node))
        with self.scope:
            entries = self._results([_entry(s) for s in heads])
        order = topological((n for n, _ in entries), self._is_leaf)
        copies: dict[tuple[int, int], Entry] = {}
        source: dict[int, Entry] = {}  # id of a variable inside -> what it is outside
        origin: dict[int, int] = {}  # id of a variable inside -> id of the node it was copied from

        def follow(entry: Entry) -> Entry:
            node, index = entry
            if entry_key(entry) not in copies:  # computed outside
                name = node.output_names()[index]
                made = Node(None, name, None, dict(node.attrs) if node.op is None else {})
                copies[entry_key(entry)] = (made, 0)
                source[id(made)] = self._given.get(id(node), entry)
                origin[id(made)] = id(node)
            return copies[entry_key(entry)]

        for node in order:
            if not self._is_leaf(node):
                copy = Node(node.op, node.name, node.params, dict(node.attrs), [follow(e) for e in node.inputs])
                for i in range(node.n_outputs()):
                    copies[id(node), i] = (copy, i)
        sub = Subgraph([follow(e) for e in entries])
        variables = [n for n in topological(n for n, _ in sub.heads) if n.op is None]
        return sub, [source[id(n)] for n in variables], {origin[id(n)]: i for i, n in enumerate(variables)}

    def _is_leaf(self, node: Node) -> bool:
        return id(node) not in self._inside

    def _results(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return entries with copies in place of variables, of outer nodes, and of nodes that occur twice."""
        seen: set[int] = set()
        found: list[Entry] = []
        for node, index in entries:
            if self._is_leaf(node) or id(node) in seen:
                node, index = _node(create(ops.builtin("_copy"), (Symbol([(node, index)]),), {}, hint="identity")), 0
                self._inside.add(id(node))
            seen.add(id(node))
            found.append((node, index))
        return found


def entry_key(entry: Entry) -> tuple[int, int]:
    """Return a key that identifies an entry."""
    return id(entry[0]), entry[1]


def _node_of(op_name: str, inputs: Sequence[Entry], subgraphs: Sequence[Subgraph], n_outputs: int, own: dict[str, Any]
             ) -> list[Symbol]:
    op = ops.builtin(op_name)
    texts = {k: str(v) for k, v in {**own, "num_args": len(inputs) + len(subgraphs), "num_outputs": n_outputs}.items()}
    params = op.parse({**texts, "subgraphs": tuple(subgraphs)})
    node = Node(op, NameManager.current().get(None, op_name), params, {**AttrScope.current().get(None), **texts}, inputs)
    return [Symbol([(node, i)]) for i in range(n_outputs)]


def _node(symbol: Symbol) -> Node:
    return symbol._outputs[0][0]


def _entry(symbol: Symbol) -> Entry:
    return symbol._outputs[0]


def _call(f: Callable[..., Any], variables: Any) -> Any:
    return f(*variables) if isinstance(variables, (list, tuple)) else f(variables)


def flatten(value: Symbols, what: str) -> tuple[list[Symbol], Form]:
    """Return the symbols in value and their structure: 0 for a symbol of one output, n for one of n, a list for a list."""
    if isinstance(value, Symbol):
        return list(value), 0 if len(value) == 1 else len(value)
    if not isinstance(value, (list, tuple)):
        raise GraphError(f"{what}: {value!r} is neither a Symbol nor a list of them.")
    flat: list[Symbol] = []
    form: list[Form] = []
    for v in value:
        part, own = flatten(v, what)
        flat += part
        form.append(own)
    return flat, form


def regroup(flat: Sequence[Symbol], form: Form) -> Any:
    """Undo flatten."""
    rest = iter(flat)

    def take(form: Any) -> Any:
        if isinstance(form, list):
            return [take(f) for f in form]
        return Symbol([_entry(s) for s in islice(rest, form)]) if form else next(rest)

    return take(form)
