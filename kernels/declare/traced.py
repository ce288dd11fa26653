"""TracedOp: an operator defined by an expression graph: declared bodies, their derivatives and fused groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...cache import Cache
from ...dtype import float32, float64
from ...errors import OperatorError, ParameterError, ShapeError
from ..cpu.c_draws import drawing_kernel
from ..cpu.c_kernel import SAVED, cpu_kernel, least_bound
from ..cpu.c_printer import c_function
from ..cpu.c_printer import program as c_program
from ..cpu.c_rows import row_function
from ..cpu.numpy_printer import numpy_source
from ..ir.body import Body, expression_body, formula_body
from ..ir.coalesce import full_shape
from ..ir.combine import Combine
from ..ir.differentiate import derive, in_terms_of_output
from ..ir.draws import recording
from ..ir.expr import (
    BOOL,
    LOAD,
    Expr,
    as_expr,
    cast,
    const,
    goes_by_rows,
    load,
    loads,
    node,
    resolve_weak_dtype,
    substitute,
    topological,
    typed,
)
from ..ir.lang import where
from ..ir.rows import by_row, lies_along, padded, row_total
from ..kernel import Kernel
from ..op import Expression, Formula, Gradient, Need, Op, Refusal, Req, Reqs, Shape, Shapes, Spec, Specs, merge_shapes
from ..params import Params


class TracedOp(Op):
    """Inputs of one shape (or broadcast), one expression per output, gradient derived from the expression.

    Subclasses give `trace`.
    """

    nonblocking = capturable = True
    multiplies = False
    drops_hidden_at_inference = True  # what only backward reads: draws
    broadcast = False  # False: all inputs have one shape. True: they broadcast, NumPy's rule
    combine: str | Combine = "add"
    folds = False  # True if an output may be smaller than what its inputs broadcast to, and is folded by combine

    def __init__(self) -> None:
        self._asks_training = False  # whether the body differs between training and inference
        self._expressions: Cache[tuple, Expression] = Cache()
        self._traces: Cache[tuple, tuple[Expression, tuple[Expr, ...]]] = Cache()
        self._gradients: Cache[tuple, Gradient | None] = Cache()

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the outputs as expressions of the inputs, states' new values last."""
        raise NotImplementedError

    def states(self, p: Params, roots: int) -> tuple[tuple[int, int], ...]:
        """Return (output, input) pairs: roots stored into an input, the last of so many."""
        n, states = len(self.arguments(p)), len(self.auxiliaries(p))
        return tuple((roots - states + i, n + i) for i in range(states))

    # ---- inference ----
    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        n_out = len(self.outputs(p))
        if self.broadcast and len(inputs) > 1:
            return list(inputs), [broadcast_shapes(self.name, self._named(p, inputs))] * n_out
        shape: Shape | None = None
        for s in (*inputs, *(outputs or ())):
            try:
                shape = merge_shapes(self.name, "the one shape of all inputs", shape, s)
            except ShapeError:
                raise ShapeError(f"{self.name}: shapes differ: {_listed(self._named(p, inputs))}. "
                                 f"Inputs must have one shape; broadcast_* operators accept several.") from None
        return [shape] * len(inputs), [shape] * n_out

    def result_dtype(self, p: Params, dtypes: Sequence[np.dtype]) -> np.dtype:
        """Return the dtype of the outputs: by default the first input's."""
        return dtypes[0] if dtypes else float32

    def result_dtypes(self, p: Params, dtypes: Sequence[np.dtype]) -> list[np.dtype]:
        """Return the dtype of each visible output."""
        return [self.result_dtype(p, dtypes)] * self.visible_outputs(p)

    def kept_draws(self, p: Params) -> tuple[int, ...]:
        """Return the draws, by their sites, that backward reads: each is a hidden output."""
        return ()

    def _named(self, p: Params, inputs: Sequence[Any]) -> list[tuple[str, Any]]:
        return list(zip((*self.arguments(p), *self.auxiliaries(p)), inputs))

    def inplace(self, p: Params) -> tuple[tuple[int, int], ...]:
        n, m = len(self.arguments(p)), len(self.outputs(p))
        return tuple((i, o) for i in range(n) for o in range(m))

    # ---- expression ----
    def expression(self, p: Params, dtypes: Sequence[np.dtype], train: bool = True) -> Expression:
        e = self._traced(p, dtypes, train)[0]
        return e if not e.draws else self._expressions.get_or_make((p.static, tuple(dtypes), train, "kept"),
                                                                   lambda: self._with_kept_draws(p, dtypes, train))

    def _traced(self, p: Params, dtypes: Sequence[np.dtype], train: bool = True) -> tuple[Expression, tuple[Expr, ...]]:
        """Return the expression without hidden outputs, and the result of each draw."""
        key = (p.static, tuple(dtypes), train or not self._asks_training)
        return self._traces.get_or_make(key, lambda: self._make_trace(p, dtypes, train))

    def _make_trace(self, p: Params, dtypes: Sequence[np.dtype], train: bool) -> tuple[Expression, tuple[Expr, ...]]:
        with recording(self.draw_dtype(p, dtypes), self.draw_refusal(p), train) as recorder:
            roots = tuple(as_expr(r) for r in self.trace(p, [load(i, d) for i, d in enumerate(dtypes)]))
        self._asks_training |= recorder.asked
        names = tuple(d.name for d in self.params if d.kind == "scalar")
        e = Expression(roots, _kind(roots), self.combine, self.states(p, len(roots)), names, tuple(recorder.draws))
        return e, tuple(recorder.drawn)

    def draw_dtype(self, p: Params, dtypes: Sequence[np.dtype]) -> np.dtype:
        """Return the dtype of the result for which random numbers are drawn."""
        return self.result_dtype(p, dtypes)

    def draw_refusal(self, p: Params) -> str:
        """Return the error of a body that draws random numbers and must not; "" if it may."""
        return ""

    def _with_kept_draws(self, p: Params, dtypes: Sequence[np.dtype], train: bool) -> Expression:
        e, drawn = self._traced(p, dtypes, train)
        shown = self.visible_outputs(p)
        kept = tuple(drawn[i] for i in self.kept_draws(p) if i < len(drawn))
        return replace(e, outputs=(*e.outputs[:shown], *kept, *e.outputs[shown:]),
                       states=tuple((o + len(kept), i) for o, i in e.states))

    def num_random(self, p: Params, outs: Specs) -> int:
        return self.random_count(p, (), outs)

    def random_count(self, p: Params, ins: Specs, outs: Specs) -> int:
        return 0

    def formula(self, p: Params, ins: Specs, outs: Specs) -> Formula | None:
        """Return the formula of one use where `expression` alone does not define it."""
        return None

    def views(self, p: Params, ins: Sequence[Shape], outs: Sequence[Shape]) -> tuple[Sequence[Shape], Sequence[Shape]]:
        """Return the shapes under which the arrays broadcast to the full shape: by default their own."""
        return ins, outs

    def fusible_body(self, p: Params, ins: Specs, outs: Specs) -> Body | Refusal:
        formula = self.formula(p, ins, outs)
        if formula is not None:
            return formula_body(self.name, p, formula)
        e = self.expression(p, [s.dtype for s in ins])
        if e is None or not ins or not outs:
            return super().fusible_body(p, ins, outs)
        if e.kind == "row" and self.with_rows(p, e, ins, outs)[0] is not e:
            return Refusal(f"{self.name}'s rows go along another axis than the last")
        if e.states or len(e.outputs) != len(outs) or e.draws:
            return Refusal(f"{self.name} keeps a state or draws random numbers")
        return expression_body(self.name, p, e, *self.views(p, tuple(s.shape for s in ins), tuple(s.shape for s in outs)), outs)

    def gradient_of(self, p: Params) -> Gradient | None:
        return self._gradients.get_or_make(p.static, lambda: self.make_gradient(p))

    def make_gradient(self, p: Params) -> Gradient | None:
        """Return the gradient, derived from the trace."""
        return derived_gradient(self, p)

    # ---- code ----
    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> Kernel:
        return printed(*self.with_rows(p, self.expression(p, [s.dtype for s in ins], train), ins, outs), reqs, target, self.name)

    def row_axis(self, p: Params) -> int | None:
        """Return the axis that rows go along; None for the last."""
        return None

    def with_rows(self, p: Params, e: Expression, ins: Specs, outs: Specs) -> tuple[Expression, Specs, Specs]:
        """Return an expression and its arrays as [before, row, behind], where rows go along another axis than the last.

        Raises: ShapeError for an axis that does not exist, and for arrays of different shapes.
        """
        axis = self.row_axis(p) if e.kind == "row" else None
        if axis is None:
            return e, ins, outs
        full = full_shape([s.shape for s in (*ins, *outs)])
        if not -len(full) <= axis < len(full):
            raise ShapeError(f"{self.name}: axis {axis} does not exist in an array of {len(full)} axes.")
        axis %= len(full)
        if axis == len(full) - 1:
            return e, ins, outs
        if any(s.shape != full for s in (*ins, *outs)):
            raise ShapeError(f"{self.name}: rows along axis {axis} of {full} need arrays of one shape: "
                             f"{', '.join(str(s.shape) for s in (*ins, *outs))}.")
        view = math.prod(full[:axis]), full[axis], math.prod(full[axis + 1:])
        return replace(e, axis=-2), [Spec(view, s.dtype) for s in ins], [Spec(view, s.dtype) for s in outs]

    # ---- generated source ----
    def cpu_source(self, *shapes: Shape, dtype: DTypeLike = float32, code: str = "numpy", **params: Any) -> str:
        """The CPU kernel for inputs of these shapes: NumPy's tile program, or with code="c" the C file for large arrays.

        Raises: OperatorError with the reason where the operator has no C function.
        """
        if code not in ("numpy", "c"):
            raise ParameterError(f"cpu_source: code {code!r} is neither 'numpy' nor 'c'.")
        sample = self._sample(shapes, dtype, params)
        if code == "numpy":
            return numpy_source(*sample, name=self.name)
        rows = row_function(*sample) if sample[0].kind == "row" else ""
        if not isinstance(rows, str):
            return c_program(rows.texts)
        found = c_function(*sample)
        if isinstance(found, str):
            raise OperatorError(f"{self.name}: has no C kernel: {found}. It is computed with NumPy.")
        return c_program([found])

    def triton_source(self, *shapes: Shape, dtype: DTypeLike = float32, **params: Any) -> str:
        """Return the Triton kernel for inputs of these shapes."""
        from ..gpu.printer import triton_source  # optional dependency

        return triton_source(*self._sample(shapes, dtype, params), name=self.name)

    def _sample(self, shapes: Sequence[Shape], dtype: DTypeLike, params: dict[str, Any]) -> tuple:
        p = self.parse(params)
        n = len(self.arguments(p)) + len(self.auxiliaries(p))
        given = list(shapes) or [(1024,)]
        in_shapes, out_shapes = self.infer_shape(p, (given * n)[:n] if len(given) == 1 else given)
        d = np.dtype(dtype)
        ins = [Spec(s, d) for s in in_shapes if s is not None]
        outs = [Spec(s, d) for s in out_shapes if s is not None]
        return self.expression(p, [d] * n), ins, outs, [Req.WRITE] * len(outs)


class GradientOp(TracedOp):
    """The derivative of a traced op. Its inputs are what the Gradient needs, in order; it reduces to the inputs' shapes.

    draws: the draws of forward that it reads.
    """

    broadcast = True

    def __init__(self, forward: TracedOp, needs: tuple[Need, ...], gives: tuple[int, ...],
                 make: Callable[[Params, Sequence[Expr]], tuple[Expr, ...]], draws: tuple[int, ...] = ()):
        super().__init__()
        self.name, self.is_users = f"_backward_{forward.name.lstrip('_')}", forward.is_users
        self.forward, self.needs, self.gives, self.make, self.draws = forward, needs, gives, make, draws
        self.params = forward.params
        self.input_names = tuple(f"{kind}{i}" for kind, i in needs)
        self.doc = f"The derivative of {forward.name}."

    def outputs(self, p: Params) -> tuple[str, ...]:
        names = self.forward.arguments(p)
        return tuple(f"d{names[i]}" for i in self.gives)

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        return self.make(p, inputs)

    def row_axis(self, p: Params) -> int | None:
        return self.forward.row_axis(p)

    def states(self, p: Params, roots: int) -> tuple[tuple[int, int], ...]:
        return ()

    def formula(self, p: Params, ins: Specs, outs: Specs) -> Formula | None:
        """Sum over each row where the derivative is by an array that was broadcast along the rows."""
        e = self.expression(p, [s.dtype for s in ins])
        if e.kind != "row" or self.with_rows(p, e, ins, outs)[0] is not e:
            return None
        views = tuple(s.shape for s in ins)
        full = full_shape(views)
        along = lies_along(views, full)
        roots = tuple(row_total(root, along, full[-1]) if padded(s.shape, len(full)) == by_row(full) != full else root
                      for root, s in zip(e.outputs, outs))
        return Formula(roots, views, tuple(s.shape for s in outs))

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> Kernel:
        formula = self.formula(p, ins, outs)
        if formula is None:
            return super().kernel(p, ins, outs, reqs, target, train)
        e = replace(self.expression(p, [s.dtype for s in ins]), outputs=formula.roots)
        return printed(e, ins, outs, reqs, target, self.name)


def derived_gradient(op: TracedOp, p: Params) -> Gradient | None:
    """Gradient of op worked out from its expression: needs the fewest arrays that will do; None if nothing depends."""
    n, m = len(op.arguments(p)), op.visible_outputs(p)
    first = n + len(op.auxiliaries(p))  # the number of the first load that is no input
    folds = op.folds and op.combine != "add"
    if op.folds and op.combine not in ("add", "maximum", "minimum"):
        what = "a product of all elements" if op.combine == "mul" else "a fold by a function of its own"
        raise OperatorError(f"{op.name}: the derivative of {what} is not derived. Declare it with @{op.name}.gradient, or say "
                            f"differentiable=False.")

    def work(q: Params, dtypes: Sequence[np.dtype], by_output: bool) -> list[Expr | None]:
        """Derivatives by all inputs, over loads numbered: inputs and states, then dy, y and draws from `first` on.

        by_output: y may be read in place of inputs.
        """
        e, drawn = op._traced(q, dtypes)
        out_dtypes = op.result_dtypes(q, dtypes)
        dys = [load(first + i, d) for i, d in enumerate(out_dtypes)]
        ins = [node(LOAD, (), i, d) for i, d in enumerate(dtypes)]
        whole = [r if r.dtype is not None else resolve_weak_dtype(r, d) for r, d in zip(e.outputs[:m], out_dtypes)]
        if folds:  # of the elements that attain the maximum, each gets the whole derivative
            ys = [load(first + m + i, d) for i, d in enumerate(out_dtypes)]
            dys = [where(cast(cast(t, d), y.dtype or d) == y, dy, 0) for t, d, y, dy in zip(whole, out_dtypes, ys, dys)]
        dx = derive(whole, [cast(d, t.dtype) if t.dtype is not None else d for d, t in zip(dys, whole)], ins[:n])
        some = [d for d in dx if d is not None]
        if by_output and some:
            some = in_terms_of_output(some, whole[0], load(first + m, out_dtypes[0]), ins)
        some = substitute(some, {id(d): _read_draw(first + 2 * m + k, d) for k, d in enumerate(drawn)})
        rest = iter(some)
        return [next(rest) if d is not None else None for d in dx]

    # a body may cast, so that what it comes to, and what of it is read, depends on the dtype
    def probes(by_output: bool) -> list[list[Expr | None]]:
        return [work(p, [d] * first, by_output) for d in (float32, float64)]

    def read(probe: Sequence[Expr | None]) -> list[int]:
        return loads(d for d in probe if d is not None)

    by_output = m == 1 and not op.folds
    found = probes(by_output)
    if by_output and len({first + m in read(probe) for probe in found}) > 1:
        by_output = False
        found = probes(by_output)
    gives = tuple(i for i in range(n) if any(probe[i] is not None for probe in found))
    if not gives:
        return None
    used = sorted({i for probe in found for i in read(probe)})
    changed = [name for u, name in zip(range(n, first), op.auxiliaries(p)) if u in used]
    if changed:
        raise OperatorError(f"{op.name}: its derivative reads the state {changed[0]}, which forward has changed by then. Declare "
                            f"it with @{op.name}.gradient.")
    kept = tuple(u - first - 2 * m for u in used if u >= first + 2 * m)
    needs = tuple(("x", u) if u < first else ("dy", u - first) if u < first + m else ("y", u - first - m) if u < first + 2 * m
                  else ("y", m + kept.index(u - first - 2 * m)) for u in used)
    if not any(kind == "dy" for kind, _ in needs):  # a derivative that is a constant still flows from dy's shape
        needs = (("dy", 0), *needs)
        used = [first, *used]
    position = {u: i for i, u in enumerate(used)}

    def make(q: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        raw = [_raw(x) for x in inputs]
        dtype_of = {u: raw[i].dtype for u, i in position.items()}
        d0 = next(d for d in dtype_of.values() if d is not None)
        dtypes = [dtype_of.get(i) or d0 for i in range(first)]
        made = work(q, dtypes, by_output)
        found = [const(0) if d is None else d for d in (made[i] for i in gives)]
        return tuple(substitute(found, {id(x): raw[position[x.value]] for x in topological(found) if x.op == LOAD}))

    return Gradient(GradientOp(op, needs, gives, make, kept), needs, gives)


def _read_draw(number: int, drawn: Expr) -> Expr:
    """Return what backward reads of a draw that forward kept: a number, or a byte of truth."""
    return load(number, kept_dtype(drawn)) != 0 if drawn.dtype == BOOL else load(number, kept_dtype(drawn))


def kept_dtype(drawn: Expr) -> np.dtype:
    """Return the dtype of the array that keeps a draw for backward."""
    return np.dtype("uint8") if drawn.dtype == BOOL else typed(drawn)


def printed(e: Expression, ins: Specs, outs: Specs, reqs: Reqs, target: str, name: str) -> Kernel:
    """Return the kernel of e for target, "cpu" or "gpu"."""
    if target == "gpu":
        from ..gpu.printer import triton_kernel  # optional dependency

        return triton_kernel(e, ins, outs, reqs, name=name)
    drawn = drawing_kernel(e, ins, outs, reqs, name, cpu_kernel) if e.draws else None
    is_update = Req.INPLACE in reqs and len(e.scalars) > 1  # of arrays that stay, as those of a bound graph do
    return drawn or cpu_kernel(e, ins, outs, reqs, name, least_bound(SAVED, (*ins, *outs)) if is_update else SAVED)


def _raw(x: Expr) -> Expr:
    """Return the load itself, without the cast of a half to float32."""
    return x if x.op == LOAD else x.args[0]


def _kind(roots: Sequence[Expr]) -> str:
    return "row" if goes_by_rows(roots) else "elementwise"


def _listed(named: Sequence[tuple[str, Any]]) -> str:
    return ", ".join(f"{n} {s}" for n, s in named)


def broadcast_shapes(op: str, named: Sequence[tuple[str, Shape | None]], note: str = "") -> Shape | None:
    """NumPy's broadcasting over partly known shapes; None if one is of unknown rank. Raises ShapeError stating all, and note."""
    if any(s is None for _, s in named):
        return None
    rank = max(len(s) for _, s in named if s is not None)
    out = []
    for axis in range(-rank, 0):
        sizes = {s[axis] for _, s in named if s is not None and len(s) >= -axis}
        real = sizes - {1}
        if len(real - {-1}) > 1:
            raise ShapeError(f"{op}: shapes do not broadcast: {_listed(named)}. "
                             f"Sizes must be equal or 1, axis by axis from the right.{' ' * bool(note)}{note}")
        known = real - {-1}
        out.append(known.pop() if known else -1 if -1 in real else 1)
    return tuple(out)
