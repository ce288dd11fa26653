"""HostOp: a layer that NumPy computes. Arrays of a GPU are copied to the host, and the results back.

For work that a GPU does not speed up and that is done once a step at most: matrix decompositions, and choices that depend on one
another (which boxes suppress which, what matches what).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ..kernel import DeviceArray, KernelFunction
from ..op import Req, Reqs, Specs
from .operator_property import OperatorProperty, RandomNumbers, Shapes, assign, backward_needs, upcast


def to_host(array: DeviceArray) -> np.ndarray:
    """Return the values of a device array on the host, halves as float32. Waits for earlier work of the stream."""
    if isinstance(array, np.ndarray):
        return upcast(array)
    tensor: Any = array
    half = array.dtype.itemsize == 2 and array.dtype.is_floating_point
    return (tensor.float() if half else tensor).cpu().numpy()


def store(array: DeviceArray, req: Req, values: ArrayLike) -> None:
    """Store values in a device array by the write request req."""
    if isinstance(array, np.ndarray) or req == Req.NULL:
        assign(array, req, values)
        return
    values = np.ascontiguousarray(values)
    tensor: Any = array
    made = tensor.new_tensor(values.reshape(array.shape))  # in the array's own dtype, on its device
    if req == Req.ADD:
        tensor.add_(made)
    else:
        tensor.copy_(made)


def save_random(array: DeviceArray, random: tuple[int, int]) -> None:
    """Save the place (seed, offset) of random numbers in an int64 array [2], for the derivative to draw them again."""
    store(array, Req.WRITE, np.array(random, np.uint64).view(np.int64))


def load_random(array: DeviceArray) -> tuple[int, int]:
    """Return the place that save_random saved. Waits for earlier work of the stream."""
    seed, offset = to_host(array).view(np.uint64).tolist()
    return seed, offset


class HostOp(OperatorProperty):
    """Subclasses compute with NumPy alone. Halves arrive as float32."""

    on_host: ClassVar[bool] = True

    def compute(self, *arrays: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
        """Return the output, or a tuple of them."""
        raise NotImplementedError(self.name)

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> np.ndarray | tuple[np.ndarray, ...]:
        """Return the derivatives by list_gradients(), one or a tuple. Arrays that backward_reads does not name are empty."""
        raise NotImplementedError(self.name)

    def compute_random(self, random: RandomNumbers, *arrays: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
        """As compute, for layers that draw numbers."""
        raise NotImplementedError(self.name)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int] | None = None) -> None:
            given = [to_host(a) for a in inputs]
            made = self.compute(*given) if random is None else self.compute_random(RandomNumbers(*random), *given)
            _store_all(outputs, reqs, made)

        return kernel

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        needs = backward_needs(self)
        sizes = {"dy": self.num_visible_outputs(), "x": len(self.list_arguments()), "y": len(self.list_outputs())}

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int] | None = None) -> None:
            groups = {kind: [np.empty(0)] * n for kind, n in sizes.items()}
            for (kind, i), a in zip(needs, inputs):
                groups[kind][i] = to_host(a)
            _store_all(outputs, reqs, self.derivative(groups["dy"], groups["x"], groups["y"]))

        return kernel


def _store_all(outputs: Sequence[Any], reqs: Reqs, made: Any) -> None:
    for array, req, values in zip(outputs, reqs, made if isinstance(made, tuple) else (made,)):
        if req != Req.NULL:
            store(array, req, values)


def known(shapes: Shapes) -> bool:
    """Return whether every shape is fully known."""
    return all(s is not None and -1 not in s for s in shapes)
