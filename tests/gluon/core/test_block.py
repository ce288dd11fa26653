"""Block: names, children, parameters, hooks and files."""

import copy
import json
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from golden.gluon_core import cases
from tritium import gluon
from tritium.gluon import nn

GOLDEN = Path(__file__).parents[2] / "golden" / "gluon_core"
KNOWN = json.loads((GOLDEN / "outputs.json").read_text())


def mlp(prefix=None):
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(nn.Dense(4, activation="tanh", in_units=5), nn.Dense(3, in_units=4))
    net.initialize(mx.init.Constant(0.1))
    return net


class Net(gluon.Block):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.a, self.b = nn.Dense(2, in_units=5), nn.Dense(2, in_units=2, prefix="mine_")
            self.scale = self.params.get("scale", shape=(1,), init="ones")

    def forward(self, x):
        return self.b(self.a(x)) * self.scale.data()


X = mx.nd.array(np.random.RandomState(3).rand(4, 5))


# ---- names ------------------------------------------------------------------------------------------------------------
def test_names_are_counted_by_scope():
    with mx.name.NameManager():
        net, other = Net(), Net()
        assert (net.prefix, other.prefix, net.name) == ("net0_", "net1_", "net0")
        assert list(net.collect_params().keys()) == ["net0_scale", "net0_dense0_weight", "net0_dense0_bias", "net0_mine_weight",
                                                     "net0_mine_bias"]
        assert list(net.collect_params(".*bias").keys()) == ["net0_dense0_bias", "net0_mine_bias"]
        assert list(net._collect_params_with_prefix()) == ["scale", "a.weight", "a.bias", "b.weight", "b.bias"]
        assert nn.Dense(1).prefix == "dense0_" and nn.Dense(1, prefix="").collect_params().prefix == ""


def test_the_names_of_mxnet():
    net = cases.network(mx)
    net.initialize()
    net(cases.data(mx)[0])
    assert list(net.collect_params().keys()) == KNOWN["parameters"]
    assert list(net._collect_params_with_prefix()) == KNOWN["structural"]
    assert repr(net.collect_params()) == KNOWN["repr"]


def test_parameters_are_shared_by_params():
    first = nn.Dense(5, in_units=5, prefix="a_")
    second = nn.Dense(5, in_units=5, params=first.collect_params())
    assert second.weight is first.weight and second.prefix != first.prefix
    assert list(second.collect_params().keys()) == ["a_weight", "a_bias"]


# ---- attributes -------------------------------------------------------------------------------------------------------
def test_attributes_become_children_and_keep_their_type():
    net = Net()
    assert list(net._children) == ["a", "b"] and list(net._reg_params) == ["scale"]
    with pytest.raises(TypeError, match=r"Changing attribute type for a from .*Dense.* to .*int.* is not allowed"):
        net.a = 3
    with pytest.raises(AssertionError, match="Overriding Parameter attribute scale is not allowed"):
        net.scale = net.params.get("other", shape=(1,))
    net.a = nn.Dense(7)
    assert net._children["a"] is net.a
    assert repr(Net(prefix="n_")) == "Net(\n  (a): Dense(5 -> 2, linear)\n  (b): Dense(2 -> 2, linear)\n)"


def test_a_list_of_blocks_is_not_registered():
    net = Net()
    net.parts = [nn.Dense(2)]
    with pytest.warns(UserWarning, match='"Net.parts" is an unregistered container with Blocks'):
        net.collect_params()
    net.register_child(net.parts[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net.collect_params()


def test_apply_and_cast():
    seen = []
    net = Net()
    assert net.apply(lambda b: seen.append(type(b).__name__)) is net and seen == ["Dense", "Dense", "Net"]
    net.initialize()
    net.cast("float64")
    assert net(X.astype("float64")).dtype == np.float64


def test_hooks():
    seen = []
    net = mlp()
    before = net.register_forward_pre_hook(lambda block, inputs: seen.append(("before", len(inputs))))
    with net.register_forward_hook(lambda block, inputs, outputs: seen.append(("after", outputs.shape))):
        net(X)
    net(X)
    before.detach()
    before.detach()
    net(X)
    assert seen == [("before", 1), ("after", (4, 3)), ("before", 1)]


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_a_copy_has_parameters_of_its_own(copied, hybrid):
    net = mlp("m_")
    net.hybridize(hybrid)
    net(X)
    other = copied(net)
    assert np.array_equal(other(X).asnumpy(), net(X).asnumpy()) and other.prefix == "m_"
    trainer = gluon.Trainer(other.collect_params(), "sgd", {"learning_rate": 1.0})
    with mx.autograd.record():
        y = other(X).sum()
    y.backward()
    trainer.step(1)
    assert not np.array_equal(other(X).asnumpy(), net(X).asnumpy()) and not net[0].weight.grad().asnumpy().any()


def test_forward_must_be_written():
    with pytest.raises(NotImplementedError, match="Block: forward is not written"):
        gluon.Block()(X)


# ---- summary ------------------------------------------------------------------------------------------------------------
def test_summary(capsys):
    net = mlp()
    net.summary(X)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["Layer", "(type)", "Output", "Shape", "Param", "#"]
    assert [tuple(line.split()) for line in lines[3:7]] == [
        ("Input", "(4,", "5)", "0"), ("Activation-1", "(4,", "4)", "0"), ("Dense-2", "(4,", "4)", "24"),
        ("Dense-3", "(4,", "3)", "15")]
    assert "   Total params: 39" in lines and "Unique parameters in model: 39" in lines
    net.hybridize()
    with pytest.raises(AssertionError, match="must not be hybridized to print summary"):
        net.summary(X)
    assert not net._forward_hooks


def test_summary_before_the_shapes_are_known(capsys):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, activation="relu"), nn.Dense(3, activation="tanh"))
    net.initialize()
    net.summary(mx.nd.ones((2, 3, 8, 8)))  # MXNet has two more lines, of the activations' traces: `<Symbol conv0_relu_fwd>`
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[3:8]]
    assert [(r[0], r[-1]) for r in rows] == [("Input", "0"), ("Activation-1", "0"), ("Conv2D-2", "112"), ("Activation-3", "0"),
                                             ("Dense-4", "435")]


# ---- files ------------------------------------------------------------------------------------------------------------
def test_parameters_are_saved_by_structure(tmp_path):
    file = str(tmp_path / "net.params")
    net = mlp()
    net.save_parameters(file)
    assert sorted(mx.nd.load(file)) == ["0.bias", "0.weight", "1.bias", "1.weight"]
    other = mlp("other_")
    other.initialize(mx.init.Zero(), force_reinit=True)
    other.load_parameters(file)
    assert np.array_equal(other(X).asnumpy(), net(X).asnumpy())
    with pytest.raises(AssertionError, match=r"Parameter 'a.weight' is missing in file '.*net.params', which contains"):
        pair = nn.HybridSequential()
        pair.a = nn.Dense(4, in_units=5)
        pair.load_parameters(file)
    one = nn.HybridSequential()
    one.add(nn.Dense(4, in_units=5))
    with pytest.raises(ValueError, match=r"Parameter '1.\w+' loaded from file .* is not present in this Block"):
        one.load_parameters(file)
    one.load_parameters(file, ignore_extra=True)
    net.add(nn.Dense(2, in_units=3))
    net.load_parameters(file, allow_missing=True)


def test_shared_parameters_are_saved_once_if_asked(tmp_path):
    file = str(tmp_path / "net.params")
    first = nn.Dense(5, in_units=5, prefix="a_")
    net = nn.HybridSequential()
    net.add(first, nn.Dense(5, in_units=5, params=first.collect_params()))
    net.initialize()
    net.save_parameters(file)
    assert len(mx.nd.load(file)) == 4
    net.save_parameters(file, deduplicate=True)
    assert sorted(mx.nd.load(file)) == ["1.bias", "1.weight"]
    net.load_parameters(file)


def test_older_files(tmp_path):
    file = str(tmp_path / "net.params")
    net, other = mlp("a_"), mlp("b_")
    with pytest.warns(UserWarning, match="save_params is deprecated"):
        net.save_params(file)
    assert sorted(mx.nd.load(file)) == ["dense0_bias", "dense0_weight", "dense1_bias", "dense1_weight"]
    with pytest.warns(UserWarning, match="load_params is deprecated"):
        other.load_params(file)
    assert np.array_equal(other(X).asnumpy(), net(X).asnumpy())


@pytest.mark.parametrize("file", ["net.params", "prefixed.params"])
def test_files_that_mxnet_wrote(file):
    net = cases.network(mx)
    net.load_parameters(str(GOLDEN / file))
    np.testing.assert_allclose(net(cases.data(mx)[0]).asnumpy(), KNOWN["outputs"], rtol=1e-5)


def test_save_and_load_of_a_model(tmp_path):
    prefix = str(tmp_path / "model")
    net = mlp()
    net.hybridize()
    net(X)
    net.save(prefix)
    tree = json.loads(Path(f"{prefix}-model.json").read_text())
    top = tree["hybridsequential0"]
    assert top["hybridized"] and list(top["children"].values()) == ["0", "1"] and "dense1" in top
    other = mlp()
    other.initialize(mx.init.Zero(), force_reinit=True)
    other.load(prefix)
    assert other._active and np.array_equal(other(X).asnumpy(), net(X).asnumpy())
    with pytest.raises(ValueError, match="there is no block dense0 where this model has one"):
        nn.Dense(3).load(prefix)
    Path(f"{prefix}-model.json").write_text("{")
    with pytest.raises(ValueError, match="it is not the JSON of a model"):
        other.load(prefix)
