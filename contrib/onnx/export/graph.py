"""The ONNX graph that is being written, one use of an operator in it, and the table of converters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....kernels.params import Params
from ..library import Unsupported, converts_into, onnx

Converter = Callable[["Use"], None]
CONVERTERS: dict[str, Converter] = {}
converts = converts_into(CONVERTERS)


class GraphWriter:
    """The nodes and initializers of an ONNX graph."""

    def __init__(self, taken: Sequence[str]):
        self.nodes: list[Any] = []
        self.initializers: dict[str, np.ndarray] = {}
        self._names = set(taken)
        self._constants: dict[tuple, str] = {}

    def name(self, wanted: str) -> str:
        """Return a name that is not in use yet."""
        name, i = wanted, 0
        while name in self._names:
            name, i = f"{wanted}_{i}", i + 1
        self._names.add(name)
        return name

    def constant(self, values: Any, dtype: Any) -> str:
        """Return the name of an initializer with these values."""
        array = np.asarray(values, dtype)
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.name(f"constant_{len(self._constants)}")
            self.initializers[self._constants[key]] = array
        return self._constants[key]

    def add(self, op: str, inputs: Sequence[str], outputs: Sequence[str], name: str, attrs: dict[str, Any]) -> None:
        """Add a node. Attributes that are None are left out."""
        self.nodes.append(onnx().helper.make_node(op, list(inputs), list(outputs), name=name,
                                                  **{k: v for k, v in attrs.items() if v is not None}))


class Use:
    """One use of an operator: the inputs by ONNX names, and the outputs that its converter must write.

    op:              its name in the registry; p: its parameters.
    shapes, dtypes:  of the inputs; out_shapes, out_dtypes: of the outputs.
    dynamic:         True if the sizes in shapes may differ when the network runs.
    """

    def __init__(self, writer: GraphWriter, op: str, name: str, p: Params, inputs: list[str], outputs: list[str],
                 shapes: Sequence[Any], dtypes: Sequence[np.dtype], out_shapes: Sequence[Any], out_dtypes: Sequence[np.dtype],
                 dynamic: bool):
        self.writer, self.op, self.name, self.p, self.inputs, self.outputs = writer, op, name, p, inputs, outputs
        self.dtypes, self.out_dtypes, self.dynamic = dtypes, out_dtypes, dynamic
        self._shapes, self._out_shapes = shapes, out_shapes

    # ---- what it is applied to ----
    def shape(self, i: int = 0) -> tuple[int, ...]:
        """The sizes of an input, for a converter that writes them into the file. Raises Unsupported if they may change."""
        if self.dynamic:
            raise Unsupported("needs fixed sizes: export with dynamic=False")
        return tuple(self._shapes[i])

    def out_shape(self, i: int = 0) -> tuple[int, ...]:
        """The sizes of an output, likewise."""
        if self.dynamic:
            raise Unsupported("needs fixed sizes: export with dynamic=False")
        return tuple(self._out_shapes[i])

    def known_shape(self, i: int = 0) -> tuple[int, ...]:
        """The sizes of an input that is a parameter, or of which only what cannot change is used."""
        return tuple(self._shapes[i])

    def ndim(self, i: int = 0) -> int:
        """The number of axes of an input."""
        return len(self._shapes[i])

    def axis(self, axis: int, i: int = 0) -> int:
        """Return an axis of an input, counted from the front."""
        return axis % max(self.ndim(i), 1)

    # ---- what it writes ----
    def const(self, values: Any, dtype: Any = np.int64) -> str:
        """Return the name of a constant, of int64 by default."""
        return self.writer.constant(values, dtype)

    def number(self, value: float, i: int = 0) -> str:
        """Return the name of a constant without axes, in the dtype of an input."""
        return self.writer.constant(value, self.dtypes[i])

    def add(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        """Write a node, and return the name of its output, or a list of names."""
        names = [self.writer.name(f"{self.name}_{op.lower()}") for _ in range(outputs)]
        self.writer.add(op, inputs, names, names[0], attrs)
        return names[0] if outputs == 1 else names

    def emit(self, op: str, *inputs: str, **attrs: Any) -> None:
        """Write the last node, whose outputs are those of the operator."""
        self.writer.add(op, inputs, self.outputs, self.writer.name(self.name), attrs)

    def cast(self, name: str, dtype: Any) -> str:
        """Return the name of an array cast to dtype."""
        return self.add("Cast", name, to=tensor_type(dtype))

    def emit_cast(self, name: str, i: int = 0) -> None:
        """Write the last node, a cast to the dtype of the output."""
        self.emit("Cast", name, to=tensor_type(self.out_dtypes[i]))

    def unsqueeze(self, name: str, axes: Sequence[int]) -> str:
        return self.add("Unsqueeze", name, self.const(axes))

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """Return the name of an array in another shape; 0 keeps a size, -1 is inferred."""
        return self.add("Reshape", name, self.const(shape))


def tensor_type(dtype: Any) -> int:
    """Return ONNX's number of a dtype."""
    return onnx().helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
