"""Identities at inference, such as Dropout, are left out. Oracle: outputs equal inputs, and no random number is drawn."""

import numpy as np
import tritium as mx
from tritium.graph.symbol import namespace as sym


def bound(y, **shapes):
    ex = y.simple_bind(mx.cpu(), grad_req="null", **shapes)
    for n, a in ex.arg_dict.items():
        a[:] = np.arange(a.size).reshape(a.shape) + len(n)
    return ex


def steps(ex):
    return [s.op.name for s in ex._compile(False).program.steps]


def test_dropout_is_left_out_of_inference():
    ex = bound(sym.exp(sym.Dropout(sym.Dropout(sym.Variable("x"), p=0.5), p=0.25) * -1), x=(2, 3))
    assert "Dropout" not in "".join(steps(ex)) and len(steps(ex)) == 1
    np.testing.assert_allclose(ex.forward()[0].asnumpy(), np.exp(-ex.arg_dict["x"].asnumpy()), rtol=1e-6)  # closer than the table


def test_a_head_is_a_copy():
    y = sym.Dropout(sym.Variable("x"), p=0.5)
    ex = bound(sym.Group([y, sym.Dropout(y, p=0.5) + 1]), x=(4,))
    a, b = ex.forward()
    a[:] = 7
    np.testing.assert_array_equal(ex.arg_dict["x"].asnumpy(), [1, 2, 3, 4])
    np.testing.assert_array_equal(b.asnumpy(), [2, 3, 4, 5])


def test_dropout_in_mode_always_stays_and_a_monitor_sees_every_node():
    assert steps(bound(sym.Dropout(sym.Variable("x"), p=0.5, mode="always"), x=(4,))) == ["Dropout"]
    ex, seen = bound(sym.Dropout(sym.Variable("x"), p=0.5, name="d") * 2, x=(4,)), []
    ex.set_monitor_callback(lambda name, array: seen.append(name))
    ex.forward()
    assert "d_output" in seen


def test_inference_draws_no_random_numbers():
    def next_number(passes):
        mx.random.seed(3)
        ex = bound(sym.Dropout(sym.Variable("x"), p=0.5) * 2, x=(4,))
        for _ in range(passes):
            ex.forward()
        return mx.nd.random.uniform(shape=(1,)).asscalar()

    assert next_number(3) == next_number(0)
