"""Optimizer steps for many arrays in one launch, against each array by itself in float64; under guard pages."""

import types

import numpy as np
import pytest
from guard_pages import dies_of, guarded
from tritium.errors import ParameterError
from tritium.kernels.ops.triton_update import ARRAYS, NUMBERS, tables, update
from tritium.kernels.triton_launch import INTERPRET

pytestmark = pytest.mark.skipif(not INTERPRET, reason="needs TRITIUM_GPU=interpret")
RUN = types.SimpleNamespace(stream=None)
SHAPES = [(8,), (32, 3), (100, 8), (3000,), (24,)]  # whose last byte ends at a page and whose first divides by 16


def by_hand(rule, w, g, states, p):
    """The rule, written out. p: {name: value}."""
    w, g = w.astype("float64"), g.astype("float64") * p["rescale"]
    if p["clip"] > 0:
        g = g.clip(-p["clip"], p["clip"])
    g = g + p["wd"] * w
    if rule == "sgd":
        return w - p["lr"] * g, []
    if rule == "momentum":
        mom = p["momentum"] * states[0] - p["lr"] * g
        return w + mom, [mom]
    mean = p["beta1"] * states[0] + (1 - p["beta1"]) * g
    var = p["beta2"] * states[1] + (1 - p["beta2"]) * g * g
    return w - p["lr"] * mean / (np.sqrt(var) + p["epsilon"]), [mean, var]


def step(rule, rng, dtype="float32"):
    arrays = [[guarded(np.abs(rng.normal(size=s)).astype(dtype if i < 2 else "float32")) for s in SHAPES]
              for i in range(len(ARRAYS[rule]))]
    numbers = rng.uniform(0.1, 0.9, size=(len(SHAPES), len(NUMBERS[rule]))).astype("float32")
    numbers[0, 3] = -1  # no clipping
    want = [by_hand(rule, *(a[t] for a in arrays[:2]), [a[t] for a in arrays[2:]], dict(zip(NUMBERS[rule], numbers[t])))
            for t in range(len(SHAPES))]
    block = 256
    table, sizes, chunks = tables([[a.ctypes.data for a in row] for row in arrays], [int(np.prod(s)) for s in SHAPES], block)
    update(RUN, rule, *map(guarded, (table, sizes, chunks, numbers)), count=len(SHAPES), programs=len(chunks), dtype=dtype,
           block=block)
    tolerance = 1e-6 if dtype == "float32" else 2e-3
    for t, (weight, states) in enumerate(want):
        np.testing.assert_allclose(arrays[0][t], weight, rtol=tolerance, atol=tolerance)
        for found, state in zip(arrays[2:], states):
            np.testing.assert_allclose(found[t], state, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", ARRAYS)
def test_every_array_takes_its_own_step(rule, rng):
    step(rule, rng)


def test_half_weights_keep_float32_states(rng):
    step("momentum", rng, "float16")


@pytest.mark.parametrize("rule", ARRAYS)
def test_nothing_beyond_the_arrays_is_touched(rule):
    assert dies_of(lambda: step(rule, np.random.default_rng(0))) == 0


def test_an_address_that_does_not_divide_is_refused():
    with pytest.raises(ParameterError, match=r"update: 1 arrays do not start at a multiple of 16 bytes\. Update them one by one"):
        tables([[64, 40], [32, 48]], [4, 4], 16)
