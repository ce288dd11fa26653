"""HybridBlock: a Block whose forward can also be traced to a Symbol, and then runs as one compiled graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

from numpy.typing import DTypeLike

from ... import ndarray
from ...context import Context
from ...errors import BlockError, DeferredInitializationError
from ...fork import lock_free_in_child
from ...graph.executor.cached_op import CachedOp
from ...graph.symbol import namespace as symbol
from ...graph.symbol.symbol import Group, Symbol
from ...ndarray import BaseSparseNDArray, NDArray
from .block import Block
from .nested import Format, _flatten, _regroup
from .parameter_dict import ParameterDict

_building = lock_free_in_child()  # held while a graph is made or parameters get their shapes: threads may share a block


class HybridBlock(Block):
    """A Block whose subclass writes `hybrid_forward(F, x, ..., **params)` in terms of F, which is mx.nd or mx.sym.

        class Net(gluon.HybridBlock):
            ...
            def hybrid_forward(self, F, x, weight):   # weight is the parameter self.weight
                return F.relu(F.dot(x, weight))

    After `hybridize`, each call runs a graph that is planned and fused, once for each signature of inputs.
    """

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None):
        super().__init__(prefix=prefix, params=params)
        self._cached_graph: Any = ()
        self._cached_op: CachedOp | None = None
        # by input of the graph: (True, the number of an argument) or (False, a parameter)
        self._cached_op_args: list[tuple[bool, Any]] = []
        self._callback: Callable[..., Any] | None = None
        self._monitor_all = False
        self._in_format: Format | None = None
        self._out_format: Format | None = None
        self._active = False
        self._flags: list[tuple[str, Any]] = []

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the compiled graph, which a copy makes again."""
        return {**self.__dict__, "_cached_graph": (), "_cached_op": None, "_cached_op_args": []}

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, HybridBlock):
            self._clear_cached_op()

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Make block, which must be a HybridBlock, a child."""
        if not isinstance(block, HybridBlock):
            raise BlockError(f"Children of HybridBlock must also be HybridBlock, but {block} has type {type(block)}. Use "
                             f"HybridSequential in place of Sequential.")
        super().register_child(block, name)
        self._clear_cached_op()

    def hybridize(self, active: bool = True, backend: str | None = None, clear: bool = True, static_alloc: bool = False,
                  static_shape: bool = False, inline_limit: int = 2, forward_bulk_size: int | None = None,
                  backward_bulk_size: int | None = None, **kwargs: Any) -> None:
        """Run as a compiled graph from the next call on; or no longer, if active is False.

        clear: forget the graphs compiled so far. The other settings are MXNet's and change nothing: plans are always static.
        """
        self._active = active
        self._flags = [("static_alloc", static_alloc), ("static_shape", static_shape), ("inline_limit", inline_limit)]
        if clear:
            self._clear_cached_op()
        if active and (self._forward_hooks or self._forward_pre_hooks):
            warnings.warn(f'"{self.name}" has forward hooks and is hybridized. They are not called where it is part of a larger '
                          f"hybridized block.", stacklevel=2)
        super().hybridize(active, static_alloc=static_alloc, static_shape=static_shape, inline_limit=inline_limit,
                          forward_bulk_size=forward_bulk_size, backward_bulk_size=backward_bulk_size)

    def optimize_for(self, x: Any, *args: Any, backend: str | None = None, clear: bool = False, **kwargs: Any) -> None:
        """Compile the graph for inputs like these, without running it. backend: a name; Tritium has one compiler."""
        if not backend:
            raise BlockError('Must specify "backend" to optimize_for.')
        self.hybridize(True, backend, clear)
        with _gather([x, *args])[0].context:
            self._build_cache(x, *args)

    def cast(self, dtype: DTypeLike) -> None:
        """Convert all parameters to another element type."""
        self._clear_cached_op()
        super().cast(dtype)

    def _clear_cached_op(self) -> None:
        self._cached_graph, self._cached_op, self._cached_op_args = (), None, []

    def register_op_hook(self, callback: Callable[..., Any], monitor_all: bool = False) -> None:
        """Call callback(name, operator, array) for each operator's outputs, and with monitor_all its inputs, when hybridized."""
        for block in (self, *self._children.values()):
            block._callback, block._monitor_all = callback, monitor_all  # type: ignore[attr-defined]
            if isinstance(block, HybridBlock) and block._cached_op is not None:
                block._cached_op._register_op_hook(callback, monitor_all)

    def export(self, path: str, epoch: int = 0, remove_amp_cast: bool = True) -> None:
        """Write the graph to `PATH-symbol.json` and the parameters to `PATH-EPOCH.params`, for SymbolBlock.imports and Module.

        Raises BlockError before the first call after hybridize.
        """
        if not self._cached_graph:
            raise BlockError("HybridBlock.export: there is no graph yet. Call hybridize() and then the block, once.")
        out = self._cached_graph[1]
        out.save(f"{path}-symbol.json", remove_amp_cast=remove_amp_cast)
        arguments, states = set(out.list_arguments()), set(out.list_auxiliary_states())
        arrays = {}
        for name, param in self.collect_params().items():
            if name in arguments or name in states:
                arrays[f"{'arg' if name in arguments else 'aux'}:{name}"] = param._reduce()
            else:
                warnings.warn(f'Parameter "{name}" is not found in the graph.', stacklevel=2)
        ndarray.save(f"{path}-{epoch:04d}.params", arrays)

    # ---- the graph --------------------------------------------------------------------------------------------------
    def _get_graph(self, *args: Any) -> tuple[list[Symbol], Symbol]:
        """Return the variables of the inputs and the graph of the outputs, traced at the first call."""
        if not self._cached_graph:
            flat, self._in_format = _flatten(args, "input")
            real = sum(a is not None for a in flat)
            if real == 0:
                raise BlockError(f"{self.name}: all inputs are None. Pass one array at least.")
            numbers = iter(range(real))
            inputs = [None if a is None else symbol.var("data" if real == 1 else f"data{next(numbers)}") for a in flat]
            params = {name: param.var() for name, param in self._reg_params.items()}
            with self.name_scope():
                out = self.hybrid_forward(symbol, *_regroup(inputs, self._in_format), **params)
            outputs, self._out_format = _flatten(out, "output")
            self._cached_graph = [i for i in inputs if i is not None], Group(outputs)
        return self._cached_graph

    def infer_shape(self, *args: Any) -> None:
        """Complete the shapes of all parameters from those of inputs."""
        self._infer_attrs("infer_shape", "shape", *args)

    def infer_type(self, *args: Any) -> None:
        """Complete the dtypes of all parameters from those of inputs."""
        self._infer_attrs("infer_type", "dtype", *args)

    def _infer_attrs(self, infer_fn: str, attr: str, *args: Any) -> None:
        inputs, out = self._get_graph(*args)
        arrays = [a for a in _flatten(args, "input")[0] if a is not None]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            arguments, _, states = getattr(out, infer_fn)(**{str(i.name): getattr(a, attr) for i, a in zip(inputs, arrays)})
        if arguments is None:
            raise BlockError(str(caught[0].message) if caught else f"{infer_fn}: {attr} cannot be inferred.")
        found = dict(zip(out.list_arguments(), arguments)) | dict(zip(out.list_auxiliary_states(), states))
        for param in self.collect_params().values():
            if param.name in found:
                setattr(param, attr, found[param.name])

    def _deferred_infer_shape(self, *args: Any) -> None:
        try:
            self.infer_shape(*args)
        except Exception as failure:
            raise BlockError(f"Deferred initialization failed because shape cannot be inferred. {failure}") from failure

    # ---- running ----------------------------------------------------------------------------------------------------
    def forward(self, x: Any, *args: Any) -> Any:
        """Run hybrid_forward on arrays, or on symbols to trace it."""
        flat: list[Any] = [x, *args]
        if {*map(type, flat)} != {NDArray}:
            flat = _gather(flat)
            if self._active and any(isinstance(a, BaseSparseNDArray) for a in flat):
                return self.forward(*_dense([x, *args]))  # a graph is planned for dense arrays
            if any(isinstance(a, Symbol) for a in flat):
                if not all(isinstance(a, Symbol) for a in flat):
                    raise BlockError(f"{self.name}: the inputs mix NDArrays and Symbols. Pass arrays to compute, or symbols to "
                                     f"compose.")
                params = {name: param.var() for name, param in self._reg_params.items()}
                with self.name_scope():
                    return self.hybrid_forward(symbol, x, *args, **params)
        if self._active:
            return self._call_cached_op(x, *args)
        ctx = flat[0].context
        with ctx:
            return self.hybrid_forward(ndarray, x, *args, **self._arrays(ctx, x, *args))

    def _arrays(self, ctx: Context, *args: Any) -> dict[str, NDArray]:
        """Return its own parameters' arrays on ctx, initialized if that waited for the shapes of args."""
        try:
            return {name: param.data(ctx) for name, param in self._reg_params.items()}
        except DeferredInitializationError:
            with _building:
                self._deferred_infer_shape(*_dense(args))
                for param in self.params.values():
                    param._finish_deferred_init()
            return {name: param.data(ctx) for name, param in self._reg_params.items()}

    def _build_cache(self, *args: Any) -> None:
        """Make the CachedOp of the graph, and initialize parameters that waited for shapes."""
        inputs, out = self._get_graph(*args)
        at = {str(i.name): number for number, i in enumerate(inputs)}
        params = self.collect_params()
        names = out.list_inputs()
        for name in at.keys() - set(names):
            warnings.warn(f"The {at[name]}-th input to HybridBlock is not used by any computation. Is this intended?",
                          stacklevel=6)
        for name in params.keys() - set(names):
            warnings.warn(f"Parameter {name} is not used by any computation. Is this intended?", stacklevel=6)
        for name in names:
            if name not in at and name not in params:
                raise BlockError(f"Unknown input to HybridBlock: {name}. Every variable of the graph is an input or a parameter.")
        self._cached_op_args = [(True, at[n]) if n in at else (False, params[n]) for n in names]
        self._complete_params(*args)
        flags = [("data_indices", [i for i, (is_arg, _) in enumerate(self._cached_op_args) if is_arg]),
                 ("param_indices", [i for i, (is_arg, _) in enumerate(self._cached_op_args) if not is_arg])]
        self._cached_op = CachedOp(out, [*flags, *self._flags])
        if self._callback is not None:
            self._cached_op._register_op_hook(self._callback, self._monitor_all)

    def _complete_params(self, *args: Any) -> None:
        """Initialize the graph's parameters that waited for shapes."""
        used = [p for is_arg, p in self._cached_op_args if not is_arg]
        if any(p._deferred_init for p in used):
            self._deferred_infer_shape(*args)
            for param in used:
                param._finish_deferred_init()

    def _call_cached_op(self, *args: Any) -> Any:
        if self._cached_op is None:
            with _building, _gather(args)[0].context:
                if self._cached_op is None:
                    self._build_cache(*args)
        assert self._cached_op is not None and self._in_format is not None and self._out_format is not None
        flat, form = _flatten(args, "input")
        if form != self._in_format and not _fits(form, self._in_format):
            raise BlockError(f"The argument structure of HybridBlock does not match the cached version. Stored format = "
                             f"{self._in_format}, input format = {form}.")
        arrays = [a for a in flat if a is not None]
        ctx = arrays[0].layout.ctx
        try:
            inputs = [arrays[p] if is_arg else d[0] if (d := p._data) and len(d) == 1 and d[0].layout.ctx is ctx
                      else p._check_and_get(d, ctx) for is_arg, p in self._cached_op_args]
        except DeferredInitializationError:  # initialize() was called after the graph was made
            with _building, ctx:
                self._complete_params(*args)
            inputs = [arrays[p] if is_arg else p._check_and_get(p._data, ctx) for is_arg, p in self._cached_op_args]
        out = self._cached_op(*inputs)
        return _regroup([out] if isinstance(out, NDArray) else out, self._out_format)

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs, computed with the functions of F (mx.nd or mx.sym). A subclass writes this.

        kwargs: the block's own parameters by attribute.
        """
        raise NotImplementedError(f"{type(self).__name__}: hybrid_forward is not written.")


def _fits(form: Format, stored: Format) -> bool:
    """Return True if the forms of two argument lists differ only by Nones at their ends."""
    if not isinstance(form, list) or not isinstance(stored, list):
        return False
    longer, shorter = sorted((form, stored), key=len, reverse=True)
    return longer[:len(shorter)] == shorter and all(f == -1 for f in longer[len(shorter):])


def _gather(args: Any) -> list[Any]:
    """Return the arrays and symbols in nested args. Raises BlockError if there are none."""
    flat = list(_arrays_in(args))
    if not flat:
        raise BlockError(f"HybridBlock: there is no NDArray or Symbol among the inputs: {args}.")
    return flat


def _dense(arg: Any) -> Any:
    """Return nested args with dense arrays for sparse ones."""
    if isinstance(arg, (list, tuple)):
        return [_dense(a) for a in arg]
    return arg.tostype("default") if isinstance(arg, BaseSparseNDArray) else arg


def _arrays_in(arg: Any) -> Iterator[Any]:
    if isinstance(arg, (NDArray, Symbol, BaseSparseNDArray)):
        yield arg
    elif isinstance(arg, (list, tuple)):
        for a in arg:
            yield from _arrays_in(a)
