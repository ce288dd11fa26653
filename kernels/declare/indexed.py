"""@indexed: an operator declared by one element of its output, a formula of elements of the inputs at computed indices.

    @indexed("reverse_rows", shape=lambda x, **_: x)
    def reverse_rows(at, x):
        '''The rows of x in reverse order. x: [rows, ...].'''
        i, *rest = at
        return x[(x.shape[0] - 1 - i, *rest)]

    @reverse_rows.gradient
    def _(at, dy):                      # at: the index of an element of the derivative by x
        i, *rest = at
        return dy[(dy.shape[0] - 1 - i, *rest)]

One declaration is printed as NumPy and as Triton. `mx.nd`, `mx.sym`, autograd, write requests and documentation follow.

**The body** is traced, once for each set of shapes, dtypes and parameters. Its first argument is `at`; the other positional
arguments are the inputs; keyword-only ones are parameters, typed as in `simple_op` (a `Scalar` is handed over at run time).

    at            the index of the output's element: a tuple of traced integers (int64), one for each axis. `at.shape`: traced
                  sizes of the output; `at.sizes`: the same as ints; `at.output`: the number of the output (see below)
    x[i, j]       the element at these indices: one for each axis, traced or ints, of an integer dtype. They must be within
                  bounds: a negative index is not wrapped, and nothing checks a traced one. `x[at]`, `x[(*at[:2], 0)]`
    x.at(i, j, inside=c, otherwise=0)   the element where c holds, elsewhere `otherwise`; there the indices may lie anywhere
    x.ndim, x.dtype, x.size             the number of axes; the dtype of the array; the number of elements, as an int
    x.shape       traced sizes: the GPU's kernel is the same for all values. x.shape[0] // 2, i < x.shape[1], …
    x.sizes       ints: the body may branch or loop on them, or build Python structures; the kernel is made for these sizes
    +, -, *, //, %, <, ==, &, |, ~      of traced values. `//` rounds down and `%` has the sign of the divisor, as in Python;
                  of integers both give 0 for a divisor of 0. `/` of integers is a float
    where(c, a, b), exp, maximum, floor …       the functions of `mx.lang`. Python's if, and, min, max and int() need values
                  and do not work on traced ones
    v.astype("int64")   conversion; floats are truncated. An index that comes from data: clip it, or use at(..., inside=…)

Half-precision inputs are computed in float32 and rounded once, where the result is stored. Integers keep their dtype;
indices are int64, so `at[0] * 0.5` is a float32 and `at[0] / 2` a float64: cast where that matters.

**Loops.** Inside a body:

    lang.sum(n, lambda k: x[at[0], k] * w[k, at[1]])       also prod, max, min, argmax, argmin
    lang.fold(n, (0.0, 1.0), lambda k, a, b: (b, a + b))   any number of accumulators

n is an int or a traced integer, and may depend on at or on data. k runs 0, 1, … n - 1 in this order on every back end. Loops
nest. A Python loop over an int unrolls: good for 4 corners, not for 100 steps. What does not depend on k is computed once.

**Shapes.** `shape=` is a function of the inputs' shapes and the parameters (name those it needs, or end with **_): it returns
the shape of the output, or a tuple of shapes if there are several outputs, and raises ShapeError for what does not fit. Without
it, the output is like the first input. It is called when all shapes are known.

**Dtypes.** Inputs have one dtype, except those named in `free=` (an index, a condition). The output has that dtype; `dtype=`
is another one, or a function of the inputs' dtypes and the parameters that returns it (a tuple for several outputs).

**Several outputs.** `outputs=("max", "where")` names them; the body returns a tuple, `shape=` a tuple of shapes. If the shapes
differ, the body is called once for each output, with `at.output` its number and `at` its index; it then returns that value
alone, or a tuple of which that one is taken.

**Gradients.** `@op.gradient` declares the derivative by the first input, `@op.gradient("rhs")` by another: again an index
formula, where `at` is the index of the derivative's element. Its arguments after `at` name what it reads, which backward then
keeps: `dy`, `y`, inputs by name; with several outputs `dy0`, `dy1`, … and `y0`, …. Inputs without one have derivative zero.
A derivative that collects (several elements of the output read one of the input) needs a loop over those that may read it.

Without any, the derivative by all inputs that are not `free` is derived: what each element of the output contributes is added at
the places from which it was computed. On the CPU the order of the additions is fixed; on a GPU they are atomic, in any order.
The loops may be lang.sum, max and min (of equal extremes the first counts). It keeps dy and all inputs.

`op.check(x, index, scale=2.0)` runs the standard checks with these NumPy arrays: values by dtype, requests, the gradient, and the
GPU against the CPU. `op.cpu_source(shapes…)` and `op.triton_source(shapes…)` show the generated code.

Layers compute by the same formulas with the functions of `index_kernel`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...cache import Cache
from ...dtype import as_dtype, float32, is_float
from ...errors import DTypeError, OperatorError, ParameterError, ShapeError
from .. import op as registry
from ..cpu.c_printer import program as c_program
from ..cpu.indexed_c import indexed_function
from ..cpu.indexed_printer import indexed_source as numpy_source
from ..ir.expr import const, param
from ..ir.indexed import TRUE, IndexedProgram, gather, index
from ..ir.indexed_gradient import derived_puts, is_distinct
from ..kernel import NOTHING, BoundKernel, InTurn, Kernel
from ..op import Dtypes, Gradient, Need, Op, Req, Reqs, Shape, Shapes, Spec, Specs, infer_backward, is_known, merge_shapes
from ..params import Param, Params
from .check_op import check_op
from .index_kernel import At, IndexedArray, printed, programs_of, scatter_printer
from .simple_op import array_names, signature


class _Formulas(Op):
    """An operator whose outputs are index formulas."""

    nonblocking = capturable = True

    def programs(self, p: Params, ins: Specs, outs: Specs) -> list[tuple[tuple[int, ...], IndexedProgram]]:
        """Return programs, and the numbers of the outputs that each computes."""
        raise NotImplementedError(self.name)

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> Kernel:
        return printed(self.programs(p, ins, outs), ins, outs, reqs, target, self.name)


class IndexedOp(_Formulas):
    """An operator declared by an index formula; what `@indexed` returns."""

    def __init__(self, body: Callable[..., Any], *, name: str = "", aliases: Sequence[str] = (),
                 shape: Callable[..., Any] | None = None, dtype: Any = None, outputs: Sequence[str] = ("output",),
                 free: Sequence[str] = (), differentiable: bool = True, linear: bool = False, doc: str = "",
                 params: Sequence[Param] = ()):
        self.body, self.name, self.aliases = body, name or body.__name__, tuple(aliases)
        self.doc = inspect.cleandoc(doc or body.__doc__ or "")
        self.output_names, self.free, self.linear = tuple(outputs), frozenset(free), linear
        self._shape, self._dtype = shape, dtype
        fixed = () if dtype is None or _is_rule(dtype) else dtype if isinstance(dtype, tuple) else (dtype,)
        self.differentiable = differentiable and (not fixed or any(is_float(as_dtype(d)) for d in fixed))
        names, declared = signature(self.name, body)
        if names[0] != "at":
            raise OperatorError(f"{self.name}: the first argument of an index formula is `at`, the index of the output's "
                                f"element, not {names[0]!r}.")
        self.input_names, self.params = names[1:], tuple(params) or declared
        unknown = self.free - set(self.input_names)
        if unknown:
            raise OperatorError(f"{self.name}: free={sorted(unknown)} are not inputs. The inputs are "
                                f"{', '.join(self.input_names)}.")
        self._gradient_bodies: dict[int, Callable[..., Any]] = {}
        self._gradients: Cache[tuple, Gradient | None] = Cache()

    # ---- inference ----
    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        m = len(self.output_names)
        known = [*(outputs or ()), *[None] * m][:m]
        if len(inputs) != len(self.input_names):
            raise ShapeError(f"{self.name}: takes {len(self.input_names)} inputs ({', '.join(self.input_names)}), "
                             f"{len(inputs)} were given.")
        if not all(map(is_known, inputs)):
            return list(inputs), known
        given: list[Shape] = [s for s in inputs if s is not None]
        return given, [merge_shapes(self.name, n, a, b) for n, a, b in zip(self.output_names, known, self._shapes(p, given))]

    def _shapes(self, p: Params, given: list[Shape]) -> list[Shape]:
        m = len(self.output_names)
        if self._shape is None:
            if not given:
                raise OperatorError(f"{self.name}: has no inputs, so that it needs shape=, a rule for the shape of the output.")
            return [given[0]] * m
        found = self._shape(*given, **_accepted(self._shape, p))
        listed = isinstance(found, (tuple, list))
        several = list(found) if listed and (m > 1 or any(isinstance(s, (tuple, list)) for s in found)) else [found]
        good = len(several) == m and all(
            isinstance(s, (tuple, list)) and all(isinstance(d, (int, np.integer)) and d >= 0 for d in s) for s in several)
        if not good:
            raise OperatorError(f"{self.name}: the shape rule returned {found!r} for inputs {', '.join(map(str, given))}. It "
                                f"must return {'a shape' if m == 1 else f'{m} shapes'}: sizes that are integers of at least 0.")
        return [tuple(map(int, s)) for s in several]

    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        bound = [i for i, n in enumerate(self.input_names) if n not in self.free]
        known = [inputs[i] for i in bound if inputs[i] is not None]
        if any(k != known[0] for k in known):
            listed = ", ".join(f"{self.input_names[i]} {inputs[i]}" for i in bound)
            raise DTypeError(f"{self.name}: inputs disagree: {listed}. Convert one with astype.")
        d = known[0] if known else (outputs or [None])[0] if self._dtype is None else None
        found = [d if i in bound and s is None else s for i, s in enumerate(inputs)]
        m = len(self.output_names)
        if self._dtype is None:
            return found, [d] * m
        given = self._dtype
        if _is_rule(given):
            if any(s is None for s in found):
                return found, [None] * m
            given = given(*found, **_accepted(given, p))
        several = given if isinstance(given, tuple) else (given,) * m
        return found, [None if s is None else as_dtype(s) for s in several]

    # ---- code ----
    def _parameters(self, p: Params) -> dict[str, Any]:
        return {d.name: param(d.name) if d.kind == "scalar" else p[d.name] for d in self.params}

    def _scalars(self) -> tuple[str, ...]:
        return tuple(d.name for d in self.params if d.kind == "scalar")

    def programs(self, p: Params, ins: Specs, outs: Specs) -> list[tuple[tuple[int, ...], IndexedProgram]]:
        arrays = [IndexedArray(n, i, s) for i, (n, s) in enumerate(zip(self.input_names, ins))]
        values = self._parameters(p)
        return programs_of(self.name, [s.shape for s in outs], self._scalars(), lambda at: self.body(at, *arrays, **values))

    # ---- gradient ----
    def gradient(self, of: Any) -> Any:
        """Declare the derivative by an input: `@op.gradient` by the first one, `@op.gradient("rhs")` by the one of that name."""
        if callable(of):
            return self.gradient(self.input_names[0] if self.input_names else "")(of)
        if of not in self.input_names:
            raise OperatorError(f"{self.name}: there is no input {of!r} to have a gradient. The inputs are "
                                f"{', '.join(self.input_names) or 'none'}.")

        def declared(body: Callable[..., Any]) -> Callable[..., Any]:
            self._gradient_bodies[self.input_names.index(of)] = body
            self._gradients.clear()
            arrays, _ = array_names(body)
            if arrays[:1] != ["at"] or "dy" not in [self._need(a)[0] for a in arrays[1:]]:
                raise OperatorError(f"{self.name}: the first argument of a gradient is `at`, and it must ask for dy.")
            return body

        return declared

    def _need(self, name: str) -> Need:
        """Return what an argument of a gradient names."""
        m = len(self.output_names)
        named: dict[str, Need] = {n: ("x", i) for i, n in enumerate(self.input_names)}
        named |= {f"{kind}{i}": (kind, i) for kind in ("dy", "y") for i in range(m)}
        named |= {"dy": ("dy", 0), "y": ("y", 0)} if m == 1 else {}
        if name not in named:
            several = "dy, y" if m == 1 else "dy0, … and y0, …, by the number of the output"
            raise OperatorError(f"{self.name}: the gradient asks for {name!r}. It can ask for {several}, "
                                f"{', '.join(self.input_names)}.")
        return named[name]

    def gradient_of(self, p: Params) -> Gradient | None:
        return self._gradients.get_or_make(p.static, self._make_gradient) if self.differentiable else None

    def _make_gradient(self) -> Gradient | None:
        n, m = len(self.input_names), len(self.output_names)
        if not self._gradient_bodies:
            gives = tuple(i for i in range(n) if self.input_names[i] not in self.free)
            needs = (*(("dy", j) for j in range(m)), *(("x", i) for i in range(n)))
            return Gradient(DerivedGradient(self, needs, gives), needs, gives) if gives else None
        gives = tuple(sorted(self._gradient_bodies))
        needs = tuple(dict.fromkeys(self._need(a) for i in gives for a in array_names(self._gradient_bodies[i])[0][1:]))
        return Gradient(IndexedGradient(self, needs, gives), needs, gives)

    # ---- standard proof ----
    def check(self, *inputs: np.ndarray, **params: Any) -> None:
        """Run the standard proof with these inputs and print one line per item. Raises AssertionError on the first failure."""
        check_op(self, params, inputs=inputs)

    # ---- generated source ----
    def cpu_source(self, *shapes: Shape, dtype: DTypeLike | Sequence[DTypeLike] = float32, code: str = "numpy", **params: Any
                   ) -> str:
        """Return the NumPy program of one tile, for inputs of these shapes, or with code="c" the C file that computes them where
        that pays. dtype: of all inputs, or one for each.

        Raises: OperatorError with the reason where the operator has no C function.
        """
        if code not in ("numpy", "c"):
            raise ParameterError(f"cpu_source: code {code!r} is neither 'numpy' nor 'c'.")
        samples = self._samples(shapes, dtype, params)
        if code == "numpy":
            return "\n".join(numpy_source(*sample, name=self.name) for sample in samples)
        found = [indexed_function(*sample) for sample in samples]
        for f in found:
            if isinstance(f, str):
                raise OperatorError(f"{self.name}: has no C kernel: {f}. It is computed with NumPy.")
        return c_program([f for f in found if not isinstance(f, str)])

    def triton_source(self, *shapes: Shape, dtype: DTypeLike | Sequence[DTypeLike] = float32, **params: Any) -> str:
        """Return the Triton kernel for inputs of these shapes. dtype: of all inputs, or one for each."""
        from ..gpu.indexed import indexed_source  # optional dependency

        return "\n\n".join(indexed_source(*sample, name=self.name) for sample in self._samples(shapes, dtype, params))

    def _samples(self, shapes: Sequence[Shape], dtype: Any, params: dict[str, Any]) -> list[tuple]:
        p = self.parse(params)
        given = list(dtype) if isinstance(dtype, (tuple, list)) else [dtype] * len(self.input_names)
        ins = [Spec(tuple(s), as_dtype(d)) for s, d in zip(shapes, given)]
        _, out_shapes = self.infer_shape(p, [s.shape for s in ins])
        _, dtypes = self.infer_dtype(p, [s.dtype for s in ins])
        outs = [Spec(s, d or float32) for s, d in zip(out_shapes, dtypes) if s is not None]
        return [(program, ins, [outs[i] for i in numbers], [Req.WRITE] * len(numbers))
                for numbers, program in self.programs(p, ins, outs)]


class IndexedGradient(_Formulas):
    """The derivative of an IndexedOp by its inputs `gives`, from the arrays `needs`."""

    def __init__(self, forward: IndexedOp, needs: tuple[Need, ...], gives: tuple[int, ...]):
        self.name, self.is_users = f"_backward_{forward.name.lstrip('_')}", forward.is_users
        self.forward, self.needs, self.gives = forward, needs, gives
        self.doc, self.params = f"The derivative of {forward.name}.", forward.params
        spoken = {"dy": [f"d{n}" for n in forward.output_names], "x": forward.input_names, "y": forward.output_names}
        self.input_names = tuple(spoken[kind][i] for kind, i in needs)
        self.output_names = tuple(f"d{forward.input_names[i]}" for i in gives)

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        def merge(a: Any, b: Any) -> Any:
            return merge_shapes(self.name, "an array and its derivative", a, b)

        return self._infer(p, self.forward.infer_shape, merge, inputs, outputs)

    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        return self._infer(p, self.forward.infer_dtype, lambda a, b: a or b, inputs, outputs)

    def _infer(self, p: Params, infer: Callable[..., Any], merge: Callable[[Any, Any], Any], inputs: Sequence[Any],
               outputs: Sequence[Any] | None) -> tuple[list[Any], list[Any]]:
        sizes = len(self.forward.input_names), len(self.forward.output_names)
        return infer_backward(self.needs, self.gives, sizes, partial(infer, p), merge, inputs, outputs)[:2]

    def programs(self, p: Params, ins: Specs, outs: Specs) -> list[tuple[tuple[int, ...], IndexedProgram]]:
        forward = self.forward
        arrays = {need: IndexedArray(n, i, s) for i, (need, n, s) in enumerate(zip(self.needs, self.input_names, ins))}
        values, made = forward._parameters(p), []
        for k, (i, spec) in enumerate(zip(self.gives, outs)):
            body = forward._gradient_bodies[i]
            names, keywords = array_names(body)
            traced = partial(_call, body, [arrays[forward._need(n)] for n in names[1:]], {n: values[n] for n in keywords})
            ((_, program),) = programs_of(self.name, [spec.shape], forward._scalars(), traced)
            made.append(((k,), program))
        return made


class DerivedGradient(IndexedGradient):
    """The derivative of an IndexedOp, derived from its body: for each element that is read, what is added there."""

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> Kernel:
        forward = self.forward
        m = len(forward.output_names)
        dys, xs = ins[:m], ins[m:]
        inputs = [(i, xs[i].shape) for i in self.gives]
        found: dict[int, list[IndexedProgram]] = {i: [] for i in self.gives}
        for numbers, program in forward.programs(p, xs, dys):
            at = [index(a) for a in range(len(program.shape))]
            for j, root in zip(numbers, program.roots):
                dy = gather(len(xs) + j, dys[j].shape, dys[j].dtype, TRUE, at)
                if root.dtype is None or is_float(root.dtype):
                    made = derived_puts(forward.name, root, dy, program.shape, inputs, program.scalars)
                    for i, more in made.items():
                        found[i] += more
        order, parts = [*xs, *dys], []
        for k, (i, out) in enumerate(zip(self.gives, outs)):
            if reqs[k] != Req.NULL and out.size:
                distinct = len(found[i]) == 1 and is_distinct(found[i][0])
                parts.append((k, scatter_printer(target)(found[i], order, out, reqs[k], combine="add", start=const(0),
                                                          distinct=distinct, name=self.name)))

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], **scalars: tuple) -> None:
            arrays = [*inputs[m:], *inputs[:m]]
            for k, part in parts:
                part(run, arrays, [outputs[k]], **scalars)

        def bind(inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
            arrays = [*inputs[m:], *inputs[:m]]
            return InTurn([part.bind(arrays, [outputs[k]]) for k, part in parts])

        has_scalars = any(q.scalars for programs in found.values() for q in programs)
        return Kernel(kernel, None if has_scalars else bind) if parts else NOTHING


def _is_rule(dtype: Any) -> bool:
    """Return whether `dtype=` is a function, and not a dtype."""
    return callable(dtype) and not isinstance(dtype, type)


def _call(body: Callable[..., Any], arrays: Sequence[IndexedArray], values: dict[str, Any], at: At) -> Any:
    return body(at, *arrays, **values)


def _accepted(rule: Callable[..., Any], p: Params) -> dict[str, Any]:
    """Return the parameters that a rule names, or all if it takes any."""
    kinds = inspect.signature(rule).parameters.values()
    if any(k.kind == k.VAR_KEYWORD for k in kinds):
        return dict(p)
    return {k.name: p[k.name] for k in kinds if k.kind == k.KEYWORD_ONLY}


def indexed(name: str | Callable[..., Any] = "", **options: Any) -> Any:
    """Declare an operator by an index formula, and register it: a decorator. The module's docstring is the guide.

    name:      the operator's name, if not the function's. aliases: other names.
    shape:     the rule of the output's shape. dtype: the output's dtype, or a rule.
    outputs:   names of the outputs, if there are several.
    free:      inputs whose dtype is independent of the others'.
    differentiable:  False: its derivative is zero, even if a gradient is declared.
    linear:    True if it is linear in the inputs that have a derivative.
    replace:   take a name even from one of the framework's operators, or one declared in another module.
    Raises:    OperatorError for a name that is taken.
    """
    if callable(name):
        return indexed("", **options)(name)
    replace = options.pop("replace", False)

    def declared(body: Callable[..., Any]) -> IndexedOp:
        return registry.register(IndexedOp(body, name=name, **options), replace=replace, module=body.__module__)  # type: ignore

    return declared
