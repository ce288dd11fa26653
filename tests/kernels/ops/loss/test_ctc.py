"""CTCLoss on both devices. Oracle: a loop over alignments in test_contrib_ops.py; here what varies: lengths, classes, sizes."""

import itertools

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from tritium.engine.run_context import RunContext, ThreadTeam
from tritium.kernels.cpu import c_compile
from tritium.kernels.ops.loss import c_ctc, ctc

KINDS = list(itertools.product([False, True], [False, True], ["first", "last"]))


def loss_of(probabilities, label, blank):
    """-log of the sum over all paths of one sequence, by the recursion of the paper without logarithms."""
    states = [blank]
    for c in label:
        states += [c, blank]
    now = np.zeros(len(states))
    for t, p in enumerate(probabilities):
        before, now = now, np.zeros(len(states))
        for s, c in enumerate(states):
            now[s] = float(s < 2) if t == 0 else before[max(0, s - 1):s + 1].sum() if s else before[0]
            if t and s > 1 and s % 2 and c != states[s - 2]:
                now[s] += before[s - 2]
            now[s] *= p[c]
    return -np.log(now[-2:].sum())


def both(x, ctx, heads, *fixed, **options):
    """The losses, and their derivative."""
    x = mx.nd.array(x, ctx=ctx, dtype="float64")
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.CTCLoss(x, *(mx.nd.array(f, ctx=ctx) for f in fixed), **options)
    y.backward(mx.nd.array(heads, ctx=ctx, dtype="float64"))
    return y.asnumpy(), x.grad.asnumpy()


def case(rng, where, time=5, n=3, classes=5, m=3):
    scores = rng.normal(size=(time, n, classes))
    label = rng.integers(0, classes - 1, (n, m)) + (where == "first")
    label[:, -1] = label[:, 0]
    return scores, label


@pytest.mark.parametrize("use_data, use_label, where", KINDS)
def test_every_kind_of_length_counts_on_cpu_and_gpu(rng, use_data, use_label, where):
    scores, label = case(rng, where)
    ends = 0 if where == "first" else -1
    steps, counts = ([5, 4, 0] if use_data else [5, 5, 5]), [3, 1, 0]
    label = np.where(np.arange(3) < np.array(counts)[:, None], label, ends)
    p = np.exp(scores) / np.exp(scores).sum(2, keepdims=True)
    want = [loss_of(p[:max(1, t), i], label[i, :c], 0 if where == "first" else 4) for i, (t, c) in enumerate(zip(steps, counts))]
    fixed = [label, *(v for v, used in ((steps, use_data), (counts, use_label)) if used)]
    options = {"use_data_lengths": use_data, "use_label_lengths": use_label, "blank_label": where}
    (on_cpu, slope), (on_gpu, same) = (both(scores, ctx, [1, 2, 3], *fixed, **options) for ctx in (mx.cpu(), mx.gpu()))
    assert_close(on_cpu, want)
    assert_close(on_gpu, want)
    assert_close(same, slope)
    given = [mx.nd.array(v) for v in fixed]
    whole = [i for i, t in enumerate(steps) if t]  # without a step there is no derivative, as in MXNet
    check_gradient(lambda x: mx.nd.CTCLoss(x, *given, **options)[whole[0]:whole[-1] + 1], [scores], mx.cpu(), rng)


def in_logarithms(*arrays):
    with np.errstate(divide="ignore", over="ignore"):
        return ctc.losses(*arrays)


def alone(scores, steps, labels, counts, threads=None):
    """Losses, derivative and the samples that are left, in C."""
    loss, derivative = np.full(len(steps), np.nan, "f"), np.full(scores.shape, np.nan, "f")
    left = c_ctc.losses(threads, scores, np.array(steps), labels, np.array(counts), 0, loss, derivative)
    return loss, derivative, left


@pytest.mark.skipif(not c_compile.available(), reason="there is no C compiler")
@pytest.mark.parametrize("time, classes, m, scale",
                         [(1, 2, 1, 1), (7, 5, 0, 1), (20, 9, 8, 3), (300, 40, 100, 1), (60, 30, 20, 8)])
def test_c_computes_what_logarithms_do(rng, time, classes, m, scale):
    n = 11
    scores = (rng.normal(size=(time, n, classes)) * scale).astype("f")
    labels = rng.integers(1, classes, (n, m))
    steps, counts = rng.integers(0, time + 1, n), rng.integers(0, m + 1, n)
    loss, derivative, left = alone(scores, steps, labels, counts)
    want, slope = in_logarithms(scores.astype("d"), steps, labels, counts, 0)
    done = np.setdiff1d(np.arange(n), left)
    assert set(left) <= set(np.flatnonzero(~(want < 800))) | set(np.flatnonzero(scale > 3))
    assert_close(loss[done], want[done].astype("f"))
    assert_close(derivative[:, done], slope[:, done].astype("f"))
    both_threads = alone(scores, steps, labels, counts, RunContext(mx.cpu(), None, ThreadTeam(1)))
    for a, b in zip((loss, derivative, left), both_threads):
        assert a.tobytes() == b.tobytes()


@pytest.mark.skipif(not c_compile.available(), reason="there is no C compiler")
def test_what_double_precision_cannot_hold_is_left_to_logarithms(rng, monkeypatch):
    """The likeliest way, blank last, begins with a step of probability exp(-900), which is 0; another has two of exp(-500). And a
    label that does not fit has no way at all."""
    monkeypatch.setenv("TRITIUM_CPU_CODE", "auto")
    scores = np.zeros((3, 3, 3), "f")
    scores[:, 1] = [[0, -900, -2000], [-1000, -500, 0], [0, -2000, -500]]
    labels, counts = np.array([[1, 2], [1, 2], [1, 1]]), [2, 2, 2]
    for derivative in (np.empty_like(scores), None):
        left = c_ctc.losses(None, scores, np.array([3, 3, 2]), labels, np.array(counts), 0, np.empty(3, "f"), derivative)
        assert left.tolist() == [1, 2]
    x = mx.nd.array(np.concatenate([scores] * 300, axis=1))
    given = mx.nd.array(np.tile(labels, (300, 1))), mx.nd.array([3, 3, 2] * 300)
    assert c_ctc.in_c(3, 900, 3, np.dtype("f"))
    y = mx.nd.CTCLoss(x, *given, use_data_lengths=True).asnumpy()
    want, _ = in_logarithms(scores.astype("d"), np.array([3, 3, 2]), labels, np.array(counts), 0)
    assert abs(want[1] - 900) < 1e-6
    assert_close(y, np.tile(want, 300).astype("f"))


@pytest.mark.parametrize("shape, m", [((1, 1, 1), 1), ((1, 2, 3), 2), ((2, 0, 3), 1), ((5, 2, 70), 0), ((30, 2, 3), 40)])
def test_on_a_gpu_sizes_at_the_edge_are_as_on_the_cpu(rng, shape, m):
    scores, label = rng.normal(size=shape), rng.integers(0, shape[2], (shape[1], m))
    heads = np.arange(1, shape[1] + 1)
    for on_cpu, on_gpu in zip(*(both(scores, ctx, heads, label) for ctx in (mx.cpu(), mx.gpu()))):
        assert_close(on_gpu, on_cpu)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_label_that_does_not_fit_has_no_alignment(ctx, dtype):
    x = mx.nd.zeros((2, 1, 3), ctx=ctx, dtype=dtype)
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.CTCLoss(x, mx.nd.array([[1, 1]], ctx=ctx))
    y.backward()
    assert y.asnumpy().tolist() == [np.inf] and y.dtype == np.dtype(dtype)
    assert_close(x.grad, np.full((2, 1, 3), 1 / 3).astype(dtype))
