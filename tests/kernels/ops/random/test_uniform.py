"""Random operators and Dropout: the same numbers everywhere, requests, derivative by the mask, errors."""

import numpy as np
import pytest
import tritium as mx
from support.layer_helpers import TARGETS, Run, backward, call, check_golden, close, forward, golden_cases, specs_of
from tritium.errors import DTypeError, ParameterError
from tritium.kernels import op as ops
from tritium.kernels.op import Req
from tritium.kernels.philox import normal, uniform, words

SEED = (1 << 63) + 99, 2**34 + 3  # large ones, and an odd offset


@pytest.mark.parametrize("name, params", [
    ("_random_uniform", {"low": -1, "high": 3}), ("_random_uniform", {"dtype": "float64"}),
    ("_random_uniform", {"dtype": "float16"}),
    ("_random_uniform", {"dtype": "bfloat16"}), ("_random_normal", {"loc": 1, "scale": 2}),
    ("_random_normal", {"dtype": "float64"}),
    ("_random_randint", {"low": -5, "high": 1000}), ("_random_randint", {"low": 0, "high": 2**32, "dtype": "int64"})])
def test_the_same_numbers_everywhere(name, params):
    first = forward(name, [], "cpu", shape=(41, 25), random=SEED, **params)[0]
    op = ops.get(name)
    p = op.parse({"shape": (41, 25), **params})
    turned, _ = call(op, p, [], specs_of(op, p, []), random=SEED, run=Run(backwards=True))
    assert (first == turned[0]).all()
    for target in TARGETS[1:]:
        other = forward(name, [], target, shape=(41, 25), random=SEED, **params)[0]
        if "normal" in name:  # logarithm and cosine may round differently
            close(other, first)
        else:
            assert first.dtype == other.dtype and (first == other).all()


@pytest.mark.parametrize("target", TARGETS)
def test_values_and_requests(target):
    close(forward("_random_uniform", [], target, shape=(9,), low=2, high=4, random=(1, 5))[0], 2 + 2 * uniform(1, 5, 9))
    close(forward("_random_normal", [], target, shape=(9,), loc=2, scale=3, random=(1, 4))[0], 2 + 3 * normal(1, 4, 9))
    drawn = words(1, 5, 9).astype(object)
    want = [int(w) * 1005 // 2**32 - 5 for w in drawn]
    assert forward("_random_randint", [], target, shape=(9,), low=-5, high=1000, random=(1, 5))[0].tolist() == want
    op = ops.get("uniform")
    p = op.parse({"shape": (6,)})
    specs = specs_of(op, p, [])
    assert op.num_random(p, specs) == 6
    wrote = call(op, p, [], specs, random=(1, 0), target=target)[0][0]
    close(call(op, p, [], specs, reqs=[Req.ADD], random=(1, 0), target=target)[0][0], wrote + np.float32(7))
    assert (call(op, p, [], specs, reqs=[Req.NULL], random=(1, 0), target=target)[0][0] == 7).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("Dropout")])
def test_dropout_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("params", [{}, {"p": 0.9}, {"p": 1.0}, {"axes": (1,)}, {"axes": (0, 2)}])
def test_dropout(params, target, rng):
    x = rng.standard_normal((20, 30, 4)).astype("f")
    p = params.get("p", 0.5)
    y, mask = forward("Dropout", [x], target, random=SEED, **params)
    assert mask.shape == tuple(1 if i in params.get("axes", ()) else n for i, n in enumerate(x.shape))
    close(y, np.where(mask, x / np.float32(1 - p) if p < 1 else 0, 0).astype("f"))
    assert abs(mask.mean() - (1 - p)) < 4 * np.sqrt(0.25 / mask.size)
    assert (forward("Dropout", [x], "cpu", random=SEED, **params)[1] == mask).all()
    close(backward("Dropout", [x], [x], target, random=SEED, **params)[0], y)
    close(forward("Dropout", [x], target, train=False, random=SEED, **params)[0], x)


def test_dropout_rate_at_a_low_p():
    mask = forward("Dropout", [np.ones(100000, "f")], p=0.1, random=(1, 0))[1]
    assert abs(mask.mean() - 0.9) < 0.005


@pytest.mark.parametrize("name, params, error, text", [
    ("_random_uniform", {"low": 2, "high": 1}, ParameterError, "low=2.0 is above high=1.0"),
    ("_random_uniform", {"dtype": "int32"}, DTypeError, "dtype int32 is not a floating dtype"),
    ("_random_normal", {"scale": -1}, ParameterError, "scale=-1.0 is negative"),
    ("_random_randint", {"low": 3, "high": 3}, ParameterError, "the range must hold 1 to"),
    ("_random_randint", {"low": 0, "high": 300, "dtype": "int8"}, ParameterError, "do not fit int8"),
    ("Dropout", {"p": 1.5}, ParameterError, "p=1.5 must be a probability: 0 <= p <= 1")])
def test_errors(name, params, error, text):
    with pytest.raises(error, match=text):
        ops.get(name).parse(params)


@pytest.mark.parametrize("name, params", [("_random_uniform", {"shape": (0, 3)}), ("_random_normal", {"shape": (0,)}),
                                          ("_random_randint", {"shape": (2, 0), "low": 0, "high": 5}),
                                          ("_random_gamma", {"shape": (0, 2)})])
def test_nothing_is_drawn_in_a_graph_either(name, params, ctx):
    bound = getattr(mx.sym._internal, name)(**params).bind(ctx, {})
    assert bound.forward()[0].asnumpy().shape == params["shape"]


@pytest.mark.parametrize("name", ["_random_uniform_like", "_shuffle", "_sample_multinomial", "Dropout"])
def test_nothing_is_drawn_for_arrays_of_nothing(name, ctx):
    bound = getattr(mx.sym._internal, name)(mx.sym.Variable("x")).bind(ctx, {"x": mx.nd.ones((0, 4), ctx=ctx)})
    assert bound.forward(is_train=True)[0].asnumpy().size == 0
