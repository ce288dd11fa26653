"""backward() after forward(is_train=False): the derivative of the inference pass, whose outputs stay as they are.

Oracle: finite differences of the forward pass itself, in float64, with the same random numbers; NumPy for BatchNorm.
"""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close

ROWS, WIDTH = 4, 3


def loop(x, k):
    """BatchNorm, Dropout and noise within a loop over rows."""
    norm = [mx.sym.Variable(f"in{k}_{n}", shape=(WIDTH,)) for n in ("gamma", "beta", "moving_mean", "moving_var")]

    def body(row, state):
        y = mx.sym.BatchNorm(mx.sym.expand_dims(row, axis=0), *norm, fix_gamma=False, name=f"in{k}_bn")
        y = mx.sym.Dropout(y, p=0.5) * mx.sym.random.uniform(0.5, 1.5, shape=(1, WIDTH), dtype="float64")
        state = mx.sym.tanh(mx.sym.reshape(y, shape=(WIDTH,)) + state)
        return state, state

    return mx.sym.contrib.foreach(body, x, mx.sym.Variable(f"begin{k}", shape=(WIDTH,)))[0]


def lstm(x, k):
    shape = {"parameters": (2 * 4 * WIDTH * (2 * WIDTH + 2),), "state": (2, 1, WIDTH), "state_cell": (2, 1, WIDTH)}
    given = {n: mx.sym.Variable(f"rnn{k}_{n}", shape=s) for n, s in shape.items()}
    y = mx.sym.RNN(mx.sym.reshape(x, shape=(ROWS, 1, WIDTH)), **given, mode="lstm", state_size=WIDTH, num_layers=2, p=0.5)
    return mx.sym.reshape(y, shape=(ROWS, WIDTH))


LAYERS = {
    "norm": lambda x, k: mx.sym.BatchNorm(x, fix_gamma=False, name=f"bn{k}"),
    "norm and rectifier": lambda x, k: mx.sym.relu(mx.sym.BatchNorm(x, name=f"bn{k}")) + 0.1 * x,
    "dropout": lambda x, k: mx.sym.Dropout(x, p=0.5),
    "dropout always": lambda x, k: mx.sym.Dropout(x, p=0.5, mode="always"),
    "rrelu": lambda x, k: mx.sym.LeakyReLU(x, act_type="rrelu"),
    "noise": lambda x, k: x * mx.sym.random.uniform(0.5, 1.5, shape=(ROWS, WIDTH), dtype="float64"),
    "fully connected": lambda x, k: mx.sym.tanh(mx.sym.FullyConnected(x, num_hidden=WIDTH, name=f"fc{k}")),
    "loop": loop,
    "lstm": lstm,
}


def random_graph(rng):
    """A chain of layers, some of them with shortcuts; one output or two."""
    x = mx.sym.Variable("data", shape=(ROWS, WIDTH))
    tops = [x]
    for k, kind in enumerate(rng.choice(list(LAYERS), size=rng.integers(2, 6))):
        y = LAYERS[kind](tops[-1], k)
        tops.append(y + tops[int(rng.integers(len(tops)))] if rng.random() < 0.3 else y)
    return mx.sym.Group([tops[-1], mx.sym.sin(tops[len(tops) // 2])]) if rng.random() < 0.4 else tops[-1]


def bound(symbol, rng, ctx, req="write"):
    ex = symbol.simple_bind(ctx, req, type_dict=dict.fromkeys(symbol.list_arguments(), "float64"), data=(ROWS, WIDTH))
    for name, array in (*ex.arg_dict.items(), *ex.aux_dict.items()):
        array[:] = mx.nd.array(rng.uniform(0.5, 1.5, array.shape) if "var" in name else rng.normal(size=array.shape),
                               dtype="float64", ctx=ctx)
    return ex


def inferred(ex, seed):
    mx.random.seed(seed)
    return [o.asnumpy() for o in ex.forward(is_train=False)]


def slope_along(ex, directions, heads, seed, step=1e-6):
    """The slope of <heads, outputs> along directions, by finite differences of inference."""
    before, sides = {n: a.asnumpy() for n, a in ex.arg_dict.items()}, []
    for sign in (1, -1):
        for n, a in before.items():
            ex.arg_dict[n][:] = mx.nd.array(a + sign * step * directions[n], dtype="float64")
        sides.append(sum((h * o).sum() for h, o in zip(heads, inferred(ex, seed))))
    for n, a in before.items():
        ex.arg_dict[n][:] = mx.nd.array(a, dtype="float64")
    return (sides[0] - sides[1]) / (2 * step)


def check(symbol, rng, ctx, seed):
    ex = bound(symbol, rng, ctx)
    outputs = inferred(ex, seed)
    after = mx.nd.random.uniform(shape=(3,)).asnumpy()
    states = {n: a.asnumpy() for n, a in ex.aux_dict.items()}
    heads = [rng.normal(size=o.shape) for o in outputs]
    directions = {n: rng.normal(size=a.shape) for n, a in ex.arg_dict.items()}
    want = slope_along(ex, directions, heads, seed)
    inferred(ex, seed)
    for _ in range(2):  # backward may be called again
        ex.backward([mx.nd.array(h, dtype="float64", ctx=ctx) for h in heads])
        got = sum((directions[n] * g.asnumpy()).sum() for n, g in ex._grads.items())
        assert_close(got, want, dtype="float32")  # want is a finite difference in float64
    for a, b in zip(ex.outputs, outputs):
        np.testing.assert_array_equal(a.asnumpy(), b)
    for n, a in ex.aux_dict.items():
        np.testing.assert_array_equal(a.asnumpy(), states[n], err_msg=n)
    np.testing.assert_array_equal(mx.nd.random.uniform(shape=(3,)).asnumpy(), after)  # backward draws nothing


@pytest.mark.parametrize("kind", LAYERS)
def test_every_layer(ctx, kind, rng):
    check(LAYERS[kind](mx.sym.tanh(mx.sym.Variable("data", shape=(ROWS, WIDTH))), 0), rng, ctx, 5)


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(seed):
    rng = np.random.default_rng(seed)
    check(random_graph(rng), rng, mx.cpu(), seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(12, 212))
def test_many_random_graphs(ctx, seed):
    rng = np.random.default_rng(seed)
    check(random_graph(rng), rng, ctx, seed)


def by_hand(x, gamma, beta, mean, var, head):
    """tanh of BatchNorm with moving statistics: its value, and its derivatives by x, gamma and beta."""
    scale = 1 / np.sqrt(var + 1e-3)
    y = np.tanh((x - mean) * scale * gamma + beta)
    d = head * (1 - y * y)
    return y, (d * gamma * scale, (d * (x - mean) * scale).sum(0), d.sum(0))


ARRAYS = {"data": np.random.default_rng(0).normal(size=(ROWS, WIDTH)), "bn_gamma": np.array([1.0, 2, 3]),
          "bn_beta": np.array([0, 0.5, 1]), "bn_moving_mean": np.array([0.3, 0.2, 0.1]), "bn_moving_var": np.array([2.0, 3, 4])}
HEAD = np.random.default_rng(1).normal(size=(ROWS, WIDTH))


def norm_and_dropout():
    y = mx.sym.BatchNorm(mx.sym.Variable("data"), fix_gamma=False, eps=1e-3, name="bn")
    return mx.sym.Dropout(mx.sym.tanh(y), p=0.5)


@pytest.mark.parametrize("is_train", [True, False])
def test_the_flag_of_backward_does_not_matter(is_train):
    """MXNet, asked with its default is_train=True, takes BatchNorm's derivative of a batch whose statistics it did not use."""
    f = norm_and_dropout().simple_bind(mx.cpu(), data=(ROWS, WIDTH))
    f.copy_params_from({n: mx.nd.array(a) for n, a in ARRAYS.items() if "moving" not in n},
                       {n: mx.nd.array(a) for n, a in ARRAYS.items() if "moving" in n})
    y, slopes = by_hand(*ARRAYS.values(), HEAD)
    assert_close(f.forward()[0], y, scale=0.1)  # 0.1: closer than the table: few roundings
    f.backward(mx.nd.array(HEAD), is_train=is_train)
    for got, want in zip(f.grad_arrays, slopes):
        assert_close(got.asnumpy(), want, scale=10)


def test_through_a_module_whose_parameters_do_not_move():
    """The use of adversarial attacks and of saliency maps."""
    module = mx.mod.Module(norm_and_dropout(), label_names=None)
    module.bind([("data", (ROWS, WIDTH))], inputs_need_grad=True)
    module.init_params(arg_params={n: mx.nd.array(ARRAYS[n]) for n in ("bn_gamma", "bn_beta")},
                       aux_params={n: mx.nd.array(ARRAYS[n]) for n in ("bn_moving_mean", "bn_moving_var")})
    module.forward(mx.io.DataBatch([mx.nd.array(ARRAYS["data"])]), is_train=False)
    y, (dx, _, _) = by_hand(*ARRAYS.values(), HEAD)
    module.backward([mx.nd.array(HEAD)])
    assert_close(module.get_input_grads()[0].asnumpy(), dx, scale=10)
    assert_close(module.get_outputs()[0], y, scale=0.1)  # 0.1: closer than the table: few roundings
    for n, a in module.get_params()[1].items():
        np.testing.assert_array_equal(a.asnumpy(), ARRAYS[n].astype("f"))


@pytest.mark.parametrize("how", ["record", "predict_mode"])
def test_through_autograd(how):
    x, gamma, beta, mean, var = (mx.nd.array(a) for a in ARRAYS.values())
    for a in (x, gamma, beta):
        a.attach_grad()

    def network():
        y = mx.nd.tanh(mx.nd.BatchNorm(x, gamma, beta, mean, var, fix_gamma=False, eps=1e-3))
        return mx.nd.Dropout(y, p=0.5)

    with mx.autograd.record(train_mode=how != "record"):
        if how == "record":
            out = network()
        else:
            with mx.autograd.predict_mode():
                out = network()
    out.backward(mx.nd.array(HEAD))
    y, slopes = by_hand(*ARRAYS.values(), HEAD)
    assert_close(out, y, scale=0.1)  # 0.1: closer than the table: few roundings
    for a, want in zip((x, gamma, beta), slopes):
        assert_close(a.grad.asnumpy(), want, scale=10)
    np.testing.assert_array_equal(mean.asnumpy(), ARRAYS["bn_moving_mean"].astype("f"))


def test_gradients_add_up_and_training_goes_on_as_before(rng):
    """The derivative of inference between two steps of training changes neither step."""
    x = mx.sym.Variable("data")
    for train_first in (True, False):
        ex = (mx.sym.tanh(x) * 2).simple_bind(mx.cpu(), "add", data=(3,))
        ex.arg_dict["data"][:] = mx.nd.array([0.1, 0.2, 0.3])
        slope = 2 * (1 - np.tanh([0.1, 0.2, 0.3]) ** 2)
        for count, train in enumerate((train_first, not train_first, train_first), 1):
            ex.forward(is_train=train)
            ex.backward(mx.nd.ones((3,)))
            assert_close(ex.grad_dict["data"], count * slope, scale=0.1)  # 0.1: closer than the table: few roundings


def test_a_monitor_sees_inference_once():
    ex = mx.sym.tanh(mx.sym.Variable("data"), name="t").simple_bind(mx.cpu(), data=(3,))
    seen = []
    ex.set_monitor_callback(lambda name, array: seen.append(name))
    ex.forward(is_train=False)
    ex.backward(mx.nd.ones((3,)))
    assert seen == ["t_output"]


def test_backward_without_a_forward_pass_runs_it_first():
    ex = mx.sym.tanh(mx.sym.Variable("data")).simple_bind(mx.cpu(), data=(3,))
    ex.backward(mx.nd.ones((3,)))
    assert ex.grad_dict["data"].asnumpy().tolist() == [1, 1, 1]
