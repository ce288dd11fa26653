"""contrib.attention: values, derivatives, masks, lengths. Oracle: a loop over queries in float64, with all scores."""

import contextlib
import importlib.util
import inspect
import itertools

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from tritium.errors import DTypeError, OperatorError, ShapeError
from tritium.kernels.configs import active as active_configs
from tritium.kernels.gpu.compile import compile_all
from tritium.kernels.gpu.record import FakeArray, FakeRun, record
from tritium.kernels.op import Req
from tritium.kernels.ops.nn import attention, attention_tiles, triton_attention

C = mx.nd.contrib


def oracle(q, k, v, mask=None, causal=False, scale=None):
    """Attention of [..., length, size], query by query; a query without keys gives 0."""
    q, k, v = (np.asarray(a, "float64") for a in (q, k, v))
    scale = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    whole = None if mask is None else np.broadcast_to(mask, (*q.shape[:-1], k.shape[-2]))
    for at in np.ndindex(*q.shape[:-1]):
        row = np.array([scale * np.dot(q[at], key) for key in k[at[:-1]]])
        keys = [j for j in range(len(row)) if not causal or j <= at[-1]]
        if whole is not None and whole.dtype.kind in "iub":
            keys = [j for j in keys if whole[at][j]]
        elif whole is not None:
            row = row + whole[at]
            keys = [j for j in keys if row[j] > -np.inf]
        if keys:
            weights = np.exp(row[keys] - row[keys].max())
            out[at] = weights / weights.sum() @ v[at[:-1]][keys]
    return out


def operands(rng, queries, keys, size=8, value=8, lead=(2, 3)):
    return [rng.normal(size=(*lead, *s)) for s in ((queries, size), (keys, size), (keys, value))]


def wrap(ctx, arrays, dtype="float64"):
    return [mx.nd.array(a, ctx=ctx, dtype=dtype) for a in arrays]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries, keys", [(5, 5), (1, 7), (9, 3), (17, 40)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_values_of_every_dtype(ctx, rng, dtype, queries, keys, causal):
    arrays = wrap(ctx, operands(rng, queries, keys, 8, 6), dtype)
    assert_close(C.attention(*arrays, causal=causal), oracle(*(a.asnumpy() for a in arrays), causal=causal))


@pytest.mark.parametrize("lead, size, value", [((4,), 8, 8), ((1, 1), 1, 1), ((2, 3), 20, 3), ((2, 1), 33, 70)])
def test_any_sizes_of_heads(ctx, rng, lead, size, value):
    arrays = operands(rng, 6, 9, size, value, lead)
    assert_close(C.attention(*wrap(ctx, arrays)), oracle(*arrays))


MASKS = [((2, 3, 6, 9), "float64"), ((1, 1, 6, 9), "float64"), ((2, 1, 1, 9), "bool"), ((6, 1), "float64"), ((3, 6, 9), "int32"),
         ((2, 1, 6, 9), "float32")]


@pytest.mark.parametrize("shape, dtype", MASKS)
@pytest.mark.parametrize("causal", [False, True])
def test_masks_broadcast_and_add_or_choose(ctx, rng, shape, dtype, causal):
    arrays = operands(rng, 6, 9)
    mask = rng.normal(size=shape).astype(dtype) if "float" in dtype else rng.integers(0, 2, shape).astype(dtype)
    got = C.attention(*wrap(ctx, arrays), mx.nd.array(mask, ctx=ctx, dtype=dtype), causal=causal)
    assert_close(got, oracle(*arrays, mask, causal))


@pytest.mark.parametrize("scale", [-0.7, 0.0, 1e-20])
@pytest.mark.parametrize("mask", [None, "float64", "bool"])
@pytest.mark.parametrize("causal", [False, True])
def test_any_scale(ctx, rng, scale, mask, causal):
    arrays = operands(rng, 6, 9)
    given = [] if mask is None else [(rng.normal(size=(6, 9)) if mask == "float64" else rng.integers(0, 2, (6, 9))).astype(mask)]
    masks = [mx.nd.array(m, ctx=ctx, dtype=mask) for m in given]
    want = oracle(*arrays, *given or [None], causal, scale)
    assert_close(C.attention(*wrap(ctx, arrays), *masks, causal=causal, scale=scale), want)
    check_gradient(lambda *a: C.attention(*a, *masks, causal=causal, scale=scale), arrays, ctx, rng)


def test_a_query_that_sees_no_key_gives_0_and_has_no_derivative(ctx, rng):
    arrays = wrap(ctx, operands(rng, 4, 5, lead=(2,)))
    chosen = np.ones((4, 5), "int32")
    chosen[2] = 0
    added = np.where(chosen, 0.0, -np.inf)
    for mask in (mx.nd.array(chosen, ctx=ctx, dtype="int32"), mx.nd.array(added, ctx=ctx, dtype="float64")):
        for a in arrays:
            a.attach_grad()
        with mx.autograd.record():
            y = C.attention(*arrays, mask=mask)
        y.backward()
        assert not y.asnumpy()[:, 2].any() and not arrays[0].grad.asnumpy()[:, 2].any()
        assert np.isfinite(y.asnumpy()).all() and all(np.isfinite(a.grad.asnumpy()).all() for a in arrays)
        assert_close(y, oracle(*(a.asnumpy() for a in arrays), chosen))


def test_no_keys_at_all_give_0(ctx):
    q, k = mx.nd.ones((2, 3, 4), ctx=ctx), mx.nd.zeros((2, 0, 4), ctx=ctx)
    assert C.attention(q, k, k).asnumpy().tolist() == np.zeros((2, 3, 4)).tolist()


@pytest.mark.parametrize("causal, mask, scale", [(False, None, None), (True, None, 0.7), (True, (1, 3, 7, 10), None),
                                                 (False, (2, 1, 1, 10), -0.3)])
def test_gradient_along_a_random_direction(ctx, rng, causal, mask, scale):
    given = [] if mask is None else [mx.nd.array(rng.normal(size=mask), ctx=ctx, dtype="float64")]
    check_gradient(lambda *a: C.attention(*a, *given, causal=causal, scale=scale), operands(rng, 7, 10, 5, 6), ctx, rng)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries, keys", [(150, 600), (300, 530), (530, 300)])
def test_lengths_of_several_tiles(ctx, rng, queries, keys, causal):
    arrays = operands(rng, queries, keys, 4, 4, (1,))
    assert_close(C.attention(*wrap(ctx, arrays), causal=causal), oracle(*arrays, causal=causal))
    check_gradient(lambda *a: C.attention(*a, causal=causal), arrays, ctx, rng)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("queries, keys", [(16, 32), (32, 16), (64, 16)])
def test_tiles_of_every_shape_on_a_gpu(rng, queries, keys, whole, causal):
    """Tiles of more queries than keys, and of fewer: the diagonal of a causal product crosses them in other ways."""
    if mx.context.GPU_MODE != "interpret":
        pytest.skip("a GPU's tiles are larger")
    tile = {"BM": queries, "BN": keys}
    arrays = operands(rng, *((128, 96) if whole else (70 + queries, 90 + keys)), 4, 4, (2,))
    mask = rng.integers(0, 4, arrays[0].shape[:2] + arrays[1].shape[1:2])
    given = mx.nd.array(mask, ctx=mx.gpu(), dtype="int32")
    with contextlib.ExitStack() as stack:
        for template in ("forward", "query", "key"):
            stack.enter_context(active_configs.forced(f"gpu attention {template}", tile))
        assert_close(C.attention(*wrap(mx.gpu(), arrays), given, causal=causal), oracle(*arrays, mask, causal))
        check_gradient(lambda *a: C.attention(*a, causal=causal), arrays, mx.gpu(), rng)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tile", [(4, 6, 48), (8, 31, 1), (23, 5, 1 << 16)])
def test_tiles_of_every_shape_on_a_cpu(rng, monkeypatch, tile, causal):
    for name, size in zip(("QUERIES", "KEYS", "SCORES"), tile):
        monkeypatch.setattr(attention_tiles, name, size)
    arrays = operands(rng, 23 + tile[0], 31 + tile[1], 4, 4)  # shapes for which no kernel was made before
    assert_close(C.attention(*wrap(mx.cpu(), arrays), causal=causal), oracle(*arrays, causal=causal))
    check_gradient(lambda *a: C.attention(*a, causal=causal), arrays, mx.cpu(), rng)


@pytest.mark.parametrize("wanted", [*itertools.product(("null", "write", "add"), repeat=3)], ids=" ".join)
def test_each_derivative_is_written_added_or_left(ctx, rng, wanted):
    names, arrays = ("query", "key", "value"), operands(rng, 5, 6, lead=(2,))
    symbol = mx.sym.contrib.attention(*map(mx.sym.var, names), causal=True)
    start = [rng.normal(size=a.shape) for a in arrays]

    def derivatives(requests):
        args, gradients = (dict(zip(names, wrap(ctx, given))) for given in (arrays, start))
        bound = symbol.bind(ctx, args, gradients, dict(zip(names, requests)))
        bound.forward(is_train=True)
        bound.backward(mx.nd.ones(bound.outputs[0].shape, ctx=ctx, dtype="float64"))
        return [None if (a := bound.grad_dict[n]) is None else a.asnumpy() for n in names]

    for request, got, written, before in zip(wanted, derivatives(wanted), derivatives(["write"] * 3), start):
        if request != "null":
            assert_close(got, written + before if request == "add" else written)


def test_the_same_inputs_give_the_same_bits(ctx, rng):
    arrays = wrap(ctx, operands(rng, 40, 50), "float32")
    results = []
    for _ in range(2):
        for a in arrays:
            a.attach_grad()
        with mx.autograd.record():
            y = C.attention(*arrays, causal=True)
        y.backward()
        results.append([a.asnumpy().tobytes() for a in (y, *(x.grad for x in arrays))])
    assert results[0] == results[1]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize("capability", [80, 90])
def test_in_float64_masks_of_any_type_compile(capability):
    use = attention.Attention(causal=False, scale=0.5, use_mask=True).use([(1, 6, 8), (1, 9, 8), (1, 9, 8), (6, 9)])
    y, q, k, v = (FakeArray((1, n, 8), np.dtype("float64")) for n in (6, 6, 9, 9))
    sums = FakeArray((1, 6), np.dtype("float64"))
    with record(capability) as recorder:
        for kind in ("bool", "int8", "float16", "float64"):
            inputs = [q, k, v, FakeArray((6, 9), np.dtype(kind))]
            triton_attention.forward(FakeRun(), use, inputs, [y, sums], [Req.WRITE] * 2)
            triton_attention.backward(FakeRun(), use, [y, *inputs, y, sums], [q, k, v], [Req.WRITE] * 3)
    assert len(compile_all(recorder.jobs)) == 12


def test_a_symbol_takes_a_mask_by_position_and_by_name_and_keeps_it_in_a_file(rng):
    arrays, mask = operands(rng, 4, 5, lead=(2,)), rng.normal(size=(4, 5))
    q, k, v, m = map(mx.sym.var, "qkvm")
    for symbol in (mx.sym.contrib.attention(q, k, v, m), mx.sym.contrib.attention(q, k, v, mask=m, scale=None)):
        again = mx.sym.load_json(symbol.tojson())
        assert again.list_arguments() == ["q", "k", "v", "m"]
        got = again.eval(ctx=mx.cpu(), **dict(zip("qkvm", wrap(mx.cpu(), [*arrays, mask]))))[0]
        assert_close(got, oracle(*arrays, mask))
    assert mx.sym.contrib.attention(q, k, v).list_arguments() == ["q", "k", "v"]


def test_the_signature_names_the_mask(rng):
    assert list(inspect.signature(C.attention).parameters) == ["query", "key", "value", "mask", "causal", "scale", "out", "name"]


@pytest.mark.parametrize("call, error, text", [
    (lambda a: C.attention(a, a, mx.nd.ones((2, 3, 5))), ShapeError, r"query \(2, 4, 5\), key \(2, 4, 5\) and value \(2, 3, 5\)"),
    (lambda a: C.attention(a, a, a, mx.nd.ones((2, 4))), ShapeError, r"mask \(2, 4\) does not broadcast to the scores"),
    (lambda a: C.attention(a, a, a.astype("float16")), DTypeError, "query, key, value have the dtypes float32, float32, float16"),
    (lambda a: C.attention(*[a.astype("int32")] * 3), DTypeError, "They must have one floating type"),
    (lambda a: C.attention(a, a), OperatorError, "value is missing"),
])
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call(mx.nd.ones((2, 4, 5))).asnumpy()
