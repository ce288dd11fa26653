"""A weight that many layers of a graph read is packed once in each pass: the results are those of layers alone.

Oracle: the recurrence and its derivatives in NumPy, float64.
"""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.graph.executor import segment
from tritium.kernels.cpu import c_compile

pytestmark = pytest.mark.skipif(not c_compile.available(), reason="no C compiler")
STEPS, ROWS, SIZE = 5, 16, 40


def recurrence():
    """h = tanh(W h + b), the same W and b in each step; the sums and activations of W h are an epilogue or a product alone."""
    w, b, h = mx.sym.Variable("w"), mx.sym.Variable("b"), mx.sym.Variable("h")
    for step in range(STEPS):
        h = mx.sym.tanh(mx.sym.FullyConnected(h, weight=w, bias=b, num_hidden=SIZE, name=f"fc{step}"))
    return h


def expected(w, b, h, head):
    """The result, and the derivatives by w, b and h."""
    states = [h]
    for _ in range(STEPS):
        states.append(np.tanh(states[-1] @ w.T + b))
    dw, db, d = np.zeros_like(w), np.zeros_like(b), head
    for before, after in zip(states[-2::-1], states[:0:-1]):
        d = d * (1 - after**2)
        dw, db, d = dw + d.T @ before, db + d.sum(0), d @ w
    return states[-1], dw, db, d


@pytest.mark.parametrize("layers_of_a_segment", [1, 2, 15])
def test_passes_with_new_weights_give_new_results(cpu_code, rng, monkeypatch, layers_of_a_segment):
    cpu_code("c")
    monkeypatch.setenv("MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN", str(layers_of_a_segment))
    executor = recurrence().simple_bind(mx.cpu(), h=(ROWS, SIZE), grad_req="write")
    for _ in range(3):
        given = {"w": rng.normal(0, 0.2, (SIZE, SIZE)), "b": rng.normal(size=SIZE), "h": rng.normal(size=(ROWS, SIZE))}
        for name, value in given.items():
            executor.arg_dict[name][:] = value
        head = rng.normal(size=(ROWS, SIZE))
        result = executor.forward(is_train=True)[0].asnumpy()
        executor.backward(mx.nd.array(head))
        found = [result, *(executor.grad_dict[name].asnumpy() for name in ("w", "b", "h"))]
        for got, want in zip(found, expected(*given.values(), head)):
            assert_close(got, want, scale=10)  # 10: rounding goes through every step


def test_a_weight_of_one_layer_is_not_shared(cpu_code):
    """A layer in training reads its weight twice; its product may pack the other operand, if that costs less."""
    cpu_code("c")
    made = []

    class Counted(segment.Shared):
        def __init__(self, steps):
            super().__init__(steps)
            made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tritium.graph.executor.compiled_program.Shared", Counted)
        for net in (mx.sym.FullyConnected(mx.sym.Variable("h"), num_hidden=SIZE), recurrence()):
            executor = net.simple_bind(mx.cpu(), h=(ROWS, SIZE), grad_req="write")
            executor.forward(is_train=True)
            executor.backward(mx.nd.ones((ROWS, SIZE)))
            executor.grad_dict["h"].wait_to_read()
    assert [len(s.made[mx.cpu()]) for s in made] == [0, 0, 1, 1]  # forward and backward of one layer, then of the recurrence
