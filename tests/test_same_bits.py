"""The same seed gives the same bits: for any number of threads, with an empty or a full cache, in any order of first use."""

import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tritium as mx


def images(unit):
    """A network of convolutions with a unit's worth of BatchNorm, pooling and dropout; shapes large enough for C."""
    x = mx.sym.Convolution(mx.sym.Variable("data"), num_filter=16, kernel=(3, 3), pad=(1, 1), name="conv0")
    for i in range(unit):
        y = mx.sym.Activation(mx.sym.BatchNorm(x, fix_gamma=False, name=f"bn{i}"), act_type="relu")
        x = x + mx.sym.Convolution(y, num_filter=16, kernel=(3, 3), pad=(1, 1), no_bias=True, name=f"conv{i + 1}")
    x = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")
    x = mx.sym.Dropout(mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=64, name="fc"), p=0.3)
    x = mx.sym.FullyConnected(mx.sym.Activation(x, act_type="tanh"), num_hidden=10, name="out")
    return mx.sym.SoftmaxOutput(x, name="softmax"), {"data": (32, 3, 16, 16), "softmax_label": (32,)}


def words():
    """A language model with the fused LSTM."""
    x = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=100, output_dim=48, name="embed")
    y, _ = mx.rnn.FusedRNNCell(48, num_layers=1, mode="lstm", prefix="lstm_").unroll(12, x, layout="NTC", merge_outputs=True)
    y = mx.sym.FullyConnected(mx.sym.Reshape(y, shape=(-1, 48)), num_hidden=100, name="out")
    label = mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
    return mx.sym.SoftmaxOutput(y, label, name="softmax"), {"data": (32, 12), "softmax_label": (32, 12)}


def trained(symbol, shapes):
    """A hash of the weights after three steps, and of the outputs at inference."""
    mx.random.seed(7)
    rng = np.random.default_rng(7)
    top = 100 if "embed_weight" in symbol.list_arguments() else 10
    executor = symbol.simple_bind(mx.cpu(), **shapes)
    for name, array in sorted(executor.arg_dict.items()):
        counted = name == "softmax_label" or (name == "data" and len(shapes["data"]) == 2)
        drawn = rng.integers(0, top, array.shape) if counted else rng.normal(0, 0.2, array.shape)
        array[:] = drawn.astype("float32")
    update = mx.optimizer.get_updater(mx.optimizer.create("sgd", learning_rate=0.05, momentum=0.9, rescale_grad=1 / 32))
    for _ in range(3):
        executor.forward(is_train=True)
        executor.backward()
        for i, name in enumerate(n for n in symbol.list_arguments() if n not in shapes):
            update(i, executor.grad_dict[name], executor.arg_dict[name])
    arrays = [*executor.arg_dict.values(), *executor.aux_dict.values(), *executor.forward(is_train=False)]
    assert all(np.isfinite(a.asnumpy()).all() for a in arrays)
    return hashlib.sha256(b"".join(a.asnumpy().tobytes() for a in arrays)).hexdigest()


def eager():
    """A hash of what single calls and a tape give."""
    mx.random.seed(7)
    x = mx.nd.array(np.random.default_rng(7).normal(size=(300, 1000)))
    w = mx.nd.array(np.random.default_rng(8).normal(size=(40, 1000)))
    w.attach_grad()
    with mx.autograd.record():
        y = mx.nd.log_softmax(mx.nd.tanh(mx.nd.FullyConnected(x, w, num_hidden=40, no_bias=True)))
        loss = (y * mx.nd.Dropout(mx.nd.exp(y), p=0.5)).sum()
    loss.backward()
    some = [w.grad, mx.nd.sum(x, axis=0), mx.nd.sum(x), mx.nd.topk(x, k=3), mx.nd.LayerNorm(x, x[0], x[1]), mx.nd.sort(x, axis=0),
            mx.nd.random.normal(shape=(1000, 100)), mx.nd.broadcast_mul(x, x[2].reshape((1, -1))), mx.nd.transpose(x) * 2]
    return hashlib.sha256(b"".join(a.asnumpy().tobytes() for a in some)).hexdigest()


def report(order):
    """Print the hashes, computed in this order."""
    parts = {"images": lambda: trained(*images(2)), "words": lambda: trained(*words()), "eager": eager}
    print(json.dumps(dict(sorted((name, parts[name]()) for name in order))))


def hashes(order="images,words,eager", **environment):
    """The hashes of a process of its own."""
    text = f"import test_same_bits; test_same_bits.report({order.split(',')!r})"
    given = {**os.environ, "TRITIUM_GPU": "off", **{k: str(v) for k, v in environment.items()}}
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=280,
                          cwd=os.path.dirname(__file__), env=given)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_threads_and_the_order_of_first_use_change_no_bit():
    one = hashes(TRITIUM_NUM_WORKERS=1)
    assert hashes("eager,words,images", TRITIUM_NUM_WORKERS=2) == one
    assert hashes("words,eager,images", TRITIUM_NUM_WORKERS=7) == one


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["auto", "c", "numpy"])
def test_an_empty_cache_changes_no_bit(mode, tmp_path):
    given = {"TRITIUM_CPU_CODE": mode, "TRITIUM_CACHE_DIR": tmp_path}
    cold = hashes(**given)
    assert hashes("eager,images,words", **given, TRITIUM_NUM_WORKERS=7) == cold


def test_the_hashes_depend_on_the_values(monkeypatch):
    first = eager()
    monkeypatch.setattr(np.random, "default_rng", lambda seed, real=np.random.default_rng: real(seed + 1))
    assert eager() != first
