"""HybridBlock: hybridized and not, it computes the same values and gradients."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from golden.gluon_core import cases
from support.helpers import assert_close
from tritium import gluon
from tritium.gluon import nn

GOLDEN = Path(__file__).parents[2] / "golden" / "gluon_core"
KNOWN = json.loads((GOLDEN / "outputs.json").read_text())


class Function(gluon.HybridBlock):
    """A block without parameters that calls a function of F and its inputs."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def hybrid_forward(self, F, x, *args):
        return self.function(F, x, *args)


def both(net, *inputs, calls=2):
    """Return what net computes imperatively and hybridized: outputs, and gradients of all parameters and inputs."""
    found = []
    for active in (False, True):
        net.hybridize(active)
        for _ in range(calls):
            arrays = [mx.nd.array(a) for a in inputs]
            for a in arrays:
                a.attach_grad()
            with mx.autograd.record():
                out = net(*arrays)
            mx.autograd.backward(out)
            outs = out if isinstance(out, (list, tuple)) else [out]
            params = [p for p in net.collect_params().values() if p.grad_req != "null"]
            found.append([a.asnumpy() for a in (*outs, *(a.grad for a in arrays), *(p.grad() for p in params))])
    return found


def test_values_and_gradients_are_those_of_the_imperative_block():
    net = cases.network(mx)
    net.initialize()
    x, _ = cases.data(mx)
    net(x)
    cases.fill(mx, net)
    plain, _, first, second = both(net, x.asnumpy())
    for one in (first, second):
        for got, want in zip(one, plain):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_shapes_are_completed_by_the_first_call():
    for active in (False, True):
        net = cases.network(mx)
        net.initialize()
        net.hybridize(active)
        assert net[0].weight.shape == (4, 0, 3, 3)
        net(cases.data(mx)[0])
        assert net[0].weight.shape == (4, 1, 3, 3) and net[3].weight.data().shape == (8, 36)
    dense = nn.Dense(3)
    dense.infer_shape(mx.nd.ones((2, 7)))
    assert dense.weight.shape == (3, 7)


def test_a_first_call_before_initialize_can_be_made_good():
    net = nn.Dense(2)
    net.hybridize()
    with pytest.raises(RuntimeError, match="has not been initialized"):
        net(mx.nd.ones((1, 3)))
    net.initialize(mx.init.One())
    assert net(mx.nd.ones((1, 3))).asnumpy().tolist() == [[3, 3]]  # as in MXNet 1.9.1


@pytest.mark.parametrize("hybridize", [False, True])
def test_threads_may_make_the_first_call_together(hybridize, monkeypatch):
    net = nn.HybridSequential()
    net.add(*[nn.Dense(4, activation="relu") for _ in range(3)])
    net.initialize(mx.init.One())
    net.hybridize(hybridize)
    x = mx.nd.ones((2, 4))
    filling, goes_on = threading.Event(), threading.Event()
    fill = gluon.Parameter._init_impl

    def slowly(param, *args):
        filling.set()
        goes_on.wait(10)
        fill(param, *args)

    monkeypatch.setattr(gluon.Parameter, "_init_impl", slowly)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(net, x)
        assert filling.wait(10)
        second = threads.submit(net, x)
        threading.Timer(0.05, goes_on.set).start()  # in the meantime, the second one meets parameters that are half made
        for call in (first, second):
            assert call.result().asnumpy().tolist() == [[64] * 4] * 2


def test_each_signature_is_compiled_once():
    net = nn.Dense(2, in_units=3)
    net.initialize(mx.init.One())
    net.hybridize()
    for n in (1, 2, 1, 2):
        assert net(mx.nd.ones((n, 3))).shape == (n, 2)
    assert len(net._cached_op._calls) == 2
    assert net(mx.nd.ones((2, 3))).asnumpy().tolist() == [[3, 3]] * 2


def test_states_follow_in_training_only():
    net = nn.BatchNorm(in_channels=2, momentum=0.5)
    net.initialize()
    net.hybridize()
    x = mx.nd.array([[1, 2], [3, 6]])
    net(x)
    assert net.running_mean.data().asnumpy().tolist() == [0, 0]
    with mx.autograd.record():
        net(x)
    assert net.running_mean.data().asnumpy().tolist() == [1, 2]


# ---- several calls ------------------------------------------------------------------------------------------------------
def test_several_calls_before_one_backward():
    net = Function(lambda F, x: F.tanh(x) * x)
    net.hybridize()
    x = mx.nd.array([1.0, 2.0])
    x.attach_grad()
    with mx.autograd.record():
        a, b = net(x), net(x * 2)
        c = net(a + b)
    c.backward()
    imperative = x.grad.asnumpy()
    net.hybridize(False)
    with mx.autograd.record():
        a, b = net(x), net(x * 2)
        c = net(a + b)
    c.backward()
    assert_close(imperative, x.grad)


@pytest.mark.parametrize("req", ["write", "add"])
def test_shared_parameters_sum_the_derivatives_of_all_calls(req):
    net = nn.Dense(1, in_units=2, use_bias=False)
    net.initialize(mx.init.One())
    net.weight.grad_req = req
    net.hybridize()
    x = mx.nd.array([[1, 2]])
    for k in range(1, 4):
        with mx.autograd.record():
            y = net(x) + net(x * 10) * 2
        y.backward()
        assert net.weight.grad().asnumpy().tolist() == [[21 * (k if req == "add" else 1), 42 * (k if req == "add" else 1)]]


def test_grad_leaves_the_parameters_gradients_alone():
    net = nn.Dense(1, in_units=2, use_bias=False)
    net.initialize(mx.init.One())
    net.hybridize()
    x = mx.nd.array([[1, 2]])
    x.attach_grad()
    for _ in range(2):
        with mx.autograd.record():
            y = net(x) * 3
        dx, dw = mx.autograd.grad(y, [x, net.weight.data()])
        assert dx.asnumpy().tolist() == [[3, 3]] and dw.asnumpy().tolist() == [[3, 6]]
        assert net.weight.grad().asnumpy().tolist() == [[0, 0]]


def test_backward_twice_with_retain_graph():
    net = Function(lambda F, x: F.Dropout(x * x, p=0.5))
    net.hybridize()
    x = mx.nd.ones((100,)) * 3
    x.attach_grad()
    with mx.autograd.record():
        y = net(x)
    y.backward(retain_graph=True)
    first = x.grad.asnumpy()
    y.backward()
    assert np.array_equal(first, x.grad.asnumpy()) and set(first.tolist()) == {0, 12}
    assert np.array_equal(first != 0, y.asnumpy() != 0)
    with pytest.raises(mx.MXNetError, match="were freed by an earlier backward"):
        y.backward()


def test_derivatives_of_derivatives():
    x = mx.nd.array([0.1, 0.2])
    x.attach_grad()
    found = []
    for active in (False, True):
        net = Function(lambda F, x: F.tanh(x) ** 2)
        net.hybridize(active)
        with mx.autograd.record():
            g = mx.autograd.grad(net(x), [x], create_graph=True, retain_graph=True)[0]
        g.backward()
        found.append(x.grad.asnumpy())
    assert_close(found[1], found[0])


def test_weights_that_change_before_backward_are_noticed():
    net = nn.Dense(1, in_units=2)
    net.initialize()
    net.hybridize()
    with mx.autograd.record():
        y = net(mx.nd.ones((1, 2)))
    net.weight.set_data(mx.nd.zeros((1, 2)))
    with pytest.raises(mx.MXNetError, match="its memory was written in place since"):
        y.backward()


def test_predict_mode_while_recording():
    net = Function(lambda F, x: F.Dropout(x, p=0.5) * 2)
    net.hybridize()
    x = mx.nd.ones((50,))
    x.attach_grad()
    with mx.autograd.record(train_mode=False):
        y = net(x)
    y.backward(train_mode=False)
    assert (y.asnumpy() == 2).all() and (x.grad.asnumpy() == 2).all()


def test_grad_req_may_change_between_calls():
    net = nn.Dense(2, in_units=2)
    net.initialize(mx.init.One())
    net.hybridize()
    x = mx.nd.ones((1, 2))
    for req in ("write", "null", "add"):
        net.weight.grad_req = req
        with mx.autograd.record():
            y = net(x)
        y.backward()
        assert net.bias.grad().asnumpy().tolist() == [1, 1]
    assert net.weight.grad().asnumpy().tolist() == [[1, 1], [1, 1]]


def test_inputs_of_any_form():
    def function(F, a, states, c=None):
        return a + states[0] if c is None else a * c, [states[1] * 2, [states[0]]]

    x = mx.nd.ones((2,))
    for active in (False, True):
        net = Function(function)
        net.hybridize(active)
        first, (second, third) = net(x, [x * 2, x * 3])
        assert first.asnumpy().tolist() == [3, 3] and second.asnumpy().tolist() == [6, 6]
        assert isinstance(third, list) and third[0].asnumpy().tolist() == [2, 2]
        assert net(x, [x, x], None)[0].asnumpy().tolist() == [2, 2]
    with pytest.raises(ValueError, match="The argument structure of HybridBlock does not match the cached version"):
        net(x, x)
    net = Function(lambda F, a, b=None, c=None: a * c if b is None else a + b)
    net.hybridize()
    assert net(x, None, x * 5).asnumpy().tolist() == [5, 5]


# ---- graphs -------------------------------------------------------------------------------------------------------------
def test_a_block_called_with_symbols_composes_them():
    net = cases.network(mx)
    out = net(mx.sym.var("data"))
    assert out.list_arguments() == KNOWN["arguments"] and out.get_internals().list_outputs() == KNOWN["internals"]
    with pytest.raises(ValueError, match="the inputs mix NDArrays and Symbols"):
        Function(lambda F, a, b: a + b)(mx.sym.var("data"), mx.nd.ones((1,)))
    with pytest.raises(ValueError, match="there is no NDArray or Symbol among the inputs"):
        Function(lambda F, a: a)(3)


def test_children_must_be_hybrid():
    with pytest.raises(ValueError, match="Children of HybridBlock must also be HybridBlock"):
        nn.HybridSequential().register_child(gluon.Block())


def test_export(tmp_path):
    net = cases.network(mx)
    net.initialize()
    with pytest.raises(RuntimeError, match=r"there is no graph yet. Call hybridize\(\)"):
        net.export(str(tmp_path / "net"))
    net.hybridize()
    x, _ = cases.data(mx)
    want = net(x).asnumpy()
    net.export(str(tmp_path / "net"), 7)
    assert json.loads((tmp_path / "net-symbol.json").read_text())["nodes"] == json.loads(
        (GOLDEN / "exported-symbol.json").read_text())["nodes"]
    symbol, arguments, states = mx.model.load_checkpoint(str(tmp_path / "net"), 7)
    module = mx.mod.Module(symbol, label_names=None)
    module.bind([("data", x.shape)], for_training=False)
    module.set_params(arguments, states)
    module.forward(mx.io.DataBatch([x]), is_train=False)
    np.testing.assert_allclose(module.get_outputs()[0].asnumpy(), want, rtol=1e-5)


def test_unused_inputs_and_parameters_are_named():
    class Unused(gluon.HybridBlock):
        def __init__(self):
            super().__init__(prefix="u_")
            self.w = self.params.get("w", shape=(3,))

        def hybrid_forward(self, F, x, y, w):
            return x * 2

    net = Unused()
    net.initialize()
    net.hybridize()
    with pytest.warns(UserWarning) as caught:
        net(mx.nd.ones((1,)), mx.nd.ones((1,)))
    assert {str(w.message) for w in caught} == {"Parameter u_w is not used by any computation. Is this intended?",
                                                "The 1-th input to HybridBlock is not used by any computation. Is this intended?"}


def test_deferred_shapes_that_do_not_follow():
    net = nn.HybridSequential()
    net.add(nn.Dense(2), nn.Conv2D(1, 3))
    net.initialize()
    with pytest.raises(ValueError, match="Deferred initialization failed because shape cannot be inferred"):
        net(mx.nd.ones((1, 2)))


def test_op_hooks_see_each_operator():
    net = nn.Dense(2, activation="relu", in_units=3, prefix="d_")
    net.initialize(mx.init.One())
    net.hybridize()
    net(mx.nd.ones((1, 3)))
    seen = []
    net.register_op_hook(lambda name, operator, array: seen.append((name, operator, array.shape)))
    net(mx.nd.ones((1, 3)))
    assert seen == [("d_fwd_output", "FullyConnected", (1, 2)), ("d_relu_fwd_output", "Activation", (1, 2))]


def test_optimize_for_compiles_only():
    net = nn.Dense(2)
    net.initialize()
    net.optimize_for(mx.nd.ones((1, 3)), backend="any")
    assert net._cached_op is not None and net.weight.shape == (2, 3)
    with pytest.raises(ValueError, match='Must specify "backend"'):
        net.optimize_for(mx.nd.ones((1, 3)))


@pytest.mark.nightly
def test_a_step_on_each_device(ctx):
    net = nn.HybridSequential()
    net.add(nn.Dense(3, activation="tanh", in_units=2), nn.Dense(1, in_units=3))
    weights = []
    for active in (False, True):
        net.initialize(mx.init.Constant(0.5), ctx=ctx, force_reinit=True)
        net.hybridize(active)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        for _ in range(2):
            with mx.autograd.record():
                y = (net(mx.nd.array([[1, 2], [3, 4]], ctx=ctx)) ** 2).sum()
            y.backward()
            trainer.step(2)
        assert net[0].weight.data().context == ctx
        weights.append(net[0].weight.data().asnumpy())
    assert_close(weights[1], weights[0])
