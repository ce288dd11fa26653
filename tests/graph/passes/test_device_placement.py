"""group2ctx: results do not depend on where nodes run; values are copied between contexts; each context has one arena."""

import numpy as np
import pytest
import tritium as mx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.helpers import assert_close
from support.random_graphs import networks, run, states, values
from tritium.errors import ContextError
from tritium.graph import AttrScope
from tritium.graph.passes.device_placement import cross_device_copy
from tritium.graph.symbol import namespace as sym
from tritium.kernels.kernel import Kernel

PLACES = {"a": mx.cpu(0), "b": mx.cpu(1), "c": mx.gpu(0)}


def two_halves():
    with AttrScope(ctx_group="first"):
        x = sym.Activation(sym.FullyConnected(sym.Variable("data"), num_hidden=8, name="f1"), act_type="relu", name="r1")
    with AttrScope(ctx_group="second"):
        return sym.SoftmaxOutput(sym.FullyConnected(x, num_hidden=3, name="f2"), name="s")


def bound(group2ctx, **shapes):
    return two_halves().simple_bind(mx.cpu(), group2ctx=group2ctx, **shapes)


def test_arrays_lie_where_their_group_is():
    ex = bound({"first": mx.cpu(0), "second": mx.cpu(1)}, data=(4, 5))
    assert {n: a.context.device_id for n, a in ex.arg_dict.items()} == {
        "data": 0, "f1_weight": 0, "f1_bias": 0, "f2_weight": 1, "f2_bias": 1, "s_label": 1}
    assert ex.grad_dict["f2_weight"].context == mx.cpu(1) and ex.outputs[0].context == mx.cpu(1)
    copies = [s.name for s in ex._main().program.steps if s.op is cross_device_copy]
    assert copies == ["r1_output_to_1", "r1_output_backward_from_1_to_0"]
    assert len(ex.memory_plan().arenas) == 2 and sum(ex.memory_plan().arenas) == ex.memory_plan().arena_bytes


def test_unknown_group_and_an_array_that_is_not_where_its_group_is():
    with pytest.raises(ContextError, match=r"is in ctx_group 'second', which group2ctx does not name. .*Known: first, sceond"):
        bound({"first": mx.cpu(0), "sceond": mx.cpu(1)}, data=(4, 5))
    y = two_halves()
    args = [mx.nd.zeros(s) for s in y.infer_shape(data=(4, 5))[0]]
    ex = y.bind(mx.cpu(), args, group2ctx={"first": mx.cpu(0), "second": mx.cpu(1)})
    assert ex.forward()[0].context == mx.cpu(1) and ex.arg_dict["f2_weight"].context == mx.cpu(0)
    assert bound(None, data=(4, 5)).arg_dict["f2_weight"].context == mx.cpu(0)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(most=8), st.randoms(use_true_random=False))
def test_random_graphs_on_three_contexts(network, random):
    symbol, shapes = network
    args = values(shapes, 3)
    want = run(symbol, args)
    for node in symbol._order():
        node.attrs["__ctx_group__"] = random.choice(sorted(PLACES))
    ex = symbol.simple_bind(mx.cpu(), group2ctx=PLACES, **shapes)
    for n, v in args.items():
        ex.arg_dict[n][:] = v
    assert states(symbol, args, mx.cpu()) is not None
    outs = [o.asnumpy() for o in ex.forward(is_train=True)]
    ex.backward([mx.nd.array(np.cos(np.arange(o.size)).reshape(o.shape).astype("float32")) for o in outs])
    for got, w in zip([*outs, *(g.asnumpy() for g in ex.grad_arrays)], want):
        assert_close(got, w, scale=100)  # 100: long chains, rounded in another order


def test_a_failure_passes_to_the_other_device():
    ex = bound({"first": mx.cpu(0), "second": mx.cpu(1)}, data=(4, 5))

    def broken(*_):
        raise ZeroDivisionError("boom")

    part = ex._compile(True).forward[0]
    part.calls[0] = (Kernel(broken), *part.calls[0][1:])
    with pytest.raises(mx.MXNetError, match=r"f1.*ZeroDivisionError: boom"):
        ex.forward(is_train=True)[0].asnumpy()
    mx.engine.current().wait_for_all()
