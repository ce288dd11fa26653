"""Random graphs, run every way there is: fused or not, planned or not, at once or in the naive engine, on one context or several,
with every gradient request. All agree, and agree with NumPy. Every plan made here goes through the plan checker (conftest)."""

import numpy as np
import pytest
import tritium as mx
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.random_graphs import networks, numpy_outputs, values
from tritium import engine
from tritium.graph import options
from tritium.kernels.cpu import c_compile

START = 3.0  # what gradients hold before a step


def heads_for(outs):
    return [np.cos(np.arange(o.size)).reshape(o.shape) for o in outs]


def run(symbol, args, reqs, group2ctx=None, **how):
    """(outputs, {argument: gradient}) after one training step; gradients begin at START."""
    shapes = {n: a.shape for n, a in args.items()}
    with options(**how):
        ex = symbol.simple_bind(mx.cpu(), grad_req=reqs, group2ctx=group2ctx, **shapes)
    for name, a in args.items():
        ex.arg_dict[name][:] = a
    for a in ex._grads.values():
        a[:] = START
    outs = [o.asnumpy() for o in ex.forward(is_train=True)]
    ex.backward([mx.nd.array(h, o.context) for h, o in zip(heads_for(outs), ex.outputs)])
    return outs, {n: a.asnumpy() for n, a in ex._grads.items()}


def slopes(symbol, args, direction):
    """The loss's derivative along direction by differences, in float64, twice; unequal where a kink lies in between."""
    def at(step):
        outs = numpy_outputs(symbol, {n: v + step * direction[n] for n, v in args.items()})
        return sum((o * h).sum() for o, h in zip(outs, heads_for(outs)))

    return [(at(e) - at(-e)) / (2 * e) for e in (1e-6, 1e-5)]


def close(got, want):
    scale = 1 + np.abs(want).max(initial=0)
    # relative to the largest, as cancellation leaves absolute errors
    np.testing.assert_allclose(got / scale, want / scale, rtol=1e-4, atol=1e-4)


def check(network, reqs, in_c=False):
    symbol, shapes = network
    args = values(shapes, 5)
    names = symbol.list_arguments()
    reqs = dict(zip(names, reqs))
    outs, full = run(symbol, args, "write", fuse=False, plan=False, recompute=False)
    wanted, rounded = numpy_outputs(symbol, args), numpy_outputs(symbol, args, "float32")
    assume(all(np.allclose(w, r, 1e-4, 1e-4) for w, r in zip(wanted, rounded)))  # else rounding decides: a > (a + b) - b
    for got, want in zip(outs, wanted):
        close(got, want)
    rng = np.random.default_rng(2)
    direction = {n: rng.normal(size=s) for n, s in shapes.items()}
    first, second = slopes(symbol, args, direction)
    if abs(first - second) < 1e-3 * max(1, abs(first)):
        found = sum((full[n] * direction[n]).sum() for n in names)
        assert abs(found - first) < 2e-2 * max(1.0, abs(first), sum(np.abs(g).sum() for g in full.values()))
    groups = {"one": mx.cpu(1), "two": mx.cpu(2)}
    ways = [{}, {"fuse": False}, {"mirror": True}, {"group2ctx": groups}, {"group2ctx": groups, "fuse": False}]
    with_c = [{}, {"group2ctx": groups}] if in_c else []
    before = engine.current()
    for naive in (False, True):
        if naive:
            engine.set_current(engine.NaiveEngine())
        try:
            for way in ways[:1] if naive else ways:
                got, grads = run(symbol, args, reqs, **way)
                for a, b in zip(got, outs):
                    close(a, b)
                assert set(grads) == {n for n in names if reqs[n] != "null"}
                for n, g in grads.items():
                    close(g, full[n] + START if reqs[n] == "add" else full[n])
        finally:
            if naive:
                engine.set_current(before).stop()
    for way in with_c:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRITIUM_CPU_CODE", "c")
            got, grads = run(symbol, args, reqs, **way)
        for a, b in zip(got, outs):
            close(a, b)
        for n, g in grads.items():
            close(g, full[n] + START if reqs[n] == "add" else full[n])


REQUESTS = st.lists(st.sampled_from(["write", "add", "null"]), min_size=60, max_size=60)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(groups=True), REQUESTS)
def test_every_combination_of_options_agrees(network, reqs):
    check(network, reqs)


@pytest.mark.skipif(c_compile.compiler() is None, reason="no C compiler here")
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(most=24, groups=True), REQUESTS)
def test_every_combination_of_options_agrees_with_compiled_c(network, reqs):
    check(network, reqs, in_c=True)


@pytest.mark.nightly
@settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(most=24, groups=True), REQUESTS, st.integers(0, 9))
def test_every_combination_of_options_agrees_on_many_graphs(network, reqs, digit):
    check(network, reqs, in_c=digit == 0)
