"""BucketingModule: one set of parameters for networks of several lengths. Oracle: a Module, or NumPy."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import MXNetError, ParameterError

HIDDEN = 5


def network(length):
    """A network for any length: the mean over time of a fully connected layer."""
    x = mx.sym.Reshape(mx.sym.Variable("data"), shape=(-1, 3))
    x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=HIDDEN, name="fc"), act_type="tanh")
    x = mx.sym.mean(mx.sym.Reshape(x, shape=(-1, length, HIDDEN)), axis=1)
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=2, name="out"), name="softmax"), ("data",), ("softmax_label",)


def batch(length, rng, n=4):
    data, label = rng.normal(size=(n, length, 3)).astype("f"), rng.integers(0, 2, n).astype("f")
    shapes = [mx.io.DataDesc("data", data.shape)], [mx.io.DataDesc("softmax_label", label.shape)]
    return mx.io.DataBatch([mx.nd.array(data)], [mx.nd.array(label)], bucket_key=length, provide_data=shapes[0],
                           provide_label=shapes[1])


def ready(rng, **settings):
    module = mx.mod.BucketingModule(network, default_bucket_key=6, **settings)
    first = batch(6, rng)
    module.bind(first.provide_data, first.provide_label)
    mx.random.seed(0)
    module.init_params(mx.init.Xavier())
    return module


def test_all_buckets_train_the_same_weights(rng):
    """Oracle: a new Module for each step, with the weights of the previous step."""
    module = ready(rng)
    module.init_optimizer(optimizer_params={"learning_rate": 0.5})
    params = {k: v.asnumpy() for k, v in module.get_params()[0].items()}
    for length in (2, 6, 3, 2, 6):
        given = batch(length, rng)
        module.forward_backward(given)
        module.update()
        symbol, data, label = network(length)
        plain = mx.mod.Module(symbol, data, label)
        plain.bind(given.provide_data, given.provide_label)
        plain.set_params({k: mx.nd.array(v) for k, v in params.items()}, {})
        plain.init_optimizer(optimizer_params={"learning_rate": 0.5})
        plain.forward_backward(given)
        plain.update()
        params = {k: v.asnumpy() for k, v in plain.get_params()[0].items()}
        for name, value in module.get_params()[0].items():
            assert_close(value, params[name])


def test_buckets_share_arrays_and_memory(rng):
    module = ready(rng)
    for length in (2, 6, 3):
        module.forward(batch(length, rng), is_train=True)
        module.backward()
    first, *others = (m._exec_group.execs[0] for m in module._buckets.values())
    for other in others:
        assert other.arg_dict["fc_weight"] is first.arg_dict["fc_weight"]
        assert other.grad_dict["fc_weight"] is first.grad_dict["fc_weight"]
        assert other.arena is first.arena


def test_prepare_stays_in_the_bucket(rng):
    module = ready(rng)
    module.prepare(batch(3, rng))
    assert set(module._buckets) == {6, 3} and module._curr_bucket_key == 6


def test_a_loaded_checkpoint_gives_the_same_outputs(rng, tmp_path):
    module = ready(rng)
    short = batch(3, rng)
    module.forward(short, is_train=False)
    want = module.get_outputs()[0].asnumpy()
    module.save_checkpoint(str(tmp_path / "net"), 4)
    again = mx.mod.BucketingModule.load(str(tmp_path / "net"), 4, network, default_bucket_key=6)
    first = batch(6, rng)
    again.bind(first.provide_data, first.provide_label, for_training=False)
    again.forward(short, is_train=False)
    assert np.array_equal(again.get_outputs()[0].asnumpy(), want)


def test_names_are_known_before_bind():
    module = mx.mod.BucketingModule(network, 6)
    assert module.output_names == ["softmax_output"] and module.data_names == ["data"]


@pytest.mark.parametrize("call, error, text", [
    (lambda rng: mx.mod.BucketingModule(network), ParameterError, "BucketingModule: default_bucket_key is missing"),
    (lambda rng: mx.mod.BucketingModule(network, 6).forward(batch(2, rng)), MXNetError,
     r"BucketingModule.forward: the module has no arrays yet. Call bind"),
    (lambda rng: mx.mod.BucketingModule(network, 6).data_shapes, MXNetError, "BucketingModule: the module has no arrays yet"),
    (lambda rng: mx.mod.BucketingModule(network, 6).bind([], shared_module=ready(rng)), ParameterError,
     "BucketingModule.bind: a BucketingModule takes no shared_module"),
    (lambda rng: mx.mod.BucketingModule.load_dict(default_bucket_key=6), ParameterError, "give either sym_dict or sym_gen"),
])
def test_errors(call, error, text, rng):
    with pytest.raises(error, match=text):
        call(rng)
