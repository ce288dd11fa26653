"""PSROIPooling: position-sensitive RoI pooling; every bin has its own channels. Source: Dai et al. 2016, arXiv:1605.06409."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....errors import ParameterError, ShapeError
from ...declare.host_op import HostOp
from ...declare.operator_property import KnownShapes, Shapes
from ...declare.property_op import register_operator


def _rounded(x: Any) -> Any:
    """Round halves away from zero."""
    return np.trunc(x + np.copysign(np.float32(0.5), x))


@register_operator("_contrib_PSROIPooling")
class PSROIPooling(HostOp):
    """The mean of the elements in each of pooled_size × pooled_size bins of each region; bin (i, j) reads channel group (i, j).

    data: [n, output_dim · group_size², h, w]; rois: [r, 5]: image, left, top, right, bottom, in pixels of the image, which
    spatial_scale converts to elements. group_size 0: pooled_size. A bin without elements is 0. Only data has a derivative.
    Returns: [r, output_dim, pooled_size, pooled_size]. Computed on the host.
    """

    spatial_scale: float
    output_dim: int
    pooled_size: int
    group_size: int = 0
    argument_names = ("data", "rois")
    gradient_arguments = (0,)
    backward_reads = ("dy0", "x")

    def validate(self) -> None:
        if self.output_dim < 1 or self.pooled_size < 1 or self.group_size < 0 or self.spatial_scale <= 0:
            raise ParameterError(f"{self.name}: output_dim={self.output_dim}, pooled_size={self.pooled_size}, "
                                 f"spatial_scale={self.spatial_scale} must be above 0, group_size={self.group_size} at least 0.")

    @property
    def groups(self) -> int:
        return self.group_size or self.pooled_size

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        data, rois = in_shape
        channels = self.output_dim * self.groups**2
        if len(data) != 4 or data[1] != channels or len(rois) != 2 or rois[1] != 5:
            raise ShapeError(f"{self.name}: data {data} must be [n, {channels}, h, w] for output_dim={self.output_dim} and "
                             f"{self.groups} × {self.groups} groups, and rois {rois} [regions, 5].")
        return [(rois[0], self.output_dim, self.pooled_size, self.pooled_size)]

    def _weights(self, begin: float, end: float, size: int) -> np.ndarray:
        """Return the weight of each element in each bin along one axis, [bins, size]."""
        scale = np.float32(self.spatial_scale)
        first = _rounded(np.float32(begin)) * scale
        last = _rounded(np.float32(end) + np.float32(1)) * scale
        step = max(last - first, np.float32(0.1)) / np.float32(self.pooled_size)
        bins = np.arange(self.pooled_size, dtype=np.float32)
        low = np.clip(np.floor(bins * step + first), 0, size)[:, None]
        high = np.clip(np.ceil((bins + 1) * step + first), 0, size)[:, None]
        at = np.arange(size)
        return ((at >= low) & (at < high)) / np.maximum(high - low, 1)

    def _regions(self, rois: np.ndarray, shape: Any) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
        """Yield (region, image, row weights, column weights) of the regions with a valid image index."""
        for r, (image, left, top, right, bottom) in enumerate(rois.astype(np.float32)):
            if 0 <= image < shape[0]:
                yield r, int(image), self._weights(top, bottom, shape[2]), self._weights(left, right, shape[3])

    def _group(self) -> np.ndarray:
        """Return the channel group of each row (or column) of bins."""
        return np.minimum(np.arange(self.pooled_size) * self.groups // self.pooled_size, self.groups - 1)

    def compute(self, *arrays: np.ndarray) -> Any:
        data, rois = arrays
        g, of = self.groups, self._group()
        out = np.zeros((len(rois), self.output_dim, self.pooled_size, self.pooled_size), data.dtype)
        for r, image, down, across in self._regions(rois, data.shape):
            planes = data[image].reshape(self.output_dim, g, g, *data.shape[2:])[:, of][:, :, of]
            out[r] = np.einsum("ih,cijhw,jw->cij", down, planes, across, optimize=True)
        return out

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> Any:
        data, rois = x
        g, of = self.groups, self._group()
        dx = np.zeros((data.shape[0], self.output_dim, g, g, *data.shape[2:]), data.dtype)
        for r, image, down, across in self._regions(rois, data.shape):
            made = np.einsum("ih,cij,jw->ijchw", down, dy[0][r], across, optimize=True)
            np.add.at(dx[image].transpose(1, 2, 0, 3, 4), (of[:, None], of[None, :]), made)
        return dx.reshape(data.shape)
