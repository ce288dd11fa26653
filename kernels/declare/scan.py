"""@scan: an operator whose every element combines all elements before it along an axis.

    @scan(combine=logaddexp, identity=-math.inf, differentiable=False)
    def log_sums(x):            # element by element; combine then runs along the axis
        return x
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from ...dtype import float32, float64, is_half
from ...errors import OperatorError, ShapeError
from ..ir.combine import Combine
from ..ir.differentiate import derive
from ..ir.expr import BOOL, LOAD, as_expr, cast, identity, load, loads, node, substitute, topological, typed
from ..ir.lang import maximum, minimum
from ..kernel import Kernel
from ..op import Expression, Gradient, Need, Op, Req, Reqs, Shape, Shapes, Spec, Specs, merge_shapes
from ..params import Param, Params
from .index_kernel import At, IndexedArray, index_kernel
from .simple_op import SimpleOp, declare
from .traced import TracedOp, printed

_UFUNCS = {"add": np.add, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum}
_FORMULAS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "maximum": maximum, "minimum": minimum}


class ScanOp(SimpleOp):
    """A body per element, combined along an axis; what `@scan` returns. Half precision is combined in float32.

    Parameters of all: axis (None: of the flattened array), reverse (from the end), exclusive (without the element itself: the
    first is then the identity).
    """

    _OWN = (
        Param("axis", "int", None, doc="along which elements are combined; None: of the flattened array"),
        Param("reverse", "bool", False, doc="from the end"),
        Param("exclusive", "bool", False, doc="each element combines those before it, and not itself"),
    )

    def __init__(self, body: Callable[..., Any], **options: Any):
        super().__init__(body, **options)
        if len(self.input_names) != 1 or any(d.kind == "scalar" for d in self.params):
            raise OperatorError(f"{self.name}: a scan takes one array, and parameters that are fixed when its kernel is built.")
        self.params = (*self._OWN, *self.params)

    def body_parameters(self, p: Params) -> dict[str, Any]:
        return {d.name: p[d.name] for d in self.params if d not in self._OWN}

    def lines(self, p: Params, shape: Shape) -> Shape:
        """Return [outer, n, inner], n elements being combined. Raises ShapeError for an axis that does not exist."""
        if p.axis is None:
            return 1, math.prod(shape), 1
        if not -len(shape) <= p.axis < len(shape):
            raise ShapeError(f"{self.name}: axis {p.axis} does not exist in an array of {len(shape)} axes.")
        axis = p.axis % len(shape)
        return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1:])

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        x, y = inputs[0], outputs[0] if outputs else None
        if p.axis is None:
            return [x], [(math.prod(x),) if x is not None and -1 not in x else y]
        x = merge_shapes(self.name, "the array and its result", x, y)
        if x is not None:
            self.lines(p, x)
        return [x], [x]

    def inplace(self, p: Params) -> tuple[tuple[int, int], ...]:
        return ()

    def expression(self, p: Params, dtypes: Sequence[np.dtype], train: bool = True) -> Expression | None:  # type: ignore[override]
        return None

    def draw_refusal(self, p: Params) -> str:
        return f"{self.name}: the body of a scan draws random numbers ({{place}}). Draw in an operator of its own."

    def inline(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise OperatorError(f"{self.name}: a scan cannot be called inside an elementwise body.")

    def _for_device(self, device: str, body: Any) -> NoReturn:
        raise OperatorError(f"{self.name}.{device}: is a scan, which is declared by its formula alone.")

    def gradient(self, body: Callable[..., Any]) -> NoReturn:
        raise OperatorError(f"{self.name}: the derivative of a scan is no formula of one element. Write the operator as "
                            f"mx.composite, whose derivative may call scans.")

    def make_gradient(self, p: Params) -> Gradient | None:
        if not self.differentiable:
            return None
        if self.combine != "add":
            raise OperatorError(f"{self.name}: the derivative of a scan by anything but add is not derived. Say "
                                f"differentiable=False.")
        back = ScanGradOp(self, p)
        return Gradient(back, back.needs, (0,))

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> Kernel:
        (x,), (y,) = ins, outs
        e = TracedOp.expression(self, p, [x.dtype])
        wide = _wide(typed(e.outputs[0]) if e.outputs[0].dtype is not None else y.dtype)
        first = printed(e, [x], [Spec(x.shape, wide)], [Req.WRITE], target, self.name).run
        run_along = along(self.lines(p, x.shape), wide, self.combine, p.reverse, p.exclusive, target, self.name)
        last = printed(Expression((load(0, wide),)), [Spec(y.shape, wide)], outs, reqs, target, f"{self.name}_store").run

        def kernel(run: Any, inputs: Any, outputs: Any) -> None:
            values = run.workspace(x.shape, wide)
            first(run, inputs, [values])
            last(run, [run_along(run, values).reshape(y.shape)], outputs)

        return Kernel(kernel)


class ScanGradOp(Op):
    """The derivative of running sums: the sums of dy from the other end, times the derivative of the body."""

    nonblocking = capturable = True

    def __init__(self, forward: ScanOp, p: Params):
        self.name, self.is_users = f"_backward_{forward.name}", forward.is_users
        self.forward, self.params = forward, forward.params
        self.needs: tuple[Need, ...] = (("dy", 0), ("x", 0)) if 0 in loads([self.root(p, float32)]) else (("dy", 0),)
        self.input_names = tuple(kind for kind, _ in self.needs)

    def root(self, p: Params, dtype: np.dtype) -> Any:
        """Return the derivative by one element, of loads 0 (it) and 1 (the sum of dy over all that it is in)."""
        x = load(0, dtype)
        each = as_expr(self.forward.trace(p, [x])[0])
        total = load(1, _wide(each.dtype or dtype))
        leaf = x if x.op == LOAD else x.args[0]
        found = derive([each], [cast(total, each.dtype or dtype)], [leaf])[0]
        return as_expr(0) if found is None else found

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        known = inputs[1] if len(inputs) > 1 else outputs[0] if outputs else inputs[0] if p.axis is not None else None
        return list(inputs), [known]

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> Kernel:
        (dx,), dy = outs, ins[0]
        wide, lines = _wide(dy.dtype), self.forward.lines(p, dx.shape)
        widened = Expression((load(0, dy.dtype),))
        first = printed(widened, [dy], [Spec(dy.shape, wide)], [Req.WRITE], target, f"{self.name}_in").run
        run_along = along(lines, wide, "add", not p.reverse, p.exclusive, target, self.name)
        root = self.root(p, dx.dtype)
        reads = [Spec(dx.shape, dx.dtype), Spec(dx.shape, wide)]
        if len(self.needs) == 1:  # the body is linear: x is not kept
            root, reads = _narrowed(root), reads[1:]
        last = printed(Expression((root,)), reads, outs, reqs, target, self.name).run

        def kernel(run: Any, inputs: Any, outputs: Any) -> None:
            values = run.workspace(dy.shape, wide)
            first(run, inputs[:1], [values])
            last(run, [*inputs[1:], run_along(run, values).reshape(dx.shape)], outputs)

        return Kernel(kernel)


def _narrowed(root: Any) -> Any:
    """Return root with load 0 for load 1."""
    new = {id(x): node(LOAD, (), 0, x.dtype) for x in topological([root]) if x.op == LOAD}
    return substitute([root], new)[0]


def _wide(dtype: np.dtype) -> np.dtype:
    return float32 if is_half(dtype) else np.dtype("int32") if dtype == BOOL else dtype


def along(lines: Shape, dtype: np.dtype, combine: str | Combine, reverse: bool, exclusive: bool, target: str, name: str
          ) -> Callable[[Any, Any], Any]:
    """Return the function (run, values) -> the combined values, of lines [outer, n, inner] along n. It may change values."""
    if target == "cpu":
        return lambda run, values: _on_cpu(values.reshape(lines), dtype, combine, reverse, exclusive)
    n, sign = lines[1], -1 if reverse else 1
    spec, whole = Spec(lines, dtype), identity(combine, dtype)
    function = _FORMULAS[combine] if isinstance(combine, str) else combine.function

    def before(at: At, x: IndexedArray, step: Any) -> Any:
        j = at[1] - sign * step
        return x.at(at[0], j, at[2], inside=(j >= 0) & (j < x.shape[1]), otherwise=whole)

    def doubled(at: At, x: IndexedArray, step: Any) -> Any:
        return function(before(at, x, step), x[tuple(at)])

    steps = [1 << k for k in range(max(0, n - 1).bit_length())]
    passes = [index_kernel(doubled, [spec], [spec], [Req.WRITE], target, name, scalars={"step": s}) for s in steps]
    if exclusive:
        passes.append(index_kernel(before, [spec], [spec], [Req.WRITE], target, f"{name}_shift", scalars={"step": 1}))

    def run_along(run: Any, values: Any) -> Any:
        values, other = values.reshape(lines), run.workspace(lines, dtype) if passes else None
        for one in passes:
            one.run(run, [values], [other])
            values, other = other, values
        return values

    return run_along


def _on_cpu(values: np.ndarray, dtype: np.dtype, combine: str | Combine, reverse: bool, exclusive: bool) -> np.ndarray:
    x = values[:, ::-1] if reverse else values
    n = x.shape[1]
    with np.errstate(all="ignore"):
        if isinstance(combine, str):  # in float64: one after the other loses digits
            x = _UFUNCS[combine].accumulate(x, axis=1, dtype=float64 if dtype == float32 else dtype).astype(dtype, copy=False)
        else:
            function, step = combine.on_arrays(dtype), 1
            while step < n:
                x = np.concatenate([x[:, :step], function(x[:, :-step], x[:, step:])], axis=1)
                step *= 2
    if exclusive and n:
        x = np.concatenate([np.full_like(x[:, :1], identity(combine, dtype)), x[:, :-1]], axis=1)
    return np.ascontiguousarray(x[:, ::-1] if reverse else x)


def scan(body: Callable[..., Any] | None = None, *, combine: Any, **options: Any) -> Any:
    """Declare a scan: the body gives what each element contributes, combine runs along an axis.

    combine, identity:  as in reduction; combine need not be commutative. The derivative is derived for "add" alone: others say
                        differentiable=False.
    Other options as in simple_op.
    """
    return declare(ScanOp, body, {**options, "combine": combine})
