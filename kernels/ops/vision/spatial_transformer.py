"""GridGenerator, BilinearSampler, SpatialTransformer: planes sampled along a grid that a network computes.

A grid is [n, 2, h, w]: x, then y, both from -1 (centre of the first element) to 1 (centre of the last).
Source: Jaderberg, Simonyan, Zisserman, Kavukcuoglu 2015, arXiv:1506.02025.
"""

from __future__ import annotations

from typing import Literal

from ....errors import ParameterError, ShapeError
from ...declare.composite import TracedValue, arange, composite, ops


def _axis(like: TracedValue, n: int) -> TracedValue:
    """Return n evenly spaced coordinates from -1 to 1."""
    return arange(like, n) * (2 / (n - 1) if n > 1 else 0.0) - 1.0


def affine_grid(theta: TracedValue, h: int, w: int) -> TracedValue:
    """Transform the regular grid by the 2 × 3 matrices theta [n, 6] to a grid [n, 2, h, w]."""
    n = theta.shape[0]
    x = ops.broadcast_to(_axis(theta, w).reshape((1, 1, w)), shape=(1, h, w))
    y = ops.broadcast_to(_axis(theta, h).reshape((1, h, 1)), shape=(1, h, w))
    plain = ops.Concat(x, y, ops.ones_like(x), dim=0).reshape((1, 3, h * w))
    return ops.batch_dot(theta.reshape((n, 2, 3)), ops.broadcast_to(plain, shape=(n, 3, h * w))).reshape((n, 2, h, w))


def sample_grid(data: TracedValue, grid: TracedValue) -> TracedValue:
    """Sample data [n, c, h, w] along the grid [n, 2, h', w']."""
    (n, c, h, w), (_, _, rows, columns) = data.shape, grid.shape
    x, y = (ops.slice_axis(grid, axis=1, begin=i, end=i + 1).reshape((n, rows * columns)) for i in (0, 1))
    y, x = (y + 1.0) * ((h - 1) / 2), (x + 1.0) * ((w - 1) / 2)
    return ops._points(data, y, x, arange(data, n)).reshape((n, c, rows, columns))


def _check_size(name: str, size: tuple[int, ...], parameter: str) -> tuple[int, int]:
    if len(size) != 2 or min(size) < 1:
        raise ParameterError(f"{name}: {parameter}={size} must be (height, width), both at least 1.")
    return size[0], size[1]


@composite("GridGenerator")
def grid_generator(data: TracedValue, *, transform_type: Literal["affine", "warp"], target_shape: tuple[int, ...] = (0, 0)
                   ) -> TracedValue:
    """A sampling grid [n, 2, h, w], by transform_type.

    "affine": from 2 × 3 matrices data [n, 6], of size target_shape. "warp": the regular grid displaced by data [n, 2, h, w], in
    elements: x, then y.
    """
    if transform_type == "affine":
        h, w = _check_size("GridGenerator", target_shape, "target_shape")
        if data.ndim != 2 or data.shape[1] != 6:
            raise ShapeError(f"GridGenerator: data {data.shape} must be [n, 6], a 2 × 3 matrix per sample.")
        return affine_grid(data, h, w)
    if data.ndim != 4 or data.shape[1] != 2:
        raise ShapeError(f"GridGenerator: data {data.shape} must be [n, 2, h, w] to warp.")
    h, w = data.shape[2:]
    x = arange(data, w).reshape((1, 1, 1, w))
    y = arange(data, h).reshape((1, 1, h, 1))
    plain = ops.Concat(ops.broadcast_to(x, shape=(1, 1, h, w)), ops.broadcast_to(y, shape=(1, 1, h, w)), dim=1)
    moved = data + plain
    x, y = (ops.slice_axis(moved, axis=1, begin=i, end=i + 1) / (max(n - 1, 1) / 2) - 1.0 for i, n in ((0, w), (1, h)))
    return ops.Concat(x, y, dim=1)


def _check_sampler(name: str, data: TracedValue, n: int) -> None:
    if data.ndim != 4 or data.shape[0] != n:
        raise ShapeError(f"{name}: data {data.shape} must be [n, c, h, w] with n={n}, the number of grids.")


@composite("BilinearSampler")
def bilinear_sampler(data: TracedValue, grid: TracedValue, *, cudnn_off: bool | None = None) -> TracedValue:
    """data [n, c, h, w] interpolated along grid [n, 2, h', w'], zero outside.

    Returns: [n, c, h', w'].
    """
    if grid.ndim != 4 or grid.shape[1] != 2:
        raise ShapeError(f"BilinearSampler: grid {grid.shape} must be [n, 2, h, w]: x, then y.")
    _check_sampler("BilinearSampler", data, grid.shape[0])
    return sample_grid(data, grid)


@composite("SpatialTransformer", complete=lambda p, shapes: [shapes[0], (shapes[0][0], 6) if shapes[0] else shapes[1]])
def spatial_transformer(data: TracedValue, loc: TracedValue, *, target_shape: tuple[int, ...] = (0, 0),
                        transform_type: Literal["affine"], sampler_type: Literal["bilinear"], cudnn_off: bool | None = None
                        ) -> TracedValue:
    """data [n, c, h, w] interpolated along the affine grid of the 2 × 3 matrices loc [n, 6].

    Returns: [n, c, *target_shape].
    """
    h, w = _check_size("SpatialTransformer", target_shape, "target_shape")
    if loc.ndim != 2 or loc.shape[1] != 6:
        raise ShapeError(f"SpatialTransformer: loc {loc.shape} must be [n, 6], a 2 × 3 matrix per sample.")
    _check_sampler("SpatialTransformer", data, loc.shape[0])
    return sample_grid(data, affine_grid(loc, h, w))
