"""@simple_op and @reduction: an operator from its formula.

    @simple_op
    def softplus(x: Float) -> Float:
        return maximum(x, 0) + log1p(exp(-abs(x)))

    @softplus.gradient            # optional: without it the derivative is derived from the formula
    def _(dy, y):                 # the names say what backward keeps: dy, y, or inputs
        return dy * -expm1(-y)

Arrays are positional. Parameters are keyword-only, typed, with defaults; `Scalar` marks one that is handed to the kernel
at run time, so that a new value needs no new kernel, and which the body therefore cannot branch on.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...cache import Cache
from ...dtype import as_dtype, float32, float64
from ...errors import DTypeError, OperatorError
from .. import op as registry
from ..ir.coalesce import full_shape
from ..ir.combine import combine_of
from ..ir.draws import recording, total
from ..ir.expr import LOAD, PARAM, Expr, Operand, as_expr, caller, load, param
from ..ir.primitives import PRIMITIVES
from ..kernel import Kernel
from ..op import Dtypes, Expression, Gradient, Need, NumpyFunction, Reqs, Shapes, Spec, Specs
from ..params import REQUIRED, Param, Params, declared_param, describe
from .device_body import DeviceGradOp, device_kernel
from .rules import Rule, answered_dtypes, answered_shapes
from .traced import GradientOp, TracedOp, broadcast_shapes, kept_dtype, printed

Float = typing.Annotated[Any, "array of floats"]
Array = typing.Annotated[Any, "array"]
Scalar = typing.Annotated[float, "scalar"]
Ints = typing.Annotated[tuple[int, ...], "shape"]
Axes = typing.Annotated[tuple[int, ...] | None, "shape"]
_RULE = "The result's shape, which the shape rule answered, has 1 on the axes that are folded."


class SimpleOp(TracedOp):
    """An operator declared by its body; what `@simple_op` returns."""

    def __init__(self, body: Callable[..., Any], *, name: str | None = None, aliases: Sequence[str] = (),
                 broadcast: bool = False, states: Sequence[str] = (), free: Sequence[str] = (),
                 differentiable: bool = True, doc: str = "", params: Sequence[Param] = (),
                 shape: Callable[..., Any] | None = None, dtype: Any = None, outputs: Sequence[str] = (),
                 combine: Any = "add", identity: float | None = None, inplace: bool | None = None,
                 rows: str = ""):
        super().__init__()
        self.body, self.name, self.aliases = body, name or body.__name__, tuple(aliases)
        self.doc = inspect.cleandoc(doc or body.__doc__ or "")
        self.broadcast, self._states, self.free = broadcast, tuple(states), frozenset(free)
        self.differentiable = differentiable
        self._gradient_body: Callable[..., Any] | None = None
        self.input_names, declared = signature(self.name, body)
        self.params = tuple(params) or declared
        self.__doc__ = "\n".join([self.doc or f"The operator {self.name}.", "", *map(describe, self.params)]).rstrip()
        self.combine, self.folds = combine_of(self.name, combine, identity), shape is not None
        if isinstance(outputs, str) or len(set(outputs)) != len(outputs) or not all(str(o).isidentifier() for o in outputs):
            raise OperatorError(f"{self.name}: outputs={outputs!r} is not a tuple of different names.")
        self._shown = tuple(outputs)
        self._inplace, self._rows = inplace, rows
        if rows and all(d.name != rows or d.kind != "int" for d in self.params):
            raise OperatorError(f"{self.name}: rows={rows!r} is not the name of an integer parameter, the axis of its rows.")
        self._shares = shape is None if inplace is None else inplace
        self._shape_rule = None if shape is None else self._rule("shape", shape)
        self._dtype_rule = None if dtype is None else self._rule("dtype", dtype if callable(dtype) else _constant_rule(dtype))
        self._counts: Cache[tuple, tuple[str, ...]] = Cache()
        self._devices: dict[str, Any] = {}
        self._device_gradients: dict[str, Any] = {}
        self._gradient_arrays: tuple[str, ...] = ()
        if not self.input_names and self._shape_rule is None:
            raise OperatorError(f"{self.name}: the body takes no array, so the declaration must say the result's shape: "
                                f"shape=lambda **p: p['shape']. Arrays are positional arguments of the body.")
        unknown = set(self._states) - set(self.input_names)
        if unknown or self.input_names[len(self.input_names) - len(self._states):] != self._states:
            raise OperatorError(f"{self.name}: states {self._states} must be the last arguments of the body, "
                                f"which has {', '.join(self.input_names)}.")

    def arguments(self, p: Params) -> tuple[str, ...]:
        return self.input_names[: len(self.input_names) - len(self._states)]

    def auxiliaries(self, p: Params) -> tuple[str, ...]:
        return self._states

    def _rule(self, kind: str, function: Callable[..., Any]) -> Rule:
        fixed = [d.name for d in self.params if d.kind != "scalar"]
        return Rule(self.name, kind, function, self.input_names, fixed, [d.name for d in self.params if d.kind == "scalar"])

    def shown(self, p: Params) -> tuple[str, ...]:
        """Return the names of the outputs that a user sees: as many as the body returns values."""
        return self._shown or self._counts.get_or_make(p.static, lambda: self._counted(p))

    def _counted(self, p: Params) -> tuple[str, ...]:
        e = self._sampled(p)
        n = 1 if e is None else len(e.outputs) - len(e.states)
        return self.output_names if n <= 1 else tuple(f"output{i}" for i in range(n))

    def _sampled(self, p: Params) -> Expression | None:
        """Return the expression for some dtype that the body takes; None if it takes none: a use then raises its error."""
        for d in (float32, float64, np.dtype("int32")):
            try:
                return self._traced(p, [d] * len(self.input_names))[0]
            except Exception:  # any error of the user's function
                continue
        return None

    def outputs(self, p: Params) -> tuple[str, ...]:
        return (*self.shown(p), *(f"draw{i}" for i in self.kept_draws(p)))

    def visible_outputs(self, p: Params) -> int:
        return len(self.shown(p))

    def kept_draws(self, p: Params) -> tuple[int, ...]:
        if self._gradient_body is not None or self._device_gradients:  # it asks for outputs alone
            return ()
        e = self._sampled(p)
        gradient = None if e is None or not e.draws else self.gradient_of(p)
        return getattr(gradient.op, "draws", ()) if gradient is not None else ()

    def random_count(self, p: Params, ins: Specs, outs: Specs) -> int:
        e = self._sampled(p)
        if e is None or not e.draws:
            return 0
        return total(e.draws, full_shape([s.shape for s in (*ins, *outs)])) if ins or outs else len(e.draws)

    def inplace(self, p: Params) -> tuple[tuple[int, int], ...]:
        return super().inplace(p) if self._shares and (self._inplace or not self._devices) else ()

    def row_axis(self, p: Params) -> int | None:
        return p[self._rows] if self._rows else None

    # ---- bodies for one device ----
    def cpu(self, body: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the body for the CPU, a function of NumPy arrays (device_body.py): a decorator."""
        return self._for_device("cpu", body)

    def gpu(self, body: Any) -> Any:
        """Declare the body for a GPU, a function that launches Triton kernels, or a kernel (device_body.py): a decorator."""
        return self._for_device("gpu", body)

    def _for_device(self, device: str, body: Any) -> Any:
        fits = callable(body) if device == "cpu" else callable(body) or hasattr(body, "fn")
        if not fits or self._states:
            why = "has states, and only its formula can change them" if fits else f"got {body!r}, which is not a function"
            raise OperatorError(f"{self.name}.{device}: {why}.")
        self._devices[device] = body
        self.nonblocking = self.capturable = False  # a user's code may do anything
        self._counts.clear()
        self._gradients.clear()
        return body

    def cpu_gradient(self, body: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the derivative on the CPU, a function of NumPy arrays (device_body.py): a decorator."""
        return self._gradient_for_device("cpu", body)

    def gpu_gradient(self, body: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the derivative on a GPU, a function that launches Triton kernels (device_body.py): a decorator."""
        return self._gradient_for_device("gpu", body)

    def _gradient_for_device(self, device: str, body: Callable[..., Any]) -> Callable[..., Any]:
        arrays, _ = array_names(body)
        if device == "gpu":  # the memory of the derivatives comes last
            arrays = arrays[:len(arrays) - len(self.input_names)]
        for n in arrays:
            self._need(n, self._shown)
        if self._gradient_arrays not in ((), tuple(arrays)):
            raise OperatorError(f"{self.name}.{device}_gradient: reads {', '.join(arrays)}, and the derivative for the other "
                                f"device {', '.join(self._gradient_arrays)}. Both must read the same arrays.")
        self._gradient_arrays = tuple(arrays)
        self._device_gradients[device] = body
        self._gradients.clear()
        return body

    def expression(self, p: Params, dtypes: Sequence[np.dtype], train: bool = True) -> Expression | None:  # type: ignore[override]
        return None if self._devices else super().expression(p, dtypes, train)  # a device may compute something of its own

    def _has_formula(self, p: Params) -> bool:
        """Return whether the declared body is a formula: one without returns None, and each device needs a body of its own."""
        return not self._devices or self._sampled(p) is not None

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> Kernel:
        body = self._devices.get(target)
        if body is not None:
            if self.random_count(p, ins, outs):
                raise OperatorError(f"{self.name}: its formula draws random numbers, which a body for one device cannot.")
            names = [*self.input_names, *self.outputs(p)]
            return device_kernel(self.name, body, p, names, ins, outs, reqs, target)
        return self.formula_kernel(p, ins, outs, reqs, target, train)

    def formula_kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> Kernel:
        """Return the kernel that is printed from the formula. Raises OperatorError if there is none."""
        if not self._has_formula(p):
            raise OperatorError(f"{self.name}: has neither a formula nor a body for the {target.upper()}. Return a formula from "
                                f"its body, or declare one with @{self.name}.{target}.")
        e = TracedOp.expression(self, p, [s.dtype for s in ins], train)
        made = printed(*self.with_rows(p, e, ins, outs), reqs, target, self.name)
        if self.random_count(p, ins, outs) and not e.draws:
            return Kernel(lambda run, inputs, outputs, scalars=(), random=None: made.run(
                run, inputs, outputs, *((scalars,) if scalars else ())))
        return made

    def body_parameters(self, p: Params) -> dict[str, Any]:
        """Return the parameters as bodies get them: run-time scalars as expressions."""
        return {d.name: param(d.name) if d.kind == "scalar" else p[d.name] for d in self.params}

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        result = _as_tuple(self.body(*inputs, **self.body_parameters(p)))
        shown, n = len(self._shown), len(self._states)
        if len(result) <= n or (shown and len(result) != shown + n):
            wanted = f"{shown or 'one'} for {', '.join(self._shown)}" if shown else "the result"
            raise OperatorError(f"{self.name}: the body returned {len(result)} values, not {(shown or 1) + n}: {wanted}"
                                f"{', then the new value of each state' if n else ''}.")
        return tuple(as_expr(r) for r in result)

    def inline(self, *args: Any, **kwargs: Any) -> Operand | tuple[Operand, ...]:
        """Inline the body in another body."""
        kwargs.pop("name", None)
        if self._states or len(args) != len(self.input_names):
            raise OperatorError(f"{self.name}: inside a body it takes {len(self.input_names)} values "
                                f"({', '.join(self.input_names)}), not {len(args)} ({caller()}).")
        p = self.parse({k: v for k, v in kwargs.items() if not isinstance(v, Expr)})
        return self.body(*map(as_expr, args), **{**p, **{k: v for k, v in kwargs.items() if isinstance(v, Expr)}})

    def numpy_function(self, p: Params, ins: Specs, out: Spec) -> NumpyFunction | None:
        e = self.expression(p, [s.dtype for s in ins])
        root = None if e is None or e.states else e.outputs[0]
        function = PRIMITIVES[root.op].numpy if root is not None and root.op in PRIMITIVES else None
        if root is None or not isinstance(function, np.ufunc) or any(x.op not in (LOAD, PARAM) for x in root.args):
            return None
        return function, tuple(x.value if x.op == LOAD else None for x in root.args)

    # ---- shapes and dtypes ----
    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        if self._shape_rule is None:
            return super().infer_shape(p, inputs, outputs)
        names = self.shown(p)
        known = [*(outputs or ()), *[None] * len(names)][:len(names)]
        ins, outs = answered_shapes(self._shape_rule, p, inputs, known, names)
        if not self._has_formula(p):
            return ins, outs
        full = broadcast_shapes(self.name, [*zip(self.input_names, ins), *zip(names, outs)], _RULE)
        return ins, [*outs, *[full] * len(self.kept_draws(p))]

    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        names = self.shown(p)
        ins, shown = self._infer_dtype(p, inputs, None if outputs is None else outputs[:len(names)], names)
        kept = self.kept_draws(p)
        if not kept:
            return ins, shown
        known = [d for d in ins if d is not None]
        drawn = self._traced(p, known)[1] if len(known) == len(ins) else ()
        return ins, [*shown, *(kept_dtype(drawn[k]) if drawn else None for k in kept)]

    def _infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None, names: Sequence[str]) -> tuple[Dtypes, Dtypes]:
        if self._dtype_rule is not None:
            known = [*(outputs or ()), *[None] * len(names)][:len(names)]
            ins, outs = answered_dtypes(self._dtype_rule, p, inputs, known, names)
            default = next((d for d in ins if d is not None), None)
            return ins, [default if d is None else d for d in outs]
        if not self.input_names:
            return [], [next((d for d in outputs or () if d is not None), float32)] * len(names)
        if not self.free:
            common = self.common_dtype(p, inputs, outputs)
            return [common] * len(inputs), [common] * len(names)
        bound = [i for i, n in enumerate(self.input_names) if n not in self.free]
        known = [inputs[i] for i in bound if inputs[i] is not None]
        if any(k != known[0] for k in known):
            raise DTypeError(f"{self.name}: inputs disagree: {', '.join(f'{self.input_names[i]} {inputs[i]}' for i in bound)}. "
                             f"Convert one with astype.")
        d = known[0] if known else (outputs or [None])[0]
        return [d if i in bound and s is None else s for i, s in enumerate(inputs)], [d] * len(names)

    def result_dtypes(self, p: Params, dtypes: Sequence[np.dtype]) -> list[np.dtype]:
        found = self._infer_dtype(p, dtypes, None, self.shown(p))[1]
        return [self.result_dtype(p, dtypes) if d is None else d for d in found]

    def draw_dtype(self, p: Params, dtypes: Sequence[np.dtype]) -> np.dtype:
        if self._dtype_rule is None:
            return self.result_dtype(p, dtypes)
        answer = self._dtype_rule.ask(p, dtypes, [None] * len(self._shown))  # how many results there are is not known yet
        if isinstance(answer, tuple) and answer and all(isinstance(a, list) for a in answer):
            answer = answer[-1]
        for first in (answer, answer[0] if isinstance(answer, (list, tuple)) and answer else None):
            if isinstance(first, (str, type, np.dtype)):
                return as_dtype(first)
        return self.result_dtype(p, dtypes)

    def result_dtype(self, p: Params, dtypes: Sequence[np.dtype]) -> np.dtype:
        return next((d for n, d in zip(self.input_names, dtypes) if n not in self.free), super().result_dtype(p, dtypes))

    # ---- gradient ----
    def gradient(self, body: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the derivative: a decorator."""
        self._gradient_body = body
        self._gradients.clear()
        arrays, _ = array_names(body)
        needs = [self._need(a, self._shown) for a in arrays]
        if not any(kind == "dy" for kind, _ in needs):
            raise OperatorError(f"{self.name}: the gradient must ask for dy.")
        return body

    def _need(self, name: str, shown: Sequence[str]) -> Need:
        """Return what an argument of a gradient's body names. shown: the outputs' names; () if they are not known yet."""
        if name in self.input_names:
            return "x", self.input_names.index(name)
        for kind, spoken in (("dy", [f"d{o}" for o in shown]), ("y", list(shown))):
            if name in spoken:
                return kind, spoken.index(name)
            number = name.removeprefix(kind) if name.startswith(kind) else "-"
            if number == "" and len(shown) <= 1:
                return kind, 0
            if number.isdecimal() and (not shown or int(number) < len(shown)):
                return kind, int(number)
        several = [f"d{o}" for o in shown] + list(shown) if len(shown) > 1 else ["dy", "y"]
        raise OperatorError(f"{self.name}: the gradient asks for {name!r}. It can ask for "
                            f"{', '.join((*several, *self.input_names))}.")

    def _needs(self, arrays: Sequence[str], p: Params) -> tuple[Need, ...]:
        """Return what the arguments of a gradient's body name."""
        return tuple(self._need(a, self.shown(p)) for a in arrays)

    def make_gradient(self, p: Params) -> Gradient | None:
        if not self.differentiable:
            return None
        if self._device_gradients:
            needs = self._needs(self._gradient_arrays, p)
            op = DeviceGradOp(self, needs, self._gradient_arrays, self._device_gradients)
            return Gradient(op, needs, tuple(range(len(self.arguments(p)))))
        body = self._gradient_body
        if body is None:
            if not self._has_formula(p):
                raise OperatorError(f"{self.name}: has no formula to derive its derivative from. Declare it with "
                                    f"@{self.name}.gradient, or say differentiable=False.")
            return super().make_gradient(p)
        arrays, keywords = array_names(body)
        n, needs = len(self.arguments(p)), self._needs(arrays, p)
        refusal = (f"{self.name}: the gradient draws random numbers ({{place}}); its numbers would not be those of the forward "
                   f"pass. Return the draw as an output and name that in the gradient, or leave the derivative to be derived: "
                   f"it reads the numbers that forward drew.")

        def make(q: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
            values = {**q, **self.body_parameters(q)}
            with recording(refusal=refusal):
                result = _as_tuple(body(*inputs, **{k: values[k] for k in keywords}))
            if len(result) != n:
                raise OperatorError(f"{self.name}: the gradient returned {len(result)} values, not one for each of "
                                    f"{', '.join(self.arguments(q))}.")
            return tuple(as_expr(r) for r in result if r is not None)

        with recording(refusal=refusal):
            given = _as_tuple(body(*(load(i, float32) for i in range(len(arrays))), **{k: p.get(k) for k in keywords}))
        gives = tuple(i for i, g in enumerate(given) if g is not None)
        return Gradient(GradientOp(self, needs, gives, make), needs, gives) if gives else None

    # ---- standard proof ----
    def check(self, *, shapes: Sequence[Sequence[int]] | None = None, **params: Any) -> None:
        """Run the standard proof of this operator and print one line per item. Raises AssertionError on the first failure.

        shapes: of the inputs, where a shape rule takes none of the usual ones.
        """
        from .check_op import check_op

        check_op(self, params, shapes=shapes)

    def gradient_source(self, *, dtype: DTypeLike = "float32", **params: Any) -> str:
        """Return the derivative as formulas, and the arrays that backward keeps."""
        from .check_op import gradient_source

        return gradient_source(self, self.parse(params), dtype)


def simple_op(body: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Declare an elementwise operator by its formula, and register it.

    The body may return a tuple, for several results. It may draw random numbers (`uniform`, `normal`, `bernoulli` of mx.lang):
    the derived derivative reads the numbers that forward drew, which it keeps for that.

    name:            the operator's name, if not the function's. aliases: other names.
    broadcast:       inputs broadcast against each other (NumPy's rule) instead of having one shape.
    states:          the last arguments, which the operator changes: the body returns (result, new state, …).
    free:            arguments whose dtype is independent of the others' (a condition).
    differentiable:  False: its derivative is zero.
    shape:           a function of the inputs' shapes and, by name, of parameters: it checks them and answers the shape of the
                     result (rules.py). Where that is smaller than what the inputs broadcast to, combine folds the elements.
    dtype:           the same for dtypes; or the result's dtype, or one for each result, None for that of the inputs.
    outputs:         the names of the results, if the body returns several; otherwise output0, output1, …
    combine:         "add", "mul", "maximum", "minimum", or an associative and commutative function of two traced values.
    identity:        of such a function: the value that changes no other.
    rows:            the name of an integer parameter: the axis that row_sum and row_max go along; default: the last one.
    inplace:         False: the result never takes the memory of an input. True: it may though there is a shape rule.
    replace:         take a name even from one of the framework's operators, or one declared in another module. An operator
                     declared in the same module is replaced without (a notebook cell run again). Nothing the framework calls
                     itself changes: `a + b` is its own addition even if a user's operator is called broadcast_add.

    Raises: OperatorError for a name that is taken.
    """
    return declare(SimpleOp, body, options)


def declare(cls: type[SimpleOp], body: Callable[..., Any] | None, options: dict[str, Any]) -> Any:
    """Make and register an operator of body; without a body, return the decorator that does."""
    if body is None:
        return lambda f: declare(cls, f, options)
    options = dict(options)
    replace = options.pop("replace", False)
    return registry.register(cls(body, **options), replace=replace, module=body.__module__)


def _as_tuple(result: Any) -> tuple:
    return result if isinstance(result, tuple) else (result,)


def _constant_rule(dtype: Any) -> Callable[..., Any]:
    """Return the dtype rule that gives the one result this dtype, or the results these."""
    return lambda *inputs: list(dtype) if isinstance(dtype, (tuple, list)) else dtype


# ---- reading a body's signature --------------------------------------------------------------------------------------
def array_names(body: Callable[..., Any]) -> tuple[list[str], list[str]]:
    ps = inspect.signature(body).parameters.values()
    return ([p.name for p in ps if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)],
            [p.name for p in ps if p.kind == p.KEYWORD_ONLY])


def signature(name: str, body: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[Param, ...]]:
    arrays, keywords = array_names(body)
    if not keywords:
        return tuple(arrays), ()
    hints, parameters = inspect.get_annotations(body, eval_str=True), inspect.signature(body).parameters
    declared = []
    for k in keywords:
        default = parameters[k].default
        given = REQUIRED if default is inspect.Parameter.empty else default
        guess = float if given is REQUIRED or given is None else type(given)
        declared.append(declared_param(name, k, hints.get(k, guess), given))
    return tuple(arrays), tuple(declared)
