"""export_model: a symbol and its parameters as an ONNX file."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....atomic_file import write_atomic
from ....dtype import as_dtype
from ....errors import ParameterError
from ....graph.passes.infer import infer_dtypes, infer_shapes
from ....graph.passes.mixed_precision import remove_casts
from ....graph.symbol.node import Entry, Node, topological
from ....graph.symbol.symbol import Symbol
from ....graph.symbol.symbol import load as load_symbol
from ....ndarray import NDArray, load
from ....version import __version__
from ..library import Unsupported, onnx, refuse
from . import math_ops, nn_ops, rnn_ops, sequence_ops, shape_ops  # noqa: F401  they fill the table of converters
from .graph import CONVERTERS, GraphWriter, Use, tensor_type

OPSET = 13
_LOSSES = ("SoftmaxOutput", "LogisticRegressionOutput", "LinearRegressionOutput", "MAERegressionOutput")


def get_operator_support(opset_version: int | None = None) -> list[str]:
    """Return the names of the operators that can be exported. opset_version: 13 or later; the same operators."""
    return sorted(CONVERTERS)


def export_model(sym: Symbol | str | os.PathLike, params: Any, in_shapes: Sequence[Sequence[int]] | None = None,
                 in_types: Any = np.float32, onnx_file_path: str = "model.onnx", verbose: bool = False, dynamic: bool = False,
                 dynamic_input_shapes: Sequence[Sequence[Any]] | None = None, run_shape_inference: bool = False,
                 input_type: Any = None, input_shape: Sequence[Sequence[int]] | None = None) -> str:
    """Write a network and its parameters as an ONNX file of opset 13, for inference.

    sym:                  a Symbol, or the path of its JSON file.
    params:               a dictionary of parameters, or a list of dictionaries, or the path of a file of them. Names may begin
                          with "arg:" and "aux:". Labels of losses need none, and are no inputs of the file.
    in_shapes, in_types:  of the inputs, in their order in the symbol; one type for all, or one each. MXNet's older names for
                          them are input_shape and input_type.
    dynamic:              sizes may differ when the network runs. dynamic_input_shapes: the sizes, None or a name for such that
                          may differ; by default all may. A network with an operator that needs fixed sizes cannot be exported so.
    run_shape_inference:  add the shapes of all inner values to the file.
    Returns: onnx_file_path.
    Raises:  MissingLibraryError without the package onnx; ParameterError for missing parameters or shapes; NotAvailableError with
             a table of all nodes that cannot be converted. Nothing is written then.
    """
    package = onnx()
    in_shapes, in_types = input_shape or in_shapes, in_types if input_type is None else input_type
    sym = sym if isinstance(sym, Symbol) else load_symbol(os.fspath(sym))
    values = _parameters(params)
    heads = remove_casts(sym._outputs)
    order = topological(n for n, _ in heads)
    labels = _labels(order, values)
    inputs = [n.name for n in order if n.op is None and n.name not in values and n.name not in labels]
    if in_shapes is None or len(in_shapes) != len(inputs):
        raise ParameterError(f"export_model: {0 if in_shapes is None else len(in_shapes)} shapes for {len(inputs)} inputs: "
                             f"{', '.join(inputs)}. Variables without parameters are inputs; is one missing from params?")
    types = [as_dtype(t) for t in (in_types if isinstance(in_types, (list, tuple)) else [in_types] * len(inputs))]
    known = {n: tuple(map(int, s)) for n, s in zip(inputs, in_shapes)}
    shapes = infer_shapes(order, {**known, **{k: v.shape for k, v in values.items()}})
    dtypes = infer_dtypes(order, {**dict(zip(inputs, types)), **{k: v.dtype for k, v in values.items()}}, np.dtype("float32"))
    writer = GraphWriter([n.name for n in order])
    names = _write(writer, order, shapes, dtypes, dynamic, labels, heads, sym.list_outputs())
    helper = package.helper
    index = {id(n): i for i, n in enumerate(order)}

    def info(name: str, shape: Sequence[Any], dtype: np.dtype) -> Any:
        return helper.make_tensor_value_info(name, tensor_type(dtype), list(shape))

    sizes = dynamic_input_shapes or [[None] * len(known[n]) for n in inputs]
    given = [info(n, sizes[i] if dynamic else known[n], types[i]) for i, n in enumerate(inputs)]
    gives = [info(name, [None] * len(_of(shapes, index, e)) if dynamic else _of(shapes, index, e), _of(dtypes, index, e))
             for name, e in zip(names, heads)]
    used = {i for node in writer.nodes for i in node.input}
    stored = {k: v for k, v in {**values, **writer.initializers}.items() if k in used or k in names}
    graph = helper.make_graph(writer.nodes, "tritium", given, gives,
                              [package.numpy_helper.from_array(np.ascontiguousarray(v), k) for k, v in stored.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="tritium",
                              producer_version=__version__)
    model.ir_version = min(model.ir_version, 8)
    package.checker.check_model(model)
    if run_shape_inference:
        model = package.shape_inference.infer_shapes(model)
    if verbose:
        logging.info("export_model: %d nodes, %d initializers", len(writer.nodes), len(stored))
    write_atomic(onnx_file_path, [model.SerializeToString()])
    return onnx_file_path


def _of(table: Sequence[Sequence[Any]], index: Mapping[int, int], entry: Entry) -> Any:
    return table[index[id(entry[0])]][entry[1]]


def _parameters(params: Any) -> dict[str, np.ndarray]:
    """Return the parameters as NumPy arrays, by names without "arg:" and "aux:"."""
    if isinstance(params, (str, os.PathLike)):
        params = load(params)
    given: dict[str, NDArray] = {}
    for part in params if isinstance(params, (list, tuple)) else [params]:
        given |= part
    return {k.removeprefix("arg:").removeprefix("aux:"): v.asnumpy() for k, v in given.items()}


def _labels(order: Sequence[Node], values: Mapping[str, Any]) -> set[str]:
    """Return the variables that are nothing but labels of losses."""
    labels = {n.name for node in order if node.op is not None and node.op.name in _LOSSES for n, _ in node.inputs[1:2]
              if n.op is None and n.name not in values}
    others = {n.name for node in order if node.op is not None
              for i, (n, _) in enumerate(node.inputs) if n.op is None and not (node.op.name in _LOSSES and i == 1)}
    return labels - others


def _write(writer: GraphWriter, order: Sequence[Node], shapes: Sequence[Sequence[Any]], dtypes: Sequence[Sequence[Any]],
           dynamic: bool, labels: set[str], heads: Sequence[Entry], output_names: Sequence[str]) -> list[str]:
    """Convert all nodes, and return the names of the outputs. Raises NotAvailableError with a table of what cannot be."""
    index = {id(n): i for i, n in enumerate(order)}
    names: dict[tuple[int, int], str] = {(id(n), 0): n.name for n in order if n.op is None}
    wanted = {(id(n), i): writer.name(name) if n.op is not None else name for (n, i), name in zip(heads, output_names)}
    problems: list[tuple[str, str, str]] = []
    for node in order:
        if node.op is None:
            continue
        kept = [e for e in node.inputs if e[0].name not in labels or e[0].op is not None]
        outputs = [wanted.get((id(node), i)) or writer.name(n) for i, n in enumerate(node.output_names())]
        names.update({(id(node), i): n for i, n in enumerate(outputs)})
        missing = [e[0].name for e in kept if not _whole(_of(shapes, index, e))]
        if missing:
            raise ParameterError(f"export_model: {node.name}: the shape of {', '.join(missing)} does not follow from in_shapes.")
        use = Use(writer, node.op.name, node.name, node.use, [names[id(n), i] for n, i in kept], outputs,
                  [_of(shapes, index, e) for e in kept], [_of(dtypes, index, e) for e in kept],
                  shapes[index[id(node)]], dtypes[index[id(node)]], dynamic)
        try:
            if node.op.name not in CONVERTERS:
                raise Unsupported("has no converter")
            CONVERTERS[node.op.name](use)
        except Unsupported as e:
            problems.append((node.name, node.op.name, str(e)))
    if problems:
        raise refuse("export_model", problems)
    return [wanted[id(n), i] for n, i in heads]


def _whole(shape: Any) -> bool:
    return shape is not None and all(n is not None and n >= 0 for n in shape)
