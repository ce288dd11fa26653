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

from ...dtype import float32
from ...errors import DTypeError, OperatorError
from .. import op as registry
from ..ir.expr import LOAD, PARAM, Expr, Operand, as_expr, caller, load, param
from ..ir.primitives import PRIMITIVES
from ..op import Dtypes, Gradient, Need, NumpyFunction, Spec, Specs
from ..params import REQUIRED, Param, Params, declared_param
from .traced import GradientOp, TracedOp

Float = typing.Annotated[Any, "array of floats"]
Array = typing.Annotated[Any, "array"]
Scalar = typing.Annotated[float, "scalar"]
Ints = typing.Annotated[tuple[int, ...], "shape"]
Axes = typing.Annotated[tuple[int, ...] | None, "shape"]


class SimpleOp(TracedOp):
    """An operator declared by its body; what `@simple_op` returns."""

    def __init__(self, body: Callable[..., Any], *, name: str | None = None, aliases: Sequence[str] = (),
                 broadcast: bool = False, states: Sequence[str] = (), free: Sequence[str] = (),
                 differentiable: bool = True, doc: str = "", params: Sequence[Param] = ()):
        super().__init__()
        self.body, self.name, self.aliases = body, name or body.__name__, tuple(aliases)
        self.doc = inspect.cleandoc(doc or body.__doc__ or "")
        self.broadcast, self._states, self.free = broadcast, tuple(states), frozenset(free)
        self.differentiable = differentiable
        self._gradient_body: Callable[..., Any] | None = None
        self.input_names, declared = signature(self.name, body)
        self.params = tuple(params) or declared
        unknown = set(self._states) - set(self.input_names)
        if unknown or self.input_names[len(self.input_names) - len(self._states):] != self._states:
            raise OperatorError(f"{self.name}: states {self._states} must be the last arguments of the body, "
                                f"which has {', '.join(self.input_names)}.")

    def arguments(self, p: Params) -> tuple[str, ...]:
        return self.input_names[: len(self.input_names) - len(self._states)]

    def auxiliaries(self, p: Params) -> tuple[str, ...]:
        return self._states

    def body_parameters(self, p: Params) -> dict[str, Any]:
        """Return the parameters as bodies get them: run-time scalars as expressions."""
        return {d.name: param(d.name) if d.kind == "scalar" else p[d.name] for d in self.params}

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        result = _as_tuple(self.body(*inputs, **self.body_parameters(p)))
        expected = 1 + len(self._states)
        if len(result) != expected:
            raise OperatorError(f"{self.name}: the body returned {len(result)} values, not {expected}: the result, "
                                f"then the new value of each state.")
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

    # ---- dtypes ----
    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        if not self.free:
            return super().infer_dtype(p, inputs, outputs)
        bound = [i for i, n in enumerate(self.input_names) if n not in self.free]
        known = [inputs[i] for i in bound if inputs[i] is not None]
        if any(k != known[0] for k in known):
            raise DTypeError(f"{self.name}: inputs disagree: {', '.join(f'{self.input_names[i]} {inputs[i]}' for i in bound)}. "
                             f"Convert one with astype.")
        d = known[0] if known else (outputs or [None])[0]
        return [d if i in bound and s is None else s for i, s in enumerate(inputs)], [d]

    def result_dtype(self, p: Params, dtypes: Sequence[np.dtype]) -> np.dtype:
        return next((d for n, d in zip(self.input_names, dtypes) if n not in self.free), super().result_dtype(p, dtypes))

    # ---- gradient ----
    def gradient(self, body: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the derivative: a decorator."""
        self._gradient_body = body
        self._gradients.clear()
        arrays, _ = array_names(body)
        for n in arrays:
            if n not in ("dy", "y", *self.input_names):
                raise OperatorError(f"{self.name}: the gradient asks for {n!r}. It can ask for dy, y, "
                                    f"{', '.join(self.input_names)}.")
        if "dy" not in arrays:
            raise OperatorError(f"{self.name}: the gradient must ask for dy.")
        return body

    def _needs(self, arrays: Sequence[str]) -> tuple[Need, ...]:
        """Return what the arguments of a gradient's body name."""
        return tuple((a, 0) if a in ("dy", "y") else ("x", self.input_names.index(a)) for a in arrays)

    def make_gradient(self, p: Params) -> Gradient | None:
        if not self.differentiable:
            return None
        body = self._gradient_body
        if body is None:
            return super().make_gradient(p)
        arrays, keywords = array_names(body)
        n, needs = len(self.arguments(p)), self._needs(arrays)

        def make(q: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
            values = {**q, **self.body_parameters(q)}
            result = _as_tuple(body(*inputs, **{k: values[k] for k in keywords}))
            if len(result) != n:
                raise OperatorError(f"{self.name}: the gradient returned {len(result)} values, not one for each of "
                                    f"{', '.join(self.arguments(q))}.")
            return tuple(as_expr(r) for r in result if r is not None)

        given = _as_tuple(body(*(load(i, float32) for i in range(len(arrays))), **{k: p.get(k) for k in keywords}))
        gives = tuple(i for i, g in enumerate(given) if g is not None)
        return Gradient(GradientOp(self, needs, gives, make), needs, gives) if gives else None

    # ---- standard proof ----
    def check(self, **params: Any) -> None:
        """Run the standard proof of this operator and print one line per item. Raises AssertionError on the first failure."""
        from .check_op import check_op

        check_op(self, params)

    def gradient_source(self, *, dtype: DTypeLike = "float32", **params: Any) -> str:
        """Return the derivative as formulas, and the arrays that backward keeps."""
        from .check_op import gradient_source

        return gradient_source(self, self.parse(params), dtype)


def simple_op(body: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Declare an elementwise operator by its formula, and register it.

    name:            the operator's name, if not the function's. aliases: other names.
    broadcast:       inputs broadcast against each other (NumPy's rule) instead of having one shape.
    states:          the last arguments, which the operator changes: the body returns (result, new state, …).
    free:            arguments whose dtype is independent of the others' (a condition).
    differentiable:  False: its derivative is zero.
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


# ---- reading a body's signature --------------------------------------------------------------------------------------
def array_names(body: Callable[..., Any]) -> tuple[list[str], list[str]]:
    ps = inspect.signature(body).parameters.values()
    return ([p.name for p in ps if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)],
            [p.name for p in ps if p.kind == p.KEYWORD_ONLY])


def signature(name: str, body: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[Param, ...]]:
    arrays, keywords = array_names(body)
    if not arrays:
        raise OperatorError(f"{name}: the body takes no array. Arrays are its positional arguments.")
    hints = typing.get_type_hints(body, include_extras=True)
    declared = []
    for k in keywords:
        default = inspect.signature(body).parameters[k].default
        given = REQUIRED if default is inspect.Parameter.empty else default
        guess = float if given is REQUIRED or given is None else type(given)
        declared.append(declared_param(name, k, hints.get(k, guess), given))
    return tuple(arrays), tuple(declared)
