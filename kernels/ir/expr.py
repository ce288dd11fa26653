"""The expression graph: what a traced body becomes and what every printer prints.

Nodes are immutable and hash-consed: equal subexpressions are one object. A node's dtype is fixed when it is made, except
that numbers and run-time scalars are "weak" (dtype None) until they meet a typed operand, whose dtype they take.
Half-precision loads are cast to float32 as they enter; results are cast where they are stored.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...dtype import as_dtype, float32, float64, is_float, is_half, to_integer
from ...errors import TraceError
from .primitives import PRIMITIVES

BOOL = np.dtype("bool")
INT32 = np.dtype("int32")

#: What may stand in `Expr.op` besides the primitives.
LOAD, PARAM, CONST, CAST, REDUCE, DRAW, ROW_INDEX = "load", "param", "const", "cast", "reduce", "draw", "row_index"


class _Reference(weakref.ref):
    """A weak reference to a node, with the key of the node in the table of interned nodes."""

    __slots__ = ("key",)

    key: tuple


_interned: dict[tuple, _Reference] = {}


def _forget(reference: _Reference, interned: dict[tuple, _Reference] = _interned) -> None:
    if interned.get(reference.key) is reference:  # a race with another thread can leave two equal nodes: harmless
        interned.pop(reference.key, None)



class Expr:
    """One node. Arithmetic and comparison of nodes return nodes; an operation that needs a value raises TraceError.

    op:     a primitive's name | "load" (value: input number) | "param" (value: name of a run-time scalar)
            | "const" (value: a number) | "cast" | "reduce" (value: "sum" or "max"; over the row, see rows.py)
            | "draw" (value: a Draw; a random number per element, see draws.py)
            | "row_index" (the index of the element in its row)
    args:   the nodes it is computed from.
    dtype:  None while weak.
    """

    __slots__ = ("__weakref__", "args", "dtype", "op", "value")
    __array_priority__ = 1000

    op: str
    args: tuple[Expr, ...]
    value: Any
    dtype: np.dtype | None

    # -- arithmetic --
    def __add__(self, o: Any) -> Expr: return prim("add", self, o)
    def __radd__(self, o: Any) -> Expr: return prim("add", o, self)
    def __sub__(self, o: Any) -> Expr: return prim("sub", self, o)
    def __rsub__(self, o: Any) -> Expr: return prim("sub", o, self)
    def __mul__(self, o: Any) -> Expr: return prim("mul", self, o)
    def __rmul__(self, o: Any) -> Expr: return prim("mul", o, self)
    def __truediv__(self, o: Any) -> Expr: return prim("div", self, o)
    def __rtruediv__(self, o: Any) -> Expr: return prim("div", o, self)
    def __mod__(self, o: Any) -> Expr: return prim("mod", self, o)
    def __rmod__(self, o: Any) -> Expr: return prim("mod", o, self)
    def __floordiv__(self, o: Any) -> Expr: return _floor_divide(self, as_expr(o))
    def __rfloordiv__(self, o: Any) -> Expr: return _floor_divide(as_expr(o), self)
    def __pow__(self, o: Any) -> Expr: return prim("square", self) if o == 2 and not isinstance(o, Expr) else prim("pow", self, o)
    def __rpow__(self, o: Any) -> Expr: return prim("pow", o, self)
    def __neg__(self) -> Expr: return prim("neg", self)
    def __pos__(self) -> Expr: return self
    def __abs__(self) -> Expr: return prim("abs", self)
    def __lt__(self, o: Any) -> Expr: return prim("lt", self, o)
    def __le__(self, o: Any) -> Expr: return prim("le", self, o)
    def __gt__(self, o: Any) -> Expr: return prim("gt", self, o)
    def __ge__(self, o: Any) -> Expr: return prim("ge", self, o)
    def __eq__(self, o: Any) -> Expr: return prim("eq", self, o)  # type: ignore[override]
    def __ne__(self, o: Any) -> Expr: return prim("ne", self, o)  # type: ignore[override]
    def __and__(self, o: Any) -> Expr: return prim("and", self, o)
    def __or__(self, o: Any) -> Expr: return prim("or", self, o)
    def __xor__(self, o: Any) -> Expr: return prim("xor", self, o)
    def __invert__(self) -> Expr: return prim("not", self)
    __hash__ = object.__hash__

    def astype(self, dtype: Any) -> Expr:
        """Return the value in dtype. A float becomes an integer by truncation; NaN and what is out of range, the least one."""
        return cast(self, as_dtype(dtype))

    # -- what a traced value cannot do --
    def __bool__(self) -> bool:
        raise TraceError(f"a body cannot branch on a traced value ({caller()}). Use where(condition, a, b).")

    def _no_value(self, *_: Any) -> Any:
        raise TraceError(f"a traced value has no number yet ({caller()}). Keep the formula in terms of tritium functions.")

    __float__ = __int__ = __index__ = __complex__ = _no_value

    def __len__(self) -> int:
        raise TraceError(f"a traced value stands for one element and has no length ({caller()}).")

    def __iter__(self) -> Any:
        raise TraceError(f"a traced value stands for one element and cannot be iterated ({caller()}).")

    def __getitem__(self, key: Any) -> Any:
        raise TraceError(f"a traced value stands for one element and cannot be indexed ({caller()}).")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TraceError(f"a body cannot call NumPy on a traced value ({caller()}). Use tritium's functions, such as mx.nd.exp.")

    def __array_ufunc__(self, ufunc: Any, *_: Any, **__: Any) -> Any:
        name = getattr(ufunc, "__name__", "NumPy")
        raise TraceError(f"a body cannot call NumPy's {name} on a traced value ({caller()}). Use tritium's {name} instead.")

    @staticmethod
    def _tritium_call_(found: Expr, op: Any, args: tuple, kwargs: dict) -> Any:
        """Inline the body of an operator that is called inside another body."""
        inline = getattr(op, "inline", None)
        if inline is None:
            raise TraceError(f"{op.name}: not an elementwise operator, so a body cannot call it ({caller()}).")
        return inline(*args, **kwargs)

    def __repr__(self) -> str:
        texts, lines = formulas([self])
        return f"<{'; '.join(lines + texts)[:60]}: {self.dtype.name if self.dtype else 'weak'}>"


Operand = Expr | float  # in a formula; a bool or an int is one too


def caller() -> str:
    """`file.py:41`: the innermost line outside this folder's machinery, which is the body's."""
    here = __file__.rsplit("/", 1)[0]
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(here) and "/ops/" not in frame.f_code.co_filename:
        frame = frame.f_back
    return f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno}" if frame else "?"


def node(op: str, args: tuple[Expr, ...], value: Any, dtype: np.dtype | None) -> Expr:
    """Return the only node with these parts."""
    mark = value if value is None else value.hex() if isinstance(value, float) else (type(value), value)
    key = (op, dtype, mark, *map(id, args))
    known = _interned.get(key)
    found = None if known is None else known()
    if found is None:
        found = object.__new__(Expr)
        found.op, found.args, found.value, found.dtype = op, args, value, dtype
        reference = _Reference(found, _forget)
        reference.key = key
        if known is not None:  # its node is gone
            _forget(known)
        first = _interned.setdefault(key, reference)()  # another thread's, if that was faster
        found = found if first is None else first
    return found


# ---- leaves -----------------------------------------------------------------------------------------------------
def load(index: int, dtype: np.dtype) -> Expr:
    """Input number index; half precision enters as float32."""
    raw = node(LOAD, (), index, dtype)
    return cast(raw, float32) if is_half(dtype) else raw


def param(name: str) -> Expr:
    """Return a run-time scalar; it is weak."""
    return node(PARAM, (), name, None)


def const(value: Any, dtype: np.dtype | None = None) -> Expr:
    """Return a constant; it is weak unless dtype is given."""
    if dtype is not None:
        value = bool(value) if dtype == BOOL else float(value) if is_float(dtype) else to_integer(value, dtype)
    elif isinstance(value, (np.generic, np.ndarray)):
        value = value.item()
    return node(CONST, (), value, dtype)


def row_index() -> Expr:
    """The index of the element in its row, from 0: int32. Inside bodies only.

    So a body picks an element of the row, `row_sum(where(row_index() == label, x, 0))`, or ends rows early.
    """
    return node(ROW_INDEX, (), None, INT32)


def as_expr(x: object) -> Expr:
    if isinstance(x, Expr):
        return x
    if isinstance(x, (bool, int, float, np.number, np.bool_)):
        return const(x)
    raise TraceError(f"a body can combine traced values with numbers, not with {type(x).__name__} ({caller()}).")


def cast(x: Expr, dtype: np.dtype) -> Expr:
    """x in dtype; the node itself if it has that dtype."""
    if x.dtype is None:
        return resolve_weak_dtype(x, dtype)
    if x.dtype == dtype:
        return x
    if x.op == CONST:
        return const(x.value, dtype)
    return node(CAST, (x,), None, dtype)


def resolve_weak_dtype(x: Expr, dtype: np.dtype) -> Expr:
    """Return a weak expression in dtype. For an integer dtype, a constant with a fraction becomes a cast of a float32 one."""
    if x.dtype is not None:
        return cast(x, dtype)
    if x.op == CONST:
        if not is_float(dtype) and isinstance(x.value, float) and (not math.isfinite(x.value) or x.value != int(x.value)):
            return cast(const(x.value, float32), dtype)
        return const(x.value, dtype)
    if x.op == PARAM:
        return node(PARAM, (), x.value, dtype)
    if x.op == "where":
        return prim("where", x.args[0], *(resolve_weak_dtype(a, dtype) for a in x.args[1:]))
    if x.op == REDUCE:
        return reduce(x.value, resolve_weak_dtype(x.args[0], dtype))
    if PRIMITIVES[x.op].rule == "compare":  # compare before fractions are cut, for any dtype of the result
        return cast(prim(x.op, *(resolve_weak_dtype(a, float64) for a in x.args)), dtype)
    return prim(x.op, *(resolve_weak_dtype(a, dtype) for a in x.args))


def reduce(kind: str, x: Expr) -> Expr:
    """Fold x over the row, all elements that differ in the last axis alone. kind: "sum" or "max". Truth counts as 0 and 1."""
    x = cast(x, INT32) if x.dtype == BOOL else x
    return node(REDUCE, (x,), kind, x.dtype)


# ---- primitives ---------------------------------------------------------------------------------------------------
def prim(name: str, *args: Any) -> Expr:
    """Apply a primitive: promotes dtypes by its rule, folds constants and exact identities."""
    row = PRIMITIVES[name]
    xs = [a if isinstance(a, Expr) else as_expr(a) for a in args]
    if xs[0].dtype is None and all(x.dtype is None for x in xs):
        if all(x.op == CONST for x in xs):
            return const(_evaluate(name, [x.value for x in xs]))
        return node(name, tuple(xs), None, None)
    if row.rule == "where":
        cond = cast(xs[0], BOOL)
        a, b = promote(xs[1:])
        if cond.op == CONST:
            return a if cond.value else b
        return a if a is b else node(name, (cond, a, b), None, a.dtype)
    if row.rule == "logic":
        return _fold(name, tuple(cast(x, BOOL) for x in xs), BOOL)
    xs = promote(xs)
    if row.rule == "float" and not is_float(typed(xs[0])):
        xs = [cast(x, float64 if typed(x).itemsize == 8 else float32) for x in xs]
    elif typed(xs[0]) == BOOL and row.rule in ("same", "whole"):
        xs = [cast(x, INT32) for x in xs]
    return _fold(name, tuple(xs), BOOL if row.rule == "compare" else typed(xs[0]))


def _floor_divide(a: Expr, b: Expr) -> Expr:
    """Return ⌊a / b⌋; of integers an integer, 0 where b is 0."""
    if any(x.dtype is not None and x.dtype.kind in "iu" for x in promote((a, b))):
        return prim("quotient", prim("sub", a, prim("mod", a, b)), b)
    return prim("floor", prim("div", a, b))


def typed(x: Expr) -> np.dtype:
    """Return the dtype of a node that is not weak."""
    assert x.dtype is not None, x
    return x.dtype


def identity(combine: Any, dtype: np.dtype) -> float:
    """Return the identity of a reduction: combining it with a value gives that value. combine: a name, or a Combine."""
    if not isinstance(combine, str):
        return combine.identity if is_float(dtype) else to_integer(combine.identity, dtype)
    if combine in ("add", "mul"):
        return int(combine == "mul")
    if is_float(dtype):
        return -math.inf if combine == "maximum" else math.inf
    if dtype == BOOL:
        return combine == "minimum"
    return int(np.iinfo(dtype).min if combine == "maximum" else np.iinfo(dtype).max)


def promote(xs: Sequence[Expr]) -> list[Expr]:
    """xs in one dtype: the widest of the typed ones; a fraction beside integers makes them float32."""
    d = None
    for x in xs:
        other = x.dtype
        if other is None or other is d:
            continue
        d = other if d is None or d == BOOL else d if other == BOOL else _widest(d, other)
    if d is None:
        return list(xs)
    if not is_float(d) and any(_is_fraction(x) for x in xs):
        d = float32
    return [x if x.dtype is d else cast(x, d) for x in xs]


def _widest(a: np.dtype, b: np.dtype) -> np.dtype:
    if is_float(a) != is_float(b):
        return a if is_float(a) else b
    return np.promote_types(a, b)


def _is_fraction(x: Expr) -> bool:
    return x.dtype is None and x.op == CONST and isinstance(x.value, float) and not x.value.is_integer()


def _evaluate(name: str, values: list[Any]) -> Any:
    row = PRIMITIVES[name]
    if name == "where":
        return values[1] if values[0] else values[2]
    with np.errstate(all="ignore"):
        if isinstance(row.numpy, np.ufunc):
            result = row.numpy(*(np.float64(v) if isinstance(v, float) or row.rule == "float" else v for v in values))
        else:
            result = np.empty((), np.float64)
            row.numpy(*map(np.float64, values), out=result)
    return np.asarray(result).item()


def _fold(name: str, xs: tuple[Expr, ...], dtype: np.dtype) -> Expr:
    if xs[0].op == CONST == xs[-1].op and dtype in (float32, float64, BOOL):  # there are one or two
        value = _evaluate(name, [x.value for x in xs])
        return const(bool(value) if dtype == BOOL else float(dtype.type(value)), dtype)
    # identities that are exact for every value, NaN and -0.0 included
    if name in ("mul", "div") and xs[1].op == CONST and xs[1].value == 1:
        return xs[0]
    if name == "mul" and xs[0].op == CONST and xs[0].value == 1:
        return xs[1]
    if name == "sub" and xs[1].op == CONST and xs[1].value == 0 and math.copysign(1, xs[1].value) > 0:
        return xs[0]
    if name == "neg" and xs[0].op == "neg":
        return xs[0].args[0]
    if name == "pow" and xs[1].op == CONST:
        if xs[1].value == 1:
            return xs[0]
        if xs[1].value == 2:
            return prim("square", xs[0])
    return node(name, xs, None, dtype)


# ---- walking -------------------------------------------------------------------------------------------------------
def topological(roots: Iterable[Expr]) -> list[Expr]:
    """Return all nodes reachable from roots in a fixed order, arguments before their users."""
    seen: set[int] = set()
    order: list[Expr] = []
    for root in roots:
        stack = [root]
        while stack:
            x = stack[-1]
            waiting = False
            for a in reversed(x.args):
                if id(a) not in seen:
                    stack.append(a)
                    waiting = True
            if not waiting:
                stack.pop()
                if id(x) not in seen:
                    seen.add(id(x))
                    order.append(x)
    return order


def substitute(roots: Sequence[Expr], replace: dict[int, Expr]) -> list[Expr]:
    """Return roots with nodes replaced. replace: id of a node -> the node that takes its place."""
    new: dict[int, Expr] = {}
    for x in topological(roots):
        if id(x) in replace:
            new[id(x)] = replace[id(x)]
        else:
            args = tuple(new[id(a)] for a in x.args)
            same = all(a is b for a, b in zip(args, x.args))
            new[id(x)] = x if same else node(x.op, args, x.value, x.dtype)
    return [new[id(r)] for r in roots]


def loads(roots: Iterable[Expr]) -> list[int]:
    """Return the indices of the inputs that roots read, ascending."""
    return sorted({x.value for x in topological(roots) if x.op == LOAD})


def goes_by_rows(roots: Iterable[Expr]) -> bool:
    """Return whether roots hold sums or maxima over the row, or the index in it."""
    return any(x.op in (REDUCE, ROW_INDEX) for x in topological(roots))


def scalars(roots: Iterable[Expr]) -> list[str]:
    """Return the names of the run-time scalars in roots, in order of first use."""
    return list(dict.fromkeys(x.value for x in topological(roots) if x.op == PARAM))


def of_scalars(order: Iterable[Expr]) -> list[Expr]:
    """Return the nodes that depend on run-time scalars alone and are computed in floats, the scalars included.

    order: as of `topological`.
    """
    found: dict[int, Expr] = {}
    for x in order:
        if x.op == PARAM or (x.op in PRIMITIVES and x.dtype is not None and x.dtype in (float32, float64)
                             and all(a.op == CONST or (id(a) in found and a.dtype is x.dtype) for a in x.args)):
            found[id(x)] = x
    return list(found.values())


class ScalarValue:
    """The value of a node of `of_scalars`, computed on the host in float64, as C and NumPy do on the CPU.

    names: of the run-time scalars, in the order in which calls give them.
    places: the numbers of those that it depends on.
    """

    __slots__ = ("_key", "_known", "_order", "places")

    def __init__(self, x: Expr, names: Sequence[str]):
        self._order = topological([x])
        self.places = [names.index(n) for n in scalars([x])]
        self._known: tuple[tuple[float, ...], float] = (), 0.0
        self._key = id(x), tuple(names)  # equal expressions are one node

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScalarValue) and other._key == self._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __call__(self, given: Sequence[float]) -> float:
        """Return the value for these values of all run-time scalars."""
        return self.of(tuple([given[i] for i in self.places]))

    def of(self, values: tuple[float, ...]) -> float:
        """Return the value for these values of those in `places`. Most of them stay the same for many calls."""
        if len(self._order) == 1:
            return values[0]
        known, result = self._known
        if known != values:
            found: dict[int, Any] = {}
            named = dict(zip(scalars(self._order[-1:]), values))
            for x in self._order:
                found[id(x)] = (x.value if x.op == CONST else named[x.value] if x.op == PARAM
                                else _evaluate(x.op, [float(found[id(a)]) for a in x.args]))
            result = found[id(self._order[-1])]
            self._known = values, result
        return result


def cost(roots: Iterable[Expr]) -> int:
    """Rough cost of one element, in additions."""
    return sum(PRIMITIVES[x.op].cost if x.op in PRIMITIVES else 0 for x in topological(roots))


# ---- text --------------------------------------------------------------------------------------------------------------
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
          "eq": "==", "ne": "!=", "and": "&", "or": "|", "xor": "^"}


def formulas(roots: Sequence[Expr], names: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Return each root as Python text, and the lines before them that name values used more than once.

    names: of the loads; by default x0, x1, ...
    """
    order = topological(roots)
    uses = Counter(id(a) for x in order for a in x.args)
    text: dict[int, str] = {}
    lines: list[str] = []
    t: Any
    for x in order:
        args = [text[id(a)] for a in x.args]
        if x.op == LOAD:
            t = names[x.value] if names else f"x{x.value}"
        elif x.op in (PARAM, CONST):
            t = str(x.value)
        elif x.op == ROW_INDEX:
            t = "row_index()"
        elif x.op == CAST:
            halves = any(d is not None and is_half(d) for d in (x.args[0].dtype, x.dtype))
            t = args[0] if halves else f"{x.dtype}({args[0]})"
        elif x.op in _INFIX:
            t = f"({args[0]} {_INFIX[x.op]} {args[1]})"
        else:
            t = f"{x.value or x.op}({', '.join(_bare(a) for a in args)})"
        if uses[id(x)] > 1 and x.args and x.op != CAST:
            lines.append(f"t{len(lines)} = {_bare(t)}")
            t = f"t{len(lines) - 1}"
        text[id(x)] = t
    return [_bare(text[id(r)]) for r in roots], lines


def _bare(text: str) -> str:
    """Return text without the brackets around all of it."""
    if not text.startswith("("):
        return text
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if not depth:
            return text[1:-1] if i == len(text) - 1 else text
    return text
