"""One use of an ONNX operator while a graph is read, and the table of converters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....graph.symbol.symbol import Symbol, Variable
from ..library import Unsupported, converts_into, onnx

Converter = Callable[["Use"], "Symbol | Sequence[Symbol] | np.ndarray"]
CONVERTERS: dict[str, Converter] = {}
converts = converts_into(CONVERTERS)


class GraphReader:
    """The values of a graph by name: symbols, and constants as NumPy arrays, which become parameters where symbols need them.

    shapes: of the inputs; a size that may differ is 0.
    """

    def __init__(self, opset: int):
        self.opset = opset
        self.symbols: dict[str, Symbol] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.params: dict[str, np.ndarray] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, np.dtype] = {}  # of the inputs

    def symbol(self, name: str) -> Symbol:
        """Return a value as a symbol; a constant becomes a parameter of its name."""
        if name not in self.symbols:
            value = self.constants[name]
            self.symbols[name] = Variable(name, shape=value.shape, dtype=value.dtype)
            self.params[name] = value
        return self.symbols[name]

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a value, with 0 for sizes that may differ; None if even the number of axes is unknown."""
        if name in self.constants:
            return self.constants[name].shape
        sym = self.symbol(name)
        arguments = set(sym.list_arguments())
        known = {**{k: v for k, v in self.shapes.items() if k in arguments},
                 **{k: v.shape for k, v in self.params.items() if k in arguments}}
        shapes = sym.infer_shape_partial(**known)[1]
        return None if shapes is None or not shapes[0] else tuple(shapes[0])


    def dtype(self, name: str) -> np.dtype:
        """Return the dtype of a value."""
        if name in self.constants:
            return self.constants[name].dtype
        sym = self.symbol(name)
        known = {**self.dtypes, **{k: v.dtype for k, v in self.params.items()}}
        types = sym.infer_type(**{k: v for k, v in known.items() if k in sym.list_arguments()})[1]
        return np.dtype(types[0] if types else np.float32)


class Use:
    """One use of an ONNX operator: its inputs, attributes and name."""

    def __init__(self, reader: GraphReader, node: Any):
        self.reader, self.op = reader, node.op_type
        self.inputs: list[str] = list(node.input)
        self.outputs: list[str] = list(node.output)
        self.name: str = node.name or node.output[0]
        self.attrs: Mapping[str, Any] = {a.name: _value(a) for a in node.attribute}

    def has(self, i: int) -> bool:
        """Return True if an optional input is given."""
        return i < len(self.inputs) and bool(self.inputs[i])

    def sym(self, i: int = 0) -> Symbol:
        """Return an input as a symbol."""
        return self.reader.symbol(self.inputs[i])

    def syms(self) -> list[Symbol]:
        """Return all given inputs as symbols."""
        return [self.reader.symbol(n) for n in self.inputs if n]

    def is_const(self, i: int) -> bool:
        """Return True if the values of an input are known."""
        return self.has(i) and self.inputs[i] in self.reader.constants

    def const(self, i: int) -> np.ndarray:
        """Return the values of an input. Raises Unsupported if they are computed by the network."""
        if not self.is_const(i):
            raise Unsupported(f"input {i}, {self.inputs[i]!r}, must be a constant")
        return self.reader.constants[self.inputs[i]]

    def attr(self, name: str, default: Any = None) -> Any:
        return self.attrs.get(name, default)

    def ints(self, name: str, i: int, default: Sequence[int] | None = None) -> list[int] | None:
        """Return numbers that are an attribute in older opsets, and an input in newer ones."""
        if name in self.attrs:
            return list(self.attrs[name])
        return [int(n) for n in np.atleast_1d(self.const(i))] if self.has(i) else None if default is None else list(default)

    def scalar(self, name: str, i: int, default: float) -> float:
        """Return a number, likewise."""
        return float(self.attrs[name] if name in self.attrs else self.const(i).reshape(-1)[0] if self.has(i) else default)

    def shape(self, i: int = 0) -> tuple[int, ...]:
        """Return the shape of an input, with 0 for sizes that may differ. Raises Unsupported if it does not follow."""
        shape = self.reader.shape(self.inputs[i])
        if shape is None:
            raise Unsupported(f"the shape of input {i}, {self.inputs[i]!r}, does not follow from those of the inputs")
        return shape

    def dtype(self, i: int = 0) -> np.dtype:
        """Return the dtype of an input."""
        return self.reader.dtype(self.inputs[i])

    def ndim(self, i: int = 0) -> int:
        return len(self.shape(i))

    def param(self, suffix: str, values: np.ndarray) -> Symbol:
        """Return a new parameter with these values."""
        name = f"{self.name}_{suffix}"
        self.reader.constants[name] = values
        return self.reader.symbol(name)


def _value(attribute: Any) -> Any:
    value = onnx().helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value
