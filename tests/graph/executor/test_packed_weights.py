"""At inference a bound graph packs the weights of convolutions once, and again when they have changed."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.kernels.cpu import c_compile
from tritium.kernels.cpu.c_team import Phases
from tritium.kernels.kernel import Prepared
from tritium.kernels.ops.nn import c_conv

pytestmark = pytest.mark.skipif(not c_compile.available(), reason="there is no C compiler")


def network():
    """A convolution alone, one with an epilogue that reads another array, one whose result is read twice."""
    x = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=24, pad=(1, 1), name="first")
    y = mx.sym.Convolution(mx.sym.tanh(x), kernel=(3, 3), num_filter=24, pad=(1, 1), no_bias=True, name="second")
    y = mx.sym.Activation(y + x, act_type="relu")
    z = mx.sym.Convolution(y, kernel=(1, 1), num_filter=40, stride=(2, 2), name="third")
    return mx.sym.Group([mx.sym.sum(mx.sym.tanh(z) * z, axis=1), z])


@pytest.fixture
def packs(monkeypatch):
    """The shapes of the weights that were packed to be kept."""
    packed: list = []
    keep = c_conv.Forward.keep

    def counted(self, inputs, y, after=None):
        kept = keep(self, inputs, y, after)

        def prepare(run):
            packed.append(inputs[1].shape)
            kept.prepare(run)

        return Prepared(prepare, kept.run)

    monkeypatch.setattr(c_conv.Forward, "keep", counted)
    return packed


def bind(monkeypatch, code):
    monkeypatch.setenv("TRITIUM_CPU_CODE", code)
    executor = network().simple_bind(mx.cpu(), "null", data=(5, 8, 10, 9))
    rng = np.random.default_rng(2)
    for array in executor.arg_dict.values():
        array[:] = rng.normal(size=array.shape, scale=0.3).astype("f")
    return executor


def forward(executor):
    return [o.copy() for o in executor.forward()]


def test_weights_are_packed_again_when_they_have_changed(monkeypatch, packs):
    def results(code):
        executor, made = bind(monkeypatch, code), []
        for step in range(4):  # nothing waits in between
            if step == 2:
                executor.arg_dict["second_weight"] *= -1
            executor.arg_dict["data"] += 0.1
            made.append(forward(executor))
        return [[o.asnumpy() for o in outputs] for outputs in made]

    wanted, got = results("numpy"), results("c")
    for outputs, wants in zip(got, wanted):
        for g, w in zip(outputs, wants):
            assert_close(g, w, scale=16)
    assert len(packs) == 6 and len(set(packs)) == 3  # all of a segment are packed again
    assert not np.allclose(got[1][1], got[2][1])


def test_training_keeps_no_packed_weight(monkeypatch, packs):
    c = bind(monkeypatch, "c")
    for _ in range(2):
        c.forward(is_train=True)
    mx.nd.waitall()
    assert packs == []


def test_weights_are_packed_again_after_a_failed_run(monkeypatch, packs):
    c = bind(monkeypatch, "c")
    want = [o.asnumpy() for o in forward(c)]
    run = Phases.__call__

    def fails(*args):
        raise ValueError("injected")

    monkeypatch.setattr(Phases, "__call__", fails)
    c.arg_dict["first_weight"] *= 2
    with pytest.raises(mx.MXNetError, match="injected"):
        c.forward()[0].asnumpy()
    monkeypatch.setattr(Phases, "__call__", run)
    c.arg_dict["first_weight"] /= 2
    for o, w in zip(forward(c), want):
        np.testing.assert_array_equal(o.asnumpy(), w)
