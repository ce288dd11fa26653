"""The networks of gluon.model_zoo.vision: names and shapes of parameters, and outputs, as MXNet 1.9.1 has them."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from golden.gluon.cases import OUTPUTS, fill, noise, parameters, zoo
from tritium.gluon.model_zoo import vision
from tritium.graph.symbol.naming import NameManager

GOLDEN = Path(__file__).parents[2] / "golden" / "gluon"
NETWORKS = json.loads(gzip.decompress((GOLDEN / "zoo.json.gz").read_bytes()))
#: Networks of hundreds of layers, or large images, cost a second or more.
LARGE = {"squeezenet1.1", "densenet121", "inceptionv3", "alexnet", "vgg11", "vgg11_bn", "resnet50_v1", "resnet50_v2"}


def large(names, which):
    return [pytest.param(n, marks=[pytest.mark.nightly] if n in which else []) for n in names]


def test_every_network_is_there():
    assert set(zoo()) == set(NETWORKS) == set(vision._MODELS)


@pytest.mark.parametrize("name", zoo())
def test_parameters_have_mxnets_names_and_shapes(name):
    with NameManager():
        net = vision.get_model(name)
    size = 299 if name == "inceptionv3" else 224
    net.infer_shape(mx.nd.zeros((1, 3, size, size)))
    assert net.prefix == NETWORKS[name]["prefix"]
    assert parameters(net) == NETWORKS[name]["parameters"]


@pytest.mark.parametrize("hybrid", [False, True], ids=["arrays", "hybridized"])
@pytest.mark.parametrize("name", large(OUTPUTS, LARGE))
def test_outputs_are_mxnets(name, hybrid):
    want = json.loads((GOLDEN / "outputs.json").read_text())[name]
    net = vision.get_model(name, classes=10)
    net.initialize()
    x = mx.nd.array(noise((1, 3, OUTPUTS[name], OUTPUTS[name]), 7))
    net.infer_shape(x)
    for p in net.collect_params().values():
        p._finish_deferred_init()
    fill(mx, net, scale_by_fan_in=True)
    if hybrid:
        net.hybridize()
    got = net(x).asnumpy()[0]
    np.testing.assert_allclose(got, want, 2e-4, 2e-4 * np.abs(want).max())
