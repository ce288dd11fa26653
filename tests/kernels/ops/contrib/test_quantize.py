"""Eight-bit numbers and their ranges. Oracle: Python's own rounding, number by number. Values of MXNet:
tests/test_golden_operators.py."""

import importlib.util
from typing import Any

import numpy as np
import pytest
import tritium as mx
from tritium.errors import DTypeError, ParameterError
from tritium.kernels.gpu.codegen_checks import wrong_with
from tritium.kernels.gpu.compile import build
from tritium.kernels.gpu.record import FakeArray, FakeRun, record
from tritium.kernels.kernel import HostRun
from tritium.kernels.op import Req, Spec, compiled, get

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


ENDS, RANGE = [((1,), "float32")] * 2, {"min_calib_range": -1.0, "max_calib_range": 2.0}
USES = [("quantize", [((5,), "float32"), *ENDS], {"out_type": "int8"}), ("quantize_v2", [((5,), "float32")], {}),
        ("quantize_v2", [((5,), "uint8")], {}), ("quantize_v2", [((5,), "float32")], RANGE),
        ("dequantize", [((5,), "int8"), *ENDS], {}), ("requantize", [((5,), "int32"), *ENDS], {}),
        ("requantize", [((5,), "int32"), *ENDS], RANGE)]


def specs(op, p, inputs):
    ins = [Spec(s, np.dtype(d)) for s, d in inputs]
    shapes, dtypes = op.infer_shape(p, [s.shape for s in ins])[1], op.infer_dtype(p, [s.dtype for s in ins])[1]
    return ins, [Spec(tuple(s), np.dtype(d)) for s, d in zip(shapes, dtypes)]


@pytest.mark.parametrize("target", ["cpu", "gpu"])
@pytest.mark.parametrize("name, inputs, params", USES)
def test_results_are_added_and_left_out_as_requested(name, inputs, params, target, rng):
    torch = pytest.importorskip("torch")
    if target == "gpu" and mx.context.GPU_MODE != "interpret":
        pytest.skip("reads the memory of an interpreted GPU")

    class Run(HostRun):
        def workspace(self, shape, dtype):
            made = np.empty(shape, dtype)
            return torch.from_numpy(made) if target == "gpu" else made

    op = get(f"_contrib_{name}")
    p = op.parse(params)
    ins, outs = specs(op, p, inputs)
    x = [rng.integers(-9, 9, s.shape).astype(s.dtype) for s in ins]

    def run(reqs):
        made: list[Any] = [None if r == Req.NULL else np.full(s.shape, 1, s.dtype) for s, r in zip(outs, reqs)]
        given = [[a if a is None or target == "cpu" else torch.from_numpy(a) for a in group] for group in (x, made)]
        compiled(op, p, tuple(ins), tuple(outs), tuple(reqs), target, False)(Run(), *given)
        return made

    plain = run([Req.WRITE] * len(outs))
    for i in range(len(outs)):
        found = run([Req.ADD if k == i else Req.NULL for k in range(len(outs))])
        np.testing.assert_array_equal(found[i], plain[i] + 1)


def faults(target, name, inputs, params):
    op = get(f"_contrib_{name}")
    p = op.parse(params)
    ins, outs = specs(op, p, inputs)
    with record(target) as recorder:
        arrays = [[FakeArray(s.shape, s.dtype) for s in group] for group in (ins, outs)]
        op.kernel(p, ins, outs, (Req.WRITE,) * len(outs), "gpu", False)(FakeRun(), *arrays)
    assert recorder.jobs
    return [w for job, (_, made) in zip(recorder.jobs, sorted(build(recorder.jobs, timeout=120), key=lambda pair: pair[0]))
            for w in ([made] if isinstance(made, Exception) else wrong_with(job, made))]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_kernels_compile_without_faults():
    assert not faults(90, *USES[-1])


@pytest.mark.nightly
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize("target", [80, 90, 100])
@pytest.mark.parametrize("name, inputs, params", USES)
def test_all_kernels_compile_for_every_target(name, inputs, params, target):
    assert not faults(target, name, inputs, params)


def test_not_a_number_becomes_zero(ctx):
    x = mx.nd.array([np.nan, 1, np.inf, -np.inf], ctx=ctx)
    assert C.quantize(x, one(-1, ctx), one(1, ctx), out_type="int8")[0].asnumpy().tolist() == [0, 127, 127, -128]


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
