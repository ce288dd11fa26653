"""@composite: an operator written as calls of other operators; it runs on both devices, with every write request and a gradient.

    @composite("_linalg_syrk", aliases=("linalg_syrk",))
    def syrk(A, *, transpose: bool = False, alpha: float = 1.0):
        '''alpha A Aᵀ of each matrix.'''
        return alpha * ops.batch_dot(A, A, transpose_a=transpose, transpose_b=not transpose)

The body runs once for each set of shapes, on `TracedValue`s: values with a shape and a dtype, and no numbers. It may branch on
shapes and parameters. Its calls become the steps of one kernel; the derivative walks them backward and computes
again the values that it needs. It is a composite itself, so it can be differentiated too.

A body that calls operators that draw random numbers is declared with draws=True. Each call gets its share of the numbers reserved
for a run. Forward keeps their place in a hidden output, from which the derivative draws the same numbers again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np

from ...cache import Cache
from ...errors import MXNetError, OperatorError
from .. import op as registry
from ..kernel import Kernel, KernelFunction
from ..op import Dtypes, Gradient, Op, Req, Reqs, Shape, Shapes, Spec, Specs, compiled, is_known, merge_shapes, register
from ..params import Param, Params
from .property_op import BackwardOp
from .random_fill import load_random, save_random
from .simple_op import signature as signature_of


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One call of an operator; ins and outs are numbers of values. An output that no step reads is not computed.

    first, draws:  the step takes `draws` of the composite's random numbers, from number `first` on.
    """

    op: Op
    p: Params
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    first: int
    draws: int


class Trace:
    """The calls of a body, in order, and the specs of all values; the inputs are the first.

    draws:  random numbers that all steps take together.
    """

    def __init__(self, inputs: Specs):
        self.draws = 0
        self.specs: list[Spec] = list(inputs)
        self.steps: list[TraceStep] = []
        self.inputs = [TracedValue(self, i) for i in range(len(inputs))]

    def step(self, op: Op, p: Params, ins: Sequence[TracedValue], outs: Specs) -> list[TracedValue]:
        """Append a call of op. Return its results, which have the specs in outs."""
        first = len(self.specs)
        self.specs += outs
        numbers = tuple(range(first, len(self.specs)))
        draws = op.random_count(p, tuple(self.specs[a.number] for a in ins), outs)
        self.steps.append(TraceStep(op, p, tuple(a.number for a in ins), numbers, self.draws, draws))
        self.draws += draws
        return [TracedValue(self, n) for n in numbers]

    def call(self, op: Op, arrays: Sequence[TracedValue], params: Mapping[str, object]) -> Any:
        """Call op on values of this trace. Returns: a TracedValue, or a list of the visible ones."""
        p = op.parse(params)
        if op.auxiliaries(p):
            raise OperatorError(f"{op.name}: has states, and cannot be part of a composite.")
        for a in arrays:
            if not isinstance(a, TracedValue):
                raise OperatorError(f"{op.name}: got {type(a).__name__}, an array from outside of the composite. Give it to the "
                                    f"composite as an argument.")
        given = [self.specs[a.number] for a in arrays]
        _, shapes = op.infer_shape(p, [s.shape for s in given])
        _, dtypes = op.infer_dtype(p, [s.dtype for s in given])
        made = self.step(op, p, arrays, [Spec(tuple(s), d) for s, d in zip(shapes, dtypes) if s is not None and d is not None])
        seen = made[:op.visible_outputs(p)]
        return seen[0] if len(seen) == 1 else seen


def _binary(same: str, spread: str, scalar: str) -> Callable[[TracedValue, TracedValue | float], TracedValue]:
    """Return arithmetic by the operators for one shape, for shapes that broadcast, and for a number."""

    def method(self: TracedValue, other: TracedValue | float) -> TracedValue:
        if not isinstance(other, TracedValue):
            if not isinstance(other, (bool, int, float, np.number)):
                raise OperatorError(f"composite: {type(other).__name__} in arithmetic with a traced value. Give an array to the "
                                    f"composite as an argument.")
            return getattr(ops, scalar)(self, scalar=float(other))
        return getattr(ops, same if self.shape == other.shape else spread)(self, other)

    return method


class TracedValue:
    """A value inside a composite's body: operators and arithmetic on it become steps."""

    __slots__ = ("number", "trace")

    def __init__(self, trace: Trace, number: int):
        self.trace, self.number = trace, number

    @property
    def shape(self) -> Shape:
        return self.trace.specs[self.number].shape

    @property
    def dtype(self) -> np.dtype:
        return self.trace.specs[self.number].dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return the operator called name as a method, as NDArrays have it: x.sum(axis=1)."""
        if name.startswith("_"):
            raise AttributeError(name)
        return partial(registry.get(name), self)

    def _tritium_call_(self, op: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        if len(args) == 1 and isinstance(args[0], (list, tuple)):
            args = tuple(args[0])
        arrays = list(takewhile(lambda a: a is None or not isinstance(a, (bool, int, float, str, tuple)), args))
        names = [d.name for d in op.params if d.name != "num_args"]
        params = {**dict(zip(names, args[len(arrays):])), **kwargs}
        if len(names) < len(op.params):
            params.setdefault("num_args", len(arrays))
        return self.trace.call(op, [a for a in arrays if a is not None], params)

    def reshape(self, shape: Shape) -> TracedValue:
        """Return the same elements in another shape (with MXNet's codes)."""
        return self if tuple(shape) == self.shape else ops.Reshape(self, shape=tuple(shape))

    __neg__ = lambda self: ops.negative(self)
    __add__ = __radd__ = _binary("elemwise_add", "broadcast_add", "_plus_scalar")
    __sub__ = _binary("elemwise_sub", "broadcast_sub", "_minus_scalar")
    __mul__ = __rmul__ = _binary("elemwise_mul", "broadcast_mul", "_mul_scalar")
    __truediv__ = _binary("elemwise_div", "broadcast_div", "_div_scalar")
    __matmul__ = lambda self, other: ops.linalg_gemm2(self, other)
    __pow__ = _binary("_power", "broadcast_power", "_power_scalar")
    __gt__ = _binary("_greater", "broadcast_greater", "_greater_scalar")
    __ge__ = _binary("_greater_equal", "broadcast_greater_equal", "_greater_equal_scalar")
    __lt__ = _binary("_lesser", "broadcast_lesser", "_lesser_scalar")
    __le__ = _binary("_lesser_equal", "broadcast_lesser_equal", "_lesser_equal_scalar")
    __rsub__ = lambda self, other: ops._rminus_scalar(self, scalar=float(other))
    __rtruediv__ = lambda self, other: ops._rdiv_scalar(self, scalar=float(other))


class _Operators:
    """`ops.X` is the operator X, found when the body runs."""

    def __getattr__(self, name: str) -> Op:
        return registry.builtin(name)


ops: Any = _Operators()


def arange(like: TracedValue, n: int) -> TracedValue:
    """Return 0 … n - 1 in the dtype of like."""
    return like.trace.call(registry.builtin("_arange"), [], {"start": 0, "stop": n, "dtype": like.dtype})


# ---- running ---------------------------------------------------------------------------------------------------------
def needed_steps(trace: Trace, results: Sequence[TracedValue], reqs: Reqs, train: bool) -> tuple[list[TraceStep], set[int]]:
    """Return the steps that the requested results need, in order, and the numbers of the values that are read or returned."""
    live = {r.number for r, req in zip(results, reqs) if req != Req.NULL}
    steps: list[TraceStep] = []
    for step in reversed(trace.steps):
        if not live.isdisjoint(step.outs):
            steps.append(step)
            live.update(step.ins)
            if train or not step.op.drops_hidden_at_inference:
                live.update(step.outs[step.op.visible_outputs(step.p):])
    return steps[::-1], live


def program(trace: Trace, results: Sequence[TracedValue], reqs: Reqs, target: str, train: bool) -> KernelFunction:
    """Return the kernel that runs the steps that results need and stores each result by its write request."""
    steps, live = needed_steps(trace, results, reqs, train)
    read = {i for step in steps for i in step.ins}
    stored: dict[int, tuple[int, Req]] = {}  # value -> where its step writes it directly
    copies: list[tuple[int, int, Kernel]] = []
    for k, (r, req) in enumerate(zip(results, reqs)):
        n = r.number
        if req == Req.NULL:
            continue
        if n < len(trace.inputs) or n in stored or (req == Req.ADD and n in read):
            spec, copy = (trace.specs[n],), registry.builtin("_copy")
            copies.append((n, k, compiled(copy, copy.parse({}), spec, spec, (req,), target)))
        else:
            stored[n] = k, req
    last = {i: at for at, step in enumerate(steps) for i in (*step.outs, *step.ins)}
    kept = {n for n, _, _ in copies}
    calls = []
    for at, step in enumerate(steps):
        outs = tuple(trace.specs[n] for n in step.outs)
        wanted = tuple(stored[n][1] if n in stored else Req.WRITE if n in live else Req.NULL for n in step.outs)
        done = [i for i in {*step.ins, *step.outs} if last[i] == at and i >= len(trace.inputs) and i not in kept]
        call = None if not any(s.size for s in outs) else compiled(
            step.op, step.p, tuple(trace.specs[n] for n in step.ins), outs, wanted, target, train)
        calls.append((call, step, list(zip(step.outs, outs, wanted)), done))

    def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int] = (0, 0)) -> None:
        seed, offset = random
        values: dict[int, Any] = dict(enumerate(inputs))
        for call, step, outs, done in calls:
            for n, spec, req in outs:
                values[n] = (None if req == Req.NULL else outputs[stored[n][0]] if n in stored
                             else run.workspace(spec.shape, spec.dtype))
            if call is not None:
                more = {"random": (seed, offset + step.first)} if step.draws else {}
                call(run, [values[n] for n in step.ins], [values[n] for n in step.outs], **more)
            for n in done:
                del values[n]
        for n, k, copy in copies:
            copy(run, [values[n]], [outputs[k]])

    return kernel


# ---- derivatives ------------------------------------------------------------------------------------------------------
def backprop(trace: Trace, results: Sequence[TracedValue], dys: Sequence[TracedValue], wanted: Sequence[TracedValue]
             ) -> list[TracedValue | None]:
    """Append the derivatives of Σ results·dys by wanted to the trace; None for a value that results do not depend on."""
    active = {w.number for w in wanted}
    steps = list(trace.steps)
    for step in steps:
        if not active.isdisjoint(step.ins):
            active.update(step.outs)
    found: dict[int, TracedValue] = {}

    def add(n: int, part: TracedValue) -> None:
        found[n] = part if n not in found else found[n] + part

    for r, dy in zip(results, dys):
        add(r.number, dy)
    for step in reversed(steps):
        if active.isdisjoint(step.ins) or not any(n in found for n in step.outs):
            continue
        for n, part in _step_vjp(trace, step, {i: found[n] for i, n in enumerate(step.outs) if n in found}):
            if n in active:
                add(n, part)
    return [found.get(w.number) for w in wanted]


VjpRule = Callable[..., Sequence[TracedValue]]
_vjp_rules: dict[str, VjpRule] = {}


def vjp_rule(*names: str) -> Callable[[VjpRule], VjpRule]:
    """Declare the derivative of the operators with these names as calls of operators, which can be differentiated again.

    The decorated rule(op, p, dy, *xs) returns the derivatives by xs.
    """

    def register_rule(rule: VjpRule) -> VjpRule:
        _vjp_rules.update(dict.fromkeys(names, rule))
        return rule

    return register_rule


def _step_vjp(trace: Trace, step: TraceStep, dys: dict[int, TracedValue]) -> list[tuple[int, TracedValue]]:
    """Return (input value, derivative by it) pairs of one step. dys: the known derivatives by its outputs, by number."""
    op, p = step.op, step.p
    xs, ys = [TracedValue(trace, n) for n in step.ins], [TracedValue(trace, n) for n in step.outs]
    if op.role in _vjp_rules:
        return list(zip(step.ins, _vjp_rules[op.role](op, p, dys[0], *xs)))
    if isinstance(op, BackwardOp):
        return _transpose_vjp(op, step, dys, xs, ys)
    g = op.gradient_of(p)
    if g is None:
        return []
    groups = {"x": xs, "y": ys, "dy": [dys[i] if i in dys else ops.zeros_like(y) for i, y in enumerate(ys)]}
    made = trace.step(g.op, p, [groups[kind][i] for kind, i in g.needs], [trace.specs[step.ins[i]] for i in g.gives])
    return [(step.ins[i], part) for i, part in zip(g.gives, made)]


def _transpose_vjp(op: BackwardOp, step: TraceStep, dys: dict[int, TracedValue], xs: list[TracedValue], ys: list[TracedValue]
                       ) -> list[tuple[int, TracedValue]]:
    """The derivative of a linear operator's derivative is the operator."""
    g = op.forward.gradient_of(step.p)
    if g is None or not op.forward.is_linear(step.p):
        raise OperatorError(f"{op.name}: has no derivative of its own. {op.forward.name} can be differentiated once.")
    given = {i: x for (kind, i), x in zip(g.needs, xs) if kind == "x"}
    given |= {i: dys[k] if k in dys else ops.zeros_like(ys[k]) for k, i in enumerate(g.gives)}
    arrays = [given.get(i, ys[0]) for i in range(len(op.forward.arguments(step.p)))]  # others: only their shape counts
    made = ys[0].trace.call(op.forward, arrays, dict(step.p))
    made = made if isinstance(made, list) else [made]
    return [(step.ins[k], made[i]) for k, (kind, i) in enumerate(g.needs) if kind == "dy"]


class Composite(Op):
    """An operator made of steps, which subclasses define.

    draws:   whether steps draw random numbers.
    hidden:  outputs after the visible ones: "random", the seed and the offset of the numbers that forward drew. The derivatives
             read it as their last input.
    """

    draws = False
    hidden: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._gradients: Cache[tuple, Gradient | None] = Cache()
        self._traces: Cache[tuple, tuple[Trace, list[TracedValue]]] = Cache(16)  # shape inference and the kernel ask for the same

    def traced(self, p: Params, ins: Specs) -> tuple[Trace, list[TracedValue]]:
        """Return the steps for inputs of these specs, and the outputs among their values."""

        def make() -> tuple[Trace, list[TracedValue]]:
            trace = Trace(ins)
            return trace, self.results(p, trace.inputs)

        return self._traces.get_or_make((p, tuple(ins)), make)

    def results(self, p: Params, parts: Sequence[TracedValue]) -> list[TracedValue]:
        """Return the visible outputs, computed from the inputs by operators."""
        raise NotImplementedError(self.name)

    def differentiable(self, p: Params) -> tuple[int, ...]:
        """Return the inputs that have a derivative."""
        return tuple(range(len(self.arguments(p))))

    def can_be_captured(self, p: Params, ins: Specs) -> bool:
        trace, _ = self.traced(p, ins)
        return all(s.op.can_be_captured(s.p, [trace.specs[n] for n in s.ins]) for s in trace.steps)

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> KernelFunction:
        trace, results = self.traced(p, ins)
        n = len(results)
        made = [trace.specs[r.number] for r in results]
        assert made == list(outs[:n]), (self.name, made, outs)
        run_steps = program(trace, results, reqs[:n], target, train)
        return self.with_record(run_steps) if self.draws else run_steps

    def with_record(self, run_steps: KernelFunction) -> KernelFunction:
        """Return the kernel that runs the steps and saves the place of their random numbers."""

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int] = (0, 0)) -> None:
            run_steps(run, inputs, outputs, random)
            if outputs[-1] is not None:
                save_random(run, outputs[-1], random)

        return kernel

    def gradient_of(self, p: Params) -> Gradient | None:
        return self._gradients.get_or_make(p.static, lambda: self._make_gradient(p))

    def _make_gradient(self, p: Params) -> Gradient | None:
        gives = self.differentiable(p)
        m, n = self.visible_outputs(p), len(self.arguments(p))
        needs = (*(("dy", i) for i in range(m)), *(("x", i) for i in range(n)), *(("y", m + i) for i in range(len(self.hidden))))
        return Gradient(CompositeGradient(self), needs, gives) if gives else None



class CompositeGradient(Composite):
    """The derivative of a composite: reads the derivatives of its outputs, its inputs, and its record of random numbers."""

    def __init__(self, forward: Composite):
        super().__init__()
        self.draws = forward.draws
        self.name, self.forward = f"_backward_{forward.name.lstrip('_')}", forward
        self.doc = f"The derivative of {forward.name}."
        self.params = forward.params

    def parse(self, given: Mapping[str, object]) -> Params:
        return self.forward.parse(given)

    def arguments(self, p: Params) -> tuple[str, ...]:
        grads = self.forward.outputs(p)[:self.forward.visible_outputs(p)]
        return (*(f"{n}_grad" for n in grads), *self.forward.arguments(p), *self.forward.hidden)

    def differentiable(self, p: Params) -> tuple[int, ...]:
        return super().differentiable(p)[:-1] if self.draws else super().differentiable(p)

    def outputs(self, p: Params) -> tuple[str, ...]:
        names = self.forward.arguments(p)
        return tuple(f"{names[i]}_grad" for i in self.forward.differentiable(p))

    def _infer(self, p: Params, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> tuple[list[Any], list[Any]]:
        m = self.forward.visible_outputs(p)
        return list(inputs), [inputs[m + i] for i in self.forward.differentiable(p)]

    infer_shape = infer_dtype = _infer

    def results(self, p: Params, parts: Sequence[TracedValue]) -> list[TracedValue]:
        m = self.forward.visible_outputs(p)
        dys, xs = parts[:m], parts[m:m + len(self.forward.arguments(p))]
        ys = self.forward.results(p, xs)
        wanted = [xs[i] for i in self.forward.differentiable(p)]
        return [ops.zeros_like(w) if d is None else d for w, d in zip(wanted, backprop(xs[0].trace, ys, dys, wanted))]

    def with_record(self, run_steps: KernelFunction) -> KernelFunction:
        return lambda run, inputs, outputs: run_steps(run, inputs, outputs, load_random(inputs[-1]))


# ---- declaring --------------------------------------------------------------------------------------------------------
class DeclaredComposite(Composite):
    """The operator that `@composite` returns."""

    @property
    def nonblocking(self) -> bool:  # type: ignore[override]
        return not self.is_users  # the framework's own composites call no user

    def __init__(self, body: Callable[..., Any], name: str, *, aliases: Sequence[str] = (),
                 outputs: tuple[str, ...] | Callable[[Params], tuple[str, ...]] = ("output",),
                 arguments: Callable[[Params], Sequence[str]] | None = None, gives: Sequence[str] | None = None,
                 complete: Callable[[Params, list[Shape | None]], Sequence[Shape | None]] | None = None,
                 dtypes: Callable[[Params, Dtypes], tuple[Dtypes, Dtypes]] | None = None,
                 check: Callable[[Params], None] | None = None, params: Sequence[Param] = (), linear: bool = False,
                 draws: bool = False, keeps_shapes: bool = False):
        super().__init__()
        self.linear, self.draws, self._keeps_shapes = linear, draws, keeps_shapes
        self.hidden = ("random",) if draws else ()
        self.body, self.name, self.aliases = body, name, tuple(aliases)
        self.doc = inspect.cleandoc(body.__doc__ or "")
        self._outputs, self._gives, self._complete, self._dtypes, self._check = outputs, gives, complete, dtypes, check
        self._arguments = arguments
        self.input_names, self.params = ((), tuple(params)) if params else signature_of(name, body)

    def parse(self, given: Mapping[str, object]) -> Params:
        p = super().parse(given)
        if self._check is not None:
            self._check(p)
        return p

    def arguments(self, p: Params) -> tuple[str, ...]:
        return self.input_names if self._arguments is None else tuple(self._arguments(p))

    def outputs(self, p: Params) -> tuple[str, ...]:
        return (*(self._outputs(p) if callable(self._outputs) else self._outputs), *self.hidden)

    def visible_outputs(self, p: Params) -> int:
        return len(self.outputs(p)) - len(self.hidden)

    def num_random(self, p: Params, outs: Specs) -> int:
        return int(self.draws)  # whether it draws; random_count says how many

    def random_count(self, p: Params, ins: Specs, outs: Specs) -> int:
        return self.traced(p, ins)[0].draws if self.draws else 0

    def differentiable(self, p: Params) -> tuple[int, ...]:
        names = self.arguments(p)
        return tuple(i for i, n in enumerate(names) if self._gives is None or n in self._gives)

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        shapes = list(inputs if self._complete is None else self._complete(p, list(inputs)))
        if self._keeps_shapes and outputs is not None:
            shapes = [merge_shapes(self.name, "the shape", a, b) for a, b in zip(shapes, outputs)]
        known = [Spec(tuple(s), np.dtype(np.float32)) for s in shapes if s is not None and is_known(s)]
        if len(known) < len(shapes):
            return shapes, list(outputs or [None] * len(self.outputs(p)))
        return shapes, [*(r.shape for r in self.traced(p, known)[1]), *[(2,)] * len(self.hidden)]

    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        ins, outs = super().infer_dtype(p, inputs, outputs) if self._dtypes is None else self._dtypes(p, inputs)
        return ins, [*outs[:self.visible_outputs(p)], *[np.dtype("int64")] * len(self.hidden)]

    def results(self, p: Params, parts: Sequence[TracedValue]) -> list[TracedValue]:
        values = {d.name: p[d.name] for d in self.params}
        try:
            if self._arguments is None or not self.input_names:
                made = self.body(*parts, **values)
            else:
                named = dict(zip(self.arguments(p), parts))
                made = self.body(*(named.get(n) for n in self.input_names), **values)
        except MXNetError as e:
            if str(e).startswith(f"{self.name}:"):
                raise
            raise type(e)(f"{self.name}: inside it, {e}") from None
        made = list(made) if isinstance(made, (list, tuple)) else [made]
        if len(made) != self.visible_outputs(p) or not all(isinstance(m, TracedValue) for m in made):
            raise OperatorError(f"{self.name}: the body returned {', '.join(type(m).__name__ for m in made)}. Return a result of "
                                f"an operator for each output: {', '.join(self.outputs(p)[:self.visible_outputs(p)])}.")
        if made[0].trace.draws and not self.draws:
            names = dict.fromkeys(step.op.name for step in made[0].trace.steps if step.draws)
            raise OperatorError(f"{self.name}: {', '.join(names)} in its body draws random numbers. Declare it with draws=True.")
        return made


def composite(name: str, *, replace: bool = False, **options: Any
              ) -> Callable[[Callable[..., TracedValue | Sequence[TracedValue]]], DeclaredComposite]:
    """Declare an operator by a body that calls other operators, and register it.

    The body's positional arguments are the arrays, its keyword arguments the parameters, as in `simple_op`.

    aliases:    other names.
    outputs:    names of the results, or parameters -> names.
    arguments:  parameters -> names of the arrays; one of the body's that is left out is None there.
    gives:      the arguments that get a derivative; None: all of them.
    complete:   (parameters, known shapes) -> shapes of all arguments, as far as they follow.
    keeps_shapes:  each result has the shape of the argument in its position, so shapes follow from results as well.
    dtypes:     (parameters, known dtypes) -> dtypes of arguments and outputs; None: one dtype everywhere.
    check:      raises for parameters that cannot be.
    params:     declared by hand, for a body that takes any number of arrays.
    linear:     whether it is linear in the arguments that get a derivative.
    draws:      whether operators that the body calls draw random numbers (Dropout, random_uniform_like). The derivative draws the
                same numbers again.
    replace:    take a name even from one of the framework's operators, or one declared in another module.

    Raises: OperatorError for a name that is taken.
    """

    def made(body: Callable[..., TracedValue | Sequence[TracedValue]]) -> DeclaredComposite:
        op = DeclaredComposite(body, name, **options)
        register(op, replace=replace, module=body.__module__)
        return op

    return made
