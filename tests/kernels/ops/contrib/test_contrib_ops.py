"""Attention's products, columns, Correlation, CTCLoss, positions, straight-through estimators. Oracle: loops and enumeration.
What MXNet 1.9.1 computes is in tests/golden/ops."""

import itertools

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import ParameterError, ShapeError

C = mx.nd.contrib


def wrap(ctx, *arrays, dtype="float64"):
    return [mx.nd.array(a, ctx=ctx, dtype=dtype) for a in arrays]


def test_attention_is_what_its_heads_are(rng, ctx):
    time, batch, heads, depth = 4, 2, 3, 5
    parts = rng.normal(size=(3, time, batch, heads, depth))  # queries, keys, values
    together = np.stack(list(parts), 3).reshape(time, batch, -1)
    scores = C.interleaved_matmul_selfatt_qk(*wrap(ctx, together), heads=heads).asnumpy()
    mix = rng.normal(size=scores.shape)
    values = C.interleaved_matmul_selfatt_valatt(*wrap(ctx, together, mix), heads=heads).asnumpy()
    apart, pairs = parts[0].reshape(time, batch, -1), np.stack(list(parts[1:]), 3).reshape(time, batch, -1)
    assert_close(C.interleaved_matmul_encdec_qk(*wrap(ctx, apart, pairs), heads=heads), scores)
    assert_close(C.interleaved_matmul_encdec_valatt(*wrap(ctx, pairs, mix), heads=heads), values)
    for b, h in itertools.product(range(batch), range(heads)):
        q, k, v = parts[:, :, b, h]
        np.testing.assert_allclose(scores[b * heads + h], q @ k.T / np.sqrt(depth), rtol=1e-10)  # closer than the table
        # closer than the table
        np.testing.assert_allclose(values[:, b, h * depth:(h + 1) * depth], mix[b * heads + h] @ v, rtol=1e-10)


def test_columns_times_filters_are_a_convolution(rng, ctx):
    x, w = rng.normal(size=(2, 3, 6, 5)), rng.normal(size=(4, 3, 3, 2))
    p = {"kernel": (3, 2), "stride": (2, 1), "dilate": (1, 2), "pad": (1, 1)}
    a, f = wrap(ctx, x, w)
    columns = mx.nd.im2col(a, **p)
    want = mx.nd.Convolution(a, f, num_filter=4, no_bias=True, **p).asnumpy()
    assert_close((w.reshape(4, -1) @ columns.asnumpy()).reshape(want.shape), want)
    ones = mx.nd.col2im(mx.nd.ones_like(columns), output_size=(6, 5), **p).asnumpy()  # how many windows read each element
    assert ones.sum() == (columns.asnumpy() != 0).sum()


def test_correlation_walks_its_windows(rng, ctx):
    a, b = rng.normal(size=(2, 2, 6, 5)), rng.normal(size=(2, 2, 6, 5))
    got = mx.nd.Correlation(*wrap(ctx, a, b), kernel_size=3, max_displacement=2, stride1=2, stride2=2, pad_size=3).asnumpy()
    p, q = (np.pad(v, ((0, 0), (0, 0), (3, 3), (3, 3))) for v in (a, b))
    for n, d, i, j in np.ndindex(got.shape):
        y, x = i * 2 + 2, j * 2 + 2
        dy, dx = (d // 3 - 1) * 2, (d % 3 - 1) * 2
        want = (p[n, :, y:y + 3, x:x + 3] * q[n, :, y + dy:y + dy + 3, x + dx:x + dx + 3]).sum() / 18
        assert abs(got[n, d, i, j] - want) < 1e-10


def test_equal_elements_of_a_difference_have_the_slope_above_them():
    a, b = mx.nd.array([[[[1, 1, 0, 2]]]]), mx.nd.array([[[[1, 0, 1, 2]]]])
    for x in (a, b):
        x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.Correlation(a, b, kernel_size=1, max_displacement=0, is_multiply=False)
    y.backward()
    assert y.asnumpy().ravel().tolist() == [0, 1, 1, 0]
    assert a.grad.asnumpy().ravel().tolist() == [1, 1, -1, 1] == (-b.grad).asnumpy().ravel().tolist()  # of MXNet 1.9.1


def spells(path, label, blank):
    merged = [k for k, _ in itertools.groupby(path)]
    return [k for k in merged if k != blank] == label


@pytest.mark.parametrize("label", [[1], [1, 2], [2, 2], []])
@pytest.mark.parametrize("where", ["first", "last"])
def test_ctc_adds_up_every_alignment(rng, ctx, label, where):
    t, k = 4, 3
    scores = rng.normal(size=(t, 1, k))
    p = np.exp(scores[:, 0]) / np.exp(scores[:, 0]).sum(1, keepdims=True)
    blank, shift = (0, 0) if where == "first" else (k - 1, -1)
    label = [c + shift for c in label]
    total = sum(np.prod([p[i, c] for i, c in enumerate(path)])
                for path in itertools.product(range(k), repeat=t) if spells(path, label, blank))
    padded = [label + [0 if where == "first" else -1] * (3 - len(label))]
    got = mx.nd.CTCLoss(*wrap(ctx, scores, padded), blank_label=where)
    assert_close(got, [-np.log(total)])


def test_ctc_counts_only_what_the_lengths_say(rng, ctx):
    scores = rng.normal(size=(5, 2, 4))
    a, label = wrap(ctx, scores, [[1, 2, 3], [3, 1, 1]])
    both = mx.nd.ctc_loss(a, label, *wrap(ctx, [3, 5], [2, 1]), use_data_lengths=True, use_label_lengths=True).asnumpy()
    first = mx.nd.ctc_loss(*wrap(ctx, scores[:3, :1], [[1, 2]])).asnumpy()
    second = mx.nd.ctc_loss(*wrap(ctx, scores[:, 1:], [[3, 0]])).asnumpy()
    np.testing.assert_allclose(both, [first[0], second[0]], rtol=1e-10)  # closer than the table


def test_positions(ctx):
    a = mx.nd.zeros((2, 3), ctx=ctx)
    np.testing.assert_array_equal(C.arange_like(a, start=1, step=2, repeat=2).asnumpy(), [[1, 1, 3], [3, 5, 5]])
    np.testing.assert_array_equal(C.arange_like(a, axis=-1).asnumpy(), [0, 1, 2])
    np.testing.assert_array_equal(C.index_array(a, axes=(1,)).asnumpy()[..., 0], [[0, 1, 2]] * 2)
    rows = C.index_copy(a, mx.nd.array([1, 1], ctx=ctx, dtype="int32"), mx.nd.array([[1, 2, 3], [4, 5, 6]], ctx=ctx))
    np.testing.assert_array_equal(rows.asnumpy(), [[0, 0, 0], [4, 5, 6]])
    counts, edges = mx.nd.histogram(mx.nd.array([0, 1, 1, 2, 5], ctx=ctx), bins=5)
    assert counts.asnumpy().tolist() == [1, 2, 1, 0, 1] and edges.asnumpy().tolist() == [0, 1, 2, 3, 4, 5]
    counts, _ = mx.nd.histogram(mx.nd.array([-1, 0, 1, 4, 9], ctx=ctx), mx.nd.array([0, 1, 5], ctx=ctx))
    assert counts.asnumpy().tolist() == [1, 2]


@pytest.mark.parametrize("name, factor, values", [("round_ste", 1, [-1, 1, 2]), ("sign_ste", 1, [-1, 1, 1]),
                                                  ("gradientmultiplier", -0.5, [-0.6, 0.7, 1.5])])
def test_derivatives_that_are_said(ctx, name, factor, values):
    x = mx.nd.array([-0.6, 0.7, 1.5], ctx=ctx)
    x.attach_grad()
    with mx.autograd.record():
        y = getattr(C, name)(x, **({"scalar": factor} if factor != 1 else {}))
    y.backward(mx.nd.array([1, 2, 3], ctx=ctx))
    assert_close(y, np.array(values, "float32"))
    assert_close(x.grad, np.array([1, 2, 3], "float32") * np.float32(factor))


def test_questions(ctx):
    x = mx.nd.array([1, np.nan, np.inf, -np.inf], ctx=ctx)
    assert C.isnan(x).asnumpy().tolist() == [0, 1, 0, 0]
    assert C.isinf(x).asnumpy().tolist() == [0, 0, 1, 1] and C.isfinite(x).asnumpy().tolist() == [1, 0, 0, 0]
    assert C.allclose(x, x).asscalar() == 0 and C.allclose(x, x, equal_nan=True).asscalar() == 1
    assert C.allclose(x[:1], x[:1] + 1e-3).asscalar() == 0
    assert C.allclose(x[:1], x[:1] + 1e-3, atol=1e-2).asscalar() == 1
    assert mx.nd._internal._alone(x[:1]).shape == C.allclose(x, x).shape == () and C.allclose(x, x).dtype == np.uint8


def test_amp_takes_the_widest_or_the_narrowest(ctx):
    a, b, n = mx.nd.ones(2, ctx=ctx), mx.nd.ones(2, ctx=ctx, dtype="float16"), mx.nd.ones(2, ctx=ctx, dtype="int32")
    wide, narrow = (mx.nd.amp_multicast(a, b, num_outputs=2, cast_narrow=c) for c in (False, True))
    assert {o.dtype for o in wide} == {np.float32} and {o.dtype for o in narrow} == {np.float16}
    assert mx.nd.amp_cast(n, dtype="float16").dtype == np.int32 and mx.nd.amp_cast(a, dtype="float16").dtype == np.float16


@pytest.mark.parametrize("dtypes, want", [
    (("float32", "float64"), ("float32", "float64")), (("float64",) * 2, ("float64",) * 2),
    (("float16", "float32", "float64", "int32"), ("float32", "float32", "float64", "int32"))])
def test_amp_leaves_float64_alone(dtypes, want):
    arrays = [mx.nd.ones(2, dtype=d) for d in dtypes]
    assert [o.dtype for o in mx.nd.amp_multicast(*arrays, num_outputs=len(dtypes))] == [np.dtype(d) for d in want]
    names = "abcd"[:len(dtypes)]
    graph = mx.sym.amp_multicast(*map(mx.sym.Variable, names), num_outputs=len(dtypes))
    assert [np.dtype(d) for d in graph.infer_type(**dict(zip(names, dtypes)))[1]] == [np.dtype(d) for d in want]


def test_amp_waits_for_the_dtype_of_every_array_of_a_graph(ctx):
    """A variable's dtype is known last: it may be the widest."""
    half = mx.sym.amp_cast(mx.sym.Variable("a"), dtype="float16")
    graph = mx.sym.amp_multicast(half, mx.sym.Variable("b"), num_outputs=2)
    executor = graph.simple_bind(ctx, "null", a=(2,), b=(2,))
    assert [o.dtype for o in executor.forward()] == [np.float32] * 2


@pytest.mark.parametrize("call, error, text", [
    (lambda a: C.interleaved_matmul_selfatt_qk(a, heads=4), ShapeError, r"interleaved_matmul_selfatt_qk: \(2, 3, 5\) must be"),
    (lambda a: mx.nd.im2col(a, kernel=(3, 3)), ParameterError, r"im2col: kernel=\(3, 3\), stride=\(1,\)"),
    (lambda a: mx.nd.im2col(a, kernel=(9,)), ShapeError, r"im2col: kernel \(9,\) .* is larger than the padded data"),
    (lambda a: mx.nd.col2im(a, output_size=(4,), kernel=(3,)), ShapeError,
     r"col2im: data \(2, 3, 5\) does not fit output_size=\(4,\)"),
    (lambda a: mx.nd.Correlation(a, a), ShapeError, r"Correlation: data1 \(2, 3, 5\) and data2"),
    (lambda a: mx.nd.Correlation(a, a, kernel_size=2), ParameterError, "Correlation: kernel_size=2 must be odd"),
    (lambda a: mx.nd.CTCLoss(a, a), ShapeError, r"CTCLoss: data \(2, 3, 5\) must be \[time, n, classes\], label \(2, 3, 5\)"),
    (lambda a: C.arange_like(a, repeat=0), ParameterError, "arange_like: repeat=0 must be at least 1"),
    (lambda a: C.index_copy(a, mx.nd.ones(2) * 9, a), ShapeError,
     r"index_vector holds 9 to 9. old_tensor has rows 0 to 1"),
    (lambda a: mx.nd._internal._histogram(a, bin_cnt=3), ParameterError,
     r"_histogram: bin_cnt=3 must be above 0 and needs range"),
    (lambda a: mx.nd.amp_multicast(a, a, num_outputs=3), ParameterError, "amp_multicast: num_outputs=3, but 2 arrays"),
])
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call(mx.nd.ones((2, 3, 5))).asnumpy()
