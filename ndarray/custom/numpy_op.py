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

from ...kernels.op import builtin
from .custom_op import CustomOp, CustomOpProp, register

_numbers = itertools.count()


class PythonOp:
    """Base class of both. Calling the object with Symbols or NDArrays applies the operator.

    need_top_grad:  False for a loss: backward does not read the derivative of its output.
    """

    def __init__(self, need_top_grad: bool = True):
        self.need_top_grad_ = need_top_grad
        self._name: str | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.get_symbol(*args, **kwargs)

    def get_symbol(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the operator to Symbols (or NDArrays)."""
        if self._name is None:
            self._name = f"_python_op{next(_numbers)}"
            register(self._name)(_property_of(self))
        return builtin("Custom")(*args, op_type=self._name, **kwargs)

    def forward(self, in_data: Sequence[Any], out_data: Sequence[Any]) -> None:
        """Fill out_data[0][:] and so on. Default: a copy of the first input."""
        out_data[0][:] = in_data[0]

    def backward(self, out_grad: Sequence[Any], in_data: Sequence[Any], out_data: Sequence[Any], in_grad: Sequence[Any]) -> None:
        """Fill in_grad[0][:] and so on. Default: 1."""
        in_grad[0][:] = 1.0

    def infer_shape(self, in_shape: list[Any]) -> Any:
        """Return (input shapes, output shapes). Default: one input, and one output of its shape."""
        return in_shape, [in_shape[0]]

    def list_outputs(self) -> list[str]:
        return ["output"]

    def list_arguments(self) -> list[str]:
        return ["data"]

    def need_top_grad(self) -> bool:
        """Return True if backward reads the derivative of the outputs."""
        return self.need_top_grad_

    #: True if forward and backward get NumPy arrays.
    _numpy = False


class NumpyOp(PythonOp):
    """An operator on NumPy arrays."""

    _numpy = True


class NDArrayOp(PythonOp):
    """An operator on NDArrays."""

    def declare_backward_dependency(self, out_grad: list[int], in_data: list[int], out_data: list[int]) -> list[int]:
        """Return those of these numbers that backward reads."""
        return [*(out_grad if self.need_top_grad() else ()), *in_data, *out_data]


def _property_of(op: PythonOp) -> type[CustomOpProp]:
    class Runs(CustomOp):
        def _call(self, method: Any, groups: list[Sequence[Any]], written: Sequence[Any], requests: Sequence[str]) -> None:
            if op._numpy:
                results = [a.asnumpy() for a in written]
                method(*([None if a is None else a.asnumpy() for a in g] for g in groups), results)
            else:
                results = [a.zeros_like() for a in written]
                method(*groups, results)
            for a, request, result in zip(written, requests, results):
                self.assign(a, request, result)

        def forward(self, is_train: bool, req: Sequence[str], in_data: list[Any], out_data: list[Any], aux: list[Any]) -> None:
            self._call(op.forward, [in_data], out_data, req)

        def backward(self, req: Sequence[str], out_grad: list[Any], in_data: list[Any], out_data: list[Any],
                     in_grad: list[Any], aux: list[Any]) -> None:
            self._call(op.backward, [out_grad, in_data, out_data], in_grad, req)

    class Property(CustomOpProp):
        def __init__(self) -> None:
            super().__init__(op.need_top_grad())

        def list_arguments(self) -> list[str]:
            return op.list_arguments()

        def list_outputs(self) -> list[str]:
            return op.list_outputs()

        def infer_shape(self, in_shape: list[list[int]]) -> Any:
            return (*op.infer_shape(in_shape), [])

        def declare_backward_dependency(self, out_grad: list[int], in_data: list[int], out_data: list[int]) -> list[int]:
            if isinstance(op, NDArrayOp):
                return op.declare_backward_dependency(out_grad, in_data, out_data)
            return super().declare_backward_dependency(out_grad, in_data, out_data)

        def create_operator(self, ctx: str, in_shapes: list[Any], in_dtypes: list[Any]) -> CustomOp:
            return Runs()

    Runs.__name__ = Runs.__qualname__ = type(op).__name__
    return Property
