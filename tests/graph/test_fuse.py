"""Fusion: which steps become one, and that results do not change."""

import numpy as np
import pytest
import tritium as mx
from hypothesis import HealthCheck, given, settings
from random_graphs import networks, program, values
from tritium.graph import namespace as sym
from tritium.graph import options
from tritium.graph.fuse import fuse, fused_operators


def names(p):
    return [s.op.name for s in p.steps]


def test_a_chain_becomes_one_kernel_and_its_inner_values_vanish():
    a = sym.Variable("a")
    p = program(sym.tanh(sym.relu(a * 2) + a), {}, a=(3, 4))
    f = fuse(p)
    assert len(f.steps) == 1 and fused_operators(f) == 4 and f.n_forward == 1 and len(f.steps[0].outputs) == 1
    assert fuse(p, False) is p and fused_operators(p) == 0


def test_a_reader_outside_ends_the_run():
    a = sym.Variable("a")
    x = sym.relu(a)
    y = sym.dot(x, x) + sym.tanh(x)
    f = fuse(program(y, {}, a=(4, 4)))
    assert [n.startswith("fused") for n in names(f)] == [False, False, True]


def test_shapes_do_not_mix_but_broadcast_inputs_do():
    a, b = sym.Variable("a"), sym.Variable("b")
    f = fuse(program(sym.relu(sym.broadcast_add(a, sym.tanh(b))), {}, a=(3, 4), b=(1, 4)))
    assert len(f.steps) == 2 and f.steps[1].merged == 2


def test_forward_and_backward_are_not_mixed():
    a = sym.Variable("a")
    f = fuse(program(sym.exp(sym.tanh(a)), {"a": "write"}, a=(3,)))
    assert len(f.steps) == 2 and f.n_forward == 1 and fused_operators(f) == 4


def test_sums_of_gradients_fuse_into_one_write():
    a = sym.Variable("a")
    f = fuse(program(sym.tanh(a) * a + sym.exp(a), {"a": "write"}, a=(3,)))
    assert len(f.steps) == 2


def run(symbol, args, ctx=None, **how):
    ctx = ctx or mx.cpu()
    with options(**how):
        ex = symbol.bind(ctx, {k: mx.nd.array(v, ctx, dtype=v.dtype) for k, v in args.items()},
                         {k: mx.nd.zeros(v.shape, ctx, dtype=v.dtype) for k, v in args.items()})
    outs = [o.asnumpy() for o in ex.forward(is_train=True)]
    ex.backward([mx.nd.array(np.cos(np.arange(o.size)).reshape(o.shape).astype(o.dtype), ctx, dtype=o.dtype) for o in outs])
    return outs + [g.asnumpy() for g in ex.grad_arrays]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks())
def test_fused_equals_unfused_and_planned_equals_unplanned(network):
    symbol, shapes = network
    args = values(shapes, 3)
    plain = run(symbol, args, fuse=False, plan=False)
    for how in ({"fuse": True, "plan": True}, {"fuse": False, "plan": True}):
        for want, got in zip(plain, run(symbol, args, **how)):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_fused_equals_unfused_to_the_bit_forward(dtype, ctx, rng):
    a, b = sym.Variable("a"), sym.Variable("b")
    y = sym.tanh(sym.relu(a * b + 1) * a - 0.3)
    args = {k: rng.normal(size=(5, 7)).astype(dtype) for k in "ab"}
    assert (run(y, args, ctx, fuse=True)[0] == run(y, args, ctx, fuse=False)[0]).all()


def test_an_output_that_is_an_input_is_not_overwritten_by_its_neighbour():
    """The derivative of a - b is (dy, -dy): -dy must not take dy's place before dy is copied."""
    a = sym.Variable("a")
    got = run(a + (a - a), {"a": np.ones((1, 2), "float32")}, fuse=False)
    np.testing.assert_allclose(got[1], np.cos(np.arange(2))[None], rtol=1e-6)
