"""_points: bilinear interpolation of planes at points, with derivatives; shared by samplers, RoI and deformable layers.

A point is interpolated between the four elements around it; elements outside the plane count as zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ....errors import ShapeError
from ...declare.index_kernel import At, IndexedArray, index_kernel
from ...declare.operator_property import KnownShapes, OperatorProperty, Shapes, assign, gpu_module, upcast
from ...declare.property_op import register_operator
from ...ir.expr import Expr
from ...ir.lang import floor, maximum, minimum, where
from ...kernel import KernelFunction
from ...op import Req, Reqs, Specs


def _corners(y: np.ndarray, x: np.ndarray, h: int, w: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray,
                                                                               np.ndarray]]:
    """Yield for each of the four elements around points [P]: (index, inside, weight, its derivative by y, and by x)."""
    y, x = np.clip(np.nan_to_num(y, nan=-2.0), -2, h + 1), np.clip(np.nan_to_num(x, nan=-2.0), -2, w + 1)
    top, left = np.floor(y), np.floor(x)
    fy, fx = y - top, x - left
    top, left = top.astype(np.int64), left.astype(np.int64)
    for row, wy, sy in ((top, 1 - fy, -1.0), (top + 1, fy, 1.0)):
        for col, wx, sx in ((left, 1 - fx, -1.0), (left + 1, fx, 1.0)):
            inside = (row >= 0) & (row < h) & (col >= 0) & (col < w)
            yield np.where(inside, row * w + col, 0), inside, wy * wx, sy * wx, sx * wy


def _read(at: At, data: IndexedArray, y: IndexedArray, x: IndexedArray, image: IndexedArray) -> Expr:
    """Return an element of the planes of an image at a point."""
    g, c, p = at
    (n, _, h, w), i = data.sizes, image[g].astype("int64")
    there = (i >= 0) & (i < n)
    wide = "float64" if data.dtype == np.float64 else "float32"
    down, right = (maximum(minimum(where(v == v, v, -2.0), d + 1), -2) for v, d in ((y[g, p], h), (x[g, p], w)))
    down, right = down.astype(wide), right.astype(wide)
    top, left = floor(down), floor(right)
    below, beside = down - top, right - left
    total: Any = 0.0
    for row, wy in ((top.astype("int64"), 1 - below), (top.astype("int64") + 1, below)):
        for col, wx in ((left.astype("int64"), 1 - beside), (left.astype("int64") + 1, beside)):
            inside = there & (row >= 0) & (row < h) & (col >= 0) & (col < w)
            total = total + data.at(i, c, row, col, inside=inside) * where(inside, wy * wx, 0)
    return total


def _slopes(dy: np.ndarray, data: np.ndarray, y: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the derivatives by y and x [P], from dy [C, P]."""
    flat = data.reshape(len(data), -1)
    down, right = np.zeros(len(y), data.dtype), np.zeros(len(y), data.dtype)
    for place, inside, _, by_y, by_x in _corners(y, x, *data.shape[1:]):
        value = np.where(inside, np.einsum("cp,cp->p", dy, flat[:, place]), 0)
        down += value * by_y
        right += value * by_x
    return down, right


def _spread(dy: np.ndarray, y: np.ndarray, x: np.ndarray, plane: np.ndarray) -> None:
    """Add dy [C, P] to plane [C, H, W] at the points, to the four elements around each, in the order of the points."""
    flat = plane.reshape(len(plane), -1)
    parts = list(_corners(y, x, *plane.shape[1:]))
    place, keep = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    weight = np.concatenate([part[2] for part in parts]).astype(plane.dtype)
    order = np.argsort(np.where(keep, place, -1), kind="stable")[np.count_nonzero(~keep):]
    if not len(order):
        return
    to = place[order]
    first = np.flatnonzero(np.diff(to, prepend=-1))
    flat[:, to[first]] += np.add.reduceat(dy[:, order % len(y)] * weight[order], first, axis=1)


@register_operator("_points")
class Points(OperatorProperty):
    """Planes at points: output [G, C, P] is data[image[g]] interpolated at (y, x).

    data: [N, C, H, W]; y, x: [G, P], in elements from the centre of the first; image: [G], index into data; one out of range
    gives zeros. Elements outside the plane count as zero.
    """

    argument_names = ("data", "y", "x", "image")
    gradient_arguments = (0, 1, 2)
    backward_reads = ("dy", "x")
    own_dtypes = True

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        data, y, x, image = in_shape
        if len(data) != 4 or len(y) != 2 or x != y or image != y[:1]:
            raise ShapeError(f"{self.name}: data {data} must be [n, c, h, w], y {y} and x {x} [groups, points], "
                             f"image {image} [groups].")
        return [(y[0], data[1], y[1])]

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if target == "gpu":
            module = gpu_module("vision.triton_points")
            return lambda run, inputs, outputs: module.read(run, *inputs, outputs[0], add=reqs[0] == Req.ADD)
        return index_kernel(_read, ins, outs, reqs, target, self.name)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if target == "gpu":
            module = gpu_module("vision.triton_points")
            return lambda run, inputs, outputs: module.back(run, *inputs, outputs, [r == Req.ADD for r in reqs])

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            dy, data, y, x, image = inputs

            def spread(i: int) -> None:
                plane = np.zeros(data.shape[1:], upcast(data[:0]).dtype)
                for g in np.flatnonzero(image.astype(np.int64) == i):
                    _spread(upcast(dy[g]), upcast(y[g]), upcast(x[g]), plane)
                assign(outputs[0][i], reqs[0], plane)

            def slope(g: int) -> None:
                i = int(image[g])
                made = (_slopes(*(upcast(a) for a in (dy[g], data[i], y[g], x[g]))) if 0 <= i < len(data) else (0, 0))
                for out, req, values in zip(outputs[1:], reqs[1:], made):
                    if req != Req.NULL:
                        assign(out[g], req, values)

            if reqs[0] != Req.NULL:
                run.parallel(spread, len(data))
            if reqs[1] != Req.NULL or reqs[2] != Req.NULL:
                run.parallel(slope, len(image))

        return kernel
