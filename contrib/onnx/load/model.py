"""import_model: an ONNX file as a symbol and its parameters."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....atomic_file import read_file
from ....context import Context
from ....errors import FileError
from ....gluon import SymbolBlock
from ....graph.symbol.symbol import Group, Symbol, Variable
from ....ndarray import NDArray, array
from ..library import Unsupported, onnx, refuse
from . import math_ops, nn_ops, shape_ops  # noqa: F401  they fill the table of converters
from .fold import FOLDED, fold
from .graph import CONVERTERS, GraphReader, Use


def _read(model_file: str | os.PathLike) -> Any:
    """Return the model in a file. Raises FileError for a damaged one."""
    package, path = onnx(), os.fspath(model_file)
    try:
        model = package.load_model_from_string(read_file(path))
        package.checker.check_model(model)
    except FileError:
        raise
    except Exception as e:  # protobuf and the checker raise errors of their own
        raise FileError(f"import_model: {path} is not a valid ONNX file: {str(e).strip().splitlines()[0]}") from None
    return model


def _sizes(value: Any) -> tuple[int, ...]:
    """Return the shape of an input or output; 0 for sizes that may differ."""
    return tuple(d.dim_value for d in value.type.tensor_type.shape.dim)


def import_model(model_file: str | os.PathLike) -> tuple[Symbol, dict[str, NDArray], dict[str, NDArray]]:
    """Return the network in an ONNX file: its symbol, parameters and auxiliary states, under the names in the file.

    Raises: MissingLibraryError without the package onnx; FileError for a damaged file; NotAvailableError with a table of all
            nodes that cannot be converted.
    """
    model = _read(model_file)
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1)
    reader = GraphReader(opset)
    graph = model.graph
    reader.constants = {t.name: np.array(onnx().numpy_helper.to_array(t)) for t in graph.initializer}
    for given in graph.input:
        if given.name not in reader.constants:
            dtype = onnx().helper.tensor_dtype_to_np_dtype(given.type.tensor_type.elem_type)
            reader.symbols[given.name] = Variable(given.name, dtype=None if dtype == np.float32 else dtype)
            reader.shapes[given.name], reader.dtypes[given.name] = _sizes(given), np.dtype(dtype)
    problems: list[tuple[str, str, str]] = []
    for node in graph.node:
        _convert(reader, Use(reader, node), problems)
    if problems:
        raise refuse(f"import_model: {os.fspath(model_file)}", problems)
    outputs = [reader.symbol(o.name) for o in graph.output]
    sym = outputs[0] if len(outputs) == 1 else Group(outputs)
    states = set(sym.list_auxiliary_states())
    used = {k: array(reader.params[k], dtype=reader.params[k].dtype) for k in sym.list_inputs() if k in reader.params}
    return sym, {k: v for k, v in used.items() if k not in states}, {k: v for k, v in used.items() if k in states}


def _convert(reader: GraphReader, use: Use, problems: list[tuple[str, str, str]]) -> None:
    """Convert one node, or add it to the problems. What follows a node that cannot be converted is not tried."""
    if any(n and n not in reader.symbols and n not in reader.constants for n in use.inputs):
        if use.op not in CONVERTERS:
            problems.append((use.name, use.op, "has no converter"))
        return
    try:
        if use.op not in CONVERTERS and use.op not in FOLDED:
            raise Unsupported("has no converter")
        folds = use.op in FOLDED and all(n in reader.constants for n in use.inputs if n)
        if not folds and use.op not in CONVERTERS:
            raise Unsupported("has no converter unless its inputs are constants")
        made = fold(use) if folds else CONVERTERS[use.op](use)
    except Unsupported as e:
        problems.append((use.name, use.op, str(e)))
        return
    parts: Sequence[Any] = made if isinstance(made, list) else [made]
    for name, part in zip(use.outputs, parts):
        values: dict[str, Any] = reader.constants if isinstance(part, np.ndarray) else reader.symbols
        values[name] = part


def get_model_metadata(model_file: str | os.PathLike) -> dict[str, list[tuple[Any, ...]]]:
    """Return {"input_tensor_data": [(name, shape, ONNX's number of the dtype)], "output_tensor_data": [(name, shape)]} of a file.

    A size of 0 may differ.
    """
    graph = _read(model_file).graph
    stored = {t.name for t in graph.initializer}
    return {"input_tensor_data": [(i.name, _sizes(i), i.type.tensor_type.elem_type) for i in graph.input
                                  if i.name not in stored],
            "output_tensor_data": [(o.name, _sizes(o)) for o in graph.output]}


def import_to_gluon(model_file: str | os.PathLike, ctx: Context | Sequence[Context] | None = None) -> SymbolBlock:
    """Return the network in an ONNX file as a SymbolBlock. ctx: of its parameters. Errors: see import_model."""
    sym, args, states = import_model(model_file)
    values = {**args, **states}
    block = SymbolBlock(sym, [Variable(n) for n in sym.list_arguments() if n not in values])
    for name, parameter in block.collect_params().items():
        parameter.cast(values[name].dtype)
        parameter._load_init(values[name], ctx)
    return block
