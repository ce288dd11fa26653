"""Optimizer steps for many arrays in one launch, against each array by itself in float64; under guard pages."""

import types

import numpy as np
import pytest
from support.guard_pages import dies_of, guarded
from tritium.errors import ParameterError
from tritium.kernels import op as ops
from tritium.kernels.gpu.load import INTERPRET
from tritium.kernels.ops.optimizer.mixed_precision import mixed
from tritium.kernels.ops.optimizer.triton_multi import many_update, tables

pytestmark = pytest.mark.skipif(not INTERPRET, reason="needs TRITIUM_GPU=interpret")
RUN = types.SimpleNamespace(stream=None)
SHAPES = [(8,), (32, 3), (100, 8), (3000,), (24,)]  # whose last byte ends at a page and whose first divides by 16
F32, F16 = np.dtype("float32"), np.dtype("float16")
NUMBERS = {"sgd_update": ("lr", "wd", "rescale"), "sgd_mom_update": ("lr", "momentum", "wd", "rescale"),
           "adam_update": ("lr", "beta1", "beta2", "epsilon", "wd", "rescale")}
CLIP = 0.3


def by_hand(rule, w, g, states, p):
    """The rule, written out. p: {name: value}."""
    w, g = w.astype("float64"), g.astype("float64") * p["rescale"]
    if rule == "adam_update":
        g = (g + p["wd"] * w).clip(-CLIP, CLIP)
        mean = p["beta1"] * states[0] + (1 - p["beta1"]) * g
        var = p["beta2"] * states[1] + (1 - p["beta2"]) * g * g
        return w - p["lr"] * mean / (np.sqrt(var) + p["epsilon"]), [mean, var]
    g = g.clip(-CLIP, CLIP) + p["wd"] * w
    if rule == "sgd_update":
        return w - p["lr"] * g, []
    mom = p["momentum"] * states[0] - p["lr"] * g
    return w + mom, [mom]


def printed(rule, half=False):
    op = ops.get(rule)
    p = op.parse({"lr": 0.1, "clip_gradient": CLIP})
    assert [d.name.removesuffix("_grad") for d in op.params if d.kind == "scalar"] == list(NUMBERS[rule])
    if half:  # gradient, states, the float32 weight -> the weight
        op = mixed(op)
        ins = [F16, *[F32] * (len(op.input_names) - 1)]
        return many_update(op.name, op.expression(p, ins), ins, F16)
    ins = [F32] * len(op.input_names)
    return many_update(op.name, op.expression(p, ins), ins, None)


def step(rule, rng, half=False):
    many = printed(rule, half)
    many = type(many)(many.kernel, many.rows, many.columns, 256)  # several programs for the larger arrays
    n_states = len(NUMBERS[rule]) // 2 - 1
    weights, grads, *states = [[guarded(np.abs(rng.normal(size=s)).astype("float16" if half and i == 1 else "float32"))
                                for s in SHAPES] for i in range(2 + n_states)]
    rows, rounded = [weights, grads, *states], [guarded(np.zeros(s, "float16")) for s in SHAPES]
    if half:
        rows = [grads, *states, weights, rounded]
    scalars = rng.uniform(0.1, 0.9, size=(len(SHAPES), len(NUMBERS[rule])))
    want = [by_hand(rule, weights[t], grads[t], [s[t] for s in states], dict(zip(NUMBERS[rule], scalars[t])))
            for t in range(len(SHAPES))]
    where = tables([[a.ctypes.data for a in row] for row in rows], [int(np.prod(s)) for s in SHAPES], many.block)
    many.launch(None, *map(guarded, (*where, many.numbers(scalars))))
    for t, (weight, kept) in enumerate(want):
        np.testing.assert_allclose(weights[t], weight, rtol=2e-6, atol=1e-6)  # another order of operations
        for found, state in zip(states, kept):
            np.testing.assert_allclose(found[t], state, rtol=1e-5, atol=1e-6)  # another order of operations
        if half:
            assert np.array_equal(rounded[t], weights[t].astype("float16"))


@pytest.mark.parametrize("rule", NUMBERS)
def test_every_array_takes_its_own_step(rule, rng):
    step(rule, rng)


def test_half_weights_keep_float32_beside_them(rng):
    step("sgd_mom_update", rng, half=True)


@pytest.mark.parametrize("rule", NUMBERS)
def test_nothing_beyond_the_arrays_is_touched(rule):
    assert dies_of(lambda: step(rule, np.random.default_rng(0))) == 0


def test_an_address_that_does_not_divide_is_refused():
    with pytest.raises(ParameterError, match=r"update: 1 arrays do not start at a multiple of 16 bytes\. Update them one by one"):
        tables([[64, 40], [32, 48]], [4, 4], 16)
