"""dot and batch_dot: products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....dtype import is_half
from ....errors import ShapeError
from ...cpu.c_moving import ReboundKernel
from ...cpu.errstate import no_fp_warnings
from ...declare.composite import TracedValue, ops, vjp_rule
from ...declare.operator_property import Shapes
from ...declare.property_op import register_operator
from ...kernel import InTurn, KernelFunction
from ...op import NumpyFunction, Product, Req, Reqs, Shape, Spec, Specs
from .gemm import Matrix, Products, bind_product, in_turn, matrix, product

SMALL = 1 << 16  # multiplications, a microsecond of BLAS; below, making views and pieces costs more than the product


class MatrixProduct(Products):
    """Base class: a product of two arrays, each of which may be transposed."""

    transpose_a: bool = False
    transpose_b: bool = False
    forward_stype: str | None = None
    argument_names = ("lhs", "rhs")
    backward_reads = ("dy", "x")

    def sizes(self, a: Shape, b: Shape) -> tuple[int, int, int, int]:
        """Return batch, m, n, k of the product [batch, m, k] @ [batch, k, n]."""
        raise NotImplementedError(self.name)

    def _operands(self, sizes: tuple[int, int, int, int], lhs: int, rhs: int) -> tuple[Matrix, Matrix]:
        """Return arrays `lhs` and `rhs` as the matrices [batch, m, k] and [batch, k, n]."""
        (batch, m, n, k), ta, tb = sizes, self.transpose_a, self.transpose_b
        return (matrix(lhs, (batch, k, m) if ta else (batch, m, k), ta), matrix(rhs, (batch, n, k) if tb else (batch, k, n), tb))

    def products(self, shapes: Sequence[Shape]) -> tuple[Product, ...]:
        batch, m, n, k = self.sizes(*shapes[:2])
        return (batch, m, n, k), (batch, m, k, n), (batch, k, n, m)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        sizes = self.sizes(ins[0].shape, ins[1].shape)
        a, b = self._operands(sizes, 0, 1)
        out = matrix(2, sizes[:3], False)
        if target == "cpu":
            return ReboundKernel(lambda inputs, outputs: bind_product(a, b, out, reqs[0], [*inputs, *outputs]))
        multiply = product(a, b, out, reqs[0], target)
        return lambda run, inputs, outputs: multiply(run, [*inputs, *outputs])

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        sizes = self.sizes(ins[1].shape, ins[2].shape)
        (a, b), (da, db), dy = self._operands(sizes, 1, 2), self._operands(sizes, 3, 4), matrix(0, sizes[:3], False)
        products = [(*p, req) for p, req in zip(((dy, _turn(b), da), (_turn(a), dy, db)), reqs) if req != Req.NULL]
        if target == "cpu":
            return ReboundKernel(lambda inputs, outputs: InTurn([bind_product(*p, [*inputs, *outputs]) for p in products]))
        compute = in_turn([product(*p, target) for p in products])
        return lambda run, inputs, outputs: compute(run, [*inputs, *outputs])


def _turn(m: Matrix) -> Matrix:
    i, (b, r, c), (sb, sr, sc) = m
    return i, (b, c, r), (sb, sc, sr)


@register_operator("dot")
class Dot(MatrixProduct):
    """Sum over the last axis of lhs and the first of rhs; two vectors give shape (1,).

    transpose_a sums over the first axis of lhs instead, transpose_b over the last of rhs.
    """

    def sizes(self, a: Shape, b: Shape) -> tuple[int, int, int, int]:
        ta, tb = self._turned(a, b)
        m = math.prod(a[1:] if ta else a[:-1])
        n = math.prod(b[:-1] if tb else b[1:])
        return 1, m, n, a[0] if ta else a[-1]

    def _is_small(self, ins: Specs, out: Spec) -> bool:
        """Return True for matrices of one dtype, small enough to leave the product to one np.dot."""
        same = len({s.dtype for s in (*ins, out)}) == 1 and not is_half(out.dtype)
        few = out.size * ins[0].shape[0 if self.transpose_a else -1] <= SMALL
        return same and few and len(ins[0].shape) == len(ins[1].shape) == 2

    def numpy_function(self, ins: Specs, out: Spec) -> NumpyFunction | None:
        if out.dtype.char not in "fd" or not self._is_small(ins, out) or not ins[0].size:
            return None
        dot = np.dot
        functions = {(False, False): dot, (True, False): lambda a, b: dot(a.T, b), (False, True): lambda a, b: dot(a, b.T),
                     (True, True): lambda a, b: dot(a.T, b.T)}
        return functions[self.transpose_a, self.transpose_b], (0, 1)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if target != "cpu" or reqs[0] != Req.WRITE or not self._is_small(ins, outs[0]):
            return super().forward_kernel(ins, outs, reqs, target, train)
        ta, tb = self.transpose_a, self.transpose_b

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            a, b = inputs
            no_fp_warnings(np.dot, a.T if ta else a, b.T if tb else b, outputs[0])

        return kernel

    def _turned(self, a: Shape, b: Shape) -> tuple[bool, bool]:
        """Return the flags that say if lhs and rhs are transposed; a vector never is."""
        return self.transpose_a and len(a) > 1, self.transpose_b and len(b) > 1

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        a, b = in_shape
        if a is None or b is None:
            return list(in_shape), list(out_shape), []
        if min(len(a), len(b)) < 1:
            raise ShapeError(f"{self.name}: lhs {a} and rhs {b} need at least one axis each.")
        ta, tb = self._turned(a, b)
        ka, kb = (a[0] if ta else a[-1]), (b[-1] if tb else b[0])
        if -1 not in (ka, kb) and ka != kb:
            hint = ""
            if len(a) == len(b) == 2 and ka == (b[0] if tb else b[1]):
                hint = f" rhs looks transposed; try transpose_b={not self.transpose_b}."
            raise ShapeError(f"{self.name}: inner sizes differ: lhs {a} is summed over {ka}, rhs {b} over {kb}.{hint}")
        k = max(ka, kb)
        a = (k, *a[1:]) if ta else (*a[:-1], k)
        b = (*b[:-1], k) if tb else (k, *b[1:])
        y = (*(a[1:] if ta else a[:-1]), *(b[:-1] if tb else b[1:])) or (1,)
        return [a, b], [y], []


@register_operator("batch_dot")
class BatchDot(MatrixProduct):
    """y[i] = lhs[i] · rhs[i]: [..., m, k] and [..., k, n] give [..., m, n]."""

    def sizes(self, a: Shape, b: Shape) -> tuple[int, int, int, int]:
        m, k = (a[-1], a[-2]) if self.transpose_a else (a[-2], a[-1])
        return math.prod(a[:-2]), m, b[-2] if self.transpose_b else b[-1], k

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        a, b = in_shape
        for what, s in zip(("lhs", "rhs"), in_shape):
            if s is not None and len(s) < 3:
                raise ShapeError(f"{self.name}: {what} {s} must have at least three axes, [batch, rows, columns].")
        if a is None or b is None:
            return list(in_shape), list(out_shape), []
        (m, ka), (kb, n) = a[-2:][::-1 if self.transpose_a else 1], b[-2:][::-1 if self.transpose_b else 1]
        if len(a) != len(b) or any(-1 not in p and p[0] != p[1] for p in zip((*a[:-2], ka), (*b[:-2], kb))):
            raise ShapeError(f"{self.name}: lhs {a} and rhs {b} must agree on the batch, and on the inner size: "
                             f"{ka} and {kb}.")
        lead = tuple(max(p) for p in zip(a[:-2], b[:-2]))
        k = max(ka, kb)
        a = (*lead, k, m) if self.transpose_a else (*lead, m, k)
        b = (*lead, n, k) if self.transpose_b else (*lead, k, n)
        return [a, b], [(*lead, m, n)], []


@vjp_rule("batch_dot")
def _(op: Any, p: Any, dy: TracedValue, a: TracedValue, b: TracedValue) -> Sequence[TracedValue]:
    ta, tb = p.transpose_a, p.transpose_b
    dot = ops.batch_dot
    da = dot(b, dy, transpose_a=tb, transpose_b=True) if ta else dot(dy, b, transpose_b=not tb)
    db = dot(dy, a, transpose_a=True, transpose_b=ta) if tb else dot(a, dy, transpose_a=not ta)
    return da, db
