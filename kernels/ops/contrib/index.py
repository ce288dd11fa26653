"""arange_like, index_array, index_copy, histogram: arrays of indices, rows replaced by index, and counts of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....context import Context
from ....errors import ParameterError, ShapeError
from ....integers import cdiv
from ...cpu.index_limits import Limits
from ...declare.composite import TracedValue, composite, ops
from ...declare.index_kernel import Put, index_kernel, put, scatter_kernel
from ...declare.numpy_op import NumpyOp
from ...declare.operator_property import Dtypes, KnownShapes, OperatorProperty, Shapes
from ...declare.property_op import register_operator
from ...ir import lang
from ...kernel import KernelFunction
from ...op import Req, Reqs, Spec, Specs, is_known
from ..tensor.reshape import check_axis

INT64 = np.dtype(np.int64)


@composite("_contrib_arange_like", gives=())
def arange_like(data: TracedValue, *, start: float = 0.0, step: float = 1.0, repeat: int = 1, ctx: Context | None = None,
                axis: int | None = None) -> TracedValue:
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
class IndexArray(OperatorProperty):
    """The index of every element of data along all axes, or along `axes`: int64 [*data.shape, axes]."""

    axes: tuple | None = None
    gradient_arguments = ()
    output_dtypes = (INT64,)

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        x = in_shape[0]
        return [(*x, len(self._axes(len(x))))]

    def _axes(self, rank: int) -> tuple[int, ...]:
        return tuple(range(rank)) if self.axes is None else tuple(check_axis(self.name, a, rank) for a in self.axes)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        axes = self._axes(len(ins[0].shape))

        def body(at: Any) -> Any:
            found = at[axes[-1]]
            for i, axis in enumerate(axes[:-1]):
                found = lang.where(at[-1] == i, at[axis], found)
            return found

        kernel = index_kernel(body, [], outs, reqs, target, self.name)
        return lambda run, inputs, outputs: kernel(run, [], outputs)


@register_operator("_contrib_index_copy")
class IndexCopy(OperatorProperty):
    """old_tensor with its rows index_vector replaced by the rows of new_tensor, in order.

    old_tensor: [n, ...]; index_vector: [m]; new_tensor: [m, ...]. Of equal indices the last counts.
    An index out of range raises ShapeError; on a GPU it is left out.
    """

    argument_names = ("old_tensor", "index_vector", "new_tensor")
    gradient_arguments = (0, 2)
    backward_reads = ("dy0", "x1")

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        d = in_type[0] or in_type[2] or out_type[0]
        return [d, in_type[1], d], [d], []

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        old, index, new = (None if s is None or not is_known(s) else tuple(s) for s in in_shape)
        if old is None or index is None or new is None:
            return list(in_shape), [in_shape[0]], []
        if not old or len(index) != 1 or new != (index[0], *old[1:]):
            raise ShapeError(f"{self.name}: old_tensor {old} and index_vector {index} (one axis) need new_tensor "
                             f"{(*index, *old[1:])}, not {new}.")
        return [old, index, new], [old], []

    def _limits(self, n: int) -> Limits:
        return Limits(1, (n,), text=f"index_vector holds {{least}} to {{most}}. old_tensor has rows 0 to {n - 1}.")

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if target == "gpu":
            return self._gpu_forward(ins, outs, reqs)

        def body(at: Any, old: Any, index: Any, new: Any) -> Put:
            return put(new[at], index[at[0]].astype("int64"), *at[1:])

        return scatter_kernel(body, ins[2].shape, ins, outs, reqs, target, self.name, combine="put", base=0,
                              limits=self._limits(ins[0].shape[0]))

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if target == "gpu":
            return self._gpu_backward(ins, outs, reqs)
        limits = self._limits(outs[0].shape[0])
        kept = scatter_kernel(lambda at, dy, index: put(0, index[at[0]].astype("int64"), *at[1:]), outs[1].shape, ins, outs[:1],
                              reqs[:1], target, self.name, combine="put", base=0, limits=limits)
        given = index_kernel(lambda at, dy, index: dy[(index[at[0]].astype("int64"), *at[1:])], ins, outs[1:], reqs[1:], target,
                             self.name, limits=limits)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            kept(run, inputs, outputs[:1])
            given(run, inputs, outputs[1:])

        return kernel

    def _last(self, n: int, index: Spec) -> KernelFunction:
        """Return the GPU kernel of which row of new_tensor each of the n rows gets: int64 [n], -1 for none."""

        def body(at: Any, index: Any) -> Put:
            row = index[at].astype("int64")
            return put(at[0], row, inside=(row >= 0) & (row < n))

        return scatter_kernel(body, index.shape, [index], [Spec((n,), INT64)], [Req.WRITE], "gpu", self.name, combine="maximum",
                              start=-1)

    def _gpu_forward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        old, index, new = ins
        n = old.shape[0]
        last = self._last(n, index)

        def body(at: Any, old: Any, row: Any, new: Any) -> Any:
            from_new = row[at[0]]
            held = from_new >= 0
            return lang.where(held, new.at(from_new, *at[1:], inside=held), old[at])

        chosen = index_kernel(body, [old, Spec((n,), INT64), new], outs, reqs, "gpu", self.name)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            row = run.workspace((n,), INT64)
            last(run, [inputs[1]], [row])
            chosen(run, [inputs[0], row, inputs[2]], outputs)

        return kernel

    def _gpu_backward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        dy, index = ins
        n = dy.shape[0]
        last = self._last(n, index)
        kept = index_kernel(lambda at, dy, row: lang.where(row[at[0]] < 0, dy[at], 0), [dy, Spec((n,), INT64)], outs[:1],
                            reqs[:1], "gpu", self.name)

        def body(at: Any, dy: Any, index: Any) -> Any:
            row = index[at[0]].astype("int64")
            return dy.at(row, *at[1:], inside=(row >= 0) & (row < n))

        given = index_kernel(body, ins, outs[1:], reqs[1:], "gpu", self.name)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            if reqs[0] != Req.NULL:
                row = run.workspace((n,), INT64)
                last(run, [inputs[1]], [row])
                kept(run, [inputs[0], row], outputs[:1])
            given(run, inputs, outputs[1:])

        return kernel


@register_operator("_histogram")
class Histogram(NumpyOp):
    """Counts of the values of data in each bin, int64, and the edges of the bins.

    bins: the edges, ascending [n + 1]; or bin_cnt bins of one width over range. The last bin includes its upper edge.
    Edges that do not ascend raise ParameterError; on a GPU the counts are then meaningless.
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
        x, edges = arrays[0].ravel(), arrays[1]
        if (np.diff(edges) < 0).any():
            raise ParameterError(f"{self.name}: bins {edges[:8]} … do not ascend. Sort them.")
        return np.histogram(x[~np.isnan(x)] if x.dtype.kind == "f" else x, edges)[0], edges

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if self.bin_cnt is None:
            return super().forward_kernel(ins, outs, reqs, target, train)
        assert self.range is not None
        (low, high), count = self.range, self.bin_cnt

        def body(at: Any, x: Any) -> Put:
            v = x[at]
            inside = (v >= low) & (v <= high)
            bin = (lang.where(inside, v, low).astype("float64") - low) * count / (high - low)
            return put(1, lang.minimum(bin.astype("int64"), count - 1), inside=inside)

        def edge(at: Any) -> Any:
            return lang.where(at[0] == count, high, at[0].astype("float64") * ((high - low) / count) + low)

        counts = scatter_kernel(body, (ins[0].size,), ins, outs[:1], reqs[:1], target, self.name, views=[(ins[0].size,)])
        edges = index_kernel(edge, [], outs[1:], reqs[1:], target, self.name)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            counts(run, inputs, outputs[:1])
            edges(run, [], outputs[1:])

        return kernel

    def gpu_forward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        return self._by_edges(ins, outs, reqs)

    def _by_edges(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        n = ins[1].size
        steps = n.bit_length()

        def body(at: Any, x: Any, edges: Any) -> Put:
            v = x[at]

            def halve(_: Any, low: Any, high: Any) -> tuple[Any, Any]:  # the number of edges up to v is in low … high
                middle = (low + high) // 2
                above = edges[lang.minimum(middle, n - 1)] <= v
                return lang.where((low < high) & above, middle + 1, low), lang.where((low < high) & ~above, middle, high)

            found, _ = lang.fold(steps, (0, n), halve)
            return put(1, lang.minimum(found - 1, n - 2), inside=(found > 0) & (v <= edges[n - 1]))

        counts = scatter_kernel(body, (ins[0].size,), ins, outs[:1], reqs[:1], "gpu", self.name, views=[(ins[0].size,), (n,)])
        copied = index_kernel(lambda at, edges: edges[at], ins[1:], outs[1:], reqs[1:], "gpu", self.name)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            counts(run, inputs, outputs[:1])
            copied(run, inputs[1:], outputs[1:])

        return kernel
