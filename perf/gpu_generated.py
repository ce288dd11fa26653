"""The generated kernels' cases for gpu_suite.py: elementwise, broadcast, folds and rows, with torch eager and torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gpu_layers import Case
from gpu_machine import Machine
from tritium.dtype import as_dtype
from tritium.kernels.gpu.printer import triton_kernel
from tritium.kernels.ir import lang as L
from tritium.kernels.ir.expr import Expr, load
from tritium.kernels.op import Expression, Req, Spec


def _softmax(x: Expr) -> Expr:
    e = L.exp(x - L.row_max(x))
    return e / L.row_sum(e)


def _chain(a: Any, b: Any, tanh: Callable, exp: Callable, sqrt: Callable, least: Callable) -> Any:
    """Six operators that are fused into one kernel, and that run one by one without fusion."""
    return exp(tanh(a * b) + a) / sqrt(least(b * b))


def generated(m: Machine, n: int, dtype: str) -> Iterator[Case]:
    """Arrays of n elements at most."""
    x, y = load(0, as_dtype(dtype)), load(1, as_dtype(dtype))
    rows = max(1, n // 1024)
    square, images = (rows, 1024), (max(1, n // (64 * 49)), 64, 7, 7)
    dense, odd = {"copy": 0.90}, {"copy": 0.80}
    six = lambda a, b: _chain(a, b, lambda v: v.tanh(), lambda v: v.exp(), lambda v: v.sqrt(), lambda v: v.clamp_min(0.1))
    chain = _chain(x, y, L.tanh, L.exp, L.sqrt, lambda v: L.maximum(v, 0.1))
    yield _case(m, "chain of 6", chain, [(n,), (n,)], (n,), six, dtype, {"torch": 3.0, "compiled": 1.0, **dense})
    yield _case(m, "product", x * y, [(n,), (n,)], (n,), lambda a, b: a * b, dtype, dense)
    yield _case(m, "product, odd length", x * y, [(n - 3,), (n - 3,)], (n - 3,), lambda a, b: a * b, dtype, odd)
    yield _case(m, "product, odd start", x * y, [(n - 3,), (n - 3,)], (n - 3,), lambda a, b: a * b, dtype, odd, start=1)
    yield _case(m, "power", L.power(L.maximum(x, 0.1), y), [(n,), (n,)], (n,), lambda a, b: a.clamp_min(0.1) ** b, dtype, {})
    yield _case(m, "row vector", x + y, [square, (1024,)], square, lambda a, b: a + b, dtype, dense)
    yield _case(m, "column vector", x * y, [square, (rows, 1)], square, lambda a, b: a * b, dtype, dense)
    yield _case(m, "channel", x * y, [images, (64, 1, 1)], images, lambda a, b: a * b, dtype, dense)
    for name, shape, fold in (("all", (1,), lambda a: a.sum().reshape(1)), ("rows", (rows, 1), lambda a: a.sum(1, keepdim=True)),
                              ("columns", (1024,), lambda a: a.sum(0))):
        yield _case(m, f"sum of {name}", x, [square], shape, fold, dtype, {"copy": 0.85})
    for last in (1024, 1000, 50_000):
        shape = (max(1, n // last), last)
        yield _case(m, f"softmax {last}", _softmax(x), [shape], shape, lambda a: a.softmax(-1), dtype,
                    {"copy": 0.85} if last != 1000 else {}, kind="row")


def _case(m: Machine, name: str, root: Expr, shapes: list, shape: tuple, same: Callable[..., Any], dtype: str,
          at_least: dict[str, float], *, kind: str = "elementwise", start: int = 0) -> Case:
    """start: elements between the start of memory that divides, and that of each array."""
    m.torch.manual_seed(0)
    of = as_dtype(dtype)

    def array(s: tuple[int, ...]) -> Any:
        flat = m.randn(m.torch.Size(s).numel() + start, dtype=dtype)
        return flat[start:].reshape(s)

    arrays, out = [array(s) for s in shapes], array(shape)
    kernel = triton_kernel(Expression((root,), kind), [Spec(tuple(s), of) for s in shapes], [Spec(shape, of)], [Req.WRITE],
                           name="suite")

    def work() -> Any:
        kernel(m.run, arrays, [out])
        return out

    moved = float(sum(a.numel() * a.element_size() for a in (*arrays, out)))
    peers = {"torch": lambda: same(*arrays), "compiled": _compiled(m, same, arrays) if "compiled" in at_least else None}
    return Case(name, work, peers, lambda: same(*(a.double() for a in arrays)), moved, "byte", at_least, dtype)


def _compiled(m: Machine, fn: Callable[..., Any], arrays: list[Any]) -> Callable[[], Any] | None:
    """fn by torch.compile, or None where that does not work."""
    if m.smoke or m.recording:
        return None
    try:
        made = m.torch.compile(fn)
        made(*arrays)
    except Exception as e:
        m.say("torch.compile", error=f"{type(e).__name__}: {e}"[:300])
        return None
    return lambda: made(*arrays)
