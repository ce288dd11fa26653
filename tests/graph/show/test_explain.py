"""executor.explain(): every operator is in one kernel, and each kernel apart has a reason."""

import pytest
import tritium as mx
from hypothesis import HealthCheck, given, settings
from support.random_graphs import networks
from tritium.graph import Group, options
from tritium.graph.symbol import namespace as sym
from tritium.kernels.cpu import c_compile


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


A, B = sym.Variable("a"), sym.Variable("b")
TANH = sym.tanh(A)


@pytest.mark.parametrize(("symbol", "shapes", "reason"), [
    (sym.dot(TANH, B, name="d"), {"a": (2, 2), "b": (2, 2)}, "apart from d: dot has no elementwise formula"),
    (sym.broadcast_mul(A, sym.sum(A, axis=0, keepdims=True)), {"a": (2, 3)}, "the reduction must end before it can be read"),
    (sym.broadcast_add(sym.tanh(B), A), {"a": (2, 3), "b": (1, 3)}, "shapes (1, 3) and (2, 3) differ"),
    (Group([sym.sum(TANH, axis=0), sym.max(TANH, axis=0)]), {"a": (2, 3)}, "one reduces by add, the other by maximum"),
    (sym.prod(sym.softmax(A), axis=1), {"a": (2, 3)},
     "a kernel that reads reduced rows cannot end with another reduction of rows, by mul"),
    (sym.broadcast_mul(A, sym.sum(A * A, axis=1)), {"a": (3, 3)}, "it reads the result in another shape"),
    (sym.softmax(TANH), {"a": (1, 20000)}, "softmax's rows are longer than 16384"),
    (sym.Activation(sym.BatchNorm(A), act_type="relu"), {"a": (2, 3)}, "the statistics must be complete before they are used"),
    (sym.tanh(sym.exp(A) + sym.dot(sym.exp(A), B, name="d")), {"a": (2, 2), "b": (2, 2)}, "d: dot has no elementwise formula"),
    (sym.tanh(sym.sin(sym.Activation(sym.dot(A, B), act_type="relu", name="r"))), {"a": (2, 2), "b": (2, 2)},
     ": dot has no elementwise formula"),
])  # fmt: skip
def test_the_reason_why_a_reader_is_another_kernel_is_the_one_that_fusion_found(symbol, shapes, reason):
    assert reason in next(iter(bound(symbol, **shapes))).apart


def test_an_epilogue_joins_its_product_unless_fusion_is_off(ctx):
    y = sym.tanh(sym.FullyConnected(sym.Variable("a"), num_hidden=3, name="f"), name="r")
    first = bound(y, ctx, a=(2, 3))[0]
    assert first.operators == ("f (FullyConnected)", "r (tanh)") and first.apart == "apart from r_backward: it runs in backward"
    assert first.code == ("Triton" if ctx.is_gpu else "NumPy")
    with options(fuse=False):
        assert next(iter(bound(y, ctx, a=(2, 3)))).apart == "apart from r: fusion is turned off"


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


def test_templates_of_layers_are_named(monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "auto")
    if not c_compile.available():
        pytest.skip("there is no C compiler")
    x = sym.Pooling(sym.Convolution(sym.Variable("data"), kernel=(3, 3), num_filter=32), kernel=(2, 2), pool_type="max")
    y = sym.FullyConnected(x, num_hidden=64)
    kernels = y.simple_bind(mx.cpu(), "null", data=(8, 16, 12, 12)).explain()
    for name, function in (("Convolution", "conv_"), ("Pooling", "pool_"), ("FullyConnected", "product_")):
        (kernel,) = (k for k in kernels if name.lower() in k.operators[0].partition("(")[2].lower())
        assert kernel.code == "C" and function in kernel.source
    (mixed,) = sym.erfinv(sym.FullyConnected(sym.Variable("data"), num_hidden=64)).simple_bind(
        mx.cpu(), "null", data=(64, 64)).explain()
    assert mixed.code == "C, NumPy" and "product_" in mixed.source
