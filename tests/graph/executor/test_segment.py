"""Short segments without a user's code run in the thread that pushes them."""

import math

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, threaded_engine
from support.trace_format import check
from tritium.engine import current
from tritium.graph.executor import segment as segments
from tritium.graph.executor.segment import SHORT
from tritium.kernels.cpu import c_compile
from tritium.kernels.cpu.c_team import Phases


class Twice(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * 2)


@mx.operator.register("twice_in_a_segment")
class TwiceProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Twice()


def bound(symbol):
    executor = symbol.simple_bind(mx.cpu(), x=(3,), grad_req="null")
    executor.arg_dict["x"][:] = 1
    executor.forward()
    mx.nd.waitall()
    compiled = executor._compile(False)
    return executor, compiled, compiled.forward[0]


def pushed_inline(compiled, segment, took):
    """Return whether the segment may run in the pushing thread if its shortest run took so many nanoseconds."""
    pushes, on = [], compiled.on

    class Engine:
        run_context = on.run_context

        def try_run_inline(self, *call):
            pushes.append(True)
            return on.try_run_inline(*call)

        def push(self, opr, ctx, begin):
            pushes.append(False)
            on.push(opr, ctx, begin=begin)

    segment.shortest = took
    segment.push(Engine(), compiled.oprs[id(segment)])
    mx.nd.waitall()
    (inline,) = pushes
    return inline


def test_a_short_segment_runs_where_it_is_pushed():
    executor, compiled, segment = bound(mx.sym.exp(mx.sym.var("x")))
    assert 0 < segment.shortest < math.inf
    assert pushed_inline(compiled, segment, SHORT)
    np.testing.assert_allclose(executor.outputs[0].asnumpy(), np.full(3, np.e, np.float32), rtol=1e-6)  # closer than the table


def test_an_error_where_a_short_segment_is_pushed_is_raised_by_the_wait():
    executor, _compiled, segment = bound(mx.sym.exp(mx.sym.var("x"), name="e"))
    calls = []

    def fails(run):
        calls.append(run)
        raise ValueError("too warm")

    segment.ready = [(fails, 0, 0)]
    (y,) = executor.forward()
    with pytest.raises(mx.MXNetError, match=r"e \(exp\): ValueError: too warm"):
        y.asnumpy()
    assert len(calls) == 1 and segment.failed


def test_a_long_segment_does_not_run_where_it_is_pushed():
    _executor, compiled, segment = bound(mx.sym.exp(mx.sym.var("x")))
    assert not pushed_inline(compiled, segment, SHORT + 1)


def test_a_segment_with_a_users_code_never_runs_where_it_is_pushed():
    executor, compiled, segment = bound(mx.sym.Custom(mx.sym.var("x"), op_type="twice_in_a_segment"))
    assert not pushed_inline(compiled, segment, 1)
    assert executor.outputs[0].asnumpy().tolist() == [2, 2, 2]


@pytest.mark.skipif(not c_compile.available(), reason="there is no C compiler")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_helper_begins_a_long_segment_while_the_pushing_thread_goes_on(monkeypatch, workers):
    monkeypatch.setattr(segments, "SHORT", -1)
    begun, begin = [], Phases.begin
    monkeypatch.setattr(Phases, "begin", lambda self: (begin(self), begun.append(self.begun)))
    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=32, no_bias=True, name="conv")
    draw = np.random.RandomState(0)
    weight = mx.nd.array(draw.randint(-3, 4, (32, 8, 3, 3)))
    with threaded_engine(workers):
        op = mx.nd.CachedOp(net, [("param_indices", [1])])
        for k in range(20):
            data = mx.nd.array(draw.randint(-3, 4, (4, 8, 12, 12)))
            got = op(data, weight)
            data[:] = 7  # behind the call: it does not see this
            one = data.asnumpy()
            assert (one == 7).all()
            if k == 0:
                x = mx.nd.array(draw.randint(-3, 4, (4, 8, 12, 12)))
            again = [op(x, weight).asnumpy() for _ in range(2)]
            np.testing.assert_array_equal(again[0], again[1])
            np.testing.assert_array_equal(again[0], expected(x.asnumpy(), weight.asnumpy()))
            assert got.shape == again[0].shape
    assert any(begun) if workers == 2 else not any(begun)


@pytest.mark.skipif(not c_compile.available(), reason="there is no C compiler")
def test_nobody_begins_a_segment_before_it_is_known_to_be_long(monkeypatch):
    times, begun = iter([0, 10 ** 9, *range(10 ** 9, 10 ** 9 + 100_000, 1000)]), []  # the first run is long, others are short
    monkeypatch.setattr(segments, "perf_counter_ns", lambda: next(times))
    monkeypatch.setattr(Phases, "begin", lambda self: begun.append(self))
    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=32, no_bias=True, name="conv")
    bound = net.simple_bind(mx.cpu(), data=(4, 8, 12, 12), grad_req="null")
    for _ in range(segments.MEASURED + 2):
        bound.forward()[0].wait_to_read()
    assert not begun


@pytest.mark.skipif(not c_compile.available(), reason="there is no C compiler")
def test_a_run_whose_weights_are_packed_waits_for_no_writer_of_them_and_a_changed_weight_is_packed_again(monkeypatch):
    monkeypatch.setattr(segments, "SHORT", -1)
    net = mx.sym.Convolution(mx.sym.Variable("x"), kernel=(3, 3), num_filter=32, name="conv")
    net = mx.sym.BatchNorm(net, fix_gamma=False, name="norm")
    draw = np.random.RandomState(0)
    executor = net.simple_bind(mx.cpu(), x=(2, 8, 6, 6), grad_req="null")
    executor.aux_dict["norm_moving_var"][:] = 1 - 1e-3  # the root of the variance plus eps is 1
    executor.arg_dict["norm_gamma"][:] = 2
    x, weight = executor.arg_dict["x"], executor.arg_dict["conv_weight"]
    x[:] = draw.randint(-3, 4, x.shape)
    read = []
    engine = type(current())
    push_sync = engine.push_sync

    def noted(on, fn, ctx, const, mutable, **options):
        read.append(set(const))
        push_sync(on, fn, ctx, const, mutable, **options)

    monkeypatch.setattr(engine, "push_sync", noted)
    for k in range(3):
        values = draw.randint(-3, 4, weight.shape)
        weight[:] = values
        for same in range(3):
            read.clear()
            (y,) = executor.forward()
            every = {a.chunk.var for a in (*executor.arg_arrays, *executor.aux_arrays)}
            assert read == [{x.chunk.var} if same else every], (k, same)
            assert_close(y.asnumpy(), (2 * expected(x.asnumpy(), values)).astype("float32"))


def expected(x, w):
    """Return the convolution of x with w, by their sums of products."""
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    return np.einsum("nchwij,fcij->nfhw", windows, w)


@pytest.mark.skipif(not c_compile.available(), reason="there is no C compiler")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_profile_shows_which_thread_computed_each_layer(tmp_path, workers):
    """Kernels that run in one call of C, and one of NumPy between them."""
    x = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=32, name="first")
    x = mx.sym.erfinv(mx.sym.Convolution(mx.sym.relu(x), kernel=(1, 1), num_filter=32, name="second"), name="between")
    net = mx.sym.FullyConnected(x, num_hidden=20, name="last")
    with threaded_engine(workers):
        executor = net.simple_bind(mx.cpu(), "null", data=(16, 8, 20, 20))
        executor.forward()
        mx.nd.waitall()
        mx.profiler.set_config(filename=str(tmp_path / "profile.json"))
        mx.profiler.set_state("run")
        executor.forward()
        mx.nd.waitall()
        mx.profiler.dump()  # stops it
    events = check((tmp_path / "profile.json").read_text())
    (whole,) = [e for e in events if e.get("cat") == "operation"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert {n for e in kernels for n in ("first", "second", "between", "last") if n in e["name"]} == {
        "first", "second", "between", "last"}
    assert all(whole["ts"] <= e["ts"] and e["ts"] + e["dur"] <= whole["ts"] + whole["dur"] + 0.002 for e in kernels)
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    others = {names[e["tid"]] for e in kernels if e["tid"] != whole["tid"]}
    assert others <= {f"tritium-c-helper {n}" for n in range(1, 64)} and (workers > 1 or not others)
    assert sum(e["args"]["pieces"] for e in kernels if "last" in e["name"]) >= 1
