"""The adaptive updates against loops in float64, beyond MXNet's recorded cases (tests/test_golden_operators.py)."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close


def given(ctx, rng, n, positive=()):
    xs = [rng.standard_normal((3, 5)) for _ in range(n)]
    xs = [np.abs(x) if i in positive else x for i, x in enumerate(xs)]
    return xs, [mx.nd.array(x, ctx=ctx, dtype="float32") for x in xs]


def close(got, want):
    assert_close(got, want)


def test_adamw_and_its_loss_scale(ctx, rng):
    (w, g, m, v), (W, G, M, V) = given(ctx, rng, 4, positive=(3,))
    one = lambda x: mx.nd.array([x], ctx=ctx)
    for bad in (np.inf, np.nan, 0.0):  # an overflowed step changes nothing
        mx.nd._internal._adamw_update(W, G, M, V, one(bad), lr=0.1, eta=0.5, wd=0.02, out=W)
        close(W, w), close(M, m), close(V, v)
    mx.nd._internal._adamw_update(W, G, M, V, one(0.25), lr=0.1, eta=0.5, wd=0.02, clip_gradient=0.2, out=W)
    g = np.clip(0.25 * g, -0.2, 0.2)
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    close(M, m), close(V, v)
    close(W, w - 0.5 * (0.1 * m / (np.sqrt(v) + 1e-8) + 0.02 * w))


@pytest.mark.parametrize("r1, r2, bounds, ratio", [
    (2.0, 4.0, {}, 0.5), (0.0, 4.0, {}, 1), (2.0, 0.0, {}, 1), (2.0, 4.0, {"lower_bound": 3.0}, 0.75),
    (2.0, 4.0, {"upper_bound": 1.0}, 0.25)])
def test_lamb_step(r1, r2, bounds, ratio, ctx, rng):
    (w, g), (W, G) = given(ctx, rng, 2)
    got = mx.nd.lamb_update_phase2(W, G, mx.nd.array([r1], ctx=ctx), mx.nd.array([r2], ctx=ctx), lr=0.1, **bounds)
    close(got, w - 0.1 * ratio * g)


def test_half_precision_weights_follow_their_copy(ctx, rng):
    (w, _, m, v), (W, G, M, V) = given(ctx, rng, 4, positive=(3,))
    half = lambda x: x.astype("float16")
    d = mx.nd.mp_lamb_update_phase1(half(W), half(G), M, V, W, t=2, wd=0.1)
    assert d.dtype == np.float32
    want = mx.nd.lamb_update_phase1(W, half(G).astype("float32"),
                                    mx.nd.array(m, ctx=ctx), mx.nd.array(v, ctx=ctx), t=2, wd=0.1)
    np.testing.assert_allclose(d.asnumpy(), want.asnumpy(), rtol=1e-5)  # closer than the table
    copy, weight = W.copy(), half(W)
    mx.nd.mp_lamb_update_phase2(weight, d, mx.nd.array([1.0], ctx=ctx), mx.nd.array([2.0], ctx=ctx), copy, lr=0.1, out=weight)
    close(copy, W.asnumpy() - 0.05 * d.asnumpy())
    assert (weight.asnumpy() == copy.asnumpy().astype("float16")).all()
    copy, weight, mom = W.copy(), half(W), M.copy()
    mx.nd.mp_nag_mom_update(weight, half(G), mom, copy, lr=0.1, momentum=0.9, wd=0.01, out=weight)
    grad = half(G).asnumpy().astype("d")
    moved = 0.9 * (M.asnumpy()) - 0.1 * (grad + 0.01 * w)
    close(copy, w + 0.9 * moved - 0.1 * (grad + 0.01 * w))
    assert (weight.asnumpy() == copy.asnumpy().astype("float16")).all()


def test_lars_rates(ctx):
    a = lambda *x: mx.nd.array(x, ctx=ctx)
    got = mx.nd.multi_lars(a(0.1, 0.2, 0.3), a(4, 0, 9), a(9, 1, 0), a(0.01, 0.02, 0), eta=0.5, eps=1e-3, rescale_grad=0.5)
    close(got, [0.1 * 0.5 * 2 / (3 * 0.5 + 0.01 * 2 + 1e-3), 0.2, 0.3])


def test_a_new_rate_or_step_needs_no_new_kernel():
    from tritium.kernels import op as ops

    for name, moving in (("ftml_update", {"lr": 0.1, "t": 1}), ("lamb_update_phase1", {"t": 1, "wd": 0.1})):
        op = ops.get(name)
        later = {k: v + 1 for k, v in moving.items()}
        assert op.parse(moving).static == op.parse(later).static


# ---- numbers that depend on run-time scalars alone: computed on the host in float64, on every device --------------------
NEAR = 1 - 2.0**-26  # in float32 it is 1


@pytest.mark.parametrize("rule", ["lamb_update_phase1", "mp_lamb_update_phase1"])
def test_the_bias_correction_of_lamb_is_of_float64(rule, ctx, rng):
    (_, g), (W, G) = given(ctx, rng, 2)
    M, V = mx.nd.zeros((3, 5), ctx=ctx), mx.nd.zeros((3, 5), ctx=ctx)
    more = [W] if rule.startswith("mp") else []
    got = getattr(mx.nd, rule)(W, G, M, V, *more, beta1=NEAR, beta2=NEAR, t=1, wd=0.0, epsilon=0.0)
    close(got, np.sign(g))  # m / √v with m = g and v = g²
    close(M * 2.0**26, g), close(V * 2.0**26, g * g)


def test_the_bias_correction_of_ftml_is_of_float64(ctx, rng):
    (w, g), (W, G) = given(ctx, rng, 2)
    d, v, z = (mx.nd.zeros((3, 5), ctx=ctx) for _ in range(3))
    got = mx.nd.ftml_update(W, G, d, v, z, lr=0.5, beta1=0.0, beta2=NEAR, epsilon=0.0, t=1)
    close(got, w - 0.5 * np.sign(g))


@pytest.mark.parametrize("rule, states, more", [("adam_update", 2, {}), ("_nadam_update", 2, {}), ("_lamb_update", 2, {}),
                                                ("_adamax_update", 2, {}), ("rmsprop_update", 1, {"gamma1": NEAR})])
def test_the_share_of_the_new_gradient_is_of_float64(rule, states, more, ctx, rng):
    (_, g), (W, G) = given(ctx, rng, 2)
    W, G = W.reshape((1, 15)), G.reshape((1, 15))
    made = [mx.nd.zeros((1, 15), ctx=ctx) for _ in range(states)]
    getattr(mx.nd._internal, rule)(W, G, *made, lr=0.1, **(more or {"beta1": NEAR, "beta2": NEAR}), out=W)
    close(made[0] * 2.0**26, (g if states == 2 else g * g).reshape(1, 15))
