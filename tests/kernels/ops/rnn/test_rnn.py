"""RNN: values and derivatives. Oracle: the recurrences in NumPy, float64, with one product a gate; and MXNet 1.9.1's sums."""

import itertools

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from tritium.errors import ParameterError, ShapeError

T, N, I, H, L = 3, 2, 4, 3, 2
GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
CASES = list(itertools.product(GATES, (False, True)))

#: Σ cos-like weight · each output and each derivative, of MXNet 1.9.1 on its CPU, for the arrays `waves` gives.
MXNET = {
    ("rnn_relu", False): (0.576347, -4.501229, -4.079124, 3.062313, 0.587774),
    ("rnn_relu", True): (-20.231255, -40.067070, -24.266772, -115.228804, 2.219254),
    ("rnn_tanh", False): (2.291833, 1.129206, -3.559970, -10.354978, -1.574904),
    ("rnn_tanh", True): (-0.786587, -4.583610, -4.376079, -1.004311, 0.024272),
    ("lstm", False): (-0.333880, 0.816532, 2.785117, -1.153995, -1.555946, -0.184794, -0.505247),
    ("lstm", True): (-0.825182, 0.599517, 1.681265, -1.198667, 0.768799, 0.834223, -1.438634),
    ("gru", False): (0.105762, -0.864777, 0.441109, -0.036943, -0.100552),
    ("gru", True): (0.066974, 3.875332, 1.534019, -0.630700, -5.243551),
}


def shapes(mode, both, layers=L):
    d = 1 + both
    size = sum(d * GATES[mode] * H * ((d * H if level else I) + H + 2) for level in range(layers))
    return [(T, N, I), (size,)] + [(layers * d, N, H)] * (1 + (mode == "lstm"))


def wave(shape, k):
    return np.sin(np.arange(np.prod(shape)) * 0.37 + k).reshape(shape)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def oracle(mode, both, x, vector, h0, c0=None, clip=(-np.inf, np.inf)):
    """(output, last states of each layer and direction) as MXNet documents them."""
    g, taken, layers, ends, outs = GATES[mode], 0, [], [], []

    def take(*shape):
        nonlocal taken
        taken += int(np.prod(shape))
        return vector[taken - int(np.prod(shape)):taken].reshape(shape)

    for level in range(L):
        for _ in range(1 + both):
            width = I if level == 0 else (1 + both) * H
            layers.append([take(g, H, width), take(g, H, H)])
    for weights in layers:
        weights += [take(g, H), take(g, H)]
    for k, (wx, wh, bx, bh) in enumerate(layers):
        backwards = both and k % 2
        h, c, seen = h0[k], None if c0 is None else c0[k], []
        for t in range(T)[::-1] if backwards else range(T):
            a = [x[t] @ wx[j].T + bx[j] for j in range(g)]
            b = [h @ wh[j].T + bh[j] for j in range(g)]
            if mode == "lstm":
                i, f, new, o = (p + q for p, q in zip(a, b))
                c = np.clip(sigmoid(f) * c + sigmoid(i) * np.tanh(new), *clip)
                h = sigmoid(o) * np.tanh(c)
            elif mode == "gru":
                r, z = sigmoid(a[0] + b[0]), sigmoid(a[1] + b[1])
                h = (1 - z) * np.tanh(a[2] + r * b[2]) + z * h
            else:
                h = np.tanh(a[0] + b[0]) if mode == "rnn_tanh" else np.maximum(a[0] + b[0], 0)
            seen.append(h)
        ends.append((h, c))
        below = np.stack(seen[::-1] if backwards else seen)
        outs.append(below)
        if backwards or not both:
            x, outs = np.concatenate(outs, 2), []
    return x, np.stack([h for h, _ in ends]), np.stack([c for _, c in ends]) if c0 is not None else None


def settings(mode, both, **more):
    return {"mode": mode, "bidirectional": both, "state_size": H, "num_layers": L, **more}


@pytest.mark.parametrize("mode, both", CASES)
def test_follows_the_recurrence(mode, both, rng):
    arrays = [rng.normal(0, 0.5, s) for s in shapes(mode, both)]
    got = mx.nd.RNN(*(mx.nd.array(a) for a in arrays), **settings(mode, both, state_outputs=True))
    want = oracle(mode, both, *arrays)
    assert len(got) == 2 + (mode == "lstm")
    for g, w in zip(got, want):
        assert_close(g, w, scale=10)  # 10: rounding goes through every step and layer


@pytest.mark.parametrize("mode, both", CASES)
def test_equals_mxnet(mode, both, ctx):
    arrays = [mx.nd.array(wave(s, k), ctx=ctx) for k, s in enumerate(shapes(mode, both))]
    for a in arrays:
        a.attach_grad()
    with mx.autograd.record():
        out = mx.nd.RNN(*arrays, **settings(mode, both, state_outputs=True))
    mx.autograd.backward(out, [mx.nd.array(wave(o.shape, 5 + k), ctx=ctx) for k, o in enumerate(out)])
    sums = [np.sum(a.asnumpy().astype("f8") * wave(a.shape, 9)) for a in (*out, *(a.grad for a in arrays))]
    np.testing.assert_allclose(sums, MXNET[mode, both], rtol=1e-5, atol=2e-5)  # sums of float32 in float64


@pytest.mark.parametrize("mode, both", CASES)
def test_gradient_is_the_slope(mode, both, rng):
    arrays = [rng.normal(0, 0.5, s) for s in shapes(mode, both)]
    check_gradient(lambda *a: mx.nd.RNN(*a, **settings(mode, both)), arrays, mx.cpu(), rng)
    for k in range(1, 2 + (mode == "lstm")):  # and of the last states
        check_gradient(lambda *a, k=k: mx.nd.RNN(*a, **settings(mode, both, state_outputs=True))[k], arrays, mx.cpu(), rng)


def test_an_lstm_state_stays_within_its_bounds(rng):
    arrays = [rng.normal(0, 1, s) for s in shapes("lstm", True)]
    bounds = {"lstm_state_clip_min": -0.3, "lstm_state_clip_max": 0.4}
    got = mx.nd.RNN(*(mx.nd.array(a) for a in arrays), **settings("lstm", True, state_outputs=True, **bounds))
    for g, w in zip(got, oracle("lstm", True, *arrays, clip=(-0.3, 0.4))):
        assert_close(g, w, scale=10)  # 10: as above
    check_gradient(lambda *a: mx.nd.RNN(*a, **settings("lstm", True, **bounds)), arrays, mx.cpu(), rng)


@pytest.mark.parametrize("both", [False, True])
def test_dropout_lies_between_layers(both, rng):
    """In training the outputs of layer 0 are dropped: some of what layer 1 sees is 0, and the rest doubled."""
    arrays = [rng.normal(0, 0.5, s) for s in shapes("rnn_tanh", both)]
    given = [mx.nd.array(a) for a in arrays]
    whole = mx.nd.RNN(*given, **settings("rnn_tanh", both))
    assert np.array_equal(mx.nd.RNN(*given, **settings("rnn_tanh", both, p=0.5)).asnumpy(), whole.asnumpy())
    runs = []
    for seed in (1, 1, 2):
        mx.random.seed(seed)
        with mx.autograd.train_mode():
            runs.append(mx.nd.RNN(*given, **settings("rnn_tanh", both, p=0.5)).asnumpy())
    assert np.array_equal(runs[0], runs[1]) and not np.array_equal(runs[0], runs[2])
    assert not np.array_equal(runs[0], whole.asnumpy())

    def seeded(*a):
        mx.random.seed(3)
        return mx.nd.RNN(*a, **settings("rnn_tanh", both, p=0.5))

    check_gradient(seeded, arrays, mx.cpu(), rng)


def test_devices_drop_the_same(rng, ctx):
    arrays = [rng.normal(0, 0.5, s) for s in shapes("gru", True)]
    found = []
    for where in (mx.cpu(), ctx):
        mx.random.seed(4)
        with mx.autograd.train_mode():
            found.append(mx.nd.RNN(*(mx.nd.array(a, ctx=where) for a in arrays), **settings("gru", True, p=0.3)))
    assert_close(found[1], found[0], scale=10)  # 10: as above


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_dtypes(dtype, rng, ctx):
    arrays = [rng.normal(0, 0.5, s).astype(dtype) for s in shapes("lstm", False)]
    got = mx.nd.RNN(*(mx.nd.array(a, ctx=ctx, dtype=dtype) for a in arrays), **settings("lstm", False))
    assert got.dtype == np.dtype(dtype)
    assert_close(got, oracle("lstm", False, *(a.astype("f8") for a in arrays))[0], scale=10)  # 10: as above


def test_requests(rng):
    """grad_req add adds to what is there, null leaves no array; each alone."""
    data, size = (T, N, I), shapes("gru", True)[1]
    net = mx.sym.RNN(mx.sym.Variable("data"), mx.sym.Variable("w"), mx.sym.Variable("h"), **settings("gru", True))
    values = {"data": rng.normal(size=data), "w": rng.normal(0, 0.4, size), "h": rng.normal(size=shapes("gru", True)[2])}
    head = mx.nd.array(rng.normal(size=(T, N, 2 * H)))

    def gradients(reqs):
        args = {k: mx.nd.array(v) for k, v in values.items()}
        grads = {k: mx.nd.ones(v.shape) for k, v in values.items()}
        executor = net.bind(mx.cpu(), args, grads, reqs)
        executor.forward(is_train=True)
        executor.backward(head)
        return {k: v.asnumpy() for k, v in grads.items()}

    plain = gradients("write")
    for name in values:
        alone = gradients({k: "write" if k == name else "null" for k in values})
        assert_close(alone[name], plain[name])
        added = gradients({k: "add" if k == name else "write" for k in values})
        assert_close(added[name], plain[name] + 1, scale=10)  # 10: 1 was added before the sum, not after


def test_inference():
    net = mx.sym.RNN(mx.sym.Variable("data"), state_size=5, num_layers=2, mode="lstm", bidirectional=True, name="r")
    assert net.list_arguments() == ["data", "r_parameters", "r_state", "r_state_cell"]
    found, outs, _ = net.infer_shape(data=(7, 3, 4))
    assert found == [(7, 3, 4), (2 * 20 * (4 + 5 + 2) + 2 * 20 * (10 + 5 + 2),), (4, 3, 5), (4, 3, 5)] and outs == [(7, 3, 10)]
    with pytest.raises(ShapeError, match=r"RNN: parameters \(7,\) must be \(1120,\) for 2 layers of 5 lstm cells in 2"):
        net.infer_shape(data=(7, 3, 4), r_parameters=(7,))
    with pytest.raises(ShapeError, match=r"RNN: data \(7, 3\) has 2 axes; it must be \[steps, batch, inputs\]"):
        net.infer_shape(data=(7, 3))


@pytest.mark.parametrize("wrong, message", [
    ({"state_size": 0}, "RNN: state_size=0, num_layers=2 must be at least 1"),
    ({"p": 1.0}, "RNN: p=1.0 must be a probability below 1"),
    ({"lstm_state_clip_min": 1.0}, "lstm_state_clip_min=1.0 and lstm_state_clip_max=None must be given together"),
    ({"projection_size": 3}, "RNN: projection_size=3: RNN has no projections. Use gluon.rnn.LSTM"),
    ({"use_sequence_length": True}, "RNN: use_sequence_length is not supported"),
])
def test_wrong_parameters(wrong, message):
    with pytest.raises(ParameterError, match=message):
        mx.sym.RNN(mx.sym.Variable("data"), **{**settings("lstm", False), **wrong})


@pytest.mark.parametrize("mode,both", CASES)
def test_inference_in_a_graph_keeps_nothing_for_backward(mode, both):
    """The same outputs as in training, from two layers' scratch; what backward would need takes no planned memory."""
    v = mx.sym.Variable
    given = [wave(s, k).astype("f") for k, s in enumerate(shapes(mode, both, 3))]
    names = ["data", "parameters", "state", "state_cell"][:len(given)]
    y = mx.sym.RNN(*map(v, names), state_size=H, num_layers=3, mode=mode, bidirectional=both, p=0.0, state_outputs=True)
    ex = mx.sym.Group(list(y)).bind(mx.cpu(), dict(zip(names, map(mx.nd.array, given))), grad_req="null")
    inferred = [a.asnumpy() for a in ex.forward(is_train=False)]
    trained = [a.asnumpy() for a in ex.forward(is_train=True)]
    for a, b in zip(inferred, trained):
        np.testing.assert_array_equal(a, b)
    assert ex.memory_plan().planned_bytes == sum(a.nbytes for a in inferred)
    dropped = mx.sym.RNN(*map(v, names), state_size=H, num_layers=3, mode=mode, bidirectional=both, p=0.5)
    ex = dropped.bind(mx.cpu(), dict(zip(names, map(mx.nd.array, given))), grad_req="null")
    np.testing.assert_array_equal(ex.forward(is_train=False)[0].asnumpy(), inferred[0])
