"""Arithmetic on tiny arrays: computed at once, with the results, order, errors and records of ordinary operators."""

import operator
import threading
import warnings

import numpy as np
import pytest
from tritium import autograd, engine, profiler
from tritium import ndarray as nd
from tritium.context import cpu
from tritium.engine import CheckedEngine, NaiveEngine, ThreadedEngine
from tritium.errors import ParameterError, ShapeError
from tritium.kernels.op import builtin
from tritium.ndarray.core import array_core
from tritium.ndarray.dispatch.plan import BRIEF, DispatchPlan, plan_of

OPERATORS = (operator.add, operator.sub, operator.mul, operator.truediv, operator.mod, operator.pow)
VALUES = {"float32": [0.0, -0.0, 1.5, -2.0, 1e38, -1e38, np.inf, np.nan],
          "float64": [0.0, -0.0, 1.5, -2.0, 1e300, 3.0, np.inf, np.nan],
          "float16": [0.0, -0.0, 1.5, -2.0, 60000.0, -6e-8, np.inf, np.nan], "int32": [0, 1, -1, 7, 2**31 - 1, -2**31, 3, 2],
          "uint8": [0, 1, 255, 7, 128, 2, 3, 9]}


@pytest.fixture
def threaded():
    """Arrays on a threaded engine of their own, which may be told to count what runs at once."""
    made = ThreadedEngine(2)
    before = engine.set_current(made)
    yield made
    engine.set_current(before)
    made.stop()


def counted(monkeypatch):
    """Results of try_call_inline from here on: None where the ordinary way was taken."""
    results, original = [], ThreadedEngine.try_call_inline

    def try_call_inline(self, *args):
        results.append(original(self, *args))
        return results[-1]
    monkeypatch.setattr(ThreadedEngine, "try_call_inline", try_call_inline)
    return results


def same_bits(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    assert a.tobytes() == b.tobytes() or (np.array_equal(a, b, equal_nan=True) and not np.any(np.signbit(a) != np.signbit(b)))


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("fn", OPERATORS, ids=lambda f: f.__name__)
def test_tiny_arithmetic_equals_a_serial_engines(threaded, fn, dtype):
    x = np.array(VALUES[dtype], dtype).reshape(2, 4)
    others = [x[::-1].copy(), x[:1, ::-1].copy(), x[:, :1].copy(), 2, 3.5, 0.0, -0.0, 1]

    def results():
        a, made = nd.array(x, dtype=dtype), []
        for other in others:
            b = nd.array(other, dtype=dtype) if isinstance(other, np.ndarray) else other
            made += [fn(a, b), fn(b, a), fn(a, a)]
        return [m.asnumpy() for m in made]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results()  # what is found out here
        quick = results()
        engine.set_current(NaiveEngine())
        ordinary = results()
        engine.set_current(threaded)
    for a, b in zip(quick, ordinary):
        same_bits(a, b)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
def test_tiny_products_equal_a_serial_engines(threaded, dtype, rng):
    shapes = [((3, 5), (5, 2)), ((1, 7), (7, 1)), ((32, 32), (32, 32)), ((4, 0), (0, 4)), ((40, 41), (41, 40)), ((5,), (5,))]
    pairs = [[nd.array(rng.normal(size=s) * 4, dtype=dtype) for s in two] for two in shapes]
    square = pairs[2][0]

    def results():
        made = [call(a, b) for a, b in pairs for call in (nd.dot, operator.matmul, lambda a, b: a.dot(b))]
        made += [nd.dot(square, b, **turn) for b in (square, pairs[2][1])
                 for turn in ({"transpose_a": True}, {"transpose_b": True}, {"transpose_b": 1},
                              {"transpose_a": True, "transpose_b": True})]
        return [m.asnumpy() for m in made]
    results()
    quick = results()
    engine.set_current(NaiveEngine())
    for a, b in zip(quick, results()):
        same_bits(a, b)
    engine.set_current(threaded)


def test_tiny_products_use_the_fast_path_and_are_recorded(threaded, monkeypatch):
    a, b = nd.array([[1.0, 2.0], [3.0, 4.0]]), nd.array([[5.0, 6.0], [7.0, 8.0]])
    for _ in range(2):
        results = counted(monkeypatch)
        c = nd.dot(a, b, transpose_b=True) @ a.dot(b)
    assert len(results) == 3 and all(r is not None for r in results) and c.asnumpy().tolist() == [[1312, 1524], [3020, 3508]]
    a.attach_grad()
    with autograd.record():
        y = nd.dot(a, b)
    y.backward()
    assert a.grad.asnumpy().tolist() == [[11, 15], [11, 15]]
    with pytest.raises(ShapeError, match=r"dot: inner sizes differ: lhs \(2, 2\) is summed over 2, rhs \(3, 2\) over 3"):
        nd.dot(a, nd.ones((3, 2)))
    with pytest.raises(ParameterError, match=r"dot: transpose_b=\[True\] is not a bool"):
        nd.dot(a, b, transpose_b=[True])


def test_tiny_arithmetic_uses_the_fast_path(threaded, monkeypatch):
    a, b = nd.ones((2, 2)), nd.zeros((2, 2))
    _ = a + b, a * 2.0, 1 - a, a / b
    results = counted(monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        c = ((1 - (a + a)) * 2.0 / b).asnumpy()
    assert (c == -np.inf).all() and len(results) == 4 and all(r is not None for r in results)


def test_a_result_of_the_fast_path_is_an_ordinary_array(threaded):
    a, b = nd.ones((2, 2)), nd.ones((2, 2))
    _ = a + b
    c = a + b
    c[0] = 5
    part, other = c[1:], c.copy()
    part += 1
    assert c.asnumpy().tolist() == [[5, 5], [3, 3]] and other.asnumpy().tolist() == [[5, 5], [2, 2]]
    assert (a + b).asnumpy().tolist() == [[2, 2], [2, 2]]
    assert c.context == cpu() and c.shape == (2, 2)


def test_the_fast_path_waits_for_a_writer_that_was_pushed_before(threaded):
    a, b = nd.zeros((2, 2)), nd.ones((2, 2))
    (a + b).wait_to_read()
    hold = threading.Event()

    def write(run):
        hold.wait()
        a.device_array()[...] = 5
    threaded.push_sync(write, cpu(), [], [a.chunk.var])
    c = a + b
    hold.set()
    assert (c.asnumpy() == 6).all()


def test_a_writer_that_is_pushed_after_comes_after(threaded):
    a, b = nd.zeros((2, 2)), nd.ones((2, 2))
    for i in range(200):
        c = a + b
        a += 1
        assert (c.asnumpy() == i + 1).all()


def test_an_error_reaches_results_computed_from_it(threaded):
    a, b = nd.ones((2, 2)), nd.ones((2, 2))
    (a + b).wait_to_read()

    def fail(run):
        raise ValueError("spoiled")
    threaded.push_sync(fail, cpu(), [], [a.chunk.var], name="fail")
    c = (a + b) + b
    with pytest.raises(ValueError, match="fail: spoiled"):
        c.asnumpy()
    with pytest.raises(ValueError, match="fail: spoiled"):
        a.asnumpy()


def test_tiny_arithmetic_is_recorded(threaded):
    a, b = nd.array([2.0, 3.0]), nd.array([5.0, 7.0])
    _ = a * b, a + b, a * 2.0
    a.attach_grad()
    with autograd.record():
        y = (a * b + a) * 2.0
    y.backward()
    assert a.grad.asnumpy().tolist() == [12.0, 16.0]


def test_tiny_arithmetic_is_profiled(threaded, tmp_path):
    profiler.set_config(filename=str(tmp_path / "profile.json"))
    a, b = nd.ones((2, 2)), nd.ones((2, 2))
    _ = a + b
    profiler.set_state("run", engine=threaded)
    _ = a + b
    profiler.set_state("stop")
    assert "elemwise_add" in profiler.dumps(reset=True)


def test_tiny_arithmetic_inside_a_bulk_is_pushed(threaded, monkeypatch):
    a, b = nd.ones((2, 2)), nd.ones((2, 2))
    _ = a + b
    results = counted(monkeypatch)
    with threaded.bulk(4):
        c = a + b
    assert set(results) == {None} and (c.asnumpy() == 2).all()


@pytest.mark.parametrize("kind", [NaiveEngine, CheckedEngine])
def test_other_engines_run_tiny_arithmetic_as_operators(threaded, kind):
    a, b = nd.ones((2, 2)), nd.ones((2, 2))
    c = a + b
    before = engine.storage.access_checker
    try:
        engine.set_current(kind())
        assert ((a + b) + c).asnumpy().tolist() == [[4, 4], [4, 4]]
        assert ((nd.ones((2, 2)) + b) * 2.0).asnumpy().tolist() == [[4, 4], [4, 4]]
    finally:
        engine.set_current(threaded)
        engine.storage.access_checker = before


def test_a_chunk_made_by_two_threads_is_the_first_ones(threaded, monkeypatch):
    a, b = nd.ones((2, 2)), nd.ones((2, 2))
    _ = a + b
    c, asked = a + b, []
    assert c._var is None

    class Interrupted(array_core.Chunk):  # another thread asks while this one makes a chunk
        __slots__ = ()

        def __init__(self, *args):
            super().__init__(*args)
            if not asked:
                asked.append(None)
                asked[0] = c.chunk
    monkeypatch.setattr(array_core, "Chunk", Interrupted)
    assert c.chunk is asked[0] and c._var is asked[0].var


def brief(plan):
    """Make it known that a plan is brief, whatever its runs take on this machine."""
    plan.ran(0)
    if plan.timed:
        plan.ran_here(0)
    assert plan.brief
    return plan


def plan_for(name, *arrays, **params):
    op = builtin(name)
    return plan_of(op, op.parse(params), [a.layout for a in arrays], False)


def test_a_brief_operator_of_large_arrays_runs_while_the_lock_is_held(threaded, monkeypatch, rng):
    x = nd.array(rng.normal(size=(300, 100)))
    nd.waitall()
    for name, large in (("relu", True), ("sum", False)):
        plan = plan_for(name, x, **({} if large else {"axis": 1}))
        call = getattr(nd, name)
        want = call(x, **({} if large else {"axis": 1})).asnumpy()
        nd.waitall()
        assert brief(plan).tiny is not large
        results = counted(monkeypatch)
        got = call(x, **({} if large else {"axis": 1}))
        assert results and results[-1] is not None and results[-1] is not False
        assert (got._chunk_or_none is None) is not large
        same_bits(got.asnumpy(), want)


@pytest.mark.parametrize("name", ["relu", "sum"])
def test_a_brief_operator_waits_for_its_input(threaded, name):
    x = nd.ones((300, 100))
    nd.waitall()
    brief(plan_for(name, x))
    go, values = threading.Event(), x.device_array()

    def write(run):
        go.wait()
        values[...] = 3

    engine.current().push_sync(write, x.ctx, [], [x.chunk.var], name="write")
    y = getattr(nd, name)(x)
    go.set()
    assert y.asnumpy().max() == (3 if name == "relu" else 3 * x.size)


def test_a_plan_becomes_brief_by_one_run(threaded):
    x = nd.ones((300, 100))
    op = builtin("relu")
    plan = DispatchPlan(op, op.parse({}), (x.layout,), (x.layout,), x.ctx, False)
    for _ in range(100):
        plan.ran_here(BRIEF + 1)
    assert plan.timed and not plan.brief
    plan.ran_here(BRIEF)
    assert plan.brief and not plan.timed
