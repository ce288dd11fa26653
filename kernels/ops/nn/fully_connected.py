"""FullyConnected: a matrix product with a bias."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ....dtype import is_half
from ....errors import ParameterError, ShapeError
from ...cpu.c_moving import ReboundKernel
from ...cpu.c_team import Phases
from ...cpu.c_template import Template
from ...declare.operator_property import Shapes, assign, gpu_module, upcast
from ...declare.property_op import register_operator
from ...gpu.sums import sum_into
from ...kernel import BoundKernel, InTurn, KernelFunction
from ...op import Product, Req, Reqs, Shape, Spec, Specs, merge_shapes
from ..linalg import c_narrow, c_product
from ..linalg.gemm import Products, gemm, in_turn, matrix, product, sum_rows, together, view

if TYPE_CHECKING:
    from ...gpu.epilogue import Epilogue


@register_operator("FullyConnected")
class FullyConnected(Products):
    """y = x · weightᵀ + bias.

    data:    [n, ...], seen as [n, k]; with flatten=False [..., k].
    weight:  [num_hidden, k];  bias: [num_hidden], absent with no_bias.
    Returns: [n, num_hidden]; with flatten=False [..., num_hidden].
    Half precision is summed in float32, with the bias, and rounded once.
    """

    epilogue_block = 64  # a product of fewer rows is slow
    channels_last: ClassVar[bool] = True

    num_hidden: int
    no_bias: bool = False
    flatten: bool = True
    backward_reads = ("dy0", "x0", "x1")
    backward_inplace = (("x0", 0),)

    def validate(self) -> None:
        if self.num_hidden < 1:
            raise ParameterError(f"{self.name}: num_hidden={self.num_hidden} must be at least 1.")

    @property
    def argument_names(self) -> tuple[str, ...]:
        return ("data", "weight") if self.no_bias else ("data", "weight", "bias")

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x, w, y, h = in_shape[0], in_shape[1], out_shape[0], self.num_hidden
        if x is None and (y is None or self.flatten):
            return list(in_shape), [y], []
        if x is not None and not x:
            raise ShapeError(f"{self.name}: data has no axes. It needs at least one.")
        k = -1
        if x is not None:
            k = (-1 if -1 in x[1:] else math.prod(x[1:])) if self.flatten else x[-1]
        if w is not None and (len(w) != 2 or w[0] not in (-1, h) or (-1 not in (w[1], k) and w[1] != k)):
            raise ShapeError(f"{self.name}: data {x} and weight {w} disagree. For num_hidden={h} the weight must be "
                             f"({h}, {k if k >= 0 else 'inputs per sample'}).")
        if not self.no_bias and in_shape[2] is not None and in_shape[2] not in ((h,), (-1,)):
            raise ShapeError(f"{self.name}: bias {in_shape[2]} must be ({h},) for num_hidden={h}.")
        if k < 0 and w is not None:
            k = w[1]
        if x is not None:
            y = merge_shapes(self.name, "the output", y, (x[0], h) if self.flatten else (*x[:-1], h))
            if self.flatten:
                x = (y[0], *x[1:])  # type: ignore[index]
                if len(x) == 2:
                    x = (x[0], k)
            else:
                x = (*y[:-1], k)  # type: ignore[index]
        elif y is not None and not self.flatten:
            x = (*y[:-1], k)
        return [x, (h, k), *([] if self.no_bias else [(h,)])], [y], []

    def _sizes(self, x: Shape) -> tuple[int, int]:
        """Return the number of samples and of inputs per sample."""
        k = math.prod(x[1:]) if self.flatten else x[-1]
        return (x[0] if self.flatten else math.prod(x[:-1])), k

    def products(self, shapes: Sequence[Shape]) -> tuple[Product, ...]:
        (n, k), h = self._sizes(shapes[0]), self.num_hidden
        return (1, n, h, k), (1, n, k, h), (1, h, k, n)

    def c_files(self, ins: Specs, train: bool) -> Sequence[Template]:
        if ins[0].dtype != np.float32:
            return ()
        forward, *backward = self.products([s.shape for s in ins])
        bias = c_narrow.c_files(forward[1], forward[2]) if train and not self.no_bias else []
        return [f for p in (forward, *(backward if train else ())) for f in c_product.c_files(*p)] + bias

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        (n, k), h, bias, req = self._sizes(ins[0].shape), self.num_hidden, not self.no_bias, reqs[0]
        x, w, y = matrix(0, (1, n, k), False), matrix(1, (1, h, k), True), matrix(-1, (1, n, h), False)
        if target == "gpu":
            whole = self.gpu_kernel(ins, outs[0], req)
            return lambda run, inputs, outputs: whole(run, inputs, outputs[0])

        def bind(inputs: Sequence[Any], outputs: Sequence[Any], in_graph: bool = True) -> BoundKernel:
            arrays = [*inputs, outputs[0]]
            a, b, out = view(arrays, x), view(arrays, w), view(arrays, y)
            if bias and is_half(out.dtype):
                return _rounded_once(a, b, inputs[2], out, req)
            return gemm(a, b, out, req == Req.ADD, inputs[2] if bias else None, in_graph=in_graph)

        def share(inputs: Sequence[Any], outputs: Sequence[Any], made: dict[Any, Any]) -> BoundKernel:
            arrays = [*inputs, outputs[0]]
            a, b, out = view(arrays, x), view(arrays, w), view(arrays, y)
            shared = c_product.sharing(a, b, out, out, req == Req.ADD, inputs[2] if bias else None, made)
            return bind(inputs, outputs) if shared is None else Phases(*shared)

        return ReboundKernel(bind, partial(bind, in_graph=False), share=share, shares=1)

    def in_pieces(self, ins: Specs, out: Spec) -> c_product.Forward | None:
        (n, k), h = self._sizes(ins[0].shape), self.num_hidden
        same = all(s.dtype == np.float32 for s in (*ins, out))
        return c_product.Forward(n, h, k, not self.no_bias) if same and c_product.Forward.serves(n, h, k) else None

    def gpu_kernel(self, ins: Specs, out: Spec, req: Req, epilogue: Epilogue | None = None) -> KernelFunction:
        """Return the GPU function f(run, inputs, output). The arrays of an Epilogue (gpu/epilogue.py) follow the inputs."""
        (n, k), h, bias, gemm = self._sizes(ins[0].shape), self.num_hidden, not self.no_bias, gpu_module("linalg.triton_gemm")
        x, w, y = matrix(0, (1, n, k), False), matrix(1, (1, h, k), True), matrix(-1, (1, n, h), False)
        return lambda run, inputs, output: gemm.gemm(
            run, inputs[0], x[1:], inputs[1], w[1:], output, y[1:], bias=inputs[2] if bias else None,
            add=req == Req.ADD, epilogue=epilogue, others=inputs[2 + bias:])

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        (n, k), h = self._sizes(ins[1].shape), self.num_hidden
        dweight = (matrix(0, (1, n, h), True), matrix(1, (1, n, k), False), matrix(4, (1, h, k), False), reqs[1])
        dx = (matrix(0, (1, n, h), False), matrix(2, (1, h, k), False), matrix(3, (1, n, k), False), reqs[0])
        bias = not self.no_bias and reqs[2] != Req.NULL
        products = [p for p in (dweight, dx) if p[3] != Req.NULL]  # dx last, since it may share memory with x
        if target == "gpu":
            steps: list[Any] = [product(*p, target) for p in products]
            if bias:
                add = reqs[2] == Req.ADD
                steps.insert(0, lambda run, arrays: sum_into(run, arrays[0], (n, h), (1, h), arrays[5], add=add))
            compute = in_turn(steps)
            return lambda run, inputs, outputs: compute(run, [*inputs, *outputs])

        def bind(inputs: Sequence[Any], outputs: Sequence[Any], in_graph: bool = True, made: dict[Any, Any] | None = None
                 ) -> BoundKernel:
            arrays = [*inputs, *outputs]
            given = [(view(arrays, a), view(arrays, b), view(arrays, out), req == Req.ADD) for a, b, out, req in products]
            apart = outputs[0] is None or not np.may_share_memory(outputs[0], inputs[1])
            last = None
            if made is not None and dx in products:
                a, b, out, add = given[-1]
                last = c_product.sharing(a, b, out, out, add, None, made)
                given = given if last is None else given[:-1]
            calls: list[BoundKernel] = [together(g, in_graph=in_graph) for g in ([given] if apart else [[p] for p in given]) if g]
            calls += [] if last is None else [Phases(*last)]
            if bias:  # in C beside products in C: what is C alone is prepared once
                beside = in_graph or c_product.in_c(1, n, h, k)
                calls.insert(0, sum_rows(arrays[0].reshape(n, h), arrays[5], reqs[2], in_graph=beside))
            return InTurn(calls)

        return ReboundKernel(bind, partial(bind, in_graph=False),
                             share=lambda inputs, outputs, made: bind(inputs, outputs, made=made), shares=2)


def _rounded_once(a: np.ndarray, b: np.ndarray, bias: np.ndarray, out: np.ndarray, req: Req) -> BoundKernel:
    """out [m, n] = (or +=) a [m, k] @ b [k, n] + bias [n] in half precision, rounded once, after the bias."""

    def call(run: Any) -> None:
        total = np.empty(out.shape, np.float32)
        gemm(upcast(a), upcast(b), total)(run)
        np.add(total, upcast(bias), out=total)
        assign(out, req, total)

    return call
