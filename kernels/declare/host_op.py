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
from .numpy_op import NumpyOp, by_kind, store_all
from .operator_property import RandomNumbers, Shapes, assign, upcast


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


class HostOp(NumpyOp):
    """Subclasses compute with NumPy alone. Halves arrive as float32."""

    on_host: ClassVar[bool] = True

    def gpu_forward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int] | None = None) -> None:
            given = [to_host(a) for a in inputs]
            made = self.compute(*given) if random is None else self.compute_random(RandomNumbers(*random), *given)
            store_all(outputs, reqs, made, store)

        return kernel

    def gpu_backward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            store_all(outputs, reqs, self.derivative(*by_kind(self, [to_host(a) for a in inputs])), store)

        return kernel


def known(shapes: Shapes) -> bool:
    """Return whether every shape is fully known."""
    return all(s is not None and -1 not in s for s in shapes)
