"""Executor: golden networks, requests, engines agree, monitor, reshape, errors."""

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from hypothesis import HealthCheck, given, settings
from support.helpers import assert_close
from support.random_graphs import networks, values
from tritium import engine
from tritium.errors import GraphError, ShapeError
from tritium.graph import Group, options
from tritium.graph.symbol import namespace as sym
from tritium.kernels.kernel import Kernel

GOLDEN = Path(__file__).parents[2] / "golden" / "symbols"


def array(v, ctx=None):
    v = np.asarray(v)
    return mx.nd.array(v, ctx or mx.cpu(), dtype=v.dtype)


@pytest.mark.parametrize("how", [{}, {"fuse": False, "plan": False}], ids=["compiled", "plain"])
@pytest.mark.parametrize(("net", "epoch"), [("mlp", 0), ("lenet", 0), ("digits_mlp", 20)])
def test_golden_networks(net, epoch, how):
    """Outputs and gradients of MXNet 1.9.1 for its own checkpoints."""
    symbol = sym.load(str(GOLDEN / f"{net}-symbol.json"))
    params = mx.nd.load(str(GOLDEN / f"{net}-{epoch:04d}.params"))
    with np.load(GOLDEN / f"{net}.npz") as z:
        z = {k: z[k] for k in z.files}
    inputs = {k[3:]: v for k, v in z.items() if k.startswith("in.")}
    with options(**how):
        ex = symbol.simple_bind(mx.cpu(), grad_req={n: "null" if n in inputs else "write" for n in symbol.list_arguments()},
                                **{k: v.shape for k, v in inputs.items()})
    ex.copy_params_from({k[4:]: v for k, v in params.items()}, allow_extra_params=True)
    out = ex.forward(is_train=False, **{k: v for k, v in inputs.items() if k in ex.arg_dict})
    assert_close(out[0], z["out.0"], scale=10)  # 10: rounded in another order
    if "train.out.0" in z:
        ex.forward(is_train=True)
        ex.backward()
        assert_close(ex.outputs[0], z["train.out.0"], scale=10)  # 10: rounded in another order
        for k in z:
            if k.startswith("train.grad.") and k[11:] in ex.grad_dict:
                # MXNet's sums have another order
                np.testing.assert_allclose(ex.grad_dict[k[11:]].asnumpy(), z[k], rtol=1e-3, atol=2e-4, err_msg=k)


def train(symbol, args, ctx, steps=3):
    """A few steps of gradient descent; every output and the last weights, as bytes."""
    ex = symbol.simple_bind(ctx, **{k: v.shape for k, v in args.items()})
    for k, v in args.items():
        ex.arg_dict[k][:] = v
    seen = []
    for _ in range(steps):
        outs = ex.forward(is_train=True)
        seen += [o.asnumpy().tobytes() for o in outs]
        ex.backward([mx.nd.ones(o.shape, ctx) for o in outs])
        for a, g in zip(ex.arg_arrays, ex.grad_arrays):
            a -= g * 0.1
    return seen + [a.asnumpy().tobytes() for a in ex.arg_arrays]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks())
def test_threaded_equals_naive(network):
    symbol, shapes = network
    args, results = values(shapes, 5), []
    before = engine.current()
    for make in (engine.NaiveEngine, lambda: engine.ThreadedEngine(4)):
        made = make()
        engine.set_current(made)
        try:
            results.append(train(symbol, args, mx.cpu()))
            made.wait_for_all()
        finally:
            engine.set_current(before)
            made.stop()
    assert results[0] == results[1]


def test_on_both_devices(ctx, rng):
    a = rng.normal(size=(4, 6)).astype("float32")
    y = sym.tanh(sym.FullyConnected(sym.relu(sym.Variable("a") * 2), num_hidden=3, name="fc"))
    here = {"a": a, "fc_weight": rng.normal(size=(3, 6)).astype("float32"), "fc_bias": np.ones(3, "float32")}
    got = train(y, here, ctx)
    for g, w in zip(got, train(y, here, mx.cpu())):
        assert_close(np.frombuffer(g, "float32"), np.frombuffer(w, "float32"), scale=10)


def small():
    return sym.FullyConnected(sym.Variable("data"), num_hidden=3, name="fc")


def test_arrays_by_name_and_in_order():
    ex = small().simple_bind(mx.cpu(), grad_req={"fc_weight": "write"}, data=(2, 4))
    assert list(ex.arg_dict) == list(ex.grad_dict) == ["data", "fc_weight", "fc_bias"]
    assert [g is None for g in ex.grad_arrays] == [True, False, True] and ex.arg_arrays[1].shape == (3, 4)
    assert list(ex.output_dict) == ["fc_output"] and ex.outputs[0].shape == (2, 3) and ex.aux_arrays == []
    assert ex.forward()[0] is ex.outputs[0]


def test_copy_params_from():
    ex = small().simple_bind(mx.cpu(), data=(2, 4))
    ex.copy_params_from({"fc_bias": array(np.ones(3, "float32"))})
    assert (ex.forward()[0].asnumpy() == 1).all()
    with pytest.raises(GraphError, match=r"the symbol has no argument 'fc_bais'. Did you mean 'fc_bias'"):
        ex.copy_params_from({"fc_bais": array(np.ones(3, "float32"))})
    ex.copy_params_from({"fc_bais": array(np.ones(3, "float32"))}, allow_extra_params=True)
    with pytest.raises(ShapeError, match=r"copy_params_from: fc_bias is float32\[3\].*, the given array float32\[4\]"):
        ex.copy_params_from({"fc_bias": array(np.ones(4, "float32"))})


def test_feeding_by_keyword():
    ex = small().simple_bind(mx.cpu(), data=(2, 4))
    ex.copy_params_from({"fc_weight": array(np.ones((3, 4), "float32"))})
    assert (ex.forward(data=array(np.ones((2, 4), "float32")))[0].asnumpy() == 4).all()
    with pytest.raises(GraphError, match=r"forward: no argument is called 'dta'. Did you mean 'data'"):
        ex.forward(dta=array(np.ones((2, 4), "float32")))
    with pytest.raises(ShapeError, match=r"forward: data is float32\[2,4\]@cpu\(0\), the given array float32\[5,4\]@cpu"):
        ex.forward(data=array(np.ones((5, 4), "float32")))


def test_backward_after_inference_runs_forward_again():
    ex = small().simple_bind(mx.cpu(), data=(2, 4))
    ex.copy_params_from({"fc_weight": array(np.ones((3, 4), "float32"))})
    ex.arg_dict["data"][:] = 2
    assert (ex.forward()[0].asnumpy() == 8).all()
    ex.backward(mx.nd.ones((2, 3)))
    assert (ex.grad_dict["fc_weight"].asnumpy() == 4).all() and (ex.outputs[0].asnumpy() == 8).all()


def test_backward_needs_head_gradients_and_runs_forward_where_its_values_are_gone():
    ex = small().simple_bind(mx.cpu(), data=(2, 4))
    with pytest.raises(GraphError, match=r"backward: output fc_output needs a head gradient: float32\[2,3\]"):
        ex.backward()
    ex.backward(mx.nd.ones((2, 3)))
    assert (ex.grad_dict["fc_bias"].asnumpy() == 2).all()
    ex.grad_dict["fc_bias"][:] = 0
    ex.backward([mx.nd.ones((2, 3)), mx.nd.ones((5,))])  # MXNet ignores further head gradients, too
    assert (ex.grad_dict["fc_bias"].asnumpy() == 2).all()


def test_a_second_backward_repeats_draws_and_leaves_states_and_outputs():
    net = sym.Dropout(sym.BatchNorm(sym.Variable("data"), name="bn", fix_gamma=False), p=0.5)
    ex = net.simple_bind(mx.cpu(), data=(40, 2))
    ex.arg_dict["data"][:] = np.arange(80).reshape(40, 2) % 7
    ex.arg_dict["bn_gamma"][:] = 1
    out = ex.forward(is_train=True)[0].asnumpy()
    ex.backward(mx.nd.ones((40, 2)))
    gradient, state = ex.grad_dict["bn_gamma"].asnumpy(), ex.aux_dict["bn_moving_mean"].asnumpy()
    ex.backward(mx.nd.ones((40, 2)))
    assert_close(ex.grad_dict["bn_gamma"], gradient)
    assert (ex.aux_dict["bn_moving_mean"].asnumpy() == state).all() and (ex.outputs[0].asnumpy() == out).all()


@pytest.mark.parametrize("out_grad", [False, True])
def test_loss_layers_need_no_head_gradient_and_leave_the_label_alone(out_grad):
    y = sym.SoftmaxOutput(small(), sym.Variable("label"), name="softmax", out_grad=out_grad)
    grads = {n: mx.nd.full(s, 7) for n, s in zip(y.list_arguments(), y.infer_shape(data=(2, 4))[0])}
    ex = y.bind(mx.cpu(), {n: mx.nd.zeros(g.shape) for n, g in grads.items()}, grads)
    ex.forward(is_train=True)
    ex.backward(mx.nd.ones((2, 3)) if out_grad else None)
    assert (grads["label"].asnumpy() == 7).all() and not (grads["fc_bias"].asnumpy() == 7).any()


def test_monitor_sees_every_node():
    ex = sym.tanh(sym.relu(small(), name="r"), name="t").simple_bind(mx.cpu(), data=(2, 4))
    plain = ex.forward(is_train=True)[0].asnumpy()
    seen = {}
    ex.set_monitor_callback(lambda name, a: seen.update({name: a.asnumpy()}))
    assert (ex.forward(is_train=True)[0].asnumpy() == plain).all()
    ex.backward(mx.nd.ones((2, 3)))
    assert list(seen) == ["fc_output", "r_output", "t_output"] and ex.fused_operators > 0
    ex.set_monitor_callback(None)
    seen.clear()
    ex.forward()
    assert not seen


def test_monitor_all_sees_the_inputs_of_nodes_too():
    ex = sym.relu(small(), name="r").simple_bind(mx.cpu(), "null", data=(2, 4))
    seen = []
    ex.set_monitor_callback(lambda name, a: seen.append((name, a.shape)), monitor_all=True)
    ex.forward()
    assert seen == [("fc_data", (2, 4)), ("fc_weight", (3, 4)), ("fc_bias", (3,)), ("fc_output", (2, 3)), ("r_data", (2, 3)),
                    ("r_output", (2, 3))]


def test_reshape_shares_weights_and_says_what_would_change():
    ex = small().simple_bind(mx.cpu(), data=(4, 5))
    ex.arg_dict["fc_bias"][:] = 1
    less = ex.reshape(data=(2, 5))
    assert less.arg_dict["fc_weight"] is ex.arg_dict["fc_weight"] and less.forward()[0].asnumpy().tolist() == [[1] * 3] * 2
    assert less.arena is ex.arena
    with pytest.raises(ShapeError, match=r"reshape: data would grow from \(4, 5\) to \(9, 5\).*allow_up_sizing=True"):
        ex.reshape(data=(9, 5))
    assert ex.reshape(data=(9, 5), allow_up_sizing=True).forward()[0].shape == (9, 3)
    with pytest.raises(ShapeError):
        ex.reshape(data=(4, 3))


def test_shared_executor_uses_one_arena():
    first = small().simple_bind(mx.cpu(), data=(8, 4))
    second = small().simple_bind(mx.cpu(), data=(2, 4), shared_exec=first, shared_arg_names=["fc_weight"])
    assert second.arena is first.arena and second.arg_dict["fc_weight"] is first.arg_dict["fc_weight"]
    first.forward(is_train=True)
    second.forward(is_train=True)
    first.backward(mx.nd.ones((8, 3)))
    assert (first.grad_dict["fc_bias"].asnumpy() == 8).all()


def test_random_operators_draw_when_pushed():
    y = sym.Dropout(sym.Variable("a"), p=0.5)
    ex = y.simple_bind(mx.cpu(), a=(50, 50))
    ex.arg_dict["a"][:] = 1

    def draw():
        return ex.forward(is_train=True)[0].asnumpy()

    engine.resource.seed(3)
    one, two = draw(), draw()
    engine.resource.seed(3)
    again = draw()
    assert (one == again).all() and (one != two).any() and 0.3 < (one == 0).mean() < 0.7
    ex.backward(mx.nd.ones((50, 50)))
    assert (ex.grad_dict["a"].asnumpy() == again).all()
    assert (ex.forward(is_train=False)[0].asnumpy() == 1).all()


def test_memory_report():
    ex = sym.tanh(sym.dot(sym.relu(sym.Variable("a")), sym.Variable("b"))).simple_bind(mx.cpu(), a=(8, 8), b=(8, 8))
    plan = ex.memory_plan()
    assert plan.lower_bound_bytes <= plan.planned_bytes <= plan.naive_bytes
    assert ex.debug_str().split("\n")[-3] == "Total 0 MB allocated"


def test_arguments_as_outputs_and_repeated_outputs():
    a = sym.Variable("a")
    x = a * 2
    ex = Group([a, x, x]).bind(mx.cpu(), {"a": array(np.ones(3, "float32"))})
    outs = ex.forward()
    assert outs[0] is ex.arg_dict["a"] and outs[1] is outs[2] and outs[1].asnumpy().tolist() == [2, 2, 2]


def test_eval():
    assert (sym.Variable("a") + 1).eval(mx.cpu(), a=mx.nd.ones((2,)))[0].asnumpy().tolist() == [2, 2]


def test_a_failing_kernel_names_its_node_once():
    y = sym.dot(sym.relu(sym.Variable("a"), name="r"), sym.Variable("b"), name="product")
    ex = y.simple_bind(mx.cpu(), a=(2, 2), b=(2, 2))
    break_call(ex._compile(False).forward[0], -1)
    with pytest.raises(mx.MXNetError, match=r"product \(dot\): ZeroDivisionError: boom"):
        ex.forward()[0].asnumpy()
    engine.current().wait_for_all()  # the arena stays quiet: the user was told


def break_call(segment, at):
    """Let one kernel of segment raise; return a function that undoes it."""

    def broken(*_):
        raise ZeroDivisionError("boom")

    before = segment.calls[at]
    segment.calls[at], segment.ready = (Kernel(broken), *before[1:]), None
    return lambda: (segment.calls.__setitem__(at, before), setattr(segment, "ready", None))


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_failure_poisons_the_rest_of_the_pass(part):
    """Later segments read the arena, which they also write: only the chain between segments stops them."""
    y, b = sym.Variable("a"), sym.Variable("b")
    for k in range(12):
        y = sym.dot(y, b, name=f"d{k}")
    with options(bulk_train=4):
        ex = y.simple_bind(mx.cpu(), a=(2, 2), b=(2, 2))
    for a in ex.arg_arrays:
        a[:] = np.eye(2)
    mend = break_call(ex._compile(True).forward[part], 1)
    with pytest.raises(mx.MXNetError, match=rf"d{4 * part + 1} \(dot\): ZeroDivisionError: boom"):
        ex.forward(is_train=True)[0].asnumpy()
    with pytest.raises(GraphError, match=r"backward: the forward pass failed .*Run forward again first"):
        ex.backward(mx.nd.ones((2, 2)))
    engine.current().wait_for_all()
    mend()
    assert (ex.forward(is_train=True)[0].asnumpy() == np.eye(2)).all()
    ex.backward(mx.nd.ones((2, 2)))
    assert (ex.grad_dict["a"].asnumpy() == 1).all()


def test_memory_is_freed_with_the_executor():
    ex = small().simple_bind(mx.cpu(), data=(2, 4))
    ex.forward(is_train=True)[0].wait_to_read()
    engine.current().stop()  # a worker may have yet to return from what it ran
    engine.current().start()
    gone = [weakref.ref(ex), weakref.ref(ex._compile(True).chunks[0])]
    gc.disable()
    try:
        del ex
        engine.current().wait_for_all()
        assert [g() for g in gone] == [None, None]
    finally:
        gc.enable()
