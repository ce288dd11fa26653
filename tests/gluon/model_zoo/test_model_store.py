"""Published parameters: the file's place and name, its check, and no fetching."""

import hashlib

import numpy as np
import pytest
import tritium as mx
from tritium.gluon.model_zoo import model_store, vision


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A folder with the published file of squeezenet1.1, which is one that this test publishes."""
    net = vision.squeezenet1_1(classes=3)
    net.initialize()
    net.infer_shape(mx.nd.zeros((1, 3, 224, 224)))
    for p in net.collect_params().values():
        p._finish_deferred_init()
    net.save_parameters(str(tmp_path / "p"))
    sha1 = hashlib.sha1((tmp_path / "p").read_bytes()).hexdigest()
    monkeypatch.setitem(model_store._model_sha1, "squeezenet1.1", sha1)
    (tmp_path / "p").rename(tmp_path / f"squeezenet1.1-{sha1[:8]}.params")
    return tmp_path, net


def test_pretrained_reads_the_file(published):
    root, net = published
    for make in (vision.squeezenet1_1, lambda **kw: vision.get_model("SqueezeNet1.1", **kw)):
        got = make(pretrained=True, root=str(root), classes=3, ctx=mx.cpu(0))
        for name, p in net._collect_params_with_prefix().items():
            np.testing.assert_array_equal(got._collect_params_with_prefix()[name].data().asnumpy(), p.data().asnumpy())


def test_purge_deletes_parameters_alone(published):
    root, _ = published
    (root / "other").write_text("")
    model_store.purge(str(root))
    assert [p.name for p in root.iterdir()] == ["other"]


def test_the_default_folder_is_mxnets(monkeypatch, tmp_path):
    monkeypatch.setenv("MXNET_HOME", str(tmp_path))
    with pytest.raises(mx.MXNetError) as e:
        model_store.get_model_file("alexnet")
    assert f"{tmp_path}/models/alexnet-44335d1f.params does not exist. Put the parameters of alexnet there" in str(e.value)


@pytest.mark.parametrize("name, call", [
    ("resnet18_v1-a0666292", lambda root: vision.resnet18_v1(pretrained=True, root=root)),
    ("mobilenetv2_0.5-aabd26cd", lambda root: vision.mobilenet_v2_0_5(pretrained=True, root=root)),
    ("mobilenet1.0-6b8c5106", lambda root: vision.mobilenet1_0(pretrained=True, root=root)),
    ("vgg11_bn-ee79a809", lambda root: model_store.get_model_file("vgg11_bn", root)),
])
def test_a_missing_file_is_named(name, call, tmp_path):
    with pytest.raises(mx.MXNetError, match=rf"{tmp_path}/{name}\.params does not exist.*Nothing is fetched"):
        call(str(tmp_path))


def test_another_file_is_refused(tmp_path):
    (tmp_path / "alexnet-44335d1f.params").write_bytes(b"something else")
    with pytest.raises(mx.MXNetError, match="is not the published file: its SHA-1 is not 44335d1f0046"):
        vision.alexnet(pretrained=True, root=str(tmp_path))


@pytest.mark.parametrize("call, message", [
    (lambda: vision.get_model("resnet19_v1"), "get_model: no network is called 'resnet19_v1'. There are alexnet, densenet121"),
    (lambda: model_store.short_hash("alexnets"), "no parameters of 'alexnets' were published. Did you mean 'alexnet'"),
    (lambda: vision.get_resnet(1, 20), "get_resnet: num_layers=20 is not one of 18, 34"),
    (lambda: vision.get_resnet(3, 18), "get_resnet: version=3 is not one of 1, 2"),
    (lambda: vision.SqueezeNet("2.0"), "SqueezeNet: version='2.0' is not one of '1.0', '1.1'"),
    (lambda: vision.VGG([1], [2, 3]), "VGG: 1 numbers of layers and 2 of filters"),
    (lambda: vision.ResNetV1(vision.BasicBlockV1, [1], [8]), r"ResNetV1: layers \[1\] and channels \[8\]. There is one more"),
])
def test_errors(call, message):
    with pytest.raises(mx.MXNetError, match=message):
        call()
