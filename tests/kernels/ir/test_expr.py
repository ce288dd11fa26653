"""The expression graph: sharing, dtypes, folding, and what a traced value refuses."""

import gc
import threading
import weakref

import numpy as np
import pytest
from tritium.errors import TraceError
from tritium.kernels.ir import lang
from tritium.kernels.ir.expr import (
    BOOL,
    CAST,
    CONST,
    LOAD,
    _interned,
    cast,
    const,
    load,
    loads,
    node,
    param,
    prim,
    substitute,
    topological,
)

F16, F32, F64, I32 = (np.dtype(n) for n in ("float16", "float32", "float64", "int32"))


def test_equal_subexpressions_are_one_node():
    x, y = load(0, F32), load(1, F32)
    assert (x + y) * (x + y) is prim("square", x + y) or ((x + y) * (x + y)).args[0] is (x + y)
    assert x + y is not y + x  # nothing is reordered: rounding is the user's
    assert const(0.0, F32) is not const(-0.0, F32)


def test_constants_that_python_takes_for_equal_are_not():
    found = {id(x): x for x in (const(1), const(1.0), const(True), const(0), const(0.0), const(-0.0), const(False))}
    assert len(found) == 7 and const(1) is const(1)


def test_a_node_that_nothing_holds_is_let_go():
    x = load(0, F32) + 12345.678
    with_it, gone = len(_interned), weakref.ref(x)
    del x
    gc.collect()  # where a cycle of the interpreter's holds it
    assert gone() is None and len(_interned) <= with_it - 2  # itself and its number
    assert (load(0, F32) + 12345.678).op == "add"


def test_threads_that_trace_alike_share_the_nodes():
    start, found = threading.Barrier(4), []

    def trace():
        start.wait()
        y = load(0, F32)
        for k in range(200):
            y = y * 0.5 + k
        found.append(y)

    threads = [threading.Thread(target=trace) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({id(y) for y in found}) == 1


def test_nan_constants_are_shared_and_zero_signs_kept():
    assert const(float("nan"), F32) is const(float("nan"), F32)


def test_half_precision_enters_as_float32_and_numbers_take_the_dtype_they_meet():
    x = load(0, F16)
    assert (x.op, x.dtype, x.args[0].op, x.args[0].dtype) == (CAST, F32, LOAD, F16)
    assert (load(0, F64) * 3).args[1].dtype == F64
    assert (load(0, I32) + 2).dtype == I32
    assert (load(0, I32) + 0.5).dtype == F32  # a fraction makes integers float
    assert (load(0, I32) / 2).dtype == F32
    assert (load(0, I32) + load(1, F32)).dtype == F32
    assert (load(0, F32) > 1).dtype == BOOL


def test_a_runtime_scalar_takes_the_dtype_it_meets():
    lr = param("lr")
    assert (lr * 2).dtype is None
    assert (lr * 2 * load(0, F64)).dtype == F64


def test_a_condition_stays_one_where_its_numbers_take_a_dtype():
    x = load(0, F32)
    chosen = x + lang.where(x > 0, 1.0, 0.0)
    assert chosen.dtype == F32 and CAST not in [n.op for n in topological([chosen])]


def test_folding_is_exact_only():
    x = load(0, F32)
    assert x * 1 is x and x / 1 is x and x - 0 is x
    assert (x + 0).op == "add"  # -0.0 + 0 is +0.0: not an identity
    assert (x * 0).op == "mul"  # NaN * 0 is NaN
    two = const(2, F32) + const(3, F32)
    assert two.op == CONST and two.value == 5.0


def test_topological_order_has_arguments_first_and_needs_no_recursion():
    x = load(0, F32)
    for _ in range(20_000):
        x = lang.sin(x)
    order = topological([x])
    assert len(order) == 20_001 and order[0].op == LOAD and order[-1] is x


def test_substitute_and_loads():
    x, y = load(0, F32), load(1, F32)
    (z,) = substitute([lang.exp(x) + y], {id(x): load(5, F32)})
    assert loads([z]) == [1, 5] and repr(z) == "<exp(x5) + x1: float32>"


def test_cast_of_a_constant_is_a_constant():
    assert cast(const(1.9, F32), I32) is const(1, I32)
    assert node(LOAD, (), 0, F32) is load(0, F32)


@pytest.mark.parametrize("use, text", [
    (lambda x: 1 if x else 0, "cannot branch on a traced value (test_expr.py:"),
    (lambda x: 1 if x > 0 else 0, "Use where(condition, a, b)."),
    (lambda x: np.exp(x), "a body cannot call NumPy's exp on a traced value (test_expr.py:"),
    (lambda x: np.asarray(x), "cannot call NumPy on a traced value"),
    (lambda x: float(x), "a traced value has no number yet (test_expr.py:"),
    (lambda x: x[0], "cannot be indexed"),
    (lambda x: len(x), "has no length"),
    (lambda x: list(x), "cannot be iterated"),
    (lambda x: x + "a", "can combine traced values with numbers, not with str"),
])
def test_a_traced_value_refuses(use, text):
    with pytest.raises(TraceError) as e:
        use(load(0, F32))
    assert text in str(e.value)
