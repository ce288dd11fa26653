"""FeedForward, and files of MXNet 0.8 in the processes of a forked pool. Oracle: NumPy."""

import json
import multiprocessing
import struct
import warnings
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import MXNetError, ParameterError, ShapeError
from tritium.examples.digits import load_digits

GOLDEN = Path(__file__).parents[2] / "golden/symbols"


def as_mxnet_08(folder):
    """Write the golden checkpoint in the format of MXNet 0.8: `param` and `backward_source_id`, records without a magic."""
    graph = json.loads((GOLDEN / "digits_mlp-symbol.json").read_text())
    nodes = [{"op": n["op"], "param": {k: v for k, v in n.get("attrs", {}).items() if n["op"] != "null"}, "name": n["name"],
              "inputs": [i[:2] for i in n["inputs"]], "backward_source_id": -1} for n in graph["nodes"]]
    (folder / "old-symbol.json").write_text(json.dumps(
        {"nodes": nodes, "arg_nodes": graph["arg_nodes"], "heads": [h[:2] for h in graph["heads"]]}))
    arrays = {k: v.asnumpy() for k, v in mx.nd.load(str(GOLDEN / "digits_mlp-0020.params")).items()}
    out = struct.pack("<QQQ", 0x112, 0, len(arrays))
    for a in arrays.values():
        out += struct.pack(f"<I{a.ndim}Iiii", a.ndim, *a.shape, 1, 0, 0) + a.tobytes()
    out += struct.pack("<Q", len(arrays)) + b"".join(struct.pack("<Q", len(n)) + n.encode() for n in arrays)
    (folder / "old-0020.params").write_bytes(out)
    return str(folder / "old")


def images():
    return load_digits()[1].images.reshape(-1, 64)


def in_worker(work):
    model, x = work
    return model.predict(x)


def expected(x):
    """The outputs of the network, computed with NumPy in float64."""
    p = {k[4:]: v.asnumpy().astype(np.float64) for k, v in mx.nd.load(str(GOLDEN / "digits_mlp-0020.params")).items()}
    layers = [n.removesuffix("_weight") for n in p if n.endswith("_weight")]
    for i, n in enumerate(layers):
        x = x @ p[f"{n}_weight"].T + p[f"{n}_bias"]
        x = np.maximum(x, 0) if i < len(layers) - 1 else np.exp(x - x.max(1, keepdims=True))
    return x / x.sum(1, keepdims=True)


def test_a_model_of_mxnet_08_predicts_in_this_process_and_in_a_pool(tmp_path):
    prefix = as_mxnet_08(tmp_path)
    mx.nd.ones((300, 300)).asnumpy()  # the engine has threads when the pool forks
    x = images()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns about forks in a process with threads
        with multiprocessing.get_context("fork").Pool(2) as pool:
            model = mx.model.FeedForward.load(prefix, 20, numpy_batch_size=50)
            np.testing.assert_allclose(model.predict(x), expected(x), atol=1e-5)  # closer than the table for large values
            # the model now has executors; they are not pickled
            parts = pool.map_async(in_worker, [(model, x[:100]), (model, x[100:])]).get(60)
    np.testing.assert_allclose(np.concatenate(parts), expected(x), atol=1e-5)  # closer than the table for large values


def net():
    x = mx.sym.Activation(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=32, name="fc1"), act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=10, name="fc2"), name="softmax")


def test_a_model_is_trained_scored_saved_and_loaded(tmp_path):
    training, held_out = (s._replace(images=s.images.reshape(-1, 64)) for s in load_digits())
    mx.random.seed(0)
    np.random.seed(0)
    model = mx.model.FeedForward.create(net(), training.images, training.labels, num_epoch=6, learning_rate=0.2, momentum=0.9,
                                        initializer=mx.init.Xavier(), numpy_batch_size=32,
                                        eval_data=(held_out.images, held_out.labels))
    data = mx.io.NDArrayIter(held_out.images, held_out.labels, 50)
    accuracy = model.score(data)
    assert accuracy > 0.93
    outputs, seen, truth = model.predict(data, return_data=True)
    assert outputs.shape == (360, 10) and np.array_equal(seen, held_out.images) and np.array_equal(truth, held_out.labels)
    assert (outputs.argmax(1) == truth).mean() == pytest.approx(accuracy, abs=1e-6)
    model.save(str(tmp_path / "m"))
    again = mx.model.FeedForward.load(str(tmp_path / "m"), 6)
    assert_close(again.predict(held_out.images), outputs)


def test_epoch_size_limits_the_batches_of_an_epoch():
    training, _ = load_digits()
    seen = []
    model = mx.model.FeedForward(net(), num_epoch=3, epoch_size=4, learning_rate=0.1)
    model.fit(mx.io.NDArrayIter(training.images.reshape(-1, 64), training.labels, 100),
              batch_end_callback=lambda p: seen.append(p.nbatch))
    assert seen == [1, 2, 3, 4] * 3


TWO = np.zeros((2, 64), "f")


@pytest.mark.parametrize("settings, call, error, text", [
    ({}, lambda m: m.predict(TWO), MXNetError, "FeedForward.predict: the model has no parameters yet. Call fit, or load a model"),
    ({}, lambda m: m.fit(TWO, np.zeros(2)), ParameterError, "FeedForward.fit: num_epoch is missing"),
    ({"num_epoch": 1}, lambda m: m.fit(TWO), ParameterError, "FeedForward.fit: y is missing"),
    ({"num_epoch": 1}, lambda m: m.fit(TWO, np.zeros(3)), ShapeError, "X has 2 samples, y has 3"),
    ({"num_epoch": 1}, lambda m: m.fit("data"), ParameterError, "X is a str, neither an array nor a DataIter"),
    ({}, lambda m: m.save("prefix"), ParameterError, "FeedForward.save: epoch is missing"),
    ({"arg_params": {"other": mx.nd.ones(1)}, "aux_params": {}}, lambda m: m.predict(TWO), ParameterError,
     "the network has no parameter 'other'. Pass allow_extra_params=True"),
])
def test_errors(settings, call, error, text):
    with pytest.raises(error, match=text):
        call(mx.model.FeedForward(net(), **settings))
