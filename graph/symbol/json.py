"""Symbol JSON: read in the three dialects MXNet wrote (0.8; 0.9 to 0.11; 1.x), written as 1.x.

Nothing in a file is executed, and memory is allocated in proportion to the length of the file only. A fault raises a FileError
that names the node.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...errors import FileError, MXNetError
from ...kernels import op as ops
from ...kernels.op import Op
from ...kernels.params import IGNORED
from ..control_flow.mxnet_nodes import ControlFlow, control_node
from ..control_flow.subgraph import Subgraph
from . import mxnet_operators
from .compose import input_attributes, starts
from .node import Entry, Node, hidden_form, topological

MXNET_VERSION = 10901
MAX_OUTPUTS = 65536  # of one node; a file with more is damaged
MAX_DEPTH = 16  # of graphs within graphs


def dumps(heads: Sequence[Entry]) -> str:
    """Return a graph as JSON of MXNet 1.x."""
    return _format({**_document(heads), "attrs": {"mxnet_version": ["int", MXNET_VERSION]}})


def _document(heads: Sequence[Entry]) -> dict[str, Any]:
    order = topological(n for n, _ in heads)
    number = {id(n): i for i, n in enumerate(order)}
    nodes: list[dict[str, Any]] = []
    rows = [0]
    for node in order:
        op, attrs = mxnet_operators.written("null" if node.op is None else node.op.name, node.attrs)
        entry: dict[str, Any] = {"op": op, "name": node.name}
        if attrs:
            entry["attrs"] = dict(sorted(attrs.items()))
        n_arguments = len(node.inputs) - len(node.auxiliary_inputs())
        entry["inputs"] = [[number[id(below)], index, int(at >= n_arguments)] for at, (below, index) in enumerate(node.inputs)]
        if node.subgraphs:
            entry["subgraphs"] = [_document(sub.heads) for sub in node.subgraphs]
        nodes.append(entry)
        rows.append(rows[-1] + _outputs_in_file(node))
    return {"nodes": nodes, "arg_nodes": [i for i, n in enumerate(order) if n.op is None], "node_row_ptr": rows,
            "heads": [[number[id(n)], index, 0] for n, index in heads]}


#: The number of outputs in MXNet's files, of operators whose kept values are computed again here.
_COUNTED = {"LayerNorm": 3, "GroupNorm": 3, "InstanceNorm": 3, "L2Normalization": 2, "LRN": 2, "BilinearSampler": 2,
            "GridGenerator": 2, "SpatialTransformer": 3, "Correlation": 3, "_linalg_det": 3, "_linalg_slogdet": 4}


def _outputs_in_file(node: Node) -> int:
    """Return a node's number of outputs in MXNet's files: max pooling has one more, RNN and loops only the visible ones."""
    if node.op is None:
        return 1
    if node.op.role == "Pooling" and node.attrs.get("pool_type", "max") == "max":
        return 2
    if node.subgraphs or node.op.role in ("RNN", "_rnn_projected"):
        return node.n_visible()
    return _COUNTED.get(node.op.role, node.n_outputs())


def _format(value: Any, depth: int = 0, multi: bool = True) -> str:
    """Return JSON with MXNet's line breaks, to the byte: an object of one entry and a list of up to ten stay on one line."""
    if isinstance(value, dict):
        parts = [f"{json.dumps(k, ensure_ascii=False)}: {_format(v, depth + 1, k != 'attrs' or len(v) > 1)}"
                 for k, v in value.items()]
        ends = "{}"
    elif isinstance(value, list):
        multi = len(value) > 10 or bool(value and isinstance(value[0], dict))
        parts = [_format(v, depth + 1) for v in value]
        ends = "[]"
    else:
        return json.dumps(value, ensure_ascii=False)
    if not parts or not multi:
        return ends[0] + ", ".join(parts) + ends[1]
    inside, close = "\n" + "  " * (depth + 1), "\n" + "  " * depth
    return ends[0] + inside + f", {inside}".join(parts) + close + ends[1]


def loads(text: str, where: str = "symbol JSON") -> list[Entry]:
    """Read the heads of a graph.

    where: the name of the source in errors, such as a file name.
    """
    try:
        graph = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise not_a_symbol(where, "it is nested too deeply") from None
    except ValueError as failure:
        raise not_a_symbol(where, f"it is not JSON ({failure})") from None
    if not isinstance(graph, dict):
        raise not_a_symbol(where, "it has no lists 'nodes' and 'heads'")
    return _read_graph(where, graph, _version(graph), 0)


def _read_graph(where: str, graph: Any, version: int, depth: int) -> list[Entry]:
    if not isinstance(graph, dict) or not isinstance(graph.get("nodes"), list) or not isinstance(graph.get("heads"), list):
        raise not_a_symbol(where, "it has no lists 'nodes' and 'heads'")
    if depth > MAX_DEPTH:
        raise not_a_symbol(where, f"more than {MAX_DEPTH} graphs lie within one another")
    nodes: list[Node] = []
    for i, raw in enumerate(graph["nodes"]):
        nodes.append(_read_node(where, i, raw, nodes, version, depth))
    listed = graph.get("arg_nodes")
    if listed is not None and not (isinstance(listed, list) and all(type(i) is int and 0 <= i < len(nodes) for i in listed)):
        raise FileError(f"{where}: 'arg_nodes' is not a list of node numbers.")
    heads = [_entry(where, "heads", raw, nodes) for raw in graph["heads"]]
    if not heads:
        raise not_a_symbol(where, "'heads' is empty")
    return heads


def not_a_symbol(where: str, why: str) -> FileError:
    """Return the error for a file that does not hold a symbol."""
    return FileError(f"{where}: not a symbol: {why}. Expected the JSON that Symbol.save writes.")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _version(graph: dict[str, Any]) -> int:
    attrs = graph.get("attrs")
    stated = attrs.get("mxnet_version") if isinstance(attrs, dict) else None
    ok = isinstance(stated, list) and len(stated) == 2 and isinstance(stated[1], int)
    return stated[1] if ok and stated is not None else 800


def _read_node(where: str, i: int, raw: Any, before: list[Node], version: int, depth: int) -> Node:
    if not isinstance(raw, dict) or not isinstance(raw.get("op"), str) or not isinstance(raw.get("name"), str):
        raise FileError(f"{where}: node {i} has no strings 'op' and 'name'.")
    here = f"{where}: node {i} ({raw['name'][:80]!r}, {raw['op'][:80]})"
    attrs: dict[str, str] = {}
    for key in ("param", "attr", "attrs"):
        part = raw.get(key, {})
        if not isinstance(part, dict) or not all(isinstance(v, str) for v in part.values()):
            raise FileError(f"{here}: '{key}' is not an object of strings.")
        attrs.update({hidden_form(k): v for k, v in part.items()})
    inside = raw.get("subgraphs", [])
    for key in ("subgraphs", "inputs"):
        if not isinstance(raw.get(key, []), list):
            raise FileError(f"{here}: '{key}' is not a list.")
    inputs = [_entry(here, "input", e, before) for e in raw.get("inputs", [])]
    if raw["op"] == "null":
        if inputs:
            raise FileError(f"{here}: a variable cannot have inputs.")
        return Node(None, raw["name"], None, attrs)
    try:
        if raw["op"] == mxnet_operators.NORM_AND_RELU:  # two operators here, which are fused where that pays
            norm = _make(here, ops.get("BatchNorm"), f"{raw['name']}_norm", attrs, inputs, version)
            return mxnet_operators.rectified(norm, raw["name"])
        called, attrs = mxnet_operators.read(raw["op"], attrs)
        op = ops.get(called)
        if isinstance(op, ControlFlow):
            subgraphs = [Subgraph(_read_graph(f"{here}, subgraph {k}", g, version, depth + 1)) for k, g in enumerate(inside)]
            return control_node(op, raw["name"], attrs, inputs, subgraphs)
        if inside:
            raise FileError(f"{here}: it holds subgraphs, and {op.name} runs none.")
        return _make(here, op, raw["name"], attrs, inputs, version)
    except FileError:
        raise
    except MXNetError as failure:
        raise FileError(f"{here}: {failure}") from failure


def _make(here: str, op: Op, name: str, attrs: dict[str, str], inputs: list[Entry], version: int) -> Node:
    known = {d.name for d in op.params}
    if version < 10000:  # files before 1.0 mix a user's attributes with parameters
        given = {k: v for k, v in attrs.items() if k in known}
    else:
        given = {k: v for k, v in attrs.items() if k in known or not (k.startswith("__") or k in IGNORED or not known)}
    for key, most in (("num_args", max(len(inputs), 1)), ("num_outputs", MAX_OUTPUTS), ("sections", MAX_OUTPUTS)):
        if key in known and key in given:
            if not given[key].strip().isdecimal() or len(given[key]) > 9 or int(given[key]) > most:
                why = f"but the node has {len(inputs)} inputs" if key == "num_args" else f"which is not an integer up to {most:,}"
                raise FileError(f"{here}: {key}={given[key][:40]!r}, {why}.")
    if "num_args" in known and "num_args" not in given:
        given["num_args"] = str(len(inputs))
    params = op.parse(given)
    node = Node(op, name, params, attrs, inputs)
    names = node.input_names()
    states = op.auxiliaries(params)
    if len(inputs) == len(names) - len(states) and states:  # 0.8 wrote no nodes for states
        for state in states:
            init = starts(op, state)
            extra = {"__init__": init} if init is not None else {}
            node.inputs.append((Node(None, f"{name}_{state}", None, extra), 0))
    if len(node.inputs) != len(names):
        raise FileError(f"{here}: {len(inputs)} inputs, {op.name} takes {len(names)}: {', '.join(names)}.")
    for below, _ in node.auxiliary_inputs():
        if below.op is not None:
            raise FileError(f"{here}: the auxiliary state {below.name!r} is not a variable.")
    if version < 10000:  # the operator has what is the variable's, such as `weight_lr_mult`
        for name, moved in input_attributes(node.attrs, names).items():
            below = node.inputs[names.index(name)][0]
            if below.op is None:
                below.attrs.update((k, v) for k, v in moved.items() if k not in below.attrs)
    return node


def _entry(here: str, what: str, raw: Any, before: Sequence[Node]) -> Entry:
    if not (isinstance(raw, list) and 2 <= len(raw) <= 3 and all(type(v) is int for v in raw)):
        raise FileError(f"{here}: {what} {str(raw)[:60]} is not [node, output, version].")
    at, index = raw[0], raw[1]
    if not 0 <= at < len(before):
        raise FileError(f"{here}: {what} reads node {at}; only nodes before it, 0 to {len(before) - 1}, can be read.")
    if not 0 <= index < before[at].n_outputs():
        raise FileError(f"{here}: {what} reads output {index} of {before[at].name!r}, which has {before[at].n_outputs()}.")
    return before[at], index
