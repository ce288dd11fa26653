"""Random numbers in C: the bits of Philox in NumPy for words and fractions, normal numbers close to its own."""

import numpy as np
import pytest
from support.layer_helpers import Run, call, forward
from tritium.kernels import op as ops
from tritium.kernels.cpu import c_compile, c_draws
from tritium.kernels.ir.draws import Draw, recording
from tritium.kernels.ir.lang import normal, uniform
from tritium.kernels.op import Expression, Req, Spec

pytestmark = pytest.mark.skipif(c_compile.compiler() is None, reason="there is no C compiler")

FLOAT32, FLOAT64, WORD = np.dtype("float32"), np.dtype("float64"), np.dtype("uint32")
NORMAL = Draw(0, "normal", 32, FLOAT32)
PLACES = [(0, 1), (1, 2), (8, 700), (2**32 * 4 - 9, 601), (2**40 + 258, 40_001)]  # offset, count
SEEDS = [0, 1, 2**64 - 3]


@pytest.fixture(autouse=True)
def _wherever_it_can(cpu_code):
    cpu_code("c")


def drawn(draw, seed, offset, count, backwards=False):
    out = np.empty(count, draw.dtype)
    c_draws.draw_numbers(draw, Run(backwards=backwards), seed, offset, out)
    return out


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("offset", "count"), PLACES)
@pytest.mark.parametrize("draw", [Draw(0, "word", 32, WORD), Draw(0, "uniform", 24, FLOAT32), Draw(0, "uniform", 11, FLOAT32),
                                  Draw(0, "uniform", 32, FLOAT64)])
def test_the_bits_are_those_of_philox(seed, offset, count, draw):
    assert drawn(draw, seed, offset, count, backwards=True).tobytes() == draw.numbers(seed, offset, 0, count).tobytes()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("offset", "count"), [*PLACES, (4, 200_001)])
def test_normal_numbers_are_close_to_numpys(seed, offset, count):
    found = drawn(NORMAL, seed, offset, count)
    want = NORMAL.numbers(seed, offset, 0, count)
    np.testing.assert_allclose(found, want, rtol=2e-6, atol=1e-6)
    assert found.tobytes() == drawn(NORMAL, seed, offset, count, backwards=True).tobytes()


@pytest.mark.parametrize(("op", "params", "exact"), [
    ("_random_uniform", {"low": -1.5, "high": 3}, True), ("_random_uniform", {"dtype": "float16"}, True),
    ("_random_normal", {"loc": 2}, False), ("_random_normal", {"dtype": "float64"}, True),
    ("_random_randint", {"low": 3, "high": 9}, True)])
def test_operators_draw_the_same_as_in_numpy(cpu_code, op, params, exact):
    def made(mode):
        cpu_code(mode)
        o = ops.get(op)
        p = o.parse({**params, "shape": (7, 1031)})
        spec = Spec(o.infer_shape(p, [])[1][0], o.infer_dtype(p, [])[1][0])
        return call(o, p, [], [spec], random=(5, 12))[0][0]

    a, b = made("c"), made("numpy")
    if exact:
        assert a.tobytes() == b.tobytes()
    else:
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axes", [(), (1,)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_dropout_has_the_same_mask(cpu_code, rng, axes, dtype):
    x = rng.normal(size=(4100, 3)).astype(dtype)
    found = []
    for mode in ("c", "numpy"):
        cpu_code(mode)
        found.append(forward("Dropout", [x], p=0.3, axes=axes, random=(1, 8)))
    for a, b in zip(*found):
        assert a.tobytes() == b.tobytes()


def test_what_numpy_draws(cpu_code):
    for draw, mode, n in ((uniform, "auto", 60), (normal, "auto", 500), (uniform, "numpy", 9999)):
        with recording(FLOAT32) as recorder:
            root = draw()
        e = Expression((root,), draws=tuple(recorder.draws))
        cpu_code(mode)
        assert c_draws.drawing_kernel(e, [], [Spec((n,), FLOAT32)], [Req.WRITE], "f", lambda *a, **b: pytest.fail("made")) is None
