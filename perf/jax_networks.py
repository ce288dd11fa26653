"""The networks of networks.py in JAX, and a training step of each as one jitted function."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from networks import CLASSES, HIDDEN, SHAPES, STEPS, WORDS, classes

_data = np.random.RandomState(0)


def weight(*shape):
    """Return random numbers of a size that suits what they are summed over."""
    return jnp.asarray(_data.randn(*shape).astype("float32") * (2 / np.prod(shape[:-1])) ** 0.5)


def dense(inputs, outputs):
    return {"w": weight(inputs, outputs), "b": jnp.zeros(outputs)}


def apply_dense(p, x):
    return x @ p["w"] + p["b"]


def conv(w, x, stride=1, pad="SAME"):
    return lax.conv_general_dilated(x, w, (stride, stride), pad, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def pool(x, kernel, stride, pad):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, kernel, kernel, 1), (1, stride, stride, 1), pad)


def batch_norm(channels):
    return {"gamma": jnp.ones(channels), "beta": jnp.zeros(channels)}


def normed(p, x):
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - mean) * lax.rsqrt(var + 2e-5) * p["gamma"] + p["beta"]


def mlp():
    def f(p, x):
        return apply_dense(p[2], jax.nn.relu(apply_dense(p[1], jax.nn.relu(apply_dense(p[0], x.reshape(len(x), -1))))))

    return f, [dense(784, 512), dense(512, 256), dense(256, CLASSES)]


def lenet():
    def f(p, x):
        x = pool(jnp.tanh(conv(p[0]["w"], x, pad="VALID") + p[0]["b"]), 2, 2, "VALID")
        x = pool(jnp.tanh(conv(p[1]["w"], x, pad="VALID") + p[1]["b"]), 2, 2, "VALID")
        return apply_dense(p[3], jnp.tanh(apply_dense(p[2], x.reshape(len(x), -1))))

    return f, [{"w": weight(5, 5, 1, 20), "b": jnp.zeros(20)}, {"w": weight(5, 5, 20, 50), "b": jnp.zeros(50)},
               dense(800, 500), dense(500, CLASSES)]


def resnet20():
    plan, before = [], 16
    for stage, filters in enumerate((16, 32, 64)):
        for unit in range(3):
            plan.append((before, filters, 2 if stage and not unit else 1))
            before = filters
    p = {"conv": weight(3, 3, 3, 16), "bn": batch_norm(64), "out": dense(64, CLASSES), "units": [
        {"b1": batch_norm(i), "c1": weight(3, 3, i, o), "b2": batch_norm(o), "c2": weight(3, 3, o, o),
         **({"sc": weight(1, 1, i, o)} if s > 1 else {})} for i, o, s in plan]}

    def f(p, x):
        x = conv(p["conv"], x)
        for q, (_, _, s) in zip(p["units"], plan):
            a = jax.nn.relu(normed(q["b1"], x))
            y = conv(q["c2"], jax.nn.relu(normed(q["b2"], conv(q["c1"], a, s))))
            x = y + (conv(q["sc"], a, s) if s > 1 else x)
        return apply_dense(p["out"], jax.nn.relu(normed(p["bn"], x)).mean((1, 2)))

    return f, p


def resnet50():
    plan, before = [], 64
    for stage, number in enumerate((3, 4, 6, 3)):
        for unit in range(number):
            plan.append((before, 64 << stage, 2 if stage and not unit else 1))
            before = 256 << stage
    p = {"conv": weight(7, 7, 3, 64), "bn": batch_norm(64), "out": dense(2048, CLASSES), "units": [
        {"c1": weight(1, 1, i, o), "b1": batch_norm(o), "c2": weight(3, 3, o, o), "b2": batch_norm(o),
         "c3": weight(1, 1, o, 4 * o), "b3": batch_norm(4 * o),
         **({} if i == 4 * o else {"sc": weight(1, 1, i, 4 * o), "bs": batch_norm(4 * o)})} for i, o, _ in plan]}

    def f(p, x):
        x = pool(jax.nn.relu(normed(p["bn"], conv(p["conv"], x, 2))), 3, 2, "SAME")
        for q, (_, _, s) in zip(p["units"], plan):
            y = jax.nn.relu(normed(q["b1"], conv(q["c1"], x)))
            y = normed(q["b3"], conv(q["c3"], jax.nn.relu(normed(q["b2"], conv(q["c2"], y, s)))))
            x = jax.nn.relu(y + (normed(q["bs"], conv(q["sc"], x, s)) if "sc" in q else x))
        return apply_dense(p["out"], x.mean((1, 2)))

    return f, p


def lstm(scan=True):
    def cell(p, state, x):
        h, s = state
        i, f, g, o = jnp.split(x + h @ p["h"], 4, -1)
        s = jax.nn.sigmoid(f) * s + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(s)
        return (h, s), h

    def layer(p, x):
        zero = jnp.zeros((x.shape[1], HIDDEN))
        return lax.scan(lambda c, y: cell(p, c, y), (zero, zero), x @ p["w"] + p["b"], unroll=1 if scan else STEPS)[1]

    def f(p, x):
        y = layer(p["l1"], layer(p["l0"], p["embed"][x].swapaxes(0, 1))).swapaxes(0, 1)
        return apply_dense(p["out"], y.reshape(-1, HIDDEN))

    gates = 4 * HIDDEN
    return f, {"embed": weight(WORDS, HIDDEN), "l0": {**dense(HIDDEN, gates), "h": weight(HIDDEN, gates)},
               "l1": {**dense(HIDDEN, gates), "h": weight(HIDDEN, gates)}, "out": dense(HIDDEN, WORDS)}


def lstm_cells():
    return lstm(scan=False)


def _repeated(one):
    def f(p, x):
        x = apply_dense(p[0], x.reshape(len(x), -1))
        for _ in range(100):
            x = one(x)
        return apply_dense(p[1], x)

    return f, [dense(64, 32), dense(32, CLASSES)]


def tiny_deep():
    return _repeated(lambda x: jnp.tanh(x * 1.01 + 0.01))


def chain():
    return _repeated(lambda x: x * 1.001 + 0.001)


def step_of(net, batch):
    """(step, wait): one training step with momentum."""
    function, params = globals()[net]()
    number, label = classes(net)
    words, shape = net.startswith("lstm"), SHAPES[net]
    shape = shape if words else (*shape[1:], shape[0])
    x = _data.randint(0, WORDS, (batch, *shape)) if words else _data.randn(batch, *shape).astype("float32")
    x, y = jnp.asarray(x), jnp.asarray(_data.randint(0, number, (batch, *label)).reshape(-1))

    @jax.jit
    def one(params, momenta, x, y):
        def loss(p):
            return -jnp.take_along_axis(jax.nn.log_softmax(function(p, x)), y[:, None], 1).mean()

        gradients = jax.grad(loss)(params)
        momenta = jax.tree.map(lambda m, g: 0.9 * m + g, momenta, gradients)
        return jax.tree.map(lambda p, m: p - 0.05 * m, params, momenta), momenta

    state = [params, jax.tree.map(jnp.zeros_like, params)]

    def step():
        state[:] = one(*state, x, y)

    return step, lambda: jax.block_until_ready(state)
