"""Recurrent layers in C: values and derivatives as float64's, for whole and broken blocks; the same bits in any order of pieces.

Oracle: the same operator in float64, which NumPy computes step by step, and which test_rnn.py checks.
"""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from support.layer_helpers import Run
from tritium.kernels.cpu import c_compile
from tritium.kernels.op import Req
from tritium.kernels.ops.rnn import c_rnn
from tritium.kernels.ops.rnn.cells import cell
from tritium.kernels.ops.rnn.layer import Weights

pytestmark = pytest.mark.skipif(not c_compile.available(), reason="no C compiler")
GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
LAYERS = 2
#: steps, batch, inputs, hidden, both directions
SIZES = {"blocks": (3, 32, 20, 64, False), "broken blocks": (4, 35, 21, 47, True), "one row": (3, 1, 5, 33, False),
         "columns": (2, 3, 40, 740, False), "one step": (1, 17, 3, 16, True)}


@pytest.fixture(autouse=True)
def _wherever_it_can(cpu_code):
    cpu_code("c")


def arrays_for(mode, sizes):
    t, n, i, h, both = sizes
    d = 1 + both
    vector = sum(d * GATES[mode] * h * ((d * h if level else i) + h + 2) for level in range(LAYERS))
    rng = np.random.default_rng(t * n * h)
    states = [rng.normal(0, 0.5, (LAYERS * d, n, h)) for _ in range(1 + (mode == "lstm"))]
    return [rng.normal(size=(t, n, i)), rng.normal(0, 1 / np.sqrt(h), vector), *states]


def outputs_and_derivatives(mode, sizes, dtype):
    """The outputs, and the derivatives by all arrays."""
    given = [mx.nd.array(a.astype("f"), dtype=dtype) for a in arrays_for(mode, sizes)]
    for a in given:
        a.attach_grad()
    with mx.autograd.record():
        out = mx.nd.RNN(*given, mode=mode, state_size=sizes[3], num_layers=LAYERS, bidirectional=sizes[4], state_outputs=True)
    heads = [np.cos(np.arange(o.size, dtype="f")).reshape(o.shape) for o in out]
    mx.autograd.backward(out, [mx.nd.array(head, dtype=dtype) for head in heads])
    return [*out, *(a.grad for a in given)]


@pytest.mark.parametrize("mode", GATES)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_it_equals_float64(mode, sizes):
    for got, want in zip(outputs_and_derivatives(mode, sizes, "float32"), outputs_and_derivatives(mode, sizes, "float64")):
        got, want = got.asnumpy(), want.asnumpy()
        size = max(1, abs(want).max())
        assert_close(got / size, want / size, scale=10, dtype=got.dtype)  # 10: rounding goes through every step and layer


@pytest.mark.parametrize("mode", GATES)
@pytest.mark.parametrize("sizes", [(4, 35, 21, 47), (2, 3, 40, 740)], ids=["rows", "columns"])
def test_the_bits_do_not_depend_on_the_order_of_pieces(mode, sizes, cpu_code):
    cpu_code("auto")
    t, n, i, h = sizes
    made, rng = cell(mode), np.random.default_rng(n)
    layer = c_rnn.CLayer(mode, made, sizes, True, np.dtype("f"), "cpu")
    weights = Weights(*(rng.normal(0, 0.1, made.gates * h * k).astype("f") for k in (i, h, 1, 1)))
    entered, start = rng.normal(size=made.slots * t * n * h).astype("f"), rng.normal(size=2 * (t + 1) * n * h).astype("f")
    heads = rng.normal(size=(t + 2) * n * h).astype("f")

    def computed(backwards):
        run, gates, (hidden, cells), size = Run(backwards=backwards), entered.copy(), start.copy().reshape(2, -1), n * h
        layer.steps()(run, weights, gates, hidden, cells)
        dgates, (dy, dh, dc) = np.zeros_like(gates), np.split(heads.copy(), [t * size, (t + 1) * size])
        dw = Weights(*(np.zeros_like(w) for w in (weights.wx, weights.wh, weights.bx, weights.bh)))
        layer.steps_back(True, Req.WRITE)(run, weights, dgates, gates, hidden, cells, dy, dh, dc, dw)
        return gates, hidden, cells, dgates, dh, dc, dw.bx, dw.bh

    for one, other in zip(computed(False), computed(True)):
        assert np.array_equal(one, other) and np.isfinite(one).all()


def test_the_choice_follows_the_sizes(cpu_code):
    cpu_code("auto")
    for sizes in ((35, 64, 256, 256), (4, 1, 2, 2), (3, 128, 64, 64)):
        assert c_rnn.in_c("lstm", False, sizes, cell("lstm").gates, np.dtype("f"), "cpu")
    for clipped, sizes, dtype, target in (
            (True, (35, 64, 256, 256), "f", "cpu"), (False, (3, 4, 8, 8), "f", "cpu"), (False, (2, 32, 512, 512), "f", "cpu"),
            (False, (35, 64, 256, 256), "d", "cpu"), (False, (35, 64, 256, 256), "f", "gpu")):
        assert not c_rnn.in_c("lstm", clipped, sizes, 4, np.dtype(dtype), target)
