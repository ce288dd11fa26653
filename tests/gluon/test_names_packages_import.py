"""Names that GluonCV and GluonNLP import from inside of gluon, besides the public ones."""

import pickle

import numpy as np
import tritium as mx
from tritium.gluon.data.dataloader import ForkingPickler
from tritium.gluon.model_zoo.vision.resnet import _conv3x3
from tritium.gluon.nn.basic_layers import _BatchNorm
from tritium.gluon.nn.conv_layers import _Conv, _Pooling
from tritium.gluon.utils import replace_file


def test_bases_of_layers():
    nn = mx.gluon.nn
    assert issubclass(nn.BatchNorm, _BatchNorm) and issubclass(nn.Conv3DTranspose, _Conv) and issubclass(nn.AvgPool1D, _Pooling)
    assert _conv3x3(4, 2, 3)._kwargs["pad"] == (1, 1)


def test_a_convolution_derived_from_the_base():
    class Plain(_Conv):
        def __init__(self, channels, kernel_size, **kwargs):
            super().__init__(channels, kernel_size, 1, 0, 1, 1, "NCHW", **kwargs)

    net = Plain(2, (1, 1), in_channels=3)
    net.initialize(mx.init.One())
    np.testing.assert_array_equal(net(mx.nd.ones((1, 3, 2, 2))).asnumpy(), np.full((1, 2, 2, 2), 3))


def test_arrays_pass_through_the_pickler_of_processes():
    array = pickle.loads(bytes(ForkingPickler.dumps(mx.nd.array([1, 2]))))
    np.testing.assert_array_equal(array.asnumpy(), [1, 2])


def test_replace_file(tmp_path):
    (tmp_path / "a").write_text("new")
    (tmp_path / "b").write_text("old")
    replace_file(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "b").read_text() == "new" and not (tmp_path / "a").exists()
