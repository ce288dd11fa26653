"""Binding: arrays for a symbol, given or allocated, checked against what inference says, and an Executor over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...context import Context, current_context
from ...dtype import as_dtype
from ...errors import ContextError, DTypeError, GraphError, ShapeError, describe, nearest
from ...kernels.op import Spec
from ...ndarray import NDArray, zeros
from ..passes.device_placement import contexts_of
from ..passes.gradient import REQUESTS
from ..passes.infer import from_user
from ..program import specs_of
from ..symbol.node import split_variables, topological
from .executor import Executor

if TYPE_CHECKING:
    from ..symbol.symbol import Symbol


def simple_bind(symbol: Symbol, ctx: Any, grad_req: Any, type_dict: Mapping[str, Any], shared_arg_names: Sequence[str] | None,
                shared_exec: Executor | None, shared_buffer: dict[str, NDArray] | None, shapes: Mapping[str, Any],
                memory_budget: int | None = None, group2ctx: Mapping[str, Context] | None = None) -> Executor:
    """An executor with zeroed arrays of its own.

    shared_arg_names: arguments to take from shared_exec where shape and dtype agree. shared_buffer: arrays by name to use,
    and to add new ones to. memory_budget: bytes the training plan may take; values are recomputed until it fits.
    Raises GraphError that says by how much it does not.
    """
    ctx = _context(ctx)
    order = topological(n for n, _ in symbol._outputs)
    arguments, states = split_variables(order)
    names = [n.name for n in (*arguments, *states)]
    _unique(names)
    for key in (*shapes, *type_dict):
        if key not in names:
            raise GraphError(f"simple_bind: no argument is called {key!r}.{nearest(key, names)} Arguments: {', '.join(names)}.")
    known = {k: from_user((v,) if isinstance(v, int) else tuple(v)) for k, v in shapes.items()}
    specs = specs_of(order, {k: v for k, v in known.items() if v is not None}, {k: as_dtype(v) for k, v in type_dict.items()})
    spec = {n.name: s[0] for n, s in zip(order, specs) if n.op is None}
    reqs = _requests("simple_bind", grad_req, [n.name for n in arguments])

    where = contexts_of(order, ctx, group2ctx)

    def make(name: str, shared: Mapping[str, NDArray], keep: bool) -> NDArray:
        for source in ((shared if name in (shared_arg_names or ()) else {}), (shared_buffer or {}) if keep else {}):
            found = source.get(name)
            if found is not None and _fits(found, spec[name]) and found.context == where[name]:
                return found
        made = zeros(spec[name].shape, where[name], spec[name].dtype)
        if keep and shared_buffer is not None:
            shared_buffer[name] = made
        return made

    old_args = shared_exec.arg_dict if shared_exec else {}
    old_grads = shared_exec.grad_dict if shared_exec else {}
    args = {n.name: make(n.name, old_args, True) for n in arguments}
    grads = {n: make(n, old_grads, False) for n in args if reqs[n] != "null"}
    old_aux = shared_exec.aux_dict if shared_exec else {}
    auxes = {}
    for n in states:
        found = old_aux.get(n.name)
        fits = found is not None and _fits(found, spec[n.name]) and found.context == where[n.name]
        auxes[n.name] = found if fits else zeros(spec[n.name].shape, where[n.name], spec[n.name].dtype)
    made = Executor(symbol._outputs, specs, ctx, args, grads, reqs, auxes, symbol, shared_exec.arena if shared_exec else None,
                    memory_budget=memory_budget, where=where)
    if memory_budget is not None:
        made.memory_plan()  # raises here and not in the first step
    return made


def bind(symbol: Symbol, ctx: Any, args: Any, args_grad: Any, grad_req: Any, aux_states: Any,
         shared_exec: Executor | None, group2ctx: Mapping[str, Context] | None = None) -> Executor:
    """An executor over the caller's arrays."""
    ctx = _context(ctx)
    order = topological(n for n, _ in symbol._outputs)
    arguments, states = ([n.name for n in part] for part in split_variables(order))
    _unique([*arguments, *states])
    given = _by_name("bind: args", args, arguments, required=True)
    auxes = _by_name("bind: aux_states", aux_states, states, required=True)
    grads = _by_name("bind: args_grad", args_grad, arguments, required=False)
    reqs = _requests("bind", grad_req, arguments)
    everything = {**given, **auxes}
    where = contexts_of(order, ctx, group2ctx)
    for name, array in everything.items():
        if array.context != where[name]:
            what = "the executor runs on" if where[name] == ctx else "its ctx_group lies on"
            raise ContextError(f"bind: {name} is {describe(array)}, {what} {where[name]}. "
                               f"Copy it with as_in_context({where[name]}).")
    specs = specs_of(order, {n: a.shape for n, a in everything.items()}, {n: as_dtype(a.dtype) for n, a in everything.items()})
    spec = {n.name: s[0] for n, s in zip(order, specs) if n.op is None}
    for name, array in everything.items():
        _check("bind", name, array, spec[name])
    for name, array in grads.items():
        _check("bind: args_grad", name, array, spec[name])
    wanted = {n: a for n, a in grads.items() if reqs[n] != "null"}
    return Executor(symbol._outputs, specs, ctx, given, wanted, reqs, auxes, symbol, shared_exec.arena if shared_exec else None,
                    where=where)


def rebind(symbol: Symbol, old: Executor, partial: bool, grow: bool, shapes: Mapping[str, Any]) -> Executor:
    """old for other shapes; arrays whose shape stays are shared."""
    order = topological(n for n, _ in symbol._outputs)
    names = [*old.arg_dict, *old.aux_dict]
    for key in shapes:
        if key not in names:
            raise GraphError(f"reshape: no argument is called {key!r}.{nearest(key, names)}")
    dtypes = {n: as_dtype(a.dtype) for n, a in (*old.arg_dict.items(), *old.aux_dict.items())}
    known = {k: s for k, v in shapes.items() if (s := from_user(tuple(v))) is not None}
    specs = specs_of(order, known, dtypes)
    spec = {n.name: s[0] for n, s in zip(order, specs) if n.op is None}

    def fit(name: str, array: NDArray, named: bool) -> NDArray:
        want = spec[name]
        if array.shape == want.shape:
            return array
        if not named and not partial:
            raise ShapeError(f"reshape: {name} would change from {array.shape} to {want.shape}. If that is meant, pass "
                             f"partial_shaping=True.")
        if want.size > array.size and not grow:
            raise ShapeError(f"reshape: {name} would grow from {array.shape} to {want.shape}. If that is meant, pass "
                             f"allow_up_sizing=True, or bind again.")
        return zeros(want.shape, array.context, want.dtype)

    args = {n: fit(n, a, n in shapes) for n, a in old.arg_dict.items()}
    grads = {n: fit(n, a, n in shapes) for n, a in old.grad_dict.items()}
    auxes = {n: fit(n, a, n in shapes) for n, a in old.aux_dict.items()}
    return Executor(symbol._outputs, specs, old._ctx, args, grads, old._grad_req, auxes, symbol, old.arena, old._options,
                    old._budget, old._where)


def _fits(array: NDArray, spec: Spec) -> bool:
    return array.shape == spec.shape and np.dtype(array.dtype) == spec.dtype


def _context(ctx: Any) -> Context:
    if ctx is None:
        return current_context()
    if isinstance(ctx, (list, tuple)) and len(ctx) == 1:
        ctx = ctx[0]
    if not isinstance(ctx, Context):
        raise ContextError(f"bind: {ctx!r} is not a Context. Use mx.cpu() or mx.gpu(0).")
    return ctx


def _unique(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for n in names:
        if n in seen:
            raise GraphError(f"bind: two variables are called {n!r}. Names of arguments and states must differ.")
        seen.add(n)


def _requests(what: str, grad_req: Any, arguments: Sequence[str]) -> dict[str, str]:
    if isinstance(grad_req, str):
        reqs = dict.fromkeys(arguments, grad_req)
    elif isinstance(grad_req, Mapping):
        reqs = {n: grad_req.get(n, "null") for n in arguments}
    elif isinstance(grad_req, (list, tuple)):
        if len(grad_req) != len(arguments):
            raise GraphError(f"{what}: {len(grad_req)} grad_req for {len(arguments)} arguments: {', '.join(arguments)}.")
        reqs = dict(zip(arguments, grad_req))
    else:
        raise GraphError(f"{what}: grad_req {grad_req!r} is not a string, a dictionary or a list.")
    for name, req in reqs.items():
        if req not in REQUESTS:
            raise GraphError(f"{what}: grad_req of {name!r} is {req!r}. Use 'write', 'add' or 'null'.")
    return reqs


def _by_name(what: str, arrays: Any, names: Sequence[str], *, required: bool) -> dict[str, NDArray]:
    if arrays is None:
        arrays = {}
    if isinstance(arrays, Mapping):
        missing = [n for n in names if arrays.get(n) is None]
        if missing and required:
            raise GraphError(f"{what}: {missing[0]!r} is missing.{nearest(missing[0], arrays)} "
                             f"Given: {', '.join(arrays) or 'nothing'}; needed: {', '.join(names)}.")
        found = {n: arrays[n] for n in names if arrays.get(n) is not None}
    else:
        arrays = list(arrays)
        if len(arrays) != len(names):
            raise GraphError(f"{what}: {len(arrays)} arrays for {len(names)} names: {', '.join(names)}.")
        found = {n: a for n, a in zip(names, arrays) if a is not None}
        if required and len(found) != len(names):
            raise GraphError(f"{what}: {next(n for n in names if n not in found)!r} is None.")
    for n, a in found.items():
        if not isinstance(a, NDArray):
            raise GraphError(f"{what}: {n} is {type(a).__name__}, not an NDArray. Wrap it with mx.nd.array(...).")
    return found


def _check(what: str, name: str, array: NDArray, want: Spec) -> None:
    if array.shape != want.shape:
        raise ShapeError(f"{what}: {name} is {describe(array)}, the graph wants {want.dtype}[{','.join(map(str, want.shape))}].")
    if np.dtype(array.dtype) != want.dtype:
        raise DTypeError(f"{what}: {name} is {describe(array)}, the graph wants {want.dtype}. Convert it with astype.")
