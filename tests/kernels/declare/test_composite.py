"""composite: operators made of others. Oracle: the same calls one by one, and NumPy."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from tritium.errors import OperatorError, ShapeError
from tritium.kernels import op as registry
from tritium.kernels.declare.check_op import HostRun
from tritium.kernels.declare.composite import arange, composite, ops
from tritium.kernels.op import Req, Spec, compiled


@pytest.fixture(scope="module")
def made():
    """A composite with two outputs, one of which the other reads, and one that is an input as it came."""

    @composite("_test_composite", outputs=("product", "shifted", "same"))
    def op(a, b, *, by: float = 2.0):
        """a b, a b + by · (0, 1, …), and a."""
        product = ops.dot(a, b)
        return product, product + arange(a, product.shape[1]).reshape((1, -1)) * by, a

    yield op
    for name in ("_test_composite",):
        del registry._registry[name]


def arrays(rng, ctx):
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(4, 5))
    return a, b, mx.nd.array(a, ctx=ctx, dtype="float64"), mx.nd.array(b, ctx=ctx, dtype="float64")


def test_values_of_all_outputs(made, rng, ctx):
    a, b, x, y = arrays(rng, ctx)
    product, shifted, same = mx.nd._test_composite(x, y, by=3.0)
    assert_close(product, a @ b)
    assert_close(shifted, a @ b + 3 * np.arange(5))
    np.testing.assert_array_equal(same.asnumpy(), a)


def test_gradient_meets_where_outputs_share_a_step(made, rng, ctx):
    a, b, _, _ = arrays(rng, ctx)
    check_gradient(lambda x, y: sum(o.sum() * (i + 1) for i, o in enumerate(mx.nd._test_composite(x, y))), [a, b], ctx, rng)


def test_derivative_of_the_derivative(rng, ctx):
    a = rng.normal(size=(2, 3, 3)) + 3 * np.eye(3)
    x = mx.nd.array(a, ctx=ctx, dtype="float64")
    x.attach_grad()
    with mx.autograd.record():
        y = (mx.nd.linalg.sumlogdiag(mx.nd.linalg.syrk(x))).sum()
        dx = mx.autograd.grad(y, x, create_graph=True)[0]
        z = (dx * dx).sum()
    z.backward()
    eps = 1e-6

    def slope(at):
        v = mx.nd.array(at, dtype="float64")
        v.attach_grad()
        with mx.autograd.record():
            total = mx.nd.linalg.sumlogdiag(mx.nd.linalg.syrk(v)).sum()
        total.backward()
        return float((v.grad * v.grad).sum().asscalar())

    v = rng.normal(size=a.shape)
    numeric = (slope(a + eps * v) - slope(a - eps * v)) / (2 * eps)
    assert abs(numeric - np.sum(x.grad.asnumpy() * v)) < 1e-5 * max(1, abs(numeric))


@pytest.mark.parametrize("reqs", [(Req.WRITE, Req.ADD, Req.NULL), (Req.ADD, Req.WRITE, Req.ADD), (Req.NULL, Req.NULL, Req.WRITE)])
def test_requests(made, rng, reqs):
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(4, 5))
    p = made.parse({})
    ins, wanted = (Spec(a.shape, a.dtype), Spec(b.shape, b.dtype)), (a @ b, a @ b + 2 * np.arange(5), a)
    outs = tuple(Spec(w.shape, w.dtype) for w in wanted)
    given = [np.full(w.shape, 7.0) for w in wanted]
    compiled(made, p, ins, outs, reqs, "cpu")(HostRun(), [a, b], [g if r else None for g, r in zip(given, reqs)])
    for g, w, r in zip(given, wanted, reqs):
        # closer than the table
        np.testing.assert_allclose(g, {Req.NULL: 7.0 + 0 * w, Req.WRITE: w, Req.ADD: 7.0 + w}[r], rtol=1e-13)


def test_symbols_infer_and_run_it(made, rng):
    x, y = mx.sym.Variable("x"), mx.sym.Variable("y")
    graph = mx.sym._test_composite(x, y)[1]
    assert graph.infer_shape(x=(3, 4), y=(4, 5))[1] == [(3, 5)]
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(4, 5))
    run = graph.bind(mx.cpu(), {"x": mx.nd.array(a), "y": mx.nd.array(b)})
    assert_close(run.forward()[0], a @ b + 2 * np.arange(5), scale=4)  # 4: products of four, summed


def test_an_error_inside_names_the_operator():
    with pytest.raises(ShapeError, match=r"_test_composite: inside it, dot: "):
        _declare_and_call()


def _declare_and_call():
    @composite("_test_composite_error")
    def op(a):
        """a a."""
        return ops.dot(a, a)

    del registry._registry["_test_composite_error"]
    op.name = "_test_composite"
    op(mx.nd.ones((2, 3)))


def test_states_are_refused():
    @composite("_test_composite_random")
    def op(a):
        """Noise."""
        return ops.Dropout(a, p=0.5) if a.ndim == 1 else ops.sgd_mom_update(a, a, a, lr=0.1)

    del registry._registry["_test_composite_random"]
    with pytest.raises(OperatorError, match="sgd_mom_update: has states, and cannot be part of a composite"):
        op(mx.nd.ones((2, 3)))
