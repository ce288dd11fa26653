"""BatchNorm, a sum and a rectifier in one step on a GPU: the steps that merge, those that do not, and the same bits."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.graph import options

pytestmark = pytest.mark.skipif(not mx.num_gpus(), reason="no GPU, not even an interpreted one")
SHAPE = (2, 4, 3, 5)


def norm(x, name, **more):
    return mx.sym.BatchNorm(x, name=name, **{"fix_gamma": False, **more})


def relu(x, name):
    return mx.sym.Activation(x, act_type="relu", name=name)


def leaf(name):
    return mx.sym.Variable(name)


def run(symbol, train=True, dtype="float32", ctx=None, grad_req="write", steps=2, **how):
    """Return (executor, all its results) after a few steps."""
    inputs = {n: SHAPE for n in ("x", "z") if n in symbol.list_arguments()}
    with options(**how):
        executor = symbol.simple_bind(ctx or mx.gpu(0), grad_req, type_dict=dict.fromkeys(inputs, dtype), **inputs)
    rng = np.random.default_rng(0)
    for array in (*executor.arg_dict.values(), *executor._grads.values(), *executor.aux_dict.values()):
        array[:] = rng.uniform(0.5, 2, size=array.shape)
    for name in inputs:
        executor.arg_dict[name][:] = rng.normal(size=SHAPE)
    for _ in range(steps):
        outs = executor.forward(is_train=train)
        if train:
            executor.backward([mx.nd.array(rng.normal(size=o.shape), o.context, o.dtype) for o in outs])
    return executor, {n: a.asnumpy() for d in (executor.output_dict, executor._grads, executor.aux_dict) for n, a in d.items()}


def operators(executor):
    program = executor._main().program
    names = [s.op.name for s in program.steps]
    return names[:program.n_forward], names[program.n_forward:]


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


CASES = {
    "relu": (relu(norm(leaf("x"), "b"), "r"), ["BatchNorm+relu"], ["_backward_BatchNorm+relu"]),
    "relu, channels last": (mx.sym.relu(norm(leaf("x"), "b", axis=-1)), ["BatchNorm+relu"], ["_backward_BatchNorm+relu"]),
    "under its other name": (relu(mx.sym.contrib.SyncBatchNorm(leaf("x"), key="k"), "r"), ["BatchNorm+relu"],
                             ["_backward_BatchNorm+relu"]),
    "fixed gamma, global": (relu(norm(leaf("x"), "b", fix_gamma=True, use_global_stats=True), "r"), ["BatchNorm+relu"],
                            ["_backward_BatchNorm+relu"]),
    "sum": (relu(norm(leaf("x"), "b") + leaf("z"), "r"), ["BatchNorm+add+relu"], ["_backward_BatchNorm+add+relu"]),
    "sum, the other way": (relu(leaf("z") + norm(leaf("x"), "b"), "r"), ["BatchNorm+add+relu"],
                           ["_backward_BatchNorm+add+relu"]),
    "sum of two": (relu(norm(leaf("x"), "b") + norm(leaf("z"), "c"), "r"), ["BatchNorm", "BatchNorm+add+relu"],
                   ["_backward_BatchNorm+add+relu", "_backward_BatchNorm"]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("grad_req", ["write", "add"])
def test_merged_and_separate_steps_give_the_same_bits(name, grad_req):
    net, forward, backward = CASES[name]
    executor, joined = run(net, grad_req=grad_req)
    assert operators(executor) == (forward, backward)
    apart = run(net, grad_req=grad_req, fuse=False)[1]
    same(joined, apart)
    if grad_req == "write":
        on_cpu = run(net, ctx=mx.cpu())[1]
        for n in joined:
            # another order of sums; a name for each array
            np.testing.assert_allclose(joined[n], on_cpu[n], rtol=2e-4, atol=2e-5, err_msg=n)


def test_half_precision_rounds_where_it_did():
    net = CASES["sum"][0]
    same(run(net, dtype="float16")[1], run(net, dtype="float16", fuse=False)[1])


def test_the_derivative_of_a_shortcut_may_be_added_to_its_gradient():
    """As in a residual unit: earlier layers read the added value too, so its derivative has two writers."""
    x = relu(norm(leaf("x"), "a"), "ra")
    net = relu(norm(mx.sym.Convolution(x, num_filter=4, kernel=(3, 3), pad=(1, 1), name="f"), "c") + x, "rc")
    executor, joined = run(net)
    assert "_backward_BatchNorm+add+relu" in operators(executor)[1]
    same(joined, run(net, fuse=False)[1])


@pytest.mark.parametrize("net", [
    mx.sym.Group([relu(y := norm(leaf("x"), "b"), "r"), y * 2]), mx.sym.Group([y := norm(leaf("x"), "b"), relu(y, "r")]),
    mx.sym.tanh(norm(leaf("x"), "b")), relu(norm(leaf("x"), "b") * leaf("z"), "r"),
    relu(norm(leaf("x"), "b") + (z := leaf("z")) + z, "r")], ids=["read twice", "an output", "tanh", "product", "two sums"])
def test_others_stay_apart(net):
    executor, made = run(net)
    assert not any("+relu" in name for side in operators(executor) for name in side if not name.startswith("fused"))
    apart = run(net, fuse=False)[1]
    for n in made:
        assert_close(made[n], apart[n], scale=10)


def test_a_program_without_derivatives_stays_a_forward_one():
    """Forward in training without gradients: the states change, and the output is written."""
    net = CASES["relu"][0]
    with options():
        executor = net.simple_bind(mx.gpu(0), "null", x=SHAPE)
    executor.arg_dict["x"][:] = np.arange(np.prod(SHAPE)).reshape(SHAPE)
    for n in ("b_gamma", "b_beta"):
        executor.arg_dict[n][:] = 1
    out = executor.forward(is_train=True)[0].asnumpy()
    program = executor._compile(True).program
    assert [s.op.name for s in program.steps] == ["BatchNorm+relu"] and program.n_forward == 1
    assert out.max() > 1 and (executor.aux_dict["b_moving_mean"].asnumpy() > 0).all()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("grad_req", ["write", "add"])
def test_the_same_steps_merge_on_a_cpu_where_c_computes(name, grad_req, cpu_code):
    cpu_code("c")
    net, forward, backward = CASES[name]
    executor, joined = run(net, ctx=mx.cpu(), grad_req=grad_req)
    assert operators(executor) == (forward, backward)
    same(joined, run(net, ctx=mx.cpu(), grad_req=grad_req, fuse=False)[1])
    cpu_code("numpy")
    executor, apart = run(net, ctx=mx.cpu(), grad_req=grad_req)
    assert not any("BatchNorm+" in n for n in operators(executor)[0])
    for n in joined:
        # another order of sums; a name for each array
        np.testing.assert_allclose(joined[n], apart[n], rtol=2e-4, atol=2e-5, err_msg=n)


def test_at_inference_the_cpu_computes_scale_and_shift_first():
    net = CASES["sum"][0]
    executor, made = run(net, train=False, ctx=mx.cpu())
    program = executor._compile(False).program
    assert program.steps[0].op.name == "_moving_scale" and len(program.steps) == 2, program.steps
    for n, want in run(net, train=False, ctx=mx.cpu(), fuse=False)[1].items():
        assert_close(made[n], want, scale=10)


def test_batch_norm_is_not_merged_at_inference():
    executor = run(CASES["sum"][0], train=False)[0]
    compiled = executor._compile(False).program
    assert not any("BatchNorm+" in s.op.name for s in compiled.steps)


def test_explain_shows_what_joined():
    text = str(run(CASES["sum"][0])[0].explain())
    assert "b (BatchNorm) + _plus" in text and "(elemwise_add) + r (Activation)" in text
    assert "r_backward (_backward_Activation) + " in text and "+ b_backward (_backward_BatchNorm)" in text
