"""mx.nd.contrib.foreach, while_loop and cond: results, structure, derivatives, refusals."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import OperatorError, ShapeError

nd = mx.nd


def test_foreach_stacks_results_and_hands_states_on(ctx):
    x, s = nd.array(np.arange(6).reshape(3, 2), ctx), nd.array([1, 1], ctx)
    (doubled, [sums]), [last] = nd.contrib.foreach(lambda row, state: ([row * 2, [row + state[0]]], [row + state[0]]), x, [s])
    rows = np.cumsum(x.asnumpy(), axis=0) + 1
    assert (doubled.asnumpy() == 2 * x.asnumpy()).all() and (sums.asnumpy() == rows).all() and (last.asnumpy() == rows[-1]).all()


def test_while_loop_fills_up_with_zeros_and_may_not_run_at_all(ctx):
    i = nd.array([0], ctx)
    outs, [last] = nd.contrib.while_loop(lambda i: i < 3, lambda i: (i * 10, [i + 1]), [i], max_iterations=5)
    assert outs.asnumpy().ravel().tolist() == [0, 10, 20, 0, 0] and last.asscalar() == 3
    assert nd.contrib.while_loop(lambda i: i < 3, lambda i: (i, i + 1), i, max_iterations=2)[1].asscalar() == 2
    assert nd.contrib.while_loop(lambda i: i > 3, lambda i: (i, i + 1), i, max_iterations=2)[0] == []
    assert nd.contrib.while_loop(lambda i: i < 3, lambda i: (None, i + 1), i, max_iterations=2)[0] == []


def test_cond(ctx):
    one = nd.array([1.0], ctx)
    assert nd.contrib.cond(one > 0, lambda: "then", lambda: "else") == "then"
    assert nd.contrib.cond(one < 0, lambda: "then", lambda: "else") == "else"


def test_autograd_and_the_graph_give_equal_gradients(ctx, rng):
    """The same functions as a symbol give the same values and derivatives."""
    def body(row, state):
        return row * w + state, mx.sym.tanh(state + row) if isinstance(row, mx.sym.Symbol) else nd.tanh(state + row)

    shapes = {"x": (3, 4), "s": (4,), "w": (4,)}
    arrays = {n: rng.normal(size=s).astype("float32") for n, s in shapes.items()}
    x, s, w = (nd.array(arrays[n], ctx) for n in "xsw")
    for a in (x, s, w):
        a.attach_grad()
    with mx.autograd.record():
        outs, last = nd.contrib.foreach(body, x, s)
        total = (outs * outs).sum() + last.sum()
    total.backward()
    made = (x, s, w)
    w = mx.sym.Variable("w")
    outs, last = mx.sym.contrib.foreach(body, mx.sym.Variable("x"), mx.sym.Variable("s"))
    ex = mx.sym.broadcast_add(mx.sym.sum(outs * outs), mx.sym.sum(last)).simple_bind(ctx, **shapes)
    assert abs(ex.forward(is_train=True, **arrays)[0].asscalar() - total.asscalar()) < 1e-4
    ex.backward(nd.ones((1,), ctx))
    for name, a in zip("xsw", made):
        assert_close(a.grad, ex.grad_dict[name], scale=10)  # 10: rounded in another order


@pytest.mark.parametrize("call, error, says", [
    (lambda a: nd.contrib.foreach(lambda r, s: (r, s), [a, a[:1]], []), ShapeError, "one number of rows"),
    (lambda a: nd.contrib.foreach(lambda r, s: (3, s), a, a), OperatorError, "results: 3 is neither an NDArray"),
    (lambda a: nd.contrib.while_loop(lambda i: i, lambda i: (i, i), a), OperatorError, "max_iterations is None"),
    (lambda a: nd.contrib.while_loop(lambda i: 1, lambda i: (i, [i, i]), a, 3), OperatorError,
     r"given variables _ and returned \[_, _\]"),
    (lambda a: nd.contrib.while_loop(lambda: 1, lambda: (), [], 3), OperatorError, "loop_vars is empty"),
    (lambda a: nd.contrib.cond(a, lambda: 1, lambda: 2), ShapeError, r"pred is float32\[2,2\].*, not one element"),
])
def test_wrong_arguments_of_control_flow_are_refused(call, error, says):
    with pytest.raises(error, match=says):
        call(nd.ones((2, 2)))
