"""ExecutorGroup: one executor for each context of a module, with its slice of the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ... import io
from ... import ndarray as nd
from ...context import Context, cpu
from ...errors import ParameterError, ShapeError
from ...ndarray import BaseSparseNDArray, NDArray, array
from .feed import Feed

_CACHE_SIZE = 8  # sets of executors cached by batch shapes, such as that of the last batch of an epoch


def split_batch(batch_size: int, work: Sequence[float]) -> list[slice]:
    """Return each context's slice of a batch, in proportion to its work; the last also gets the remainder.

    Raises ShapeError when a slice would be empty.
    """
    total = sum(work)
    counts = [round(batch_size * w / total) for w in work]
    counts[-1] += max(0, batch_size - sum(counts))
    slices = [slice(begin, min(end, batch_size)) for begin, end in pairwise(accumulate(counts, initial=0))]
    if any(s.start >= s.stop for s in slices):
        raise ShapeError(f"Module: a batch of {batch_size} cannot be split over {len(work)} contexts: one slice would be empty. "
                         f"Use a larger batch or fewer contexts.")
    return slices


def descriptions(shapes: Any) -> list[io.DataDesc]:
    """Return a list of DataDesc, from DataDesc or tuples (name, shape[, dtype[, layout]])."""
    return [d if isinstance(d, io.DataDesc) else io.DataDesc(*d) for d in shapes or ()]


def batch_axis(desc: io.DataDesc) -> int:
    """Return the axis of the samples, or -1 for an array without one."""
    return io.DataDesc.get_batch_axis(getattr(desc, "layout", None))


def resized(desc: io.DataDesc, batch_size: int) -> tuple[int, ...]:
    """Return the shape with another batch size."""
    axis, shape = batch_axis(desc), list(desc.shape)
    if axis >= 0 and shape:
        shape[axis] = batch_size
    return tuple(shape)


def placements(group2ctxs: Any, count: int) -> list[dict[str, Context]]:
    """Return {ctx_group: context} for each of the module's `count` contexts.

    group2ctxs:  None, a list of {group: context}, or a dictionary from group to one context or a list of them.
    Raises ParameterError for a list of another length, or a value that is not a Context.
    """
    group2ctxs = {} if group2ctxs is None else group2ctxs
    if isinstance(group2ctxs, Mapping):
        lists: dict[str, list[Any]] = {}
        for name, value in group2ctxs.items():
            contexts = list(value) if isinstance(value, (list, tuple)) else [value]
            lists[name] = contexts * count if len(contexts) == 1 else contexts
            if len(lists[name]) != count:
                raise ParameterError(f"Module: group2ctxs: group {name!r} has {value!r}. Give one context, or a list of "
                                     f"{count}: one for each context of the module.")
        result = [{name: contexts[i] for name, contexts in lists.items()} for i in range(count)]
    else:
        result = list(group2ctxs) if isinstance(group2ctxs, (list, tuple)) else []
        if len(result) != count or not all(isinstance(groups, Mapping) for groups in result):
            raise ParameterError(f"Module: group2ctxs is {group2ctxs!r}. Give a dictionary from ctx_group to context, or a "
                                 f"list of {count} of them: one for each context of the module.")
    for groups in result:
        for name, ctx in groups.items():
            if not isinstance(ctx, Context):
                raise ParameterError(f"Module: group2ctxs: group {name!r} has {ctx!r}, which is not a Context. "
                                     f"Use mx.cpu(0) or mx.gpu(0).")
    return [dict(groups) for groups in result]


class ExecutorGroup:
    """The executors of a symbol on several contexts: loads slices of a batch, runs them and concatenates the outputs.

    work:         the share of each context in a batch, relative to the others.
    param_names:  the arguments that are learned; fixed_names among them get no gradient.
    grad_req:     "write" or "add", or a dictionary by name.
    shared:       a group on the same contexts, whose parameters, gradients and states this group uses too.
    group2ctxs:   {ctx_group: context} for each context; see placements.
    """

    def __init__(self, symbol: Any, contexts: Sequence[Context], work: Sequence[float],
                 data_shapes: Sequence[io.DataDesc], label_shapes: Sequence[io.DataDesc], param_names: Sequence[str],
                 for_training: bool, inputs_need_grad: bool, fixed_names: Sequence[str] = (), grad_req: Any = "write",
                 shared: ExecutorGroup | None = None, group2ctxs: Sequence[Mapping[str, Context]] | None = None):
        self.symbol = symbol
        self.contexts = list(contexts)
        self.work = list(work)
        self.group2ctxs = list(group2ctxs) if group2ctxs is not None else placements(None, len(self.contexts))
        self.for_training = for_training
        self.inputs_need_grad = inputs_need_grad
        arguments = symbol.list_arguments()
        self.param_names = [n for n in arguments if n in set(param_names)]
        self.aux_names = symbol.list_auxiliary_states()
        self.output_names = symbol.list_outputs()
        # outputs without a __layout__ have their samples along axis 0
        self.output_axes = [io.DataDesc.get_batch_axis(symbol[i].attr("__layout__")) for i in range(len(self.output_names))]
        data_names = [d.name for d in data_shapes]
        self.grad_req = {n: self._request(n, grad_req, data_names, fixed_names) for n in arguments}
        self.arg_names, self.fixed_param_names = arguments, list(fixed_names)
        self.execs: list[Any] = []
        self._uses_gpu = any(c.is_gpu for c in (*self.contexts, *(c for groups in self.group2ctxs for c in groups.values())))
        self._feeds: list[Feed] = []  # one for each executor; none without a GPU
        self._bound: dict[tuple, tuple[list[Any], list[Feed]]] = {}
        self._ahead: dict[str, tuple[NDArray, int]] = {}  # inputs that are uploaded: from where, of which version
        self._shared = shared
        self.bind(data_shapes, label_shapes)

    def _request(self, name: str, grad_req: Any, data_names: Sequence[str], fixed_names: Sequence[str]) -> str:
        if not self.for_training:
            return "null"
        if name in data_names:
            return "write" if self.inputs_need_grad else "null"
        if name not in self.param_names or name in fixed_names:
            return "null"
        return grad_req.get(name, "null") if isinstance(grad_req, Mapping) else grad_req

    # ---- binding --------------------------------------------------------------------------------------------------
    def bind(self, data_shapes: Sequence[io.DataDesc], label_shapes: Sequence[io.DataDesc]) -> None:
        """Switch to executors for these shapes, new or cached. All of them share the parameters."""
        self.data_shapes, self.label_shapes = list(data_shapes), list(label_shapes)
        described = [*self.data_shapes, *self.label_shapes]
        sizes = {d.name: d.shape[batch_axis(d)] for d in described if batch_axis(d) >= 0 and d.shape}
        if len(set(sizes.values())) > 1:
            raise ShapeError(f"Module: the inputs disagree on the batch size: "
                             f"{', '.join(f'{n} {s}' for n, s in sizes.items())}.")
        self.batch_size = next(iter(sizes.values()), 0)
        self.slices = split_batch(self.batch_size, self.work) if sizes else [slice(0, 0)] * len(self.contexts)
        key = tuple((d.name, d.shape) for d in described)
        bound = self._bound.get(key)
        if bound is None:
            first, _ = next(iter(self._bound.values()), (None, None))
            execs = [self._executor(i, described, first[i] if first else None) for i in range(len(self.contexts))]
            if len(self._bound) >= _CACHE_SIZE:
                self._bound.pop(list(self._bound)[1])  # not the first, which owns the parameters
            bound = self._bound[key] = execs, [Feed(e) for e in execs] if self._uses_gpu else []
        self.execs, self._feeds = bound
        self._ahead = {}

    def _executor(self, i: int, described: Sequence[io.DataDesc], shared: Any) -> Any:
        part = self.slices[i]
        shapes = {d.name: resized(d, part.stop - part.start) for d in described}
        if shared is not None:
            return shared.reshape(partial_shaping=True, allow_up_sizing=True, **shapes)
        types = {d.name: np.dtype(d.dtype) for d in described}
        owner: Any = self._shared.execs[i] if self._shared is not None else None
        executor = self.symbol.simple_bind(self.contexts[i], grad_req=self.grad_req, type_dict=types, shared_exec=owner,
                                           shared_arg_names=self.param_names if owner is not None else None,
                                           group2ctx=self.group2ctxs[i] or None, **shapes)
        for name in self.param_names:
            if owner is not None and owner.arg_dict.get(name) is not executor.arg_dict[name]:
                shape = tuple(owner.arg_dict[name].shape) if name in owner.arg_dict else "missing"
                raise ShapeError(f"Module.bind: parameter {name!r} cannot be shared: {tuple(executor.arg_dict[name].shape)} "
                                 f"here, {shape} in shared_module.")
        return executor

    # ---- MXNet's names for the inputs and outputs -------------------------------------------------------------------
    @property
    def data_names(self) -> list[str]:
        """The names of the data."""
        return [d.name for d in self.data_shapes]

    @property
    def label_names(self) -> list[str]:
        """The names of the labels."""
        return [d.name for d in self.label_shapes]

    @property
    def data_layouts(self) -> list[int]:
        """The batch axis of each data array."""
        return [batch_axis(d) for d in self.data_shapes]

    @property
    def label_layouts(self) -> list[int] | None:
        """The batch axis of each label; None without labels."""
        return [batch_axis(d) for d in self.label_shapes] or None

    @property
    def output_layouts(self) -> list[int]:
        """The batch axis of each output."""
        return self.output_axes

    @property
    def data_arrays(self) -> list[list[tuple[slice, NDArray]]]:
        """(samples, array) of each data array on each context."""
        return self._parts(self.data_names)

    @property
    def label_arrays(self) -> list[list[tuple[slice, NDArray]]] | None:
        """(samples, array) of each label on each context; None without labels."""
        return self._parts(self.label_names) or None

    @property
    def input_grad_arrays(self) -> list[list[NDArray | None]] | None:
        """The derivative by each data array on each context; None where bind was not asked for it."""
        return [[e.grad_dict[n] for e in self.execs] for n in self.data_names] if self.inputs_need_grad else None

    def _parts(self, names: Sequence[str]) -> list[list[tuple[slice, NDArray]]]:
        return [[(part, e.arg_dict[n]) for part, e in zip(self.slices, self.execs)] for n in names]

    def install_monitor(self, mon: Any) -> None:
        """Let a Monitor observe every executor."""
        for e in self.execs:
            mon.install(e)

    # ---- parameters -----------------------------------------------------------------------------------------------
    @property
    def param_arrays(self) -> list[list[NDArray]]:
        """The array of each parameter on each context."""
        return [[e.arg_dict[n] for e in self.execs] for n in self.param_names]

    @property
    def grad_arrays(self) -> list[list[NDArray | None]]:
        """The gradient of each parameter on each context; None for parameters that are not learned."""
        return [[e.grad_dict.get(n) for e in self.execs] for n in self.param_names]

    @property
    def aux_arrays(self) -> list[list[NDArray]]:
        """The array of each auxiliary state on each context."""
        return [[e.aux_dict[n] for e in self.execs] for n in self.aux_names]

    def set_params(self, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray]) -> None:
        """Copy parameters to every context. Names that the network does not have are ignored."""
        for e in self.execs:
            for params, own in ((arg_params, e.arg_dict), (aux_params, e.aux_dict)):
                for name, value in params.items():
                    if name in own:
                        copy_into(value, own[name], name)

    def get_params(self, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray]) -> None:
        """Copy the mean of the parameters over contexts into arrays on the host."""
        for names, blocks, out in ((self.param_names, self.param_arrays, arg_params),
                                   (self.aux_names, self.aux_arrays, aux_params)):
            for name, block in zip(names, blocks):
                copy_into(_mean(block), out[name], name)

    # ---- running --------------------------------------------------------------------------------------------------
    def prepare(self, data: Sequence[Any], label: Sequence[Any] | None) -> None:
        """Begin to upload a batch to GPUs. `forward` of the same arrays, unless they are written before, finds them there."""
        for described, arrays in ((self.data_shapes, data), (self.label_shapes, label or ())) if self._feeds else ():
            for desc, source in zip(described, arrays):
                if tuple(np.shape(source)) == tuple(desc.shape) and any(f.takes(desc.name, source) for f in self._feeds):
                    self._upload(desc, source)
                    self._ahead[desc.name] = source, source.chunk.var.version

    def forward(self, data: Sequence[Any], label: Sequence[Any] | None, is_train: bool) -> None:
        """Load each context's slice of a batch, and run the executors."""
        given = self._load(self.data_shapes, data)
        if label and self.label_shapes:
            given = [[*a, *b] for a, b in zip(given, self._load(self.label_shapes, label))]
        for e, copies in zip(self.execs, given):
            e.load_and_forward(is_train, copies)

    def _load(self, described: Sequence[io.DataDesc], arrays: Sequence[Any]) -> list[list[tuple[NDArray, NDArray]]]:
        """Queue the way of arrays to each executor's arguments, and return the copies that are left to its forward pass."""
        if len(described) != len(arrays):
            raise ParameterError(f"Module.forward: the batch has {len(arrays)} arrays for {len(described)} inputs: "
                                 f"{', '.join(d.name for d in described)}.")
        left: list[list[tuple[NDArray, NDArray]]] = [[] for _ in self.execs]
        uploaded: list[list[str]] = [[] for _ in self._feeds] if self._feeds else []
        for desc, given in zip(described, arrays):
            source: Any = given if isinstance(given, (NDArray, BaseSparseNDArray)) else array(given)
            if self._feeds:
                ahead, version = self._ahead.pop(desc.name, (None, 0))
                if ahead is None or ahead is not source or version != ahead.chunk.var.version:
                    self._upload(desc, source)
            for i, e in enumerate(self.execs):
                target = e.arg_dict.get(desc.name)
                if self._feeds and self._feeds[i].takes(desc.name, source):
                    uploaded[i].append(desc.name)
                elif target is not None:
                    own = source if len(self.execs) == 1 else self._slice(source, batch_axis(desc), self.slices[i])
                    if isinstance(own, NDArray) and isinstance(target, NDArray) and own.layout.same(target.layout):
                        left[i].append((own, target))
                    else:
                        copy_into(own, target, desc.name)
        for feed, names in zip(self._feeds, uploaded):
            feed.load(names)
        return left

    def _upload(self, desc: io.DataDesc, source: Any) -> None:
        for feed, part in zip(self._feeds, self.slices):
            if feed.takes(desc.name, source):
                feed.upload(desc.name, self._slice(source, batch_axis(desc), part), copy_into)

    def _slice(self, a: Any, axis: int, part: slice) -> Any:
        """Return a context's slice of an array, or the array itself if it has no batch axis or there is one context."""
        if len(self.execs) == 1 or axis < 0:
            return a
        return a[part] if axis == 0 else nd.slice_axis(a, axis=axis, begin=part.start, end=part.stop)

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradients. Each context gets its slice of out_grads."""
        if out_grads is not None and not isinstance(out_grads, (list, tuple)):
            out_grads = [out_grads]
        for e, part in zip(self.execs, self.slices):
            if out_grads is None:
                e.backward()
            else:
                e.backward(out_grads=[self._slice(g, axis, part).as_in_context(o.context)
                                      for g, axis, o in zip(out_grads, self.output_axes, e.outputs)])

    def get_outputs(self, merge_multi_context: bool = True, begin: int = 0, end: int | None = None) -> list[Any]:
        """Return outputs begin to end of the whole batch, or (merge_multi_context=False) the list of parts of each."""
        if merge_multi_context and len(self.execs) == 1:
            return self.execs[0].outputs[begin:end]
        parts = [list(p) for p in zip(*(e.outputs[begin:end] for e in self.execs))]
        return [_concatenate(p, axis) for p, axis in zip(parts, self.output_axes[begin:end])] if merge_multi_context else parts

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the derivative by each data input, of the whole batch or (merge_multi_context=False) the list of its parts."""
        parts = [[e.grad_dict[d.name] for e in self.execs] for d in self.data_shapes]
        return [_concatenate(p, batch_axis(d)) for p, d in zip(parts, self.data_shapes)] if merge_multi_context else parts

    def update_metric(self, metric: Any, labels: Sequence[Any], pre_sliced: bool = False) -> None:
        """Update the metric with the outputs and labels of each context."""
        names = [d.name for d in self.label_shapes]
        for i, (e, part) in enumerate(zip(self.execs, self.slices)):
            own = labels[i] if pre_sliced else [
                self._slice(label, batch_axis(d), part) for d, label in zip(self.label_shapes, labels)]
            outputs = self._feeds[i].outputs() if self._feeds else e.outputs
            metric.update_dict(dict(zip(names, own)), dict(zip(self.output_names, outputs)))


def copy_into(source: NDArray, target: NDArray, name: str) -> None:
    """Copy source into target, across contexts and dtypes. Raises ShapeError with the name of the parameter or input."""
    if tuple(source.shape) != tuple(target.shape):
        raise ShapeError(f"Module: {name!r} has shape {tuple(source.shape)}, the network needs {tuple(target.shape)}.")
    source.copyto(target)


def _concatenate(parts: list[NDArray], axis: int) -> NDArray:
    if len(parts) == 1 or axis < 0:
        return parts[0]
    return nd.concat(*[p.as_in_context(parts[0].context) for p in parts], dim=axis)


def _mean(block: list[NDArray]) -> NDArray:
    if len(block) == 1:
        return block[0]  # exactly, without a division
    total = block[0].copyto(cpu(0))
    for a in block[1:]:
        total += a.as_in_context(total.context)
    return total / len(block)
