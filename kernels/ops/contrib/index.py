"""arange_like, index_array, index_copy, histogram: arrays of indices, rows replaced by index, and counts of values."""

from __future__ import annotations

import numpy as np

from ....errors import ParameterError, ShapeError
from ....integers import cdiv
from ...declare.composite import TracedValue, composite, ops
from ...declare.host_op import HostOp, known
from ...declare.operator_property import Dtypes, KnownShapes, Shapes
from ...declare.property_op import register_operator
from ..tensor.reshape import check_axis

INT64 = np.dtype(np.int64)


@composite("_contrib_arange_like", gives=())
def arange_like(data: TracedValue, *, start: float = 0.0, step: float = 1.0, repeat: int = 1, axis: int | None = None,
                ctx: str = "") -> TracedValue:
    """start, start + step, …, each `repeat` times, in the shape of data; with `axis`, [size of that axis]."""
    n = int(np.prod(data.shape)) if axis is None else data.shape[check_axis("arange_like", axis, data.ndim)]
    if repeat < 1:
        raise ParameterError(f"arange_like: repeat={repeat} must be at least 1.")
    count = cdiv(n, repeat)
    line = data.trace.call(ops._arange, [], {"start": start, "stop": start + step * count - step / 2, "step": step,
                                             "repeat": repeat, "dtype": data.dtype.name})
    line = line if line.shape == (n,) else ops.slice_axis(line, axis=0, begin=0, end=n)
    return line.reshape(data.shape) if axis is None else line


@register_operator("_contrib_index_array")
class IndexArray(HostOp):
    """The index of every element of data along all axes, or along `axes`: int64 [*data.shape, axes]. On the host."""

    axes: tuple | None = None
    gradient_arguments = ()
    output_dtypes = (INT64,)

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        x = in_shape[0]
        return [(*x, len(self._axes(len(x))))]

    def _axes(self, rank: int) -> tuple[int, ...]:
        return tuple(range(rank)) if self.axes is None else tuple(check_axis(self.name, a, rank) for a in self.axes)

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        shape = arrays[0].shape
        found = np.indices(shape, INT64)[list(self._axes(len(shape)))]
        return np.moveaxis(found, 0, -1)


@register_operator("_contrib_index_copy")
class IndexCopy(HostOp):
    """old_tensor with its rows index_vector replaced by the rows of new_tensor, in order. On the host.

    old_tensor: [n, ...]; index_vector: [m]; new_tensor: [m, ...]. Of equal indices the last counts.
    Raises ShapeError for an index out of range.
    """

    argument_names = ("old_tensor", "index_vector", "new_tensor")
    gradient_arguments = (0, 2)
    backward_reads = ("dy0", "x1")

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        d = in_type[0] or in_type[2] or out_type[0]
        return [d, in_type[1], d], [d], []

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        if not known(in_shape):
            return list(in_shape), [in_shape[0]], []
        old, index, new = (tuple(s or ()) for s in in_shape)
        if not old or len(index) != 1 or new != (index[0], *old[1:]):
            raise ShapeError(f"{self.name}: old_tensor {old} and index_vector {index} (one axis) need new_tensor "
                             f"{(*index, *old[1:])}, not {new}.")
        return [old, index, new], [old], []

    def _rows(self, index: np.ndarray, n: int) -> np.ndarray:
        at = index.astype(INT64)
        if len(at) and (at.min() < 0 or at.max() >= n):
            raise ShapeError(f"{self.name}: index_vector holds {at.min()} to {at.max()}. old_tensor has rows 0 to {n - 1}.")
        return at

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        old, index, new = arrays
        y = old.copy()
        y[self._rows(index, len(old))] = new
        return y

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        at = self._rows(x[1], len(dy[0]))
        d_old = dy[0].copy()
        d_old[at] = 0
        return d_old, dy[0][at]


@register_operator("_histogram")
class Histogram(HostOp):
    """Counts of the values of data in each bin, int64, and the edges of the bins. On the host.

    bins: the edges, ascending [n + 1]; or bin_cnt bins of one width over range. The last bin includes its upper edge.
    """

    bin_cnt: int | None = None
    range: tuple[float, ...] | None = None
    output_names = ("output0", "output1")
    gradient_arguments = ()

    def validate(self) -> None:
        if self.bin_cnt is not None and (self.bin_cnt < 1 or self.range is None or len(self.range) != 2
                                         or not self.range[0] < self.range[1]):
            raise ParameterError(f"{self.name}: bin_cnt={self.bin_cnt} must be above 0 and needs range=(low, high), not "
                                 f"{self.range}.")

    @property
    def argument_names(self) -> tuple[str, ...]:
        return ("data", "bins") if self.bin_cnt is None else ("data",)

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        return list(in_type), [INT64, in_type[-1]], []

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        if self.bin_cnt is not None:
            return list(in_shape), [(self.bin_cnt,), (self.bin_cnt + 1,)], []
        edges = in_shape[1]
        if edges is None or -1 in edges:
            return list(in_shape), list(out_shape), []
        if len(edges) != 1 or edges[0] < 2:
            raise ShapeError(f"{self.name}: bins has shape {edges}. It must hold at least two edges along one axis.")
        return list(in_shape), [(edges[0] - 1,), edges], []

    def compute(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        x = arrays[0].ravel()
        if self.bin_cnt is None:
            edges = arrays[1]
            if (np.diff(edges) < 0).any():
                raise ParameterError(f"{self.name}: bins {edges[:8]} … do not ascend. Sort them.")
            return np.histogram(x[~np.isnan(x)] if x.dtype.kind == "f" else x, edges)[0], edges
        assert self.range is not None
        low, high = self.range
        x = x[(x >= low) & (x <= high)].astype(np.float64)
        at = np.minimum(((x - low) * self.bin_cnt / (high - low)).astype(INT64), self.bin_cnt - 1)
        return np.bincount(at, minlength=self.bin_cnt), np.linspace(low, high, self.bin_cnt + 1)
