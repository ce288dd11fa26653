"""executor.explain(): every operator is in one kernel, and what stands apart has its reason."""

import tritium as mx
from hypothesis import HealthCheck, given, settings
from support.random_graphs import networks
from tritium.graph import Group, options
from tritium.graph.symbol import namespace as sym


def bound(symbol, ctx=None, **shapes):
    return symbol.simple_bind(ctx or mx.cpu(), **shapes).explain()


def test_every_operator_is_listed_once_with_what_it_joined():
    x = sym.Activation(sym.FullyConnected(sym.Variable("data"), num_hidden=8, name="f1"), act_type="relu", name="r1")
    found = bound(sym.SoftmaxOutput(sym.FullyConnected(x, num_hidden=3, name="f2"), name="s"), data=(4, 5))
    assert [k.operators for k in found if not k.backward] == [
        ("f1 (FullyConnected)", "r1 (Activation)"), ("f2 (FullyConnected)",), ("s (SoftmaxOutput)",)]
    text = str(found)
    assert text.startswith("8 operators in 6 kernels") and "forward " in text and "backward" in text
    assert len(found) == 6


def test_reasons():
    a, b = sym.Variable("a"), sym.Variable("b")
    first = lambda y, **s: next(iter(bound(y, **s))).apart
    assert first(sym.dot(sym.tanh(a), b, name="d"), a=(2, 2), b=(2, 2)) == "apart from d: dot is no formula over single elements"
    assert "the fold must end before it can be read" in first(sym.broadcast_mul(a, sym.sum(a, axis=0, keepdims=True)), a=(2, 3))
    assert "shapes (1, 3) and (2, 3) differ" in first(sym.broadcast_add(sym.tanh(b), a), a=(2, 3), b=(1, 3))
    x = sym.tanh(a)
    both = Group([sym.sum(x, axis=0), sym.max(x, axis=0)])
    assert "one folds by add, the other by maximum" in first(both, a=(2, 3))
    assert "a row's mul is no part of a kernel of rows" in first(sym.prod(sym.softmax(a), axis=1), a=(2, 3))
    assert "it reads the result in another shape" in first(sym.broadcast_mul(a, sym.sum(a * a, axis=1)), a=(3, 3))
    assert "softmax's rows are longer than 16384" in first(sym.softmax(sym.tanh(a)), a=(1, 20000))
    y = sym.Activation(sym.BatchNorm(a), act_type="relu")
    assert "the statistics must be complete before they are used" in first(y, a=(2, 3))


def test_a_tail_joins_its_product_unless_fusion_is_off(ctx):
    y = sym.tanh(sym.FullyConnected(sym.Variable("a"), num_hidden=3, name="f"), name="r")
    first = bound(y, ctx, a=(2, 3))[0]
    assert first.operators == ("f (FullyConnected)", "r (tanh)") and first.apart == "apart from r_backward: it runs in backward"
    assert first.code == ("Triton" if ctx.is_gpu else "NumPy")
    with options(fuse=False):
        assert next(iter(bound(y, ctx, a=(2, 3)))).apart == "fusion is turned off"


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks())
def test_random_graphs_are_explained_whole(network):
    symbol, shapes = network
    found = bound(symbol, **shapes)
    forward = [part.split(" (")[0] for k in found if not k.backward for part in k.operators]
    nodes = {n.name for n, _ in symbol.get_internals()._outputs if n.op is not None}
    assert set(forward) == nodes
    for k in found:
        assert k.apart == "" or k.apart.startswith("apart from ")
