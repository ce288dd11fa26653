"""sort, argsort, topk along an axis. Equal elements keep their order; NaN counts as the largest value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ....dtype import is_half
from ....errors import DTypeError, ShapeError
from ...cpu import c_order
from ...cpu.c_moving import ReboundKernel
from ...cpu.c_team import Phases
from ...declare.operator_property import Dtypes, KnownShapes, OperatorProperty, Shapes, assign, gpu_module
from ...declare.property_op import register_operator
from ...gpu import copy
from ...ir.strided import layout
from ...kernel import NOTHING, KernelFunction
from ...op import Req, Reqs, Spec, Specs
from ...params import Param, parse_value
from .data_movement import convert
from .pick import pick_kernel, put_kernel
from .reshape import lines_of

INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)
_EXACT = {"float16": 2**11, "bfloat16": 2**8, "float32": 2**24, "uint8": 2**8, "int8": 2**7}  # integers up to this are exact

Choices = Literal["value", "indices", "mask", "both"]


def order_of(x: np.ndarray, down: bool, k: int) -> np.ndarray:
    """Return the indices of the first k elements of x [outer, n, inner] in sorted order along n, int64 [outer, k, inner]."""
    if not down:
        return np.argsort(x, axis=1, kind="stable")[:, :k]
    backwards = np.argsort(x[:, ::-1], axis=1, kind="stable")[:, ::-1][:, :k]  # keeps the order of equal elements
    return x.shape[1] - 1 - backwards


class Ordered(OperatorProperty):
    """Base class: each line along an axis in sorted order. ret_typ: values, indices, both or a mask; dtype: of indices."""

    ret_typ, dtype = "indices", np.dtype(np.float32)  # not annotated: parameters of some subclasses alone
    axis: Any = -1  # int or None; None is not the default, so no parameter type fits
    is_ascend: bool = True

    def __init__(self, **params: Any):
        super().__init__(**params)
        self.axis = None if self.axis is None else parse_value(self.name, Param("axis", "int"), self.axis)

    def count(self, n: int) -> int:
        """Return the number of elements that are returned out of n."""
        return n

    @property
    def output_names(self) -> tuple[str, ...]:
        return ("output0", "output1") if self.ret_typ in ("value", "both") else ("output",)

    @property
    def visible_outputs(self) -> int:
        return 2 if self.ret_typ == "both" else 1

    @property
    def gradient_arguments(self) -> tuple[int, ...]:
        return (0,) if self.ret_typ in ("value", "both") else ()

    @property
    def backward_reads(self) -> tuple[str, ...]:
        return ("dy0", "y1") if len(self.output_names) > 1 else ()

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        x, what = in_type[0], self.ret_typ
        if what == "indices":
            return [x], [self.dtype], []
        x = x or out_type[0]
        if what == "mask":
            return [x], [x], []
        return [x], [x, self.dtype if what == "both" else INT64], []

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        x = in_shape[0]
        _, n, _ = lines_of(self.name, self.axis, x)
        k = self.count(n)
        held = _EXACT.get(self.dtype.name)
        if self.ret_typ in ("indices", "both") and held is not None and n > held:
            raise DTypeError(f"{self.name}: {self.dtype} cannot hold every index below {n}. Use dtype='int32'.")
        if self.ret_typ == "mask":
            return [x]
        y = (k,) if self.axis is None else tuple(k if i == self.axis % len(x) else d for i, d in enumerate(x))
        return [y] * len(self.output_names)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        lines, what, down = lines_of(self.name, self.axis, ins[0].shape), self.ret_typ, not self.is_ascend
        k = self.count(lines[1])
        if not math.prod(lines):
            return NOTHING
        if target == "gpu":
            return self._gpu(lines, k, what, down, outs, reqs)
        wide = np.dtype(np.float32) if is_half(ins[0].dtype) else ins[0].dtype
        in_c, writes = c_order.orders(wide, lines), [r in (Req.WRITE, Req.INPLACE) for r in reqs]
        own = [in_c and w for w in writes]  # the outputs that C writes
        own[0] &= what == "indices" or wide == ins[0].dtype == outs[0].dtype
        if what != "mask":
            own[-1] &= outs[-1].dtype.name in c_order.KINDS
        rest = [i for i, r in enumerate(reqs) if r != Req.NULL and not own[i]]
        if rest and what != "mask":  # which follow from the places
            own[-1] = False
            rest = [i for i, r in enumerate(reqs) if r != Req.NULL and not own[i]]
        kind = c_order.KINDS[outs[-1].dtype.name] if own[-1] and what != "mask" else c_order.KINDS["int64"]
        order = c_order.ordered(wide, lines, k, down, kind) if in_c else None

        def bind(x: np.ndarray, outputs: Sequence[Any], found: np.ndarray | None) -> Phases:
            assert order is not None
            if what == "mask":
                return order(x, None, found, outputs[0] if own[0] else None)
            return order(x, outputs[0] if own[0] and what != "indices" else None, outputs[-1] if own[-1] else found, None)

        if order is not None and not rest and wide == ins[0].dtype:
            return ReboundKernel(lambda inputs, outputs: bind(inputs[0], outputs, None))

        def places(run: Any, x: np.ndarray, outputs: Sequence[Any]) -> Any:
            if order is None:
                return order_of(x, down, k)
            found = run.workspace((lines[0], k, lines[2]), INT64) if rest else None
            bind(x, outputs, found)(run)
            return found

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            x = inputs[0].reshape(lines)
            found = places(run, x.astype(wide, copy=False), outputs)
            for i in rest:
                if what == "mask":
                    chosen = np.zeros(lines, x.dtype)
                    np.put_along_axis(chosen, found, 1, axis=1)
                    assign(outputs[0].reshape(lines), reqs[0], chosen)
                elif i == 0 and what != "indices":
                    assign(outputs[0].reshape(found.shape), reqs[0], np.take_along_axis(x, found, axis=1))
                else:
                    convert(found, outputs[-1].reshape(found.shape), reqs[-1] == Req.ADD)

        return kernel

    def _gpu(self, lines: tuple[int, int, int], k: int, what: str, down: bool, outs: Specs, reqs: Reqs) -> KernelFunction:
        order = gpu_module("tensor.triton_order")
        outer, n, inner = lines
        dense = layout(outs[-1].shape)
        add = copy.plan(dense, dense, True)
        if what == "mask":

            def choose(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
                if reqs[0] == Req.NULL:
                    return
                chosen = outputs[0] if reqs[0] != Req.ADD else run.workspace(outs[0].shape, outs[0].dtype)
                order.rank(run, lines, k, inputs[0], chosen, down=down, mask=True)
                if reqs[0] == Req.ADD:
                    add(run, chosen, outputs[0])

            return choose
        read = [Spec((outer, n, inner), outs[0].dtype), Spec((outer, k, inner), INT64)]
        take = pick_kernel((outer, n, k, inner, 1), "clip", read, outs[:1], reqs[:1], "gpu", self.name)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            direct = reqs[-1] in (Req.WRITE, Req.INPLACE)
            found = outputs[-1] if direct else run.workspace((outer, k, inner), INT64)
            order.rank(run, lines, k, inputs[0], found, down=down)
            if what != "indices":
                take(run, [inputs[0], found], outputs[:1])
            if reqs[-1] == Req.ADD:
                add(run, found, outputs[-1])

        return kernel

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        outer, n, inner = lines_of(self.name, self.axis, outs[0].shape)
        return put_kernel((outer, n, self.count(n), inner, 1), "clip", ins, outs, reqs, target, self.name)


@register_operator("sort")
class Sort(Ordered):
    """data sorted along axis. axis None: sorted and flattened."""

    ret_typ = "value"


@register_operator("argsort")
class Argsort(Ordered):
    """The indices that sort data along axis. axis None: indices into the flattened data. dtype: of the indices."""

    axis: Any = -1
    is_ascend: bool = True
    dtype: np.dtype = np.dtype(np.float32)


@register_operator("topk")
class TopK(Ordered):
    """The k largest along axis (with is_ascend, the smallest), in order. axis None: of all elements. k < 1: all elements.

    ret_typ: "value"; "indices", in dtype; "both"; or "mask", 1 at the selected elements, else 0.
    Only values have a derivative.
    """

    axis: Any = -1
    k: int = 1
    ret_typ: Choices = "indices"
    is_ascend: bool = False
    dtype: np.dtype = np.dtype(np.float32)

    def count(self, n: int) -> int:
        if self.k > n:
            raise ShapeError(f"{self.name}: k={self.k} is more than the {n} elements along the axis.")
        return self.k if self.k > 0 else n
