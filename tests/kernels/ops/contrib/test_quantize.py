"""Eight-bit numbers and their ranges. Oracle: Python's own rounding, number by number. Values of MXNet:
tests/test_golden_operators.py."""

import numpy as np
import pytest
import tritium as mx
from tritium.errors import DTypeError, ParameterError

C = mx.nd.contrib


def one(v, ctx):
    return mx.nd.array([v], ctx=ctx)


@pytest.mark.parametrize("kind, low, high", [("int8", -128, 127), ("uint8", 0, 255)])
def test_numbers_are_rounded_and_cut(kind, low, high, ctx):
    x = [-3.0, -1.0, -0.25, 0.0, 0.1, 0.5, 0.75, 1.0, 2.0]
    numbers, first, last = C.quantize(mx.nd.array(x, ctx=ctx), one(-1, ctx), one(1, ctx), out_type=kind)
    assert numbers.asnumpy().tolist() == [min(max(round(v * (127 if kind == "int8" else 255)), low), high) for v in x]
    assert (numbers.dtype, first.asscalar(), last.asscalar()) == (np.dtype(kind), -1, 1)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3, 4)])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_there_and_back_is_within_half_a_step(shape, kind, ctx, rng):
    x = rng.uniform(0 if kind == "uint8" else -2, 2, size=shape).astype("float32")
    numbers, low, high = C.quantize_v2(mx.nd.array(x, ctx=ctx, dtype="float32"), out_type=kind)
    back = C.dequantize(numbers, low, high)
    assert back.shape == numbers.shape == np.shape(x)
    step = high.asscalar() / (127.5 if kind == "int8" else 255.5)
    np.testing.assert_allclose(back.asnumpy(), x, atol=step * 0.501)  # half a step of the integers


def test_what_is_quantized_stays(ctx):
    numbers, low, high = C.quantize_v2(mx.nd.array([-3, 7], ctx=ctx, dtype="int8"))
    assert (numbers.asnumpy().tolist(), low.asscalar(), high.asscalar()) == ([-3, 7], -127.5, 127.5)


@pytest.mark.parametrize("low, high, kind", [(0.0, 2.0, "uint8"), (-0.5, 2.0, "int8"), (None, None, "int8")])
def test_auto_follows_the_given_range(low, high, kind):
    assert C.quantize_v2(mx.nd.ones((2,)), out_type="auto", min_calib_range=low, max_calib_range=high)[0].dtype == np.dtype(kind)


def test_sums_of_products_become_eight_bits(ctx):
    sums = [-(2**30), 0, 2**28, 2**30]  # of the range -4 … 4: -2, 0, 0.5, 2
    numbers, low, high = C.requantize(mx.nd.array(sums, ctx=ctx, dtype="int32"), one(-4, ctx), one(4, ctx))
    assert (numbers.asnumpy().tolist(), low.asscalar(), high.asscalar()) == ([-127, 0, 32, 127], -2, 2)
    numbers, low, high = C.requantize(mx.nd.array(sums, ctx=ctx, dtype="int32"), one(-4, ctx), one(4, ctx), out_type="uint8",
                                      min_calib_range=0.0, max_calib_range=1.0)
    assert (numbers.asnumpy().tolist(), low.asscalar(), high.asscalar()) == ([0, 0, 128, 255], 0, 1)


def test_zeros_stay_zeros(ctx):
    assert C.quantize_v2(mx.nd.zeros((3,), ctx=ctx))[0].asnumpy().tolist() == [0, 0, 0]


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: C.dequantize(mx.nd.ones((2,)), mx.nd.ones((1,)), mx.nd.ones((1,))),
     DTypeError, "_contrib_dequantize: data is float32. It must be int8 or uint8"),
    (lambda: C.requantize(mx.nd.ones((2,)), mx.nd.ones((1,)), mx.nd.ones((1,))),
     DTypeError, "_contrib_requantize: data is float32. It must be int32"),
    (lambda: C.quantize_v2(mx.nd.ones((2,)), min_calib_range=1),
     ParameterError, r"min_calib_range=1\.0 and max_calib_range=None must be given both, in order"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()
