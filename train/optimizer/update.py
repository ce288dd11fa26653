"""Optimizer updates of many parameters, pushed together.

An optimizer returns a `ParamUpdate` for each parameter: a declared operator, its arrays and its settings. `apply` pushes one
task per context for all of them. On a GPU, the task launches one kernel for all updates of the same operator and dtypes.
On the CPU, a group of updates that comes a second time has its kernels bound to its arrays, in C where that pays. C gives
NumPy's bits: the result of an update depends neither on its group nor on a C compiler.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import cache, cached_property
from operator import is_
from typing import Any

import numpy as np

from ... import engine
from ...cache import Cache
from ...engine.memory import storage
from ...kernels import op as ops
from ...kernels.cpu.c_kernel import bind_in_c, worth_compiling
from ...kernels.cpu.c_printer import CFunction, c_function
from ...kernels.cpu.c_team import Phases
from ...kernels.kernel import BoundKernel, Kernel
from ...kernels.op import Op, Req, compiled_static
from ...kernels.ops.optimizer.mixed_precision import mixed
from ...kernels.params import REQUIRED, Params
from ...ndarray import NDArray
from ...ndarray.core.chunk import Chunk
from .multi_tensor import launch_together, multi_tensor_update

_INLINE = 1 << 17  # bytes: a smaller CPU update takes less time than waking another thread and waiting for Python's lock


class ParamUpdate:
    """The update of one parameter: `op` on (weight, grad, *inputs, *states), which writes the weight and the states.

    settings:  the operator's parameters. Run-time scalars among them may change from step to step at no cost.
    flat:      pass the arrays as [1, n], for operators that compute the norm of the whole array.
    master:    a float32 copy of weight (see with_master_weight), or None.
    """

    __slots__ = ("flat", "grads", "master", "op", "settings", "states", "weight")

    def __init__(self, op: str, weight: NDArray, grad: NDArray, states: Sequence[NDArray] = (), *, flat: bool = False,
                 inputs: Sequence[NDArray] = (), **settings: Any):
        self.op, self.weight, self.grads, self.states, self.flat = op, weight, (grad, *inputs), tuple(states), flat
        self.settings, self.master = settings, None

    def with_master_weight(self, weight: NDArray) -> ParamUpdate:
        """Update `self.weight` as the float32 copy of weight, and write the rounded result into weight."""
        self.master, self.weight = self.weight, weight
        return self

    def inputs(self) -> tuple[NDArray, ...]:
        """Return the inputs of the operator, in order."""
        if self.master is None:
            return (self.weight, *self.grads, *self.states)
        return (*self.grads, *self.states, self.master)

    def arrays(self) -> tuple[NDArray, ...]:
        """Return the inputs and the weight."""
        return self.inputs() if self.master is None else (*self.inputs(), self.weight)

    def device_arrays(self) -> tuple[list[Any], list[Any]]:
        """Return the device arrays of a kernel's inputs and of its output."""
        ins, out = [a.device_array() for a in self.inputs()], self.weight.device_array()
        return ([a.reshape(1, -1) for a in ins], [out.reshape(1, -1)]) if self.flat else (ins, [out])

    def static_key(self) -> tuple[Any, ...]:
        """Return everything but the arrays and the run-time scalars."""
        return (self.op, self.flat, self.master is None, *[self.settings.get(n, d) for n, d in _parameters(self.op)[0]])

    def scalars(self) -> tuple[float, ...]:
        """Return the run-time scalars, in the operator's order."""
        settings = self.settings
        return tuple([float(settings.get(n, d)) for n, d in _parameters(self.op)[1]])


@cache
def _parameters(op: str) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
    """Return (name, default) of an operator's static parameters, and of its run-time scalars."""
    declared = ops.builtin(op).params
    static, scalars = ([(d.name, d.default) for d in declared if (d.kind == "scalar") == runtime] for runtime in (False, True))
    return static, scalars


class _CompiledUpdate:
    """The kernels of an update for arrays of certain layouts.

    multi_tensor:  the update of many arrays in one launch on a GPU, or None.
    """

    def __init__(self, update: ParamUpdate):
        assert all(n in update.settings or d is not REQUIRED for n, d in _parameters(update.op)[1]), (update.op, update.settings)
        op: Op = ops.builtin(update.op)
        if update.master is not None:
            op = mixed(op)
        p: Params = op.parse(update.settings)
        inputs = update.inputs()
        specs = [a.layout.spec for a in inputs]
        if update.flat:
            specs = [ops.Spec((1, s.size), s.dtype) for s in specs]
        if update.master is None:
            out, req = specs[0], Req.INPLACE
        else:
            out, req = ops.Spec(specs[0].shape, np.dtype(update.weight.dtype)), Req.WRITE
        on_gpu = update.weight.context.is_gpu
        self.kernel = compiled_static(op, p, tuple(specs), (out,), (req,), "gpu" if on_gpu else "cpu")
        self.nbytes = sum(a.nbytes for a in inputs)
        self.multi_tensor = None
        if on_gpu and not update.flat:
            self.multi_tensor = multi_tensor_update(op, p, specs, out, update.master is None)
        self._expression: Any = (op.expression(p, [s.dtype for s in specs]), specs, (out,), (req,))

    @cached_property
    def c_function(self) -> CFunction | None:
        """The C function that gives the same bits, or None."""
        f = c_function(*self._expression) if self._expression[0] is not None else None
        return f if isinstance(f, CFunction) and f.exact else None


_compiled_updates: Cache[tuple, _CompiledUpdate] = Cache()


def _compiled(update: ParamUpdate) -> _CompiledUpdate:
    key = (*update.static_key(), *[a.layout for a in update.arrays()])
    return _compiled_updates.get_or_make(key, lambda: _CompiledUpdate(update))


class _UpdatePlan:
    """The precomputed arguments of a push of certain updates. It keeps no array alive.

    const, mutable:  the variables that the push reads and writes.
    independent:     no update reads or writes an array that another one writes.
    bound:           the kernels with their arrays; None on a GPU, and on the CPU before the updates come a second time.
    together:        what runs all of them in one call, if they are independent and in C.
    """

    __slots__ = ("_arrays", "_last", "_static_keys", "_used", "bound", "compiled", "const", "independent", "mutable", "name",
                 "prop", "together")

    def __init__(self, ctx: Any, updates: Sequence[ParamUpdate]):
        written = [a.chunk.var for u in updates for a in (u.weight, *u.states, *(() if u.master is None else (u.master,)))]
        read = [a.chunk.var for u in updates for a in u.grads]
        self.mutable = list(dict.fromkeys(written))
        self.independent = len(self.mutable) == len(written) and not set(read) & set(written)
        self.const = [v for v in dict.fromkeys(read) if v not in set(written)]
        self.compiled = [_compiled(u) for u in updates]
        self._static_keys = [u.static_key() for u in updates]
        self._arrays = [weakref.ref(a) for u in updates for a in u.arrays()]
        self._last = [u.settings for u in updates], [u.scalars() for u in updates]
        self.name = f"{updates[0].op} x {len(updates)}" if len(updates) > 1 else updates[0].op
        self.prop = "inline" if sum(c.nbytes for c in self.compiled) <= _INLINE and not ctx.is_gpu else None
        self.bound: list[BoundKernel] | None = None
        self.together: Phases | None = None
        self._used: Any = None  # the scalars that the kernels hold

    def scalars(self, updates: Sequence[ParamUpdate]) -> list[tuple[float, ...]] | None:
        """Return the run-time scalars of updates, or None if this is not the plan of these updates of these arrays."""
        arrays = [a for u in updates for a in u.arrays()]
        if len(arrays) != len(self._arrays) or not all(map(is_, arrays, [a() for a in self._arrays])):
            return None
        settings, (last_settings, scalars) = [u.settings for u in updates], self._last
        if [u.op for u in updates] == [k[0] for k in self._static_keys] and settings == last_settings:
            return scalars
        if [u.static_key() for u in updates] != self._static_keys:
            return None
        scalars = [u.scalars() for u in updates]
        self._last = settings, scalars
        return scalars

    def bind(self, updates: Sequence[ParamUpdate]) -> None:
        """Bind the kernels to their arrays, in C if that saves enough for all of them together."""
        functions = [c.c_function for c in self.compiled]
        in_c, bound = worth_compiling([f for f in functions if f is not None]), []
        for update, compiled, function in zip(updates, self.compiled, functions):
            ins, outs = update.device_arrays()
            call = bind_in_c(function, ins, outs) if in_c and function is not None else None
            bound.append(call or Kernel(compiled.kernel.run).bind(ins, outs))
        in_c = [call for call in bound if isinstance(call, Phases) and call.numbers is not None]
        if self.independent and 1 < len(in_c) == len(bound):
            self.together = Phases.together(in_c)
        self.bound = bound

    def run(self, rc: Any, scalars: list[tuple[float, ...]]) -> None:
        """Run the bound kernels."""
        assert self.bound is not None
        if self.together is None:
            for call, values in zip(self.bound, scalars):
                call(rc, values)
            return
        if scalars is not self._used:
            for call, values in zip(self.bound, scalars):
                call.hold(values)  # type: ignore[attr-defined]
            self._used = scalars
        self.together(rc)


#: Plans by the memory of the first gradient, so that they are freed with it. Executors that share weights have different ones.
_plans: weakref.WeakKeyDictionary[Chunk, _UpdatePlan] = weakref.WeakKeyDictionary()


def apply(updates: Sequence[ParamUpdate | None], priority: int = 0) -> None:
    """Push the updates, in order: one task for all that are on the same context. None stands for no update."""
    by_context: dict[Any, list[ParamUpdate]] = {}
    for update in updates:
        if update is not None:
            by_context.setdefault(update.weight.layout.ctx, []).append(update)
    for ctx, group in by_context.items():
        _push(ctx, group, priority)


def _push(ctx: Any, updates: Sequence[ParamUpdate], priority: int) -> None:
    first = updates[0].grads[0].chunk
    plan = _plans.get(first)
    scalars = plan.scalars(updates) if plan is not None else None
    if plan is None or scalars is None:
        plan = _plans[first] = _UpdatePlan(ctx, updates)
        scalars = plan._last[1]
    elif plan.bound is None and not ctx.is_gpu and storage.access_checker is None:
        plan.bind(updates)
    bound = plan.bound is not None

    def run(rc: Any) -> None:
        if bound:
            plan.run(rc, scalars)
            return
        calls = list(zip(plan.compiled, updates, scalars))
        for compiled, update, values in launch_together(rc, calls) if plan.independent and ctx.is_gpu else calls:
            compiled.kernel.run(rc, *update.device_arrays(), scalars=values)

    engine.current().push_sync(run, ctx, plan.const, plan.mutable, prop=plan.prop, priority=priority, name=plan.name,
                               cost_key=plan if bound else None)
