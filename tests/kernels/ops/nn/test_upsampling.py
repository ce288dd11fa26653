"""UpSampling: against MXNet, repeated by hand, bilinear as a Deconvolution, gradients, requests, errors."""

from functools import partial

import numpy as np
import pytest
import tritium as mx
from support.guard_pages import dies_of, guarded
from support.layer_helpers import TARGETS, check_golden, check_gradient, check_requests, close, forward, golden_cases
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops
from tritium.kernels.declare.index_kernel import index_kernel
from tritium.kernels.kernel import HostRun
from tritium.kernels.op import Req, Spec
from tritium.kernels.ops.nn.upsampling import _block_sum


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("UpSampling")])
def test_golden(m, z, target):
    check_golden(m, z, target)


def grown(x, h, w):
    return x.repeat(h // x.shape[2], axis=2).repeat(w // x.shape[3], axis=3)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("how", ["concat", "sum"])
def test_nearest(how, target, rng):
    xs = [rng.standard_normal(s) for s in ((2, 3, 4, 2), (2, 3, 2, 4), (2, 3, 1, 1))]
    params = {"num_args": 3, "scale": 2, "sample_type": "nearest", "multi_input_mode": how}
    parts = [grown(x, 8, 4) for x in xs]
    want = np.concatenate(parts, axis=1) if how == "concat" else sum(parts)
    close(forward("UpSampling", xs, target, **params)[0], want)
    check_gradient("UpSampling", xs, rng, target, **params)
    check_requests("UpSampling", xs, [rng.standard_normal(want.shape)], target, **params)


@pytest.mark.skipif("gpu" not in TARGETS, reason="needs TRITIUM_GPU=interpret")
@pytest.mark.parametrize("factors", [(2, 2), (1, 4), (3, 3), (2, 1), (1, 32)], ids=str)
@pytest.mark.parametrize("columns", [5, 48])
def test_sums_of_blocks_stay_inside_their_arrays(factors, columns):
    kh, kw = factors
    h = 4 // kh
    dy = np.random.default_rng(0).standard_normal((1, 5, h * kh, columns * kw)).astype("f4")  # channels 2 and on are looked at
    body = partial(_block_sum, begin=2, size=factors)
    specs = [Spec(dy.shape, dy.dtype)], [Spec((1, 3, h, columns), dy.dtype)]
    kernel = index_kernel(body, *specs, [Req.ADD], "gpu", "block_sum")

    def total():
        x, y = guarded(dy), guarded(np.ones((1, 3, h, columns), "f4"))
        kernel(HostRun(), [x], [y])
        return y

    assert dies_of(total) == 0
    blocks = dy[:, 2:].astype("f8").reshape(1, 3, h, kh, columns, kw)
    close(total(), (1 + blocks.sum((3, 5))).astype("f4"))


@pytest.mark.parametrize("target", TARGETS)
def test_bilinear(target, rng):
    x, params = np.arange(4, dtype="f4").reshape(1, 1, 2, 2), {"num_args": 2, "sample_type": "bilinear", "num_filter": 1}
    want = [[0, 1, 1, 1], [2, 6, 6, 4], [2, 6, 6, 4], [2, 5, 5, 3]]  # MXNet 1.9.1 printed these
    close(forward("UpSampling", [x, np.ones((1, 1, 4, 4), "f4")], target, scale=2, **params)[0][0, 0], np.array(want, "f4"))
    weight = np.arange(25, dtype="f4").reshape(1, 1, 5, 5)
    want = [[0, 0, 5, 6, 7, 8], [0, 0, 10, 11, 12, 13], [2, 4, 21, 27, 23, 27], [12, 14, 51, 57, 43, 47],
            [22, 24, 56, 61, 36, 39], [32, 34, 81, 86, 51, 54]]
    close(forward("UpSampling", [x, weight], target, scale=3, **params)[0][0, 0], np.array(want, "f4"))
    xs = [rng.standard_normal((2, 3, 3, 2)), rng.standard_normal((3, 1, 4, 4))]
    check_gradient("UpSampling", xs, rng, target, scale=2, **{**params, "num_filter": 3})


def test_in_a_graph_the_weight_is_an_argument():
    x = mx.sym.Variable("x")
    net = mx.sym.UpSampling(x, scale=2, sample_type="bilinear", num_filter=3, num_args=1, name="up")
    assert net.list_arguments() == ["x", "up_weight"]
    assert net.infer_shape(x=(2, 3, 4, 5))[:2] == ([(2, 3, 4, 5), (3, 1, 4, 4)], [(2, 3, 8, 10)])


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: forward("UpSampling", [np.zeros((1, 1, 4, 4)), np.zeros((1, 1, 3, 3))], num_args=2, scale=2, sample_type="nearest"),
     ShapeError, r"UpSampling: arg1 \(1, 1, 3, 3\) cannot be enlarged to \[1, ..., 8, 8\]"),
    (lambda: ops.get("UpSampling").parse({"scale": 0, "sample_type": "nearest", "num_args": 1}),
     ParameterError, "UpSampling: scale=0 must be at least 1"),
    (lambda: ops.get("UpSampling").parse({"scale": 2, "sample_type": "bilinear", "num_args": 1}),
     ParameterError, "bilinear takes one array and its weight"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()
