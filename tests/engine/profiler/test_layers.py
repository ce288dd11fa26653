"""layers: kernels summed by layer. Oracle: times written down, and networks of which one layer has nearly all the work."""

from types import SimpleNamespace

import numpy as np
import pytest
import tritium as mx
from tritium.context import GPU_MODE
from tritium.engine.gpu import cuda
from tritium.engine.profiler.layers import layer_times
from tritium.engine.profiler.recorder import Recorder
from tritium.gluon import loss, nn

MS = 1_000_000


def operation(name, thread, start, end, layer=""):
    return SimpleNamespace(name=name, thread=thread, start=start * MS, end=end * MS, layer=layer)


def part(name, thread, start, end, run):
    return name, thread, start * MS, end * MS, 1, (run[0], run[1] * MS)


def test_kernels_are_counted_for_their_layers():
    times = layer_times(
        [operation("net forward 0-3", 7, 0, 20), operation("net forward 0-3", 7, 30, 40), operation("copy", 7, 50, 51),
         operation("dot", 8, 5, 7, "block0_dense0"), operation("scope:exp", 9, 1, 2)],
        [part("conv...relu (Convolution+epilogue)", 7, 1, 5, (7, 0)),
         part("conv...relu (Convolution+epilogue)", -1, 3, 9, (7, 0)),  # of two threads, 8 ms on the clock
         part("pool_fwd (Pooling)", 7, 10, 11, (7, 0)),
         part("conv...relu (Convolution+epilogue)", 7, 31, 32, (7, 30)),
         part("conv_backward (_backward_Convolution)", 7, 35, 38, (7, 30)),
         part("block0_dense0 (_backward_dot)", 7, 38, 39, (7, 30))])
    found = {r.name: (r.runs, r.forward, r.backward, r.fused) for r in times}
    assert found == {"conv": (2, 9.0, 3.0, ("relu",)), "pool": (1, 1.0, 0.0, ()), "copy": (1, 1.0, 0.0, ()),
                     "block0_dense0": (1, 2.0, 1.0, ()), "scope": (1, 1.0, 0.0, ())}
    assert times.slowest.name == "conv" and len(times) == 5 and [r.total for r in times] == [12.0, 3.0, 1.0, 1.0, 1.0]
    forward, backward = times.slowest.kernels
    assert (forward.name, forward.runs, forward.threads) == ("Convolution+epilogue", 2, 11 / 9)
    assert (backward.name, backward.backward, backward.threads) == ("_backward_Convolution", True, 1.0)


def test_the_table_and_its_html():
    times = layer_times([], [part("a<b>...c (dot)", 1, 0, 3, (1, 0)), part("d (exp)", 1, 3, 4, (1, 0))])
    assert str(times).splitlines()[1].split() == ["a<b>", "(with", "c)", "1", "3.000", "0.000", "3.000", "75.0", "%"]
    html = times._repr_html_()
    assert "a&lt;b&gt; (with c)" in html and "<b>" not in html and "width:75.0%" in html and "<script" not in html
    nothing = layer_times([], [])
    assert str(nothing).startswith("No layer was recorded. Call mx.profiler.set_state('run') before the work")
    assert nothing.slowest is None and "No layer was recorded" in nothing._repr_html_()


@pytest.fixture
def recording(tmp_path):
    mx.profiler.set_config(filename=str(tmp_path / "profile.json"))

    def record(work):
        work()
        mx.nd.waitall()
        mx.profiler.set_state("run")
        work()
        mx.nd.waitall()
        mx.profiler.set_state("stop")
        return mx.profiler.layers(reset=True)

    yield record
    mx.profiler.set_state("stop")
    mx.profiler.dumps(reset=True)


DATA = np.random.RandomState(0).rand(64, 256).astype("f")


def symbol_step(ctx=None):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1024, name="wide")
    net = mx.sym.FullyConnected(mx.sym.Activation(net, act_type="relu", name="act"), num_hidden=2, name="narrow")
    bound = mx.sym.MakeLoss(mx.sym.sum(net), name="loss").simple_bind(ctx or mx.cpu(), data=DATA.shape)

    def step():
        bound.forward(is_train=True, data=mx.nd.array(DATA))
        bound.backward()
    return step


def gluon_step(hybridize):
    net, l2 = nn.HybridSequential(prefix="net_"), loss.L2Loss(prefix="l2_")
    with net.name_scope():
        net.add(nn.Dense(1024, activation="relu", prefix="wide_"), nn.Dense(2, prefix="narrow_"))
    net.initialize()
    if hybridize:
        net.hybridize()
    data, label = mx.nd.array(DATA), mx.nd.zeros((64, 2))

    def step():
        with mx.autograd.record():
            out = l2(net(data), label)
        out.backward()
    return step


@pytest.mark.parametrize("make, prefix", [(symbol_step, ""), (lambda: gluon_step(False), "net_"),
                                          (lambda: gluon_step(True), "net_")], ids=["symbol", "imperative", "hybridized"])
def test_each_layer_is_named_forward_and_backward(recording, make, prefix):
    times = recording(make())
    rows = {r.name.rstrip("_"): r for r in times}
    wide, narrow = (rows[f"{prefix}{name}"] for name in ("wide", "narrow"))
    for row in wide, narrow:
        assert row.forward > 0 and row.backward > 0 and {k.backward for k in row.kernels} == {False, True}, row
        assert row.runs == 1, row
    assert not any("backward of" in name or "forward" in name for name in rows), list(rows)
    assert "FullyConnected" in str(wide.kernels)


def test_operators_of_no_block_are_rows_and_a_profile_names_only_what_ran_in_it(recording):
    a = mx.nd.ones((300, 300))
    times = recording(lambda: mx.nd.dot(a, a).wait_to_read())
    assert [r.name for r in times] == ["dot"] and times.slowest.runs == 1


@pytest.mark.skipif(GPU_MODE != "interpret", reason="the interpreted GPU only")
def test_the_layers_of_a_graph_on_a_gpu_are_timed_by_marks_on_its_stream(recording):
    step = symbol_step(mx.gpu())
    step()  # the third run would be a replay
    rows = {r.name: r for r in recording(step)}
    for name in ("wide", "narrow"):
        assert rows[name].forward > 0 and rows[name].backward > 0 and rows[name].runs == 1
    assert not any("forward" in name or "backward" in name for name in rows)


def test_times_on_a_device_are_those_between_its_marks():
    class Mark:
        def __init__(self, at):
            self.at = at

        def elapsed_time(self, other):
            return other.at - self.at  # milliseconds, as of torch's events

        def query(self):
            return True

    recorder = Recorder()
    recorder.device_part("a (dot)", (7, 0), 1, Mark(5), Mark(6.5))
    begun = recorder._origins[1][1]
    recorder.device_part("b (dot)", (7, 0), 1, Mark(7), Mark(9))
    recorder.settle()
    recorder.settle()
    assert recorder.parts == [("a (dot)", -1001, begun, begun + 1_500_000, 1, (7, 0)),
                              ("b (dot)", -1001, begun + 2_000_000, begun + 4_000_000, 1, (7, 0))]
    assert cuda.elapsed(3, 10) == 7
