"""The 420 names that public MXNet programs use most, ranked: each exists, or is an error that says what to do instead.

tests/golden/names/ranked.txt: `a.b` is an attribute of mx, `op:x` of mx.nd or mx.sym, `.x` of an object.
"""

import importlib
from pathlib import Path

import pytest
import tritium as mx
from tritium.errors import NotAvailableError

NAMES = Path(__file__).parent.joinpath("golden/names/ranked.txt").read_text().split()
NOT_MXNETS = {".children": "no class of MXNet 1.9.1 has this attribute"}


def look_up(owner, path):
    for part in path.split("."):
        try:
            owner = getattr(owner, part)
        except AttributeError:
            owner = importlib.import_module(f"{owner.__name__}.{part}")
    return owner


@pytest.fixture(scope="module")
def objects():
    """One object of each class whose methods programs call, bound and initialized so that it has all attributes."""
    x = mx.nd.ones((2, 3))
    x.attach_grad()
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2)
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
    iterator = mx.io.NDArrayIter(mx.nd.ones((4, 3)), mx.nd.zeros(4), batch_size=2)
    module.bind(iterator.provide_data, iterator.provide_label)
    module.init_params()
    module.init_optimizer()
    dense = mx.gluon.nn.Dense(2, in_units=3)
    dense.initialize()
    return [x, net, module, iterator, net.simple_bind(mx.cpu(), data=(2, 3)), mx.optimizer.SGD(), mx.metric.Accuracy(),
            mx.kv.create("local"), mx.monitor.Monitor(1), mx.operator.CustomOp(), dense, dense.weight, dense.collect_params(),
            mx.gluon.Trainer(dense.collect_params(), "sgd"), mx.gluon.rnn.LSTMCell(2), mx.gluon.data.ArrayDataset([1]),
            mx.rnn.LSTMCell(2)]


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith(".")])
def test_a_name_of_a_module_exists_or_says_what_to_use(name):
    try:
        if name.startswith("op:"):
            assert look_up(mx.nd, name[3:]) if has(mx.nd, name[3:]) else look_up(mx.sym, name[3:])
        else:
            assert look_up(mx, name.removesuffix(".*")) is not None
    except NotAvailableError as e:
        assert len(str(e).split(". ")) > 1, f"{e} proposes nothing"


def has(owner, path):
    try:
        return look_up(owner, path) is not None
    except (AttributeError, ImportError):
        return False


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith(".") and n not in NOT_MXNETS])
def test_an_attribute_of_objects_exists(name, objects):
    assert any(hasattr(o, name[1:]) for o in objects), name
