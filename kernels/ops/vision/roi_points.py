"""RROIAlign and DeformablePSROIPooling: rotated regions, and regions with displaced bins, pooled from interpolated points.

spatial_scale converts regions from pixels of the image to elements. A region with an invalid image index gives zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import ParameterError, ShapeError
from ...declare.host_op import HostOp
from ...declare.operator_property import KnownShapes, Shapes
from ...declare.property_op import register_operator
from .roi import Regions


@dataclass(frozen=True, slots=True)
class _Points:
    """Points of planes [..., h · w]: the four elements around each, its distance from the first one, and a mask."""

    corners: tuple[np.ndarray, ...]
    down: np.ndarray
    across: np.ndarray
    counts: np.ndarray

    @property
    def weights(self) -> tuple[np.ndarray, ...]:
        v, u = self.down, self.across
        return tuple(w * self.counts for w in ((1 - v) * (1 - u), (1 - v) * u, v * (1 - u), v * u))


def _points(y: np.ndarray, x: np.ndarray, h: int, w: int, margin: float) -> _Points:
    """Return the points at (y, x); they are valid up to margin beyond the outermost elements."""
    inside = (y >= -margin) & (y <= h - 1 + margin) & (x >= -margin) & (x <= w - 1 + margin)
    y, x = np.clip(y, 0, h - 1), np.clip(x, 0, w - 1)
    top, left = np.floor(y), np.floor(x)
    rows, columns = (top.astype(int), np.ceil(y).astype(int)), (left.astype(int), np.ceil(x).astype(int))
    return _Points(tuple(r * w + c for r in rows for c in columns), y - top, x - left, inside.astype(y.dtype))


def _flat(data: np.ndarray) -> np.ndarray:
    return data.reshape(*data.shape[:2], data.shape[2] * data.shape[3])


def _read(planes: np.ndarray, p: _Points) -> np.ndarray:
    return np.add.reduce([planes[..., at] * weight for at, weight in zip(p.corners, p.weights)])


def _scatter(planes: np.ndarray, p: _Points, values: np.ndarray) -> None:
    """Add values [c, *points] to planes [c, h · w]: the derivative of `_read`."""
    every = np.arange(len(planes)).reshape(-1, *(1,) * p.down.ndim)
    for at, weight in zip(p.corners, p.weights):
        np.add.at(planes, (every, at[None]), values * weight)


@register_operator("_contrib_RROIAlign")
class RROIAlign(HostOp, Regions):
    """The mean of sampling_ratio × sampling_ratio points in each of pooled_size bins of each region, which may be rotated.

    data: [n, c, h, w]; rois: [r, 6]: image, x and y of the centre, width, height, angle in degrees. sampling_ratio <= 0: as
    many points as a bin has elements. Only data has a derivative. Returns: [r, c, *pooled_size]. Computed on the host.
    Source: Ma et al. 2018, arXiv:1703.01086.
    """

    pooled_size: tuple
    spatial_scale: float
    sampling_ratio: int = -1
    region = "image, x, y, width, height, angle"
    backward_reads = ("dy", "x")

    def _regions(self, rois: np.ndarray, shape: Any) -> Iterator[tuple[int, int, _Points]]:
        """Yield (region, image, points [height, width, samples]) of the regions with a valid image index."""
        n, _, h, w = shape
        for r, (image, *sizes, angle) in enumerate(rois):
            if not 0 <= image < n:
                continue
            x, y, width, height = (v * rois.dtype.type(self.spatial_scale) for v in sizes)
            axes = []
            for length, bins, size in ((max(height, 1), self.pooled_size[0], h), (max(width, 1), self.pooled_size[1], w)):
                step = length / bins
                points = self.sampling_ratio if self.sampling_ratio > 0 else int(min(np.ceil(step), 4 * size + 4))
                axes.append(np.arange(bins)[:, None] * step + (np.arange(points) + 0.5) * step / points - length / 2)
            v, u = axes[0][:, None, :, None], axes[1][None, :, None, :]
            turn = np.deg2rad(angle)
            at = _points(v * np.cos(turn) - u * np.sin(turn) + y, u * np.cos(turn) + v * np.sin(turn) + x, h, w, 1)
            yield r, int(image), at

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        data, rois = arrays
        flat = _flat(data)
        out = np.zeros((len(rois), data.shape[1], *self.pooled_size), data.dtype)
        for r, image, points in self._regions(rois, data.shape):
            out[r] = _read(flat[image], points).mean((-2, -1))
        return out

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> np.ndarray:
        data, rois = x
        dx = np.zeros_like(_flat(data))
        for r, image, points in self._regions(rois, data.shape):
            samples = points.down.shape[-2] * points.down.shape[-1]
            _scatter(dx[image], points, dy[0][r][..., None, None] / samples)
        return dx.reshape(data.shape)


@register_operator("_contrib_DeformablePSROIPooling")
class DeformablePSROIPooling(HostOp):
    """PSROIPooling with displaced bins: by trans · trans_std · the size of the region.

    data: [n, output_dim · group_size², h, w]; rois: [r, 5]: image, left, top, right, bottom; trans: [r, 2 · classes, part_size,
    part_size], horizontal and vertical displacement of the parts of a region, relative to its size; absent with no_trans. A bin
    is the mean of sample_per_part × sample_per_part points of its channel group. part_size 0: pooled_size.
    Returns: [r, output_dim, pooled_size, pooled_size]. Computed on the host. Source: Dai et al. 2017, arXiv:1703.06211.
    """

    spatial_scale: float
    output_dim: int
    group_size: int
    pooled_size: int
    part_size: int = 0
    sample_per_part: int = 1
    trans_std: float = 0.0
    no_trans: bool = False
    backward_reads = ("dy", "x")

    def validate(self) -> None:
        least = min(self.output_dim, self.group_size, self.pooled_size, self.sample_per_part)
        if least < 1 or self.part_size < 0 or self.spatial_scale <= 0:
            raise ParameterError(f"{self.name}: output_dim={self.output_dim}, group_size={self.group_size}, "
                                 f"pooled_size={self.pooled_size}, sample_per_part={self.sample_per_part} must be at least 1, "
                                 f"part_size={self.part_size} not negative, spatial_scale={self.spatial_scale} above 0.")

    @property
    def argument_names(self) -> tuple[str, ...]:
        return ("data", "rois") if self.no_trans else ("data", "rois", "trans")

    @property
    def gradient_arguments(self) -> tuple[int, ...]:
        return (0,) if self.no_trans else (0, 2)

    @property
    def parts(self) -> int:
        return self.part_size or self.pooled_size

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        data, rois, *trans = in_shape
        channels, parts = self.output_dim * self.group_size**2, self.parts
        if len(data) != 4 or data[1] != channels or len(rois) != 2 or rois[1] != 5:
            raise ShapeError(f"{self.name}: data {data} must be [n, {channels}, h, w] for output_dim={self.output_dim} and "
                             f"group_size={self.group_size}, and rois {rois} [regions, 5].")
        if trans:
            (t,) = trans
            if len(t) != 4 or t[0] != rois[0] or t[1] % 2 or not t[1] or self.output_dim % (t[1] // 2) or t[2:] != (parts, parts):
                raise ShapeError(f"{self.name}: trans {t} must be [{rois[0]}, 2 · classes, {parts}, {parts}], where the number "
                                 f"of classes divides output_dim={self.output_dim}.")
        return [(rois[0], self.output_dim, self.pooled_size, self.pooled_size)]

    def _regions(self, arrays: Any) -> Iterator[tuple[int, int, Any, Any, _Points]]:
        """Yield (region, image, width, height, points [output_dim, bins, bins, samples, samples]) of the valid regions."""
        data, rois, *trans = arrays
        kind, k, s = data.dtype.type, self.pooled_size, self.sample_per_part
        bins, part = np.arange(k), np.arange(k) * self.parts // k
        for r, (image, *sides) in enumerate(rois.astype(data.dtype)):
            if not 0 <= image < data.shape[0]:
                continue
            left, top, right, bottom = (np.trunc(v + np.copysign(0.5, v)) for v in sides)
            scale = kind(self.spatial_scale)
            left, top = left * scale - kind(0.5), top * scale - kind(0.5)
            width = max((right + 1) * scale - kind(0.5) - left, kind(0.1))
            height = max((bottom + 1) * scale - kind(0.5) - top, kind(0.1))
            moved = np.zeros((1, 2, k, k), data.dtype)
            if trans:
                moved = trans[0][r].reshape(-1, 2, self.parts, self.parts)[:, :, part][..., part] * kind(self.trans_std)
            moved = np.repeat(moved, self.output_dim // len(moved), axis=0)[..., None, None]  # [output_dim, 2, k, k, 1, 1]
            y = bins[:, None, None, None] * (height / k) + np.arange(s)[:, None] * (height / k / s) + top
            x = bins[None, :, None, None] * (width / k) + np.arange(s) * (width / k / s) + left
            y, x = np.broadcast_arrays(y + moved[:, 1] * height, x + moved[:, 0] * width)
            y, x = y.astype(data.dtype), x.astype(data.dtype)
            yield r, int(image), width, height, _points(y, x, data.shape[2], data.shape[3], 0.5)

    def _channels(self) -> np.ndarray:
        """Return the channel of each bin, [output_dim, bins, bins, 1, 1]."""
        g = self.group_size
        of = np.arange(self.pooled_size) * g // self.pooled_size
        return ((np.arange(self.output_dim)[:, None, None] * g + of[:, None]) * g + of)[..., None, None]

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        data, rois = arrays[:2]
        channel, flat = self._channels(), _flat(data)
        out = np.zeros((len(rois), self.output_dim, self.pooled_size, self.pooled_size), data.dtype)
        for r, image, _, _, p in self._regions(arrays):
            total = np.add.reduce([flat[image][channel, at] * weight for at, weight in zip(p.corners, p.weights)])
            out[r] = total.sum((-2, -1)) / np.maximum(p.counts.sum((-2, -1)), 1)
        return out

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        data, _, *trans = x
        channel, flat = self._channels(), _flat(data)
        dx, dtrans = np.zeros_like(flat), [np.zeros_like(t) for t in trans]
        part = np.arange(self.pooled_size) * self.parts // self.pooled_size
        for r, image, width, height, p in self._regions(x):
            share = (dy[0][r] / np.maximum(p.counts.sum((-2, -1)), 1))[..., None, None] * p.counts
            for at, weight in zip(p.corners, p.weights):
                np.add.at(dx[image], (np.broadcast_to(channel, at.shape), at), share * weight)
            if dtrans:
                a, b, c, d = (flat[image][channel, at] for at in p.corners)
                across = ((b - a) * (1 - p.down) + (d - c) * p.down) * share
                down = ((c - a) * (1 - p.across) + (d - b) * p.across) * share
                classes = trans[0].shape[1] // 2
                for i, moved in enumerate((across * width, down * height)):
                    by_class = moved.sum((-2, -1)).reshape(classes, -1, self.pooled_size, self.pooled_size).sum(1)
                    where: Any = (slice(None), part[:, None], part[None, :])
                    np.add.at(dtrans[0][r].reshape(classes, 2, self.parts, self.parts)[:, i], where,
                              by_class * data.dtype.type(self.trans_std))
        return (dx.reshape(data.shape), *dtrans)
