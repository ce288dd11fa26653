"""DeformableConvolution and ModulatedDeformableConvolution: convolutions with kernel elements displaced by learned offsets.

The data is interpolated at the displaced points (points.py); the rest is a matrix product.
Source: Dai et al. 2017, arXiv:1703.06211; Zhu, Hu, Lin, Dai 2019, arXiv:1811.11168.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....errors import ParameterError, ShapeError
from ...declare.composite import TracedValue, arange, composite, ops
from ...op import Shape
from ...params import Params


def _check(name: str, p: Params) -> None:
    if len(p.kernel) != 2 or any(len(v) not in (0, 2) for v in (p.stride, p.dilate, p.pad)):
        raise ParameterError(f"{name}: kernel={p.kernel}, stride={p.stride}, dilate={p.dilate} and pad={p.pad} must have two "
                             f"numbers each: height and width.")
    if min(p.kernel) < 1 or min((*p.stride, *p.dilate, 1)) < 1 or min((*p.pad, 0)) < 0:
        raise ParameterError(f"{name}: kernel={p.kernel}, stride={p.stride}, dilate={p.dilate} must be at least 1, pad={p.pad} "
                             f"at least 0.")
    if p.num_filter < 1 or min(p.num_group, p.num_deformable_group) < 1 or p.num_filter % p.num_group:
        raise ParameterError(f"{name}: num_filter={p.num_filter} must be a multiple of num_group={p.num_group}, and "
                             f"num_deformable_group={p.num_deformable_group} at least 1.")


def _steps(p: Any) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    return p.stride or (1, 1), p.dilate or (1, 1), p.pad or (0, 0)


def _out_size(name: str, p: Any, x: Shape) -> tuple[int, int]:
    stride, dilate, pad = _steps(p)
    if len(x) != 4 or x[1] % p.num_group or x[1] % p.num_deformable_group:
        raise ShapeError(f"{name}: data {x} must be [n, c, h, w], c a multiple of num_group={p.num_group} and "
                         f"num_deformable_group={p.num_deformable_group}.")
    h, w = ((x[2 + i] + 2 * pad[i] - dilate[i] * (p.kernel[i] - 1) - 1) // stride[i] + 1 for i in (0, 1))
    if h < 1 or w < 1:
        raise ShapeError(f"{name}: kernel {p.kernel} is larger than the padded data {x}.")
    return h, w


def _complete(name: str, p: Params, shapes: list[Shape | None]) -> list[Shape | None]:
    x = shapes[0]
    if x is None or -1 in x:
        return shapes
    h, w = _out_size(name, p, x)
    taps = p.kernel[0] * p.kernel[1] * p.num_deformable_group
    found: list[Shape | None] = [x, (x[0], 2 * taps, h, w)]
    if len(shapes) > (3 if p.no_bias else 4):
        found.append((x[0], taps, h, w))
    found.append((p.num_filter, x[1] // p.num_group, *p.kernel))
    if not p.no_bias:
        found.append((p.num_filter,))
    for i, (given, wanted) in enumerate(zip(shapes, found)):
        if given is not None and -1 not in given and given != wanted:
            raise ShapeError(f"{name}: for data {x}, input {i} must be {wanted}, not {given}.")
    return found


def _columns(data: TracedValue, offset: TracedValue, p: Any, size: tuple[int, int], clamp: bool) -> TracedValue:
    """[n · groups, c / groups, kh, kw, h', w']: data at the position of every kernel element, displaced by offset.

    clamp: points less than one element beyond the far edges are read at the edge; points before the near edges are zero.
    """
    (n, c, h, w), (kh, kw), (rows, columns) = data.shape, p.kernel, size
    groups = n * p.num_deformable_group
    stride, dilate, pad = _steps(p)
    moves = offset.reshape((groups, kh, kw, 2, rows, columns))
    at = []
    for axis, (taps, steps) in enumerate((((1, kh, 1, 1, 1), (1, 1, 1, rows, 1)), ((1, 1, kw, 1, 1), (1, 1, 1, 1, columns)))):
        moved = ops.slice_axis(moves, axis=3, begin=axis, end=axis + 1).reshape((groups, kh, kw, rows, columns))
        start = arange(data, max(steps)).reshape(steps) * stride[axis] - pad[axis]
        at.append(moved + arange(data, max(taps)).reshape(taps) * dilate[axis] + start)
    seen: TracedValue | None = None
    if clamp:
        for axis, n_elements in enumerate((h, w)):
            inside = (ops._greater_equal_scalar(at[axis], scalar=0.0) * ops._lesser_scalar(at[axis], scalar=float(n_elements)))
            seen = inside if seen is None else seen * inside
            at[axis] = ops.clip(at[axis], a_min=0.0, a_max=float(n_elements - 1))
    y, x = (a.reshape((groups, kh * kw * rows * columns)) for a in at)
    read = ops._points(data.reshape((groups, c // p.num_deformable_group, h, w)), y, x, arange(data, groups))
    shape = (groups, 1, kh * kw * rows * columns)
    return read if seen is None else read * seen.reshape(shape)


def _convolve(columns: TracedValue, weight: TracedValue, bias: TracedValue | None, p: Any, n: int, size: tuple[int, int]
              ) -> TracedValue:
    g, f = p.num_group, p.num_filter
    depth, places = weight.shape[1] * weight.shape[2] * weight.shape[3], size[0] * size[1]
    filters = ops.broadcast_to(weight.reshape((1, g, f // g, depth)), shape=(n, g, f // g, depth))
    y = ops.batch_dot(filters.reshape((n * g, f // g, depth)), columns.reshape((n * g, depth, places)))
    y = y.reshape((n, f, *size))
    return y if bias is None else y + bias.reshape((1, f, 1, 1))


def _layer(name: str, arrays: Sequence[TracedValue], mask: TracedValue | None, bias: TracedValue | None, **params: Any
           ) -> TracedValue:
    """Return the convolution of arrays (data, offset, weight); mask: a factor for each point."""
    (data, offset, weight), p = arrays, Params(params)
    size = _out_size(name, p, data.shape)
    columns = _columns(data, offset, p, size, clamp=mask is None)
    if mask is not None:
        columns = columns * mask.reshape((data.shape[0] * p.num_deformable_group, 1, -1))
    return _convolve(columns, weight, bias, p, data.shape[0], size)


def _arguments(*names: str) -> Any:
    return lambda p: names if p.no_bias else (*names, "bias")


_PLAIN, _MODULATED = "DeformableConvolution", "ModulatedDeformableConvolution"


@composite("_contrib_DeformableConvolution", arguments=_arguments("data", "offset", "weight"),
           complete=lambda p, shapes: _complete(_PLAIN, p, shapes), check=lambda p: _check(_PLAIN, p))
def deformable(data: TracedValue, offset: TracedValue, weight: TracedValue, bias: TracedValue | None, *,
               kernel: tuple[int, ...], stride: tuple[int, ...] = (), dilate: tuple[int, ...] = (), pad: tuple[int, ...] = (),
               num_filter: int, num_group: int = 1, num_deformable_group: int = 1, workspace: int = 1024, no_bias: bool = False,
               layout: str | None = None) -> TracedValue:
    """Convolution of data [n, c, h, w] with kernel elements displaced by offset, in elements of the data.

    offset: [n, 2 · kh · kw · num_deformable_group, h', w']: per channel group and kernel element, first vertical.
    weight: [num_filter, c / num_group, kh, kw]. Returns: [n, num_filter, h', w']. A point outside the data counts as zero.
    """
    return _layer(_PLAIN, (data, offset, weight), None, bias, kernel=kernel, stride=stride, dilate=dilate, pad=pad,
                  num_filter=num_filter, num_group=num_group, num_deformable_group=num_deformable_group)


@composite("_contrib_ModulatedDeformableConvolution", arguments=_arguments("data", "offset", "mask", "weight"),
           complete=lambda p, shapes: _complete(_MODULATED, p, shapes), check=lambda p: _check(_MODULATED, p))
def modulated(data: TracedValue, offset: TracedValue, mask: TracedValue, weight: TracedValue, bias: TracedValue | None, *,
              kernel: tuple[int, ...], stride: tuple[int, ...] = (), dilate: tuple[int, ...] = (), pad: tuple[int, ...] = (),
              num_filter: int, num_group: int = 1, num_deformable_group: int = 1, workspace: int = 1024, no_bias: bool = False,
              im2col_step: int = 64, layout: str | None = None) -> TracedValue:
    """DeformableConvolution with points also weighted by mask [n, kh · kw · num_deformable_group, h', w'].

    The parameters (kernel, num_filter, num_group, im2col_step and the rest) are those of DeformableConvolution.
    """
    return _layer(_MODULATED, (data, offset, weight), mask, bias, kernel=kernel, stride=stride, dilate=dilate, pad=pad,
                  num_filter=num_filter, num_group=num_group, num_deformable_group=num_deformable_group)
