"""_multi_lamb_update, _multi_mp_lamb_update, _contrib_group_adagrad_update. Oracle: their formulas in float64 NumPy."""

import numpy as np
import pytest
import tritium as mx
from tritium.errors import ParameterError

RATES, DECAYS, STEPS = (0.1, 0.25), (0.01, 0.0), (1, 3)


def lamb(w, g, m, v, rate, decay, t, *, rescale_grad=1.0, clip_gradient=-1.0, lower_bound=-1.0, upper_bound=-1.0,
         bias_correction=True):
    g = g * rescale_grad
    g = np.clip(g, -clip_gradient, clip_gradient) if clip_gradient > 0 else g
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
    up = (m / (1 - 0.9**t), v / (1 - 0.999**t)) if bias_correction else (m, v)
    d = up[0] / (np.sqrt(up[1]) + 1e-6) + decay * w
    length, step = np.linalg.norm(w), np.linalg.norm(d)
    length = max(length, lower_bound) if lower_bound > 0 else length
    length = min(length, upper_bound) if upper_bound > 0 else length
    return w - rate * (length / step if length and step else 1) * d, m, v


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("options", [{}, {"bias_correction": False, "rescale_grad": 0.5, "clip_gradient": 0.3},
                                     {"lower_bound": 0.5, "upper_bound": 1.2}])
def test_every_weight_by_its_own_norms(rng, ctx, half, options):
    kind = "float16" if half else "float32"
    values = [[rng.normal(size=s), rng.normal(size=s).astype(kind), rng.normal(size=s), np.abs(rng.normal(size=s))]
              for s in ((3, 4), (5,))]
    lists = [[mx.nd.array(x, ctx=ctx, dtype=kind if i < 2 else "float32") for x in column]
             for i, column in enumerate(zip(*values))]
    copies = [[mx.nd.array(v[0], ctx=ctx, dtype="float32") for v in values]] if half else []
    update = mx.nd.contrib.multi_mp_lamb_update if half else mx.nd.contrib.multi_lamb_update
    update(*lists, *copies, step_count=STEPS, lrs=RATES, wds=DECAYS, out=lists[0], **options)
    for i, (given, rate, decay, t) in enumerate(zip(values, RATES, DECAYS, STEPS)):
        weight, mean, var = lamb(*(x.astype("float64") for x in given), rate, decay, t, **options)
        np.testing.assert_allclose((copies or lists)[0][i].asnumpy(), weight, 1e-4, 1e-4)
        np.testing.assert_allclose(lists[0][i].asnumpy(), weight, *((2e-3, 2e-3) if half else (1e-4, 1e-4)))
        np.testing.assert_allclose(lists[2][i].asnumpy(), mean, 1e-5, 1e-6)
        np.testing.assert_allclose(lists[3][i].asnumpy(), var, 1e-5, 1e-6)


def test_multi_adamw_takes_lists(rng, ctx):
    made = [[mx.nd.array(np.abs(rng.normal(size=s)), ctx=ctx) for s in ((3, 4), (5,))] for _ in range(4)]
    one_by_one = [[a.copy() for a in column] for column in made]
    mx.nd.contrib.multi_adamw_update(*made, 0.5, RATES, DECAYS, (1.0, 0.5), out=made[0])
    for i, (rate, decay, eta) in enumerate(zip(RATES, DECAYS, (1.0, 0.5))):
        alone = [column[i] for column in one_by_one]
        mx.nd.contrib.adamw_update(*alone, rescale_grad=0.5, lr=rate, wd=decay, eta=eta, out=alone[0])
        assert all((a[i].asnumpy() == b.asnumpy()).all() for a, b in zip(made, alone))


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 2), (4,)])
def test_group_adagrad_has_a_history_a_row(rng, ctx, shape):
    w, g, h = rng.normal(size=shape), rng.normal(size=shape), np.abs(rng.normal(size=(shape[0], *[1] * (len(shape) - 1))))
    weight, grad, history = (mx.nd.array(a, ctx=ctx) for a in (w, g, h))
    mx.nd.contrib.group_adagrad_update(weight, grad, history, lr=0.1, rescale_grad=0.5, clip_gradient=0.3, out=weight)
    g = np.clip(0.5 * g, -0.3, 0.3)
    h = h + (g**2).mean(axis=tuple(range(1, len(shape))), keepdims=True)
    np.testing.assert_allclose(history.asnumpy(), h, 1e-5)
    np.testing.assert_allclose(weight.asnumpy(), w - 0.1 * g / np.sqrt(h + 1e-5), 1e-4, 1e-5)


@pytest.mark.parametrize("call, text", [
    (lambda a: mx.nd.contrib.multi_lamb_update([a], [a], [a], [a], step_count=(0,), lrs=(1,), wds=(0,)), "steps count from 1"),
    (lambda a: mx.nd.contrib.multi_lamb_update([a], [a], [a], [a], step_count=(1, 2), lrs=(1,), wds=(0,)), "num_tensors=1, but"),
])
def test_refusals(call, text):
    with pytest.raises(ParameterError, match=text):
        call(mx.nd.ones(3))
