"""NumpyOp: a layer whose CPU kernels are NumPy functions of whole arrays; its GPU kernels are written beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..kernel import KernelFunction
from ..op import Req, Reqs, Specs
from .operator_property import OperatorProperty, assign, backward_needs, upcast

Results = np.ndarray | tuple[np.ndarray, ...]


class NumpyOp(OperatorProperty):
    """Subclasses compute with NumPy on the CPU, where halves arrive as float32, and return kernels for the GPU."""

    def compute(self, *arrays: np.ndarray) -> Results:
        """Return the output, or a tuple of them."""
        raise NotImplementedError(self.name)

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> Results:
        """Return the derivatives by list_gradients(), one or a tuple. Arrays that backward_reads does not name are empty."""
        raise NotImplementedError(self.name)

    def gpu_forward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        """As forward_kernel, for arrays on a GPU."""
        raise NotImplementedError(self.name)

    def gpu_backward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        """As backward_kernel, for arrays on a GPU."""
        raise NotImplementedError(self.name)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if target == "gpu":
            return self.gpu_forward(ins, outs, reqs)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            store_all(outputs, reqs, self.compute(*[upcast(a) for a in inputs]))

        return kernel

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if target == "gpu":
            return self.gpu_backward(ins, outs, reqs)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            store_all(outputs, reqs, self.derivative(*by_kind(self, [upcast(a) for a in inputs])))

        return kernel


def by_kind(prop: OperatorProperty, arrays: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the arrays that backward reads as the lists dy, x and y of `NumpyOp.derivative`."""
    sizes = {"dy": prop.num_visible_outputs(), "x": len(prop.list_arguments()), "y": len(prop.list_outputs())}
    groups: dict[str, list[Any]] = {kind: [np.empty(0)] * n for kind, n in sizes.items()}
    for (kind, i), a in zip(backward_needs(prop), arrays):
        groups[kind][i] = a
    return groups["dy"], groups["x"], groups["y"]


def store_all(outputs: Sequence[Any], reqs: Reqs, made: Results, store: Any = assign) -> None:
    """Store results by their write requests with store(array, request, values)."""
    for array, req, values in zip(outputs, reqs, made if isinstance(made, tuple) else (made,)):
        if req != Req.NULL:
            store(array, req, values)
