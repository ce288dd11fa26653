"""CUDA graphs on the interpreted GPU: replays give the bits of single launches."""

import numpy as np
import pytest
import tritium as mx
from hypothesis import HealthCheck, given, settings
from support.helpers import assert_close
from support.random_graphs import networks
from tritium.engine.gpu import cuda
from tritium.graph import options
from tritium.graph.executor.compiled_program import compile_ahead, kernels_of
from tritium.graph.executor.cuda_graph import CapturedSegment
from tritium.graph.executor.segment import Segment
from tritium.kernels import op as ops

pytestmark = pytest.mark.skipif(not mx.num_gpus() or cuda.is_real(), reason="needs the interpreted GPU")


def network():
    """A convolution, a BatchNorm with states, a pooling, a Dropout, a loss."""
    x = mx.sym.Convolution(mx.sym.Variable("data"), num_filter=4, kernel=(3, 3), pad=(1, 1), name="conv")
    x = mx.sym.Activation(mx.sym.BatchNorm(x, fix_gamma=False, name="bn"), act_type="relu")
    x = mx.sym.Dropout(mx.sym.Flatten(mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")), p=0.5)
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=5, name="fc"), name="softmax")


def bind(symbol, capture, **shapes):
    with options(capture=capture):
        executor = symbol.simple_bind(mx.gpu(0), "write", **shapes)
    rng = np.random.default_rng(1)
    for name, array in executor.arg_dict.items():
        array[:] = np.arange(array.size) if name == "softmax_label" else rng.normal(size=array.shape).astype("float32")
    return executor


def parts(executor, train=True):
    compiled = executor._compile(train)
    return [*compiled.forward, *compiled.backward]


def train(executor, steps=4):
    """Outputs, gradients, weights and states of every step, with another batch and another learning rate each."""
    mx.random.seed(5)
    optimizer = mx.optimizer.create("sgd", learning_rate=0.1, momentum=0.9)
    update, seen = mx.optimizer.get_updater(optimizer), []
    for step in range(steps):
        optimizer.set_learning_rate(0.1 / (step + 1))
        data = np.random.default_rng(step).normal(size=executor.arg_dict["data"].shape).astype("float32")
        executor.forward(is_train=True, data=mx.nd.array(data, mx.gpu(0)))
        executor.backward()
        for i, name in enumerate(n for n in executor.arg_dict if n not in ("data", "softmax_label")):
            update(i, executor.grad_dict[name], executor.arg_dict[name])
        seen += [a.asnumpy() for table in (executor.output_dict, executor.grad_dict, executor.arg_dict, executor.aux_dict)
                 for a in table.values()]
    return seen


def test_replays_give_the_bits_of_single_launches():
    captured, plain = (bind(network(), c, data=(4, 2, 6, 6)) for c in (True, False))
    cuda.log.clear()
    a, b = train(captured), train(plain)
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert [type(p) for p in parts(captured)] == [CapturedSegment] * 2 and all(p.is_captured for p in parts(captured))
    assert [type(p) for p in parts(plain)] == [Segment] * 2
    assert [what for what, *_ in cuda.log].count("replay") == 2 * 3  # the first step launched one by one


def test_a_replay_calls_no_kernel_function_again():
    executor = bind(network(), True, data=(4, 2, 6, 6))
    train(executor, 2)

    def gone(run):
        raise AssertionError("called")

    for part in parts(executor):
        part.ready = [(gone, 0, 0)] * len(part.ready)
    assert all(np.isfinite(a).all() for a in train(executor, 2))


def test_random_numbers_go_on_from_replay_to_replay():
    x = mx.sym.Dropout(mx.sym.Variable("x"), p=0.5)
    executor = x.simple_bind(mx.gpu(0), "null", x=(4000,))
    executor.arg_dict["x"][:] = 1
    mx.random.seed(3)
    first = [executor.forward(is_train=True)[0].asnumpy() for _ in range(4)]
    mx.random.seed(3)
    again = [executor.forward(is_train=True)[0].asnumpy() for _ in range(4)]
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    assert all((a != b).any() for i, a in enumerate(first) for b in first[:i])
    on_cpu = x.simple_bind(mx.cpu(), "null", x=(4000,))
    on_cpu.arg_dict["x"][:] = 1
    mx.random.seed(3)
    assert all(np.array_equal(on_cpu.forward(is_train=True)[0].asnumpy(), a) for a in first)


class Twice(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * 2)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * 2)


@mx.operator.register("capture_twice")
class TwiceProp(mx.operator.CustomOpProp):
    def __init__(self):
        super().__init__(need_top_grad=True)

    def create_operator(self, ctx, shapes, dtypes):
        return Twice()


def test_a_step_that_cannot_be_captured_splits_the_segment():
    x = mx.sym.tanh(mx.sym.Variable("data"))
    y = mx.sym.Custom(x, op_type="capture_twice") + 1
    executor = bind(mx.sym.exp(y), True, data=(3, 4))
    data = executor.arg_dict["data"].asnumpy()
    for _ in range(3):
        out = executor.forward(is_train=True)[0].asnumpy()
        executor.backward(mx.nd.ones((3, 4), mx.gpu(0)))
    want = np.exp(2 * np.tanh(data) + 1)
    assert_close(out, want, scale=0.1)  # 0.1: closer than the table: few roundings
    assert_close(executor.grad_dict["data"], want * 2 * (1 - np.tanh(data) ** 2))
    kinds = [(type(p) is CapturedSegment, p.is_captured if type(p) is CapturedSegment else None) for p in parts(executor)]
    assert kinds == [(True, True), (False, None), (True, True)] * 2


def test_which_operators_can_be_captured():
    def known(name, **params):
        op = ops.get(name)
        op.parse(params)
        return op.capturable

    assert known("tanh") and known("Dropout") and known("SoftmaxOutput") and known("sgd_mom_update", lr=1)
    assert known("Convolution", kernel=(1, 1), num_filter=1) and known("LeakyReLU", act_type="prelu")
    assert not known("_linalg_syevd") and not known("Custom", op_type="capture_twice")


@pytest.mark.parametrize("net", [
    lambda x: mx.sym.LeakyReLU(x, act_type="rrelu"), lambda x: mx.sym.LeakyReLU(x, act_type="prelu"),
    lambda x: mx.sym.RNN(x, state_size=3, num_layers=2, mode="lstm", p=0.5),
    lambda x: mx.sym.LayerNorm(mx.sym.broadcast_add(x, mx.sym.random.uniform(shape=(2, 3, 4)))),
    lambda x: mx.sym.tanh(mx.sym.UpSampling(mx.sym.expand_dims(x, axis=0), scale=2, sample_type="nearest"))],
    ids=["rrelu", "prelu", "rnn", "layer norm", "resample"])
def test_layers_that_draw_or_hold_tables(net):
    seen = []
    for capture in (True, False):
        executor = bind(net(mx.sym.Variable("x")), capture, x=(2, 3, 4))
        mx.random.seed(1)
        for _ in range(3):
            out = executor.forward(is_train=True)[0]
            executor.backward(mx.nd.ones(out.shape, mx.gpu(0)))
            seen += [out.asnumpy(), *(g.asnumpy() for g in executor._grads.values())]
        assert any(type(p) is CapturedSegment and p.is_captured for p in parts(executor)) == capture
    half = len(seen) // 2
    assert all(np.array_equal(a, b) for a, b in zip(seen[:half], seen[half:], strict=True))


def test_a_failed_capture_warns_and_launches_kernels_one_by_one(monkeypatch):
    def fail(self, fn):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(cuda.Graph, "capture", fail)
    executor = (mx.sym.Variable("x") + 1).simple_bind(mx.gpu(0), "null", x=(3,))
    executor.forward()[0].asnumpy()
    with pytest.warns(UserWarning, match=r"cannot be captured: operation not permitted.*launched one by one"):
        executor.forward()[0].asnumpy()
    assert executor.forward()[0].asnumpy().tolist() == [1, 1, 1]


def test_every_kernel_is_known_before_the_first_run():
    executor = bind(network(), True, data=(4, 2, 6, 6))
    made = parts(executor)
    before = [a.asnumpy() for a in executor.outputs]
    jobs = kernels_of(made, 90)
    assert all(np.array_equal(a, b.asnumpy()) for a, b in zip(before, executor.outputs))  # nothing ran
    assert [j.digest() for j in jobs] == [j.digest() for j in kernels_of(made, 90)] and len(jobs) == len(set(map(str, jobs)))
    assert {j.target for j in jobs} == {90} and {j.target for j in kernels_of(made, 80)} == {80}
    names = {j.name for j in jobs}
    assert {"k_Dropout", "norm_statistics"} <= names and len(names) >= 8
    assert compile_ahead(made) == 0  # an interpreted GPU compiles nothing


@pytest.mark.nightly
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks())
def test_random_graphs_replay_to_the_bit(network):
    symbol, shapes = network
    seen = []
    for capture in (True, False):
        with options(capture=capture):
            executor = symbol.simple_bind(mx.gpu(0), "write", **shapes)
        rng = np.random.default_rng(2)
        for step in range(3):
            for array in executor.arg_dict.values():
                array[:] = rng.normal(size=array.shape).astype("float32")
            outs = executor.forward(is_train=True)
            executor.backward([mx.nd.ones(o.shape, mx.gpu(0)) * (step + 1) for o in outs])
            seen.append([a.asnumpy() for a in (*outs, *executor._grads.values())])
    for a, b in zip(seen[:3], seen[3:], strict=True):
        assert all(np.array_equal(x, y, equal_nan=True) for x, y in zip(a, b, strict=True))
