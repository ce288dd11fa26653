"""Binding: arrays for a symbol, the caller's or allocated, checked against the inferred specs, and an Executor over them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from ...cache import Cache
from ...context import Context, current_context
from ...dtype import as_dtype
from ...errors import ContextError, GraphError, ShapeError, describe, nearest
from ...kernels.op import ShapeLike, Spec, Specs
from ...ndarray import NDArray, zeros
from ...ndarray.core.sparse import BaseSparseNDArray
from ..options import Options, current
from ..passes.device_placement import contexts_of
from ..passes.gradient import REQUESTS
from ..passes.infer import from_user
from ..passes.storage import output_stypes
from ..program import specs_of
from ..symbol.node import Node, split_variables
from .executor import Binding, Executor, Plans

if TYPE_CHECKING:
    from ..symbol.symbol import Symbol


ContextLike = Context | Sequence[Context] | None
Arrays = Mapping[str, NDArray | None] | Sequence[NDArray | None]
GradReq = str | Mapping[str, str] | Sequence[str]


def simple_bind(symbol: Symbol, ctx: ContextLike, grad_req: GradReq, type_dict: Mapping[str, DTypeLike],
                shared_arg_names: Sequence[str] | None, shared_exec: Executor | None,
                shared_buffer: dict[str, NDArray] | None, shapes: Mapping[str, ShapeLike], memory_budget: int | None = None,
                group2ctx: Mapping[str, Context] | None = None) -> Executor:
    """Bind symbol to zeroed arrays of its own. Shapes and dtypes of names that symbol does not have are ignored.

    shared_arg_names: arguments to take from shared_exec where shape and dtype agree. shared_buffer: arrays to use by name;
    new ones are added to it. memory_budget: bytes that the plan of training may take; values are recomputed until it fits.
    Raises GraphError with the missing bytes if it cannot fit.
    """
    ctx = _context(ctx)
    order = symbol._order()
    arguments, states = _variables(order)
    names = [*arguments, *states]
    known = {k: from_user((v,) if isinstance(v, int) else tuple(v)) for k, v in shapes.items() if k in names}
    types = {k: as_dtype(v) for k, v in type_dict.items() if k in names}
    try:
        specs = specs_of(order, {k: v for k, v in known.items() if v is not None}, types)
    except ShapeError as e:
        unused = next((k for k in shapes if k not in names), None)
        if unused is not None:
            raise GraphError(f"simple_bind: no argument is called {unused!r}.{nearest(unused, names)} "
                             f"Arguments: {', '.join(names)}.") from e
        raise
    spec = _variable_specs(order, specs)
    reqs = _requests("simple_bind", grad_req, arguments)
    node_ctx = contexts_of(order, ctx, group2ctx)

    def array(name: str, *sources: Mapping[str, NDArray]) -> NDArray:
        """Return the array called name of the first source that has a fitting one, or a new array of zeros."""
        for source in sources:
            shared = source.get(name)
            if shared is not None and _fits(shared, spec[name]) and shared.context == node_ctx[name]:
                return shared
        return zeros(spec[name].shape, node_ctx[name], spec[name].dtype)

    def shared_arrays(arrays: Mapping[str, NDArray]) -> dict[str, NDArray]:
        return {n: arrays[n] for n in shared_arg_names or () if n in arrays}

    old_args = shared_arrays(shared_exec.arg_dict) if shared_exec else {}
    buffer = {} if shared_buffer is None else shared_buffer
    args = {n: array(n, old_args, buffer) for n in arguments}
    buffer.update((n, a) for n, a in args.items() if a is not old_args.get(n))
    old_grads = shared_arrays(shared_exec._grads) if shared_exec else {}
    grads = {n: array(n, old_grads) for n in arguments if reqs[n] != "null"}
    auxes = {n: array(n, shared_exec.aux_dict if shared_exec else {}) for n in states}
    executor = Executor(Binding(symbol, specs, ctx, node_ctx, args, grads, auxes, reqs, memory_budget), shared_exec)
    if memory_budget is not None:
        executor.memory_plan()  # raises now and not in the first step
    return executor


def bind(symbol: Symbol, ctx: ContextLike, args: Arrays, args_grad: Arrays | None, grad_req: GradReq,
         aux_states: Arrays | None, shared_exec: Executor | None, group2ctx: Mapping[str, Context] | None = None) -> Executor:
    """Bind symbol to the caller's arrays. Each pass copies those of other contexts, and casts gradients of another dtype.

    Sparse arguments are read, and sparse gradients written, as dense arrays; outputs have the storage types that MXNet infers.
    """
    ctx = _context(ctx)
    order = symbol._order()
    arguments, states = _variables(order)
    own_args = _by_name("bind: args", args, arguments, required=True, sparse=True)
    sparse = {n: a for n, a in own_args.items() if isinstance(a, BaseSparseNDArray)}
    own_args |= {n: a.tostype("default") for n, a in sparse.items()}
    auxes = _by_name("bind: aux_states", aux_states, states, required=True)
    grads = _by_name("bind: args_grad", args_grad, arguments, required=False, sparse=True)
    reqs = _requests("bind", grad_req, arguments)
    arrays = {**own_args, **auxes}
    node_ctx = contexts_of(order, ctx, group2ctx)
    node_ctx |= {name: array.context for name, array in own_args.items()}
    for name, array in auxes.items():  # a state is updated where its operator runs
        if array.context != node_ctx[name]:
            raise ContextError(f"bind: aux_states: {name} is {describe(array)}, its operator runs on {node_ctx[name]}. "
                               f"Copy it with as_in_context({node_ctx[name]}).")
    grads, options = {n: a for n, a in grads.items() if reqs[n] != "null"}, current()
    stypes = {n: a.stype for n, a in sparse.items()}
    specs, plans, out_stypes = _known(symbol, order, arrays, stypes, ctx, node_ctx, {n: reqs[n] for n in grads}, options)
    spec = _variable_specs(order, specs)
    copies: dict[str, Any] = {}
    for name, array in grads.items():
        want = spec[name]
        if array.size != want.size:
            raise ShapeError(f"bind: args_grad: {name} is {describe(array)}, the graph wants {describe(want)}.")
        if array.stype != "default" or not _fits(array, want) or array.context != node_ctx[name]:
            copies[name] = array
    grads |= {n: zeros(spec[n].shape, node_ctx[n], spec[n].dtype) for n in copies}
    return Executor(Binding(symbol, specs, ctx, node_ctx, own_args, grads, auxes, reqs, grad_copies=copies, options=options,
                            plans=plans, sparse=sparse, stypes=out_stypes), shared_exec)


#: (nodes, specs, plans, storage types of outputs that are not all dense) of bindings by the nodes' ids and everything else they
#: follow from, so that to bind again costs little.
_bound: Cache[Any, tuple[Any, list[list[Spec]], Plans, Sequence[str]]] = Cache(256)


def _known(symbol: Symbol, order: Sequence[Node], arrays: Mapping[str, NDArray], stypes: Mapping[str, str], ctx: Context,
           node_ctx: Mapping[str, Context], reqs: Mapping[str, str], options: Options
           ) -> tuple[list[list[Spec]], Plans, Sequence[str]]:
    """Return what `_bound` keeps, from an earlier binding if there was an equal one. stypes: of the sparse arguments."""
    key = (*[(id(n), i) for n, i in symbol._outputs], *[a.layout for a in arrays.values()], *stypes.items(), ctx,
           *node_ctx.items(), *reqs.items(), options)
    found = _bound.get(key)
    if found is None:
        specs = specs_of(order, {n: a.shape for n, a in arrays.items()}, {n: as_dtype(a.dtype) for n, a in arrays.items()})
        of_outputs = output_stypes(order, symbol._outputs, stypes)
        found = _bound[key] = (symbol._outputs, specs, Plans(),  # the nodes are kept, so that their ids stay theirs
                               () if set(of_outputs) == {"default"} else of_outputs)
    return found[1:]


def rebind(symbol: Symbol, old: Executor, partial: bool, grow: bool, shapes: Mapping[str, Sequence[int]]) -> Executor:
    """Bind the symbol of old for other shapes; arrays whose shape stays are shared."""
    order = symbol._order()
    old_args, sparse = old._binding.args, old._binding.sparse
    arrays = {**old_args, **old.aux_dict}
    for key in shapes:
        if key not in arrays:
            raise GraphError(f"reshape: no argument is called {key!r}.{nearest(key, arrays)}")
    known = {k: s for k, v in shapes.items() if (s := from_user(tuple(v))) is not None}
    specs = specs_of(order, known, {n: as_dtype(a.dtype) for n, a in arrays.items()})
    spec = _variable_specs(order, specs)

    def resized(arrays: Mapping[str, NDArray]) -> dict[str, NDArray]:
        return {n: _resized(n, a, spec[n].shape, n in shapes or partial, grow) for n, a in arrays.items()}

    args, grads, auxes = resized(old_args), resized(old._grads), resized(old.aux_dict)
    kept = {n: a for n, a in sparse.items() if args[n] is old_args[n]}
    return Executor(replace(old._binding, specs=specs, args=args, grads=grads, auxes=auxes, grad_copies={}, sparse=kept,
                            plans=Plans()), old)


def forget() -> None:
    """Forget earlier bindings, because attributes of nodes have changed."""
    _bound.clear()


def _resized(name: str, array: NDArray, shape: tuple[int, ...], may_change: bool, may_grow: bool) -> NDArray:
    """Return array if it has the shape, else a new array of zeros; its values do not move over."""
    if array.shape == shape:
        return array
    if not may_change:
        raise ShapeError(f"reshape: {name} would change from {array.shape} to {shape}. If that is meant, pass "
                         f"partial_shaping=True.")
    if math.prod(shape) > array.size and not may_grow:
        raise ShapeError(f"reshape: {name} would grow from {array.shape} to {shape}. If that is meant, pass "
                         f"allow_up_sizing=True, or bind again.")
    return zeros(shape, array.context, as_dtype(array.dtype))


def _variable_specs(order: Sequence[Node], specs: Sequence[Specs]) -> dict[str, Spec]:
    return {n.name: s[0] for n, s in zip(order, specs) if n.op is None}


def _variables(order: Sequence[Node]) -> tuple[list[str], list[str]]:
    """Return the names of arguments and states. Raises GraphError for a name that occurs twice."""
    arguments, states = ([n.name for n in part] for part in split_variables(order))
    seen: set[str] = set()
    for n in (*arguments, *states):
        if n in seen:
            raise GraphError(f"bind: two variables are called {n!r}. Names of arguments and states must differ.")
        seen.add(n)
    return arguments, states


def _fits(array: NDArray, spec: Spec) -> bool:
    return array.shape == spec.shape and np.dtype(array.dtype) == spec.dtype


def _context(ctx: ContextLike) -> Context:
    if ctx is None:
        return current_context()
    if isinstance(ctx, (list, tuple)) and len(ctx) == 1:
        ctx = ctx[0]
    if not isinstance(ctx, Context):
        raise ContextError(f"bind: {ctx!r} is not a Context. Use mx.cpu() or mx.gpu(0).")
    return ctx


def _requests(caller: str, grad_req: GradReq, arguments: Sequence[str]) -> dict[str, str]:
    if isinstance(grad_req, str):
        reqs = dict.fromkeys(arguments, grad_req)
    elif isinstance(grad_req, Mapping):
        reqs = {n: grad_req.get(n, "null") for n in arguments}
    elif isinstance(grad_req, (list, tuple)):
        if len(grad_req) != len(arguments):
            raise GraphError(f"{caller}: {len(grad_req)} grad_req for {len(arguments)} arguments: {', '.join(arguments)}.")
        reqs = dict(zip(arguments, grad_req))
    else:
        raise GraphError(f"{caller}: grad_req {grad_req!r} is not a string, a dictionary or a list.")
    for name, req in reqs.items():
        if req not in REQUESTS:
            raise GraphError(f"{caller}: grad_req of {name!r} is {req!r}. Use 'write', 'add' or 'null'.")
    return reqs


def _by_name(what: str, arrays: Arrays | None, names: Sequence[str], *, required: bool, sparse: bool = False) -> dict[str, Any]:
    if arrays is None:
        arrays = {}
    if not isinstance(arrays, Mapping):
        arrays = list(arrays)
        if len(arrays) != len(names):
            raise GraphError(f"{what}: {len(arrays)} arrays for {len(names)} names: {', '.join(names)}.")
        arrays = dict(zip(names, arrays))
    given = {n: a for n, a in arrays.items() if a is not None}
    missing = [n for n in names if n not in given]
    if missing and required:
        raise GraphError(f"{what}: {missing[0]!r} is missing.{nearest(missing[0], given)} "
                         f"Given: {', '.join(given) or 'nothing'}; needed: {', '.join(names)}.")
    found = {n: given[n] for n in names if n in given}
    for n, a in found.items():
        if not isinstance(a, (NDArray, BaseSparseNDArray) if sparse else NDArray):
            raise GraphError(f"{what}: {n} is {type(a).__name__}, not an NDArray. Wrap it with mx.nd.array(...).")
    return found
