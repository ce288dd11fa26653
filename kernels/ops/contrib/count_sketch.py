"""count_sketch: rows hashed into shorter rows. Source: Charikar, Chen, Farach-Colton, ICALP 2002."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....errors import ParameterError, ShapeError
from ...declare.index_kernel import Put, index_kernel, put, scatter_kernel
from ...declare.numpy_op import NumpyOp
from ...declare.operator_property import KnownShapes, Shapes
from ...declare.property_op import register_operator
from ...kernel import KernelFunction
from ...op import Reqs, Shape, Specs


@register_operator("_contrib_count_sketch")
class CountSketch(NumpyOp):
    """Element i of each row of data is added, times s[i], to element h[i] of the result's row.

    data: [..., d]; h: [1, d] or [d], integers from 0 to out_dim - 1; s: the same shape, +1 or -1. Only data has a derivative.
    Returns: [..., out_dim]. processing_batch_size is accepted and changes nothing.
    An index out of range raises ShapeError; on a GPU it is left out.
    """

    out_dim: int
    processing_batch_size: int = 32
    argument_names = ("data", "h", "s")
    gradient_arguments = (0,)
    backward_reads = ("dy0", "x1", "x2")

    def validate(self) -> None:
        if self.out_dim < 1:
            raise ParameterError(f"{self.name}: out_dim={self.out_dim} must be at least 1.")

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        data, h, s = (tuple(x or ()) for x in in_shape)
        if not data or h != s or h not in (data[-1:], (1, *data[-1:])):
            raise ShapeError(f"{self.name}: h {h} and s {s} must both have one value for each element of a row of data {data}.")
        return [(*data[:-1], self.out_dim)]

    def _places(self, h: np.ndarray) -> np.ndarray:
        at = h.reshape(-1).astype(np.int64)
        if at.size and not 0 <= at.min() <= at.max() < self.out_dim:
            raise ShapeError(f"{self.name}: h holds {at.min()} to {at.max()}. It must hold indices from 0 to {self.out_dim - 1}.")
        return at

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        data, h, s = arrays
        out = np.zeros((*data.shape[:-1], self.out_dim), data.dtype)
        places: Any = (..., self._places(h))
        np.add.at(out, places, data * s.reshape(-1))
        return out

    def gpu_forward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        rows, d = _rows(ins[0].shape)

        def body(at: Any, data: Any, h: Any, s: Any) -> Put:
            row, i = at
            to = h[i].astype("int64")
            return put(data[row, i] * s[i], row, to, inside=(to >= 0) & (to < self.out_dim))

        return scatter_kernel(body, (rows, d), ins, outs, reqs, "gpu", self.name, views=[(rows, d), (d,), (d,)],
                              results=[(rows, self.out_dim)])

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        rows, d = _rows(outs[0].shape)

        def body(at: Any, dy: Any, h: Any, s: Any) -> Any:
            row, i = at
            to = h[i].astype("int64")
            return dy.at(row, to, inside=(to >= 0) & (to < self.out_dim)) * s[i]

        kernel = index_kernel(body, ins, outs, reqs, target, self.name, views=[(rows, self.out_dim), (d,), (d,)],
                              results=[(rows, d)])
        if target == "gpu":
            return kernel

        def checked(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            self._places(inputs[1])
            kernel(run, inputs, outputs)

        return checked


def _rows(shape: Shape) -> tuple[int, int]:
    return math.prod(shape[:-1]), shape[-1]
