"""@simple_op and @reduction: an operator from its formula.

    @simple_op
    def softplus(x: Float) -> Float:
        return maximum(x, 0) + log1p(exp(-abs(x)))

    @softplus.gradient            # optional: left out, the derivative is worked out from the formula
    def _(dy, y):                 # the names say what backward keeps: dy, y, or inputs
        return dy * -expm1(-y)

Arrays are positional. Parameters are keyword-only, typed, with defaults; `Scalar` marks one that is handed to the kernel
at run time, so that a new value needs no new kernel, and which the body therefore cannot branch on.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from ..errors import DTypeError, OperatorError, ShapeError
from . import op as registry
from .expr import Expr, as_expr, caller, load, param
from .numpy_printer import numpy_kernel
from .op import Expression, Gradient, Kernel, Req, Shape, Spec
from .params import REQUIRED, Param, Params
from .traced import GradientOp, TracedOp

Float = typing.Annotated[Any, "array of floats"]
Array = typing.Annotated[Any, "array"]
Scalar = typing.Annotated[float, "scalar"]
Ints = typing.Annotated[tuple[int, ...], "shape"]
Axes = typing.Annotated[tuple[int, ...] | None, "shape"]

_KINDS = {int: "int", float: "float", bool: "bool", str: "str", tuple: "shape", np.dtype: "dtype"}


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
        self.input_names, declared = _signature(self.name, body)
        self.params = tuple(params) or declared
        unknown = set(self._states) - set(self.input_names)
        if unknown or self.input_names[len(self.input_names) - len(self._states):] != self._states:
            raise OperatorError(f"{self.name}: states {self._states} must be the last arguments of the body, "
                                f"which has {', '.join(self.input_names)}.")

    def arguments(self, p: Params) -> tuple[str, ...]:
        return self.input_names[: len(self.input_names) - len(self._states)]

    def auxiliaries(self, p: Params) -> tuple[str, ...]:
        return self._states

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        values = {d.name: param(d.name) if d.kind == "scalar" else p[d.name] for d in self.params}
        result = self.body(*inputs, **values)
        result = result if isinstance(result, tuple) else (result,)
        expected = 1 + len(self._states)
        if len(result) != expected:
            raise OperatorError(f"{self.name}: the body returned {len(result)} values, not {expected}: the result, "
                                f"then the new value of each state.")
        return tuple(as_expr(r) for r in result)

    def inline(self, *args: Any, **kwargs: Any) -> Any:
        """The body as part of another body."""
        kwargs.pop("name", None)
        if self._states or len(args) != len(self.input_names):
            raise OperatorError(f"{self.name}: inside a body it takes {len(self.input_names)} values "
                                f"({', '.join(self.input_names)}), not {len(args)} ({caller()}).")
        p = self.parse({k: v for k, v in kwargs.items() if not isinstance(v, Expr)})
        return self.body(*map(as_expr, args), **{**p, **{k: v for k, v in kwargs.items() if isinstance(v, Expr)}})

    # ---- dtypes ----
    def infer_dtype(self, p: Params, inputs: Sequence[np.dtype | None], outputs: Sequence[np.dtype | None] | None = None
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
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
    def gradient(self, p: Params | Callable[..., Any]) -> Any:
        """Used as a decorator: declare the derivative. Called with parameters: the Gradient."""
        if isinstance(p, Params):
            return super().gradient(p)
        self._gradient_body = p
        self._gradients.clear()
        self._check_gradient_names(p)
        return p

    def _check_gradient_names(self, body: Callable[..., Any]) -> None:
        arrays, _ = _array_names(body)
        for n in arrays:
            if n not in ("dy", "y", *self.input_names):
                raise OperatorError(f"{self.name}: the gradient asks for {n!r}. It can ask for dy, y, "
                                    f"{', '.join(self.input_names)}.")
        if "dy" not in arrays:
            raise OperatorError(f"{self.name}: the gradient must ask for dy.")

    def make_gradient(self, p: Params) -> Gradient | None:
        if not self.differentiable:
            return None
        body = self._gradient_body
        if body is None:
            return super().make_gradient(p)
        arrays, keywords = _array_names(body)
        n = len(self.arguments(p))
        needs = tuple(("dy", 0) if a == "dy" else ("y", 0) if a == "y" else ("x", self.input_names.index(a)) for a in arrays)

        def make(q: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
            kinds = {d.name: d.kind for d in self.params}
            values = {k: param(k) if kinds.get(k) == "scalar" else q[k] for k in keywords}
            result = body(*inputs, **values)
            result = result if isinstance(result, tuple) else (result,)
            if len(result) != n:
                raise OperatorError(f"{self.name}: the gradient returned {len(result)} values, not one for each of "
                                    f"{', '.join(self.arguments(q))}.")
            return tuple(as_expr(r) for r in result if r is not None)

        given = body(*(load(i, np.dtype("float32")) for i in range(len(arrays))),
                     **{k: p.get(k) for k in keywords})
        given = given if isinstance(given, tuple) else (given,)
        gives = tuple(i for i, g in enumerate(given) if g is not None)
        return Gradient(GradientOp(self, needs, gives, make), needs, gives) if gives else None

    # ---- standard proof ----
    def check(self, **params: Any) -> None:
        """Run the standard proof of this operator and print one line per item. Raises AssertionError on the first failure."""
        from .proof import check_op

        check_op(self, params)

    def gradient_source(self, *, dtype: Any = "float32", **params: Any) -> str:
        """The derivative as formulas, and what backward keeps for them."""
        from .proof import gradient_source

        return gradient_source(self, self.parse(params), dtype)


def simple_op(body: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Declare an elementwise operator by its formula, and register it.

    name:            the operator's name, if not the function's. aliases: other names.
    broadcast:       inputs broadcast against each other (NumPy's rule) instead of having one shape.
    states:          the last arguments, which the operator changes: the body returns (result, new state, …).
    free:            arguments whose dtype is independent of the others' (a condition).
    differentiable:  False: its derivative is zero.
    replace:         redefine an operator that exists (a notebook cell run again).
    """
    if body is None:
        return lambda f: simple_op(f, **options)
    replace = options.pop("replace", body.__module__ == "__main__")
    op = SimpleOp(body, **options)
    registry.register(op, replace=replace)
    return op


# ---- reductions ------------------------------------------------------------------------------------------------------
class ReductionOp(SimpleOp):
    """A body per element, folded over axes; what `@reduction` returns. Half precision folds in float32 and rounds once.

    Parameters of all: axis (None or (): every axis), keepdims, exclude (fold the axes that are not named).
    A full reduction gives shape (1,), as in MXNet.
    """

    _AXIS = (
        Param("axis", "shape", None, doc="axes to fold; None or (): all"),
        Param("keepdims", "bool", False, doc="folded axes stay, with size 1"),
        Param("exclude", "bool", False, doc="fold the axes that are not named"),
    )

    def __init__(self, body: Callable[..., Any], *, combine: str, finish: Callable[..., Any] | None = None, **options: Any):
        super().__init__(body, **options)
        self.combine, self.finish = combine, finish
        self.params = (*self._AXIS, *(d for d in self.params if d.name not in ("axis", "keepdims", "exclude")))

    def axes(self, p: Params, rank: int) -> tuple[int, ...]:
        """The axes that are folded, ascending. Raises ShapeError for one that does not exist."""
        if not p.axis:
            return tuple(range(rank))
        out = set()
        for a in p.axis:
            if not -rank <= a < rank:
                raise ShapeError(f"{self.name}: axis {a} does not exist in an array of {rank} axes.")
            out.add(a % rank)
        if len(out) != len(p.axis):
            raise ShapeError(f"{self.name}: axis={tuple(p.axis)} names an axis of {rank} twice.")
        return tuple(a for a in range(rank) if (a in out) != p.exclude)

    def kept(self, p: Params, shape: Shape) -> Shape:
        """The output's shape with the folded axes kept as 1."""
        folded = self.axes(p, len(shape))
        return tuple(1 if i in folded else n for i, n in enumerate(shape))

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        values = {d.name: param(d.name) if d.kind == "scalar" else p[d.name] for d in self.params
                  if d not in self._AXIS}
        return (as_expr(self.body(*inputs, **values)),)

    def infer_shape(self, p: Params, inputs: Sequence[Shape | None], outputs: Sequence[Shape | None] | None = None
                    ) -> tuple[list[Shape | None], list[Shape | None]]:
        (shape,) = inputs
        if shape is None:
            return [None], [None]
        if p.keepdims:
            return [shape], [self.kept(p, shape)]
        folded = self.axes(p, len(shape))
        return [shape], [tuple(n for i, n in enumerate(shape) if i not in folded) or (1,)]

    def inplace(self, p: Params) -> tuple[tuple[int, int], ...]:
        return ()

    def expression(self, p: Params, dtypes: Sequence[np.dtype]) -> Expression | None:  # type: ignore[override]
        return None  # no part of an elementwise run

    def inline(self, *args: Any, **kwargs: Any) -> Any:
        raise OperatorError(f"{self.name}: a reduction cannot be called inside an elementwise body ({caller()}).")

    def kernel(self, p: Params, ins: Sequence[Spec], outs: Sequence[Spec], reqs: Sequence[Req], target: str,
               train: bool = False) -> Kernel:
        (x,), (y,) = ins, outs
        kept = self.kept(p, x.shape)
        count = max(x.size, 1) // max(Spec(kept, x.dtype).size, 1)
        body = super().expression(p, [x.dtype])
        if target == "gpu":
            from .triton_printer import triton_kernel as make  # optional dependency
        else:
            make = numpy_kernel
        if self.finish is None:
            fold = make(body, ins, [Spec(kept, y.dtype)], reqs, name=self.name)
            return lambda run, inputs, outputs, scalars=(): fold(run, inputs, [outputs[0].reshape(kept)], scalars=scalars)
        wide = np.dtype("float32") if y.dtype.itemsize < 4 else y.dtype
        fold = make(body, ins, [Spec(kept, wide)], [Req.WRITE], name=self.name)
        end = Expression((as_expr(self.finish(load(0, wide), count)),))
        close = make(end, [Spec(kept, wide)], [Spec(kept, y.dtype)], reqs, name=f"{self.name}_finish")

        def kernel(run: Any, inputs: Any, outputs: Any, scalars: tuple = ()) -> None:
            folded = run.space(kept, wide)
            fold(run, inputs, [folded], scalars=scalars)
            close(run, [folded], [outputs[0].reshape(kept)])

        return kernel

    def make_gradient(self, p: Params) -> Gradient | None:
        body = self._gradient_body
        if body is None or not self.differentiable:
            return None
        arrays, keywords = _array_names(body)
        needs = tuple(("dy", 0) if a == "dy" else ("y", 0) if a == "y" else ("x", 0) for a in arrays)
        return Gradient(_SpreadOp(self, needs, body, arrays, keywords), needs, (0,))


class _SpreadOp(TracedOp):
    """The derivative of a reduction: dy and y arrive spread along the folded axes."""

    hidden = True
    broadcast = True

    def __init__(self, forward: ReductionOp, needs: tuple[tuple[str, int], ...], body: Callable[..., Any],
                 arrays: Sequence[str], keywords: Sequence[str]):
        super().__init__()
        self.name = f"_backward_{forward.name}"
        self.forward, self.needs, self.body, self.arrays, self.keywords = forward, needs, body, arrays, keywords
        self.params = forward.params
        self.input_names = tuple(f"{kind}{i}" for kind, i in needs)

    def expression(self, p: Params, dtypes: Sequence[np.dtype]) -> Expression | None:  # type: ignore[override]
        return None  # its inputs have other shapes than the graph says: fused only once reductions are

    def kernel(self, p: Params, ins: Sequence[Spec], outs: Sequence[Spec], reqs: Sequence[Req], target: str,
               train: bool = False) -> Kernel:
        (dx,) = outs
        kept = self.forward.kept(p, dx.shape)
        count = max(dx.size, 1) // max(Spec(kept, dx.dtype).size, 1)
        small = [kind != "x" for kind, _ in self.needs]
        values = {k: count if k == "count" else p[k] for k in self.keywords}
        inputs = [load(i, s.dtype) for i, s in enumerate(ins)]
        e = Expression((as_expr(self.body(*inputs, **values)),))
        specs = [Spec(kept if is_small else dx.shape, s.dtype) for s, is_small in zip(ins, small)]
        if target == "gpu":
            from .triton_printer import triton_kernel as make  # optional dependency
        else:
            make = numpy_kernel
        inner = make(e, specs, outs, reqs, name=self.name)

        def kernel(run: Any, arrays: Any, outputs: Any, scalars: tuple = ()) -> None:
            inner(run, [a.reshape(kept) if s else a for a, s in zip(arrays, small)], outputs)

        return kernel


def reduction(body: Callable[..., Any] | None = None, *, combine: str, **options: Any) -> Any:
    """Declare a reduction: the body gives what each element contributes, combine folds them.

    combine:  "add", "mul", "maximum" or "minimum".
    finish:   finish(folded, count) -> the result from the folded value; count is how many elements were folded.
    Other options as in simple_op. A gradient body gets dy (and y) spread along the folded axes, x as it is, and may ask
    for the keyword `count`.
    """
    if body is None:
        return lambda f: reduction(f, combine=combine, **options)
    replace = options.pop("replace", body.__module__ == "__main__")
    op = ReductionOp(body, combine=combine, **options)
    registry.register(op, replace=replace)
    return op


# ---- reading a body's signature --------------------------------------------------------------------------------------
def _array_names(body: Callable[..., Any]) -> tuple[list[str], list[str]]:
    ps = inspect.signature(body).parameters.values()
    return ([p.name for p in ps if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)],
            [p.name for p in ps if p.kind == p.KEYWORD_ONLY])


def _signature(name: str, body: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[Param, ...]]:
    arrays, keywords = _array_names(body)
    if not arrays:
        raise OperatorError(f"{name}: the body takes no array. Arrays are its positional arguments.")
    hints = typing.get_type_hints(body, include_extras=True)
    signature = inspect.signature(body).parameters
    declared = []
    for k in keywords:
        default = signature[k].default
        default = REQUIRED if default is inspect.Parameter.empty else default
        kind, choices = _param_kind(name, k, hints.get(k), default)
        declared.append(Param(k, kind, default, choices))
    return tuple(arrays), tuple(declared)


def _param_kind(op: str, name: str, hint: Any, default: Any) -> tuple[str, tuple[str, ...]]:
    if hint is None:
        hint = type(default) if default is not REQUIRED and default is not None else float
    meta = getattr(hint, "__metadata__", None)
    if meta:
        return meta[0], ()
    if typing.get_origin(hint) is Literal:
        return "str", typing.get_args(hint)
    args = [a for a in typing.get_args(hint) if a is not type(None)]
    if typing.get_origin(hint) is not tuple and len(args) == 1:
        hint = args[0]
    if typing.get_origin(hint) is tuple and float in typing.get_args(hint):
        return "floats", ()
    kind = _KINDS.get(typing.get_origin(hint) or hint)
    if kind is None:
        raise OperatorError(f"{op}: parameter {name!r} is annotated {hint!r}. Use int, float, bool, str, a Literal of "
                            f"strings, Ints, Axes or Scalar.")
    return kind, ()
