"""HostOp: a layer that NumPy computes. Arrays of a GPU are copied to the host, and the results back.

For work that a GPU does not speed up and that is done once a step at most, such as decompositions of matrices by LAPACK.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from ..kernel import KernelFunction
from ..op import Reqs, Specs
from .numpy_op import NumpyOp, by_kind, store_all
from .operator_property import Shapes, store, upcast


class HostOp(NumpyOp):
    """Subclasses compute with NumPy alone. Halves arrive as float32."""

    on_host: ClassVar[bool] = True

    def gpu_forward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            store_all(outputs, reqs, self.compute(*[upcast(run.to_host(a)) for a in inputs]), partial(store, run))

        return kernel

    def gpu_backward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            made = self.derivative(*by_kind(self, [upcast(run.to_host(a)) for a in inputs]))
            store_all(outputs, reqs, made, partial(store, run))

        return kernel


def known(shapes: Shapes) -> bool:
    """Return whether every shape is fully known."""
    return all(s is not None and -1 not in s for s in shapes)
