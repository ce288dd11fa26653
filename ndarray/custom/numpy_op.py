"""NumpyOp and NDArrayOp, MXNet's older way to write an operator: one object that is its own property. New ones: CustomOp.

    class Cube(mx.operator.NumpyOp):
        def forward(self, in_data, out_data):
            out_data[0][:] = in_data[0] ** 3
        def backward(self, out_grad, in_data, out_data, in_grad):
            in_grad[0][:] = 3 * in_data[0] ** 2 * out_grad[0]

    net = Cube()(mx.sym.Variable("x"), name="cube")
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...kernels.op import builtin
from ..core.ndarray import NDArray
from .custom_op import CustomOp, CustomOpProp, register

Arrays = Sequence[np.ndarray | NDArray]
_numbers = itertools.count()


class PythonOp(CustomOpProp):
    """Base class of both: the property of a custom operator and its body. Calling it with Symbols or NDArrays applies it."""

    _numpy = False  # True if forward and backward get NumPy arrays

    def __init__(self, need_top_grad: bool = True):
        super().__init__(need_top_grad)
        self._name: str | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.get_symbol(*args, **kwargs)

    def get_symbol(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the operator to Symbols (or NDArrays)."""
        if self._name is None:
            self._name = f"_python_op{next(_numbers)}"
            register(self._name)(type(self._name, (CustomOpProp,), {"__new__": lambda cls: self}))
        return builtin("Custom")(*args, op_type=self._name, **kwargs)

    def forward(self, in_data: Arrays, out_data: Arrays) -> None:
        """Fill out_data[0][:] and so on. Default: a copy of the first input."""
        out_data[0][:] = in_data[0]

    def backward(self, out_grad: Arrays, in_data: Arrays, out_data: Arrays, in_grad: Arrays) -> None:
        """Fill in_grad[0][:] and so on. Default: 1."""
        in_grad[0][:] = 1.0

    def infer_shape(self, in_shape: list[list[int]]) -> Sequence[Sequence[Sequence[int]]]:
        """Return (input shapes, output shapes). Default: one input, and one output of its shape."""
        return in_shape, [in_shape[0]]

    def need_top_grad(self) -> bool:
        """Return True if backward reads the derivative of the outputs."""
        return self.need_top_grad_

    def declare_backward_dependency(self, out_grad: list[int], in_data: list[int], out_data: list[int]) -> list[int]:
        return [*(out_grad if self.need_top_grad() else ()), *in_data, *out_data]

    def create_operator(self, ctx: str, in_shapes: list[list[int]], in_dtypes: list[type[np.generic]]) -> CustomOp:
        """Return the CustomOp that calls this object's forward and backward."""
        return _Body(self)


class NumpyOp(PythonOp):
    """An operator on NumPy arrays."""

    _numpy = True


class NDArrayOp(PythonOp):
    """An operator on NDArrays."""


class _Body(CustomOp):
    """The computation of a PythonOp, for CustomOp's write requests."""

    def __init__(self, op: PythonOp):
        self._op = op

    def forward(self, is_train: bool, req: Sequence[str], in_data: list[NDArray], out_data: list[NDArray],
                aux: list[NDArray]) -> None:
        self._call(self._op.forward, [in_data], out_data, req)

    def backward(self, req: Sequence[str], out_grad: list[NDArray], in_data: list[NDArray], out_data: list[NDArray],
                 in_grad: list[NDArray], aux: list[NDArray]) -> None:
        self._call(self._op.backward, [out_grad, in_data, out_data], in_grad, req)

    def _call(self, method: Any, groups: list[list[Any]], written: list[NDArray], requests: Sequence[str]) -> None:
        if self._op._numpy:
            results = [a.asnumpy() for a in written]
            method(*([None if a is None else a.asnumpy() for a in g] for g in groups), results)
        else:
            results = [a.zeros_like() for a in written]
            method(*groups, results)
        for a, request, result in zip(written, requests, results):
            self.assign(a, request, result)
