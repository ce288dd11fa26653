"""invoke: plans, out and requests, auxiliary states, random numbers, order. Throw-away operators stand in for real ones."""

import gc
import itertools

import numpy as np
import pytest
import tritium as mx
from support.engine_programs import alone
from support.helpers import assert_close, threaded_engine
from tritium import autograd, engine
from tritium import ndarray as nd
from tritium.cache import Cache
from tritium.context import cpu
from tritium.errors import ContextError, DTypeError, OperatorError, ParameterError, ShapeError
from tritium.kernels import op as op_module
from tritium.kernels.cpu import c_compile
from tritium.kernels.cpu.c_team import Phases
from tritium.kernels.kernel import Kernel
from tritium.kernels.op import Op, Req, builtin, register
from tritium.kernels.params import Param
from tritium.ndarray.core import chunk
from tritium.ndarray.dispatch import invoke as invoke_module
from tritium.ndarray.dispatch import plan as plan_module
from tritium.ndarray.dispatch.plan import CACHE, INLINE_BYTES, MEASURED, SHORT, DispatchPlan, plan_of


@pytest.mark.skipif(not c_compile.available(), reason="there is no C compiler")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_helper_begins_a_long_call_while_the_calling_thread_goes_on(monkeypatch, workers):
    monkeypatch.setattr(plan_module, "SHORT", -1)
    begun, begin = [], Phases.begin
    monkeypatch.setattr(Phases, "begin", lambda self: (begin(self), begun.append(self.begun)))
    with threaded_engine(workers) as on:
        draw = np.random.RandomState(1)
        weight = nd.array(draw.randint(-3, 4, (32, 8, 3, 3)))
        for k in range(20):
            x = nd.array(draw.randint(-3, 4, (4, 8, 34, 35 + workers)))  # another kernel: one keeps its number of threads
            alone(on)
            begun.clear()
            ys = [nd.Convolution(x, weight, kernel=(3, 3), num_filter=32, no_bias=True) for _ in range(2)]
            ys.append(ys[0] * 2)
            if 2 * k >= MEASURED:
                assert begun[0] == (workers == 2)  # of the first: nothing was in flight
            windows = np.lib.stride_tricks.sliding_window_view(x.asnumpy(), (3, 3), (2, 3))
            want = np.tensordot(windows, weight.asnumpy(), ([1, 4, 5], [1, 2, 3])).transpose(0, 3, 1, 2)
            for y, factor in zip(ys, (1, 1, 2)):
                np.testing.assert_array_equal(y.asnumpy(), want * factor)


@pytest.mark.skipif(not c_compile.available(), reason="there is no C compiler")
def test_calls_that_were_short_run_in_the_calling_thread_and_nobody_begins_them(monkeypatch):
    times, begun = itertools.chain([0], itertools.count(10 ** 9, 1000)), []  # the first run is long, others are short
    monkeypatch.setattr(Phases, "begin", lambda self: begun.append(self))
    x = nd.ones((101, 1003))  # too large to run in this thread before it is known to be short
    plan = plan_of(builtin("Concat"), builtin("Concat").parse({"num_args": 2, "dim": 1}), [x.layout] * 2, False, x.ctx)
    assert not plan.instant
    monkeypatch.setattr(invoke_module, "perf_counter_ns", lambda: next(times))
    for _ in range(MEASURED + 2):
        nd.concat(x, x, dim=1).wait_to_read()
    assert plan.instant and not begun


class Count(Op):
    """y = x + calls so far; `calls` is a state. Counts how often it is asked what."""

    name, input_names, params = "_test_count", ("x", "calls"), (Param("by", "int", 1),)
    inferred = compiled = 0

    def arguments(self, p):
        return ("x",)

    def auxiliaries(self, p):
        return ("calls",)

    def infer_shape(self, p, inputs, outputs=None):
        Count.inferred += 1
        return [inputs[0], (1,)], [inputs[0]]

    def kernel(self, p, ins, outs, reqs, target, train=False):
        Count.compiled += 1

        def kernel(run, inputs, outputs):
            x, calls = inputs
            calls += p.by
            if reqs[0] == Req.ADD:
                outputs[0][...] += x + calls
            else:
                for i in np.ndindex(x.shape):  # one by one: memory that overlaps shows
                    outputs[0][i] = x[i] + calls[0]

        return kernel


class Draw(Op):
    """The offset of the random numbers it was handed."""

    name, params = "_test_draw", (Param("n", "int"),)

    def infer_shape(self, p, inputs, outputs=None):
        return [], [(2,)]

    def infer_dtype(self, p, inputs, outputs=None):
        return [], [np.dtype("float64")]

    def num_random(self, p, outs):
        return p.n

    def kernel(self, p, ins, outs, reqs, target, train=False):
        def kernel(run, inputs, outputs, random):
            outputs[0][...] = random

        return kernel


COUNT, DRAW = register(Count(), module=__name__), register(Draw(), module=__name__)


def test_inference_and_compilation_run_once_per_plan():
    x, calls, p = nd.ones((2, 7)), nd.zeros((1,)), COUNT.parse({})
    for _ in range(5):
        nd.invoke(COUNT, [x, calls], p)
    before = Count.inferred, Count.compiled
    for _ in range(5):
        y, = nd.invoke(COUNT, [x, calls], p)
    assert (Count.inferred, Count.compiled) == before and calls.item() == 10 and y[0, 0].item() == 11


def test_states_are_changed_in_push_order():
    calls, p = nd.zeros((1,)), COUNT.parse({"by": 2})
    ys = [nd.invoke(COUNT, [nd.zeros((1,)), calls], p)[0] for _ in range(50)]
    assert [y.item() for y in ys] == list(range(2, 102, 2))


def test_out_and_requests():
    x, out = nd.ones((3,)), nd.full((3,), 10)
    calls = nd.zeros((1,))
    got, = nd.invoke(COUNT, [x, calls], COUNT.parse({}), out=out)
    assert got is out and out.tolist() == [2, 2, 2]
    nd.invoke(COUNT, [x, calls], COUNT.parse({}), out=[out], req=Req.ADD)
    assert out.tolist() == [5, 5, 5]


def test_out_that_overlaps_an_input_is_written_through_a_copy():
    x = nd.array([10, 20, 30, 40])
    got, = nd.invoke(COUNT, [x[:3], nd.zeros((1,))], COUNT.parse({}), out=x[1:])
    assert x.tolist() == [10, 11, 21, 31] and got.tolist() == [11, 21, 31]
    with pytest.raises(OperatorError, match="overlaps input 0"):
        nd.invoke(COUNT, [x[:3], nd.zeros((1,))], COUNT.parse({}), out=x[1:], req=Req.ADD)


def test_random_operators_get_consecutive_numbers():
    engine.resource.seed(3)
    p = DRAW.parse({"n": 10})
    assert [nd.invoke(DRAW, [], p)[0].tolist() for _ in range(3)] == [[3, 0], [3, 10], [3, 20]]
    assert nd.invoke(DRAW, [], p, ctx=cpu(1))[0].ctx == cpu(1)


X = nd.ones((3,))


@pytest.mark.parametrize("inputs, out, error, text", [
    ([X], None, OperatorError, r"_test_count: takes 2 arrays \(x, calls\), 1 given"),
    ([X, nd.zeros((2,))], None, ShapeError, r"_test_count: calls is float32\[2\]@cpu\(0\), but must have shape \(1,\)"),
    ([X, nd.zeros((1,), dtype="int32")], None, DTypeError, "inputs disagree: x is float32, calls is int32"),
    ([X, nd.zeros((1,), cpu(1))], None, ContextError, r"x float32\[3\]@cpu\(0\), calls float32\[1\]@cpu\(1\).*as_in_context"),
    ([X, nd.zeros((1,))], [X, X], OperatorError, "out has 2 arrays, the operator has 1 outputs"),
])
def test_inputs_and_outputs_that_do_not_fit(inputs, out, error, text):
    with pytest.raises(error, match=text):
        nd.invoke(COUNT, inputs, COUNT.parse({}), out=out)


def test_the_cache_of_plans_is_bounded(monkeypatch):
    monkeypatch.setattr(CACHE, "maxsize", 20)
    CACHE.clear()  # other tests filled it beyond that
    for n in range(1, 60):
        nd.ones((n,)) + 1
        assert len(CACHE) <= 20


def number_of_plans():
    return len({id(v) for v in CACHE.values() if isinstance(v, DispatchPlan)})


def test_a_new_scalar_uses_the_same_plan():
    x = nd.ones((11, 13))
    x * 0.5
    before = number_of_plans()
    for i in range(30):
        assert (x * (i + 0.25))[0, 0].item() == i + 0.25
    assert number_of_plans() == before


@pytest.fixture
def pushed(monkeypatch):
    """Names of what is pushed to an engine of one worker."""
    made = engine.ThreadedEngine(1)
    before = engine.set_current(made)
    names, push = [], made.push_sync

    def push_sync(fn, *args, **kwargs):
        names.append(kwargs["name"])
        push(fn, *args, **kwargs)
    monkeypatch.setattr(made, "push_sync", push_sync)
    yield names
    engine.set_current(before)
    made.stop()


def test_small_layers_run_inline_and_users_functions_do_not(pushed):
    a = nd.ones((3, 3))
    assert nd.dot(a, a).asnumpy().tolist() == [[3.0] * 3] * 3 and nd.tanh(a).shape == (3, 3)
    assert "dot" not in pushed and "tanh" not in pushed and not Count.nonblocking


def test_an_array_that_gets_a_variable_during_an_inline_read_is_read_again_in_order(pushed, monkeypatch):
    a = nd.tanh(nd.zeros((3, 3)))
    assert a._var is None
    try_run_inline = type(engine.current()).try_run_inline

    def interrupted(self, fn, const, *args):
        done = try_run_inline(self, fn, const, *args)
        monkeypatch.setattr(type(self), "try_run_inline", try_run_inline)
        a[:] = 2.0  # by another thread, in the middle of fn for all we know
        return done
    monkeypatch.setattr(type(engine.current()), "try_run_inline", interrupted)
    assert [part.asnumpy().tolist() for part in nd.split(a, num_outputs=3, axis=0)] == [[[2.0] * 3]] * 3


def test_a_layer_may_hand_its_kernel_more_arrays_than_that_reads(rng):
    """The derivative of SoftmaxOutput is one of two arrays, and the layer has three."""
    values, labels = rng.normal(size=(64, 32)), rng.integers(0, 32, 64)
    x, t = nd.array(values), nd.array(labels)
    x.attach_grad()
    p = np.exp(values) / np.exp(values).sum(axis=1, keepdims=True)
    for _ in range(3):  # computed in another way from the second time on
        with autograd.record():
            y = nd.SoftmaxOutput(x, t)
        y.backward()
        assert_close(x.grad, p - np.eye(32)[labels])


@pytest.mark.parametrize("n", [100, 5000, 60_000])
def test_writes_in_place_run_in_order_with_reads(n, rng):
    values = rng.normal(size=n).astype("float32")
    a, b = nd.array(values), nd.array(np.ones(n, "float32"))
    for _ in range(5):
        c = a * 2
        a += b
        nd.sgd_update(a, c, lr=0.5, out=a)
    want = values
    for _ in range(5):
        want = (want + 1) - np.float32(0.5) * (want * 2)
    assert_close(a, want)


def test_caches_stay_bounded_with_ever_new_shapes(monkeypatch):
    monkeypatch.setattr(CACHE, "maxsize", 8)
    CACHE.clear()  # other tests filled it beyond that
    monkeypatch.setattr(op_module._compiled, "maxsize", 8)
    monkeypatch.setattr(op_module.get("slice_axis"), "_properties", Cache(8))
    gc.collect()
    before = len(chunk._layouts)
    for n in range(1, 60):
        a = nd.ones((n, 3))
        assert nd.dot(nd.tanh(a).reshape((3, n)), a).shape == (3, 3)
        assert nd.slice_axis(a, axis=0, begin=n - 1, end=n).shape == (1, 3)
        assert max(len(CACHE), len(op_module._compiled), len(op_module.get("slice_axis")._properties)) <= 8
    del a
    nd.waitall()
    gc.collect()
    assert len(chunk._layouts) < before + 4 * 8  # those of the plans that are kept


def test_equal_layouts_are_one_object():
    a = nd.zeros((5, 77))
    gc.collect()
    assert nd.ones((5, 77)).layout is a.layout is chunk.layout_of((5, 77), a.layout.dtype, cpu())
    out = nd.zeros((5, 77))
    assert nd.tanh(a, out=out) is out


def test_a_repeated_tiny_product_depends_on_its_flags_however_they_are_given():
    a, b = nd.array([[1, 2], [3, 4]]), nd.array([[0, 1], [2, 3]])
    x, y = a.asnumpy(), b.asnumpy()
    for _ in range(3):
        for args, kwargs, want in (((), {}, x @ y), ((True,), {}, x.T @ y), ((), {"transpose_b": True}, x @ y.T),
                                   ((), {"transpose_b": 1}, x @ y.T), ((), {"transpose_b": False}, x @ y),
                                   ((), {"transpose_a": True, "transpose_b": True}, x.T @ y.T)):
            np.testing.assert_array_equal(nd.dot(a, b, *args, **kwargs).asnumpy(), want)
        np.testing.assert_array_equal((a @ b).asnumpy(), x @ y)
        with pytest.raises(ParameterError, match="transpose_b"):
            nd.dot(a, b, transpose_b=1.0)


def test_a_tiny_product_of_infinities_gives_no_warning():
    a = nd.array([[np.inf, 1], [1, 1]])
    for _ in range(2):
        assert np.isnan(nd.dot(a, nd.zeros((2, 2))).asnumpy()[0]).all()  # a warning is an error in the tests


def test_work_that_was_short_once_runs_in_the_calling_thread(monkeypatch, rng):
    """Where it runs changes, what it computes does not."""
    monkeypatch.setattr(plan_module, "CACHE", Cache(8))
    x = nd.array(rng.normal(size=INLINE_BYTES))
    plan = plan_of(op_module.get("square"), op_module.get("square").parse({}), [x.layout], False)
    assert not plan.instant and plan.prop is None
    plan.ran(SHORT + 1)
    before = nd.square(x).asnumpy()
    again = plan_of(op_module.get("square"), op_module.get("square").parse({}), [x.layout], False)
    again.ran(SHORT)
    assert again.instant and again.prop == "inline" and again.shortest == 0
    np.testing.assert_array_equal(nd.square(x).asnumpy(), before)


def test_a_variable_stays_one_when_it_is_out_of_an_operator_that_reads_it(ctx):
    w = mx.nd.ones((2, 2), ctx=ctx)
    w.attach_grad()
    mx.nd.concat(w[1:], w[:1], dim=0, out=[w])  # computed into a new array and copied, as out overlaps the inputs
    with mx.autograd.record():
        loss = (w * w).sum()
    loss.backward()
    assert w.grad.asnumpy().tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize("spelling", [np.float64, np.dtype("float64"), "float64"])
def test_the_dtype_of_a_result_may_be_a_type(spelling):
    x = mx.nd.array([[0.5, 0.5]])
    assert mx.nd.softmax(x, dtype=spelling).dtype == np.float64
    assert mx.nd.sample_multinomial(x, dtype=spelling).dtype == np.float64
    assert mx.nd.Embedding(mx.nd.array([0]), x, input_dim=1, output_dim=2, dtype=np.float32).shape == (1, 2)
    for op in ("softmax", "cast", "cumsum"):
        assert getattr(mx.sym, op)(mx.sym.var("x"), dtype=spelling, name="y").attr_dict()["y"]["dtype"] == "float64"


def test_an_operator_that_draws_raises_its_own_error():
    def fails(run, inputs, outputs, random):
        raise ValueError("there are no numbers")

    x = mx.nd.zeros((5, 3))
    plan = plan_of(builtin("_shuffle"), builtin("_shuffle").parse({}), [x.layout], False)
    before, plan.kernel = plan.kernel, Kernel(fails)
    try:
        with pytest.raises(ValueError, match="_shuffle: there are no numbers"):
            mx.nd.shuffle(x).wait_to_read()
    finally:
        plan.kernel = before
