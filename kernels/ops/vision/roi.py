"""ROIPooling, ROIAlign and PSROIPooling: regions of any size pooled to grids of one size.

A region is [image, left, top, right, bottom], in pixels of the image; spatial_scale converts it to elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from ....errors import ParameterError, ShapeError
from ...declare.host_op import HostOp
from ...declare.indexed import indexed
from ...declare.operator_property import KnownShapes, OperatorProperty, Shapes, assign, gpu_module, upcast
from ...declare.property_op import register_operator
from ...gpu import copy
from ...ir.lang import ceil, floor, maximum, minimum, trunc, where
from ...ir.loops import sum as add_up
from ...ir.strided import layout
from ...kernel import KernelFunction
from ...op import Req, Reqs, Shape, Specs
from . import c_roi


class Regions(OperatorProperty):
    """Base class: data [n, c, h, w] and rois [r, numbers of a region]; only data has a derivative."""

    pooled_size: tuple
    spatial_scale: float
    region: ClassVar[str] = "image, left, top, right, bottom"  # its numbers
    argument_names = ("data", "rois")
    gradient_arguments = (0,)

    def validate(self) -> None:
        if len(self.pooled_size) != 2 or min(self.pooled_size) < 1:
            raise ParameterError(f"{self.name}: pooled_size={self.pooled_size} must be (height, width), both at least 1.")
        if self.spatial_scale <= 0:
            raise ParameterError(f"{self.name}: spatial_scale={self.spatial_scale} must be above 0.")

    def channels(self, c: int) -> int:
        """Return the number of output channels."""
        return c

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        data, rois = in_shape
        numbers = len(self.region.split(","))
        if len(data) != 4 or len(rois) != 2 or rois[1] != numbers:
            raise ShapeError(f"{self.name}: data {data} must be [n, c, h, w], and rois {rois} [regions, {numbers}]: "
                             f"{self.region}.")
        y = (rois[0], self.channels(data[1]), *self.pooled_size)
        return [y] * len(self.output_names)


def _edges(first: np.ndarray, last: np.ndarray, bins: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return start and end of the bins of regions first … last [r], [r, bins] each, clipped to 0 … size."""
    step = np.maximum(last - first + 1, 1).astype(np.float32) / np.float32(bins)
    at = np.arange(bins, dtype=np.float32)
    begin = np.floor(at * step[:, None]).astype(np.int64) + first[:, None]
    end = np.ceil((at + 1) * step[:, None]).astype(np.int64) + first[:, None]
    return np.clip(begin, 0, size), np.clip(end, 0, size)


def round_away(x: np.ndarray) -> np.ndarray:
    """Round halves away from zero to int64. NaN and values far out of range become -1 or 2³⁰."""
    x = np.nan_to_num(np.clip(x, -(2.0**30), 2.0**30), nan=-1.0)
    return (np.sign(x) * np.floor(np.abs(x) + 0.5)).astype(np.int64)


@register_operator("ROIPooling")
class ROIPooling(Regions):
    """The largest element in each of pooled_size bins of each region, which is rounded to elements, the last one included.

    data: [n, c, h, w]; rois: [r, 5], image first; a region with an invalid image index and an empty bin give zeros.
    Returns: [r, c, *pooled_size]. Source: Girshick 2015, arXiv:1504.08083.
    """

    output_names = ("output", "maxidx")
    backward_reads = ("dy0", "x1", "y1")
    visible_outputs = 1
    own_dtypes = True
    output_dtypes = (None, np.dtype(np.int32))

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        scale = np.float32(self.spatial_scale)
        (n, c, h, w), (ph, pw) = ins[0].shape, self.pooled_size
        if target == "gpu":
            module = gpu_module("vision.triton_roi")
            return lambda run, inputs, outputs: module.pool(run, *inputs, *outputs, float(scale), [r == Req.ADD for r in reqs])
        if n and h and w and Req.ADD not in reqs and c_roi.in_c(np.dtype(ins[0].dtype), outs[0].size):

            def in_c(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
                data, rois = inputs
                best, place = (None if req == Req.NULL else out for out, req in zip(outputs, reqs))
                c_roi.pool(run, data, rois, float(scale), (ph, pw), best, place)

            return in_c

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            data, rois = inputs[0], inputs[1].astype(np.float32)
            left, top, right, bottom = (round_away(rois[:, i] * scale) for i in range(1, 5))
            rows, columns = _edges(top, bottom, ph, h), _edges(left, right, pw, w)
            image = rois[:, 0].astype(np.int64)

            def one(r: int) -> None:
                best, place = np.zeros((c, ph, pw), data.dtype), np.full((c, ph, pw), -1, np.int32)
                if 0 <= image[r] < n:
                    for i in range(ph):
                        for j in range(pw):
                            y, x = rows[0][r, i], columns[0][r, j]
                            part = data[image[r], :, y:rows[1][r, i], x:columns[1][r, j]]
                            if part.size:
                                flat = part.reshape(c, -1)
                                at = flat.argmax(1)
                                best[:, i, j] = np.take_along_axis(flat, at[:, None], 1)[:, 0]
                                place[:, i, j] = (at // part.shape[2] + y) * w + at % part.shape[2] + x
                for out, req, values in zip(outputs, reqs, (best, place)):
                    if req != Req.NULL:
                        assign(out[r], req, values)

            run.parallel(one, len(rois))

        return kernel

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        n, c, h, w = outs[0].shape
        if target == "gpu":
            module, dense, add = gpu_module("vision.triton_roi"), layout(outs[0].shape), reqs[0] == Req.ADD
            finish = copy.plan(dense, dense, add) if outs[0].dtype.itemsize == 2 else None
            return lambda run, inputs, outputs: module.unpool(run, *inputs, outputs[0], finish, add=add)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            dy, rois, place = inputs
            image, channel = rois[:, 0].astype(np.int64), np.arange(c)[:, None]

            def one(i: int) -> None:
                plane = np.zeros((c, h * w), upcast(dy[:0]).dtype)
                for r in np.flatnonzero(image == i):
                    at, values = place[r].reshape(c, -1), upcast(dy[r]).reshape(c, -1)
                    np.add.at(plane, (channel, np.maximum(at, 0)), np.where(at >= 0, values, 0))
                assign(outputs[0][i], reqs[0], plane.reshape(c, h, w))

            run.parallel(one, n)

        return kernel


class WeightedRegions(HostOp):
    """Base class: a bin is the sum of the elements times a weight of their row and one of their column.

    groups: rows and columns of channel groups; a bin reads the group at its place. (1, 1): every bin reads all channels.
    """

    argument_names = ("data", "rois")
    gradient_arguments = (0,)
    backward_reads = ("dy0", "x")

    @property
    def bins(self) -> tuple[int, int]:
        """The rows and columns of bins."""
        raise NotImplementedError(self.name)

    @property
    def groups(self) -> tuple[int, int]:
        raise NotImplementedError(self.name)

    def _weights(self, begin: float, end: float, bins: int, size: int) -> np.ndarray:
        """Return the weight of each element in each bin along one axis, [bins, size]."""
        raise NotImplementedError(self.name)

    def _regions(self, rois: np.ndarray, shape: Shape) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
        """Yield (region, image, row weights, column weights) of the regions with a valid image index."""
        rows, columns = self.bins
        for r, (image, left, top, right, bottom) in enumerate(rois.astype(np.float32)):
            if 0 <= image < shape[0]:
                yield r, int(image), self._weights(top, bottom, rows, shape[2]), self._weights(left, right, columns, shape[3])

    def _group_of_bin(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the row of groups of each row of bins, and the column of each column."""
        rows, columns = (np.arange(n) * g // n for n, g in zip(self.bins, self.groups))
        return rows, columns

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        data, rois = arrays
        groups, (i, j) = self.groups, self._group_of_bin()
        out = np.zeros((len(rois), data.shape[1] // math.prod(groups), *self.bins), data.dtype)
        for r, image, down, across in self._regions(rois, data.shape):
            if groups == (1, 1):
                out[r] = down @ data[image] @ across.T
            else:
                planes = data[image].reshape(-1, *groups, *data.shape[2:])[:, i[:, None], j]
                out[r] = np.einsum("ih,cijhw,jw->cij", down, planes, across, optimize=True)
        return out

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> np.ndarray:
        data, rois = x
        groups, (i, j) = self.groups, self._group_of_bin()
        dx = np.zeros(data.shape, data.dtype)
        for r, image, down, across in self._regions(rois, data.shape):
            if groups == (1, 1):
                dx[image] += down.T @ dy[0][r] @ across
            else:
                made = np.einsum("ih,cij,jw->ijchw", down, dy[0][r], across, optimize=True)
                planes = dx[image].reshape(-1, *groups, *data.shape[2:])
                for a, b in np.ndindex(self.bins):
                    planes[:, i[a], j[b]] += made[a, b]
        return dx


@register_operator("_contrib_ROIAlign")
class ROIAlign(WeightedRegions, Regions):
    """The mean of sample_ratio × sample_ratio points in each of pooled_size bins of each region, without rounding.

    data: [n, c, h, w]; rois: [r, 5], image first; an invalid image index gives zeros. sample_ratio <= 0: as many points as
    a bin has elements. position_sensitive: each bin has its own channels. aligned: element centres are at half integers.
    Returns: [r, c, *pooled_size]. Computed on the host. Source: He, Gkioxari, Dollár, Girshick 2017, arXiv:1703.06870.
    """

    pooled_size: tuple
    spatial_scale: float
    sample_ratio: int = -1
    position_sensitive: bool = False
    aligned: bool = False
    own_dtypes = True

    @property
    def bins(self) -> tuple[int, int]:
        return self.pooled_size

    @property
    def groups(self) -> tuple[int, int]:
        return self.pooled_size if self.position_sensitive else (1, 1)

    def channels(self, c: int) -> int:
        groups = math.prod(self.groups)
        if c % groups:
            raise ShapeError(f"{self.name}: position_sensitive needs channels in a multiple of the {groups} bins, not {c}.")
        return c // groups

    def _weights(self, begin: float, end: float, bins: int, size: int) -> np.ndarray:
        scale, shift = np.float32(self.spatial_scale), np.float32(0.5 if self.aligned else 0)
        first = np.float32(begin) * scale - shift
        length = np.float32(end) * scale - shift - first
        length = length if self.aligned else max(length, np.float32(1))
        step = np.float32(length / bins)
        points = self.sample_ratio if self.sample_ratio > 0 else int(min(max(np.ceil(step), 0), 4 * size + 4))
        weights = np.zeros((bins, size))
        if points:
            bin_, point = np.arange(bins, dtype=np.float32)[:, None], np.arange(points, dtype=np.float32)
            at = first + bin_ * step + (point + np.float32(0.5)) * step / np.float32(points)
            inside = (at >= -1) & (at <= size)
            at = np.clip(at, 0, size - 1)
            near = np.maximum(1 - np.abs(at[..., None] - np.arange(size)), 0) * inside[..., None]
            weights = near.sum(1) / points
        return weights


def _image_of(data: Any, rois: Any, r: Any) -> tuple[Any, Any]:
    """Return whether region r has a valid image index, and that index, or 0."""
    image = rois[r, 0].astype("float32")
    valid = (image >= 0) & (image < data.shape[0].astype("float32"))
    return valid, where(valid, image, 0).astype("int64")


def _limited(x: Any, most: Any) -> Any:
    """Return a float of any size as an integer, limited to 0 … most."""
    return minimum(maximum(minimum(maximum(x, 0), most.astype("float32")).astype("int64"), 0), most)


def _psroi_shape(data: Shape, rois: Shape, *, spatial_scale: float, output_dim: int, pooled_size: int, group_size: int) -> Shape:
    name = "_contrib_PSROIPooling"
    if output_dim < 1 or pooled_size < 1 or group_size < 0 or spatial_scale <= 0:
        raise ParameterError(f"{name}: output_dim={output_dim}, pooled_size={pooled_size}, spatial_scale={spatial_scale} must be "
                             f"above 0, group_size={group_size} at least 0.")
    groups = group_size or pooled_size
    channels = output_dim * groups**2
    if len(data) != 4 or data[1] != channels or len(rois) != 2 or rois[1] != 5:
        raise ShapeError(f"{name}: data {data} must be [n, {channels}, h, w] for output_dim={output_dim} and {groups} × {groups} "
                         f"groups, and rois {rois} [regions, 5].")
    return rois[0], output_dim, pooled_size, pooled_size


@indexed("_contrib_PSROIPooling", shape=_psroi_shape, free=("rois",))
def psroi_pooling(at: Any, data: Any, rois: Any, *, spatial_scale: float, output_dim: int, pooled_size: int, group_size: int = 0
                  ) -> Any:
    """The mean of the elements in each of pooled_size × pooled_size bins of each region; bin (i, j) reads channel group (i, j).

    data: [n, output_dim · group_size², h, w]; rois: [r, 5]: image, left, top, right, bottom, in pixels of the image, which
    spatial_scale converts to elements. group_size 0: pooled_size. A bin without elements is 0. Only data has a derivative.
    Returns: [r, output_dim, pooled_size, pooled_size]. Source: Dai et al. 2016, arXiv:1605.06409.
    """
    r, c, *cell = at
    (valid, image), groups = _image_of(data, rois, r), group_size or pooled_size
    channel = (c * groups + cell[0] * groups // pooled_size) * groups + cell[1] * groups // pooled_size

    def along(axis: int) -> tuple[Any, Any]:
        """Return the first element of the bin along an axis, and the number of elements."""
        begin, end = (rois[r, k - axis].astype("float32") for k in (2, 4))
        first, last = (trunc(where(v < 0, v - 0.5, v + 0.5)) * spatial_scale for v in (begin, end + 1))
        step, place = maximum(last - first, 0.1) / float(pooled_size), cell[axis].astype("float32")
        low, high = (_limited(edge, data.shape[2 + axis])
                     for edge in (floor(place * step + first), ceil((place + 1) * step + first)))
        return low, where(valid, maximum(high - low, 0), 0)

    (top, rows), (left, columns) = along(0), along(1)
    total = add_up(rows, lambda y: add_up(columns, lambda x: data[image, channel, top + y, left + x]))
    return total / (maximum(rows, 1) * maximum(columns, 1)).astype("float64" if data.dtype == np.float64 else "float32")
