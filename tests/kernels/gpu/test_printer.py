"""Printed Triton kernels in the interpreter: how operands lie, requests, dtypes, several programs. Oracle: NumPy in
float64, on arrays it broadcasts itself."""

import types

import numpy as np
import pytest
from support.helpers import assert_close
from tritium.dtype import bfloat16
from tritium.kernels.gpu import row as gpu_row
from tritium.kernels.gpu.body import LaunchPlan, StoreTarget
from tritium.kernels.gpu.load import INTERPRET
from tritium.kernels.gpu.printer import plan_launches, triton_source
from tritium.kernels.gpu.reduction import reduction_launches
from tritium.kernels.gpu.target import CodegenTarget
from tritium.kernels.ir import lang as L
from tritium.kernels.ir.expr import cast, const, load, param
from tritium.kernels.op import Expression, Req, Spec

pytestmark = pytest.mark.skipif(not INTERPRET, reason="needs TRITIUM_GPU=interpret")
pytest.importorskip("triton")

F32 = np.dtype("float32")
# scratch comes with rubbish in it, as from a pool
RUN = types.SimpleNamespace(stream=None, workspace=lambda shape, dtype: np.full(shape, 99, dtype))


def run(e, arrays, outs, reqs=None, scalars=(), largest=1 << 16):
    """Print, interpret, and give back the outputs. largest: elements of one program."""
    ins, outs_ = [Spec(a.shape, a.dtype) for a in arrays], [Spec(o.shape, o.dtype) for o in outs]
    plan = plan_launches(e, ins, outs_, reqs or [Req.WRITE] * len(outs), codegen=CodegenTarget(True, largest))
    plan.run(RUN, arrays, outs, scalars)
    return outs[0] if len(outs) == 1 else outs


def normal(*shape, dtype=F32, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def loads(n, dtype=F32):
    return [load(i, dtype) for i in range(n)]


SHAPES = [(), (1,), (7,), (3, 5), (2, 129), (64,), (65,), (0,), (0, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [F32, np.dtype("float64"), np.dtype("float16"), bfloat16], ids=str)
def test_operands_of_one_shape(shape, dtype):
    a, b = normal(*shape, dtype=dtype), normal(*shape, dtype=dtype, seed=1)
    x, y = loads(2, dtype)
    got = run(Expression((L.exp(x) * y + x,)), [a, b], [np.zeros(shape, dtype)], largest=64)
    a, b = a.astype("float64"), b.astype("float64")
    assert_close(got, (np.exp(a) * b + a).astype(dtype))


BROADCAST = [((3, 5), (5,)), ((3, 5), (3, 1)), ((3, 5), (1,)), ((3, 5), ()), ((2, 3, 4, 5), (1, 3, 1, 1)),
             ((2, 3, 4, 5), (3, 1, 5)), ((4, 1, 6), (1, 5, 6)), ((2, 1), (1, 32)), ((1,), (7,)), ((3, 48), (48,)),
             ((0, 3), (3,)), ((2, 3, 2, 3, 2), (3, 1, 3, 1))]


@pytest.mark.parametrize("shapes", BROADCAST, ids=str)
@pytest.mark.parametrize("swap", [False, True])
def test_broadcast_and_its_reduction(shapes, swap):
    """x·y, and the sums over the broadcast axes: the derivative of broadcasting."""
    shapes = shapes[::-1] if swap else shapes
    arrays = [normal(*s, seed=i) for i, s in enumerate(shapes)]
    x, y = loads(2)
    full = np.broadcast_shapes(*shapes)
    want = arrays[0].astype("float64") * arrays[1]
    assert_close(run(Expression((x * y,)), arrays, [np.zeros(full, F32)], largest=32), want.astype(F32))
    for s in shapes:
        if s == full:
            continue
        got = run(Expression((x * y,)), arrays, [np.zeros(s, F32)], largest=32)
        padded = (1,) * (len(full) - len(s)) + s
        axes = tuple(i for i, n in enumerate(padded) if n != full[i])
        assert_close(got, want.sum(axes, keepdims=True).reshape(s).astype(F32))


FOLDS = {"add": np.sum, "mul": np.prod, "maximum": np.max, "minimum": np.min}


@pytest.mark.parametrize("combine", FOLDS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8", "uint8", "bool"])
@pytest.mark.parametrize("kept", [(1, 1, 1), (4, 1, 1), (1, 5, 1), (1, 1, 16), (4, 1, 16), (4, 5, 1)], ids=str)
def test_reductions_match_numpy(combine, dtype, kept):
    a = (normal(4, 5, 16) * 3).astype(dtype)
    axes = tuple(i for i, n in enumerate(kept) if n == 1)
    got = run(Expression((load(0, a.dtype),), combine=combine), [a], [np.zeros(kept, a.dtype)], largest=32)
    with np.errstate(all="ignore"):
        want = FOLDS[combine](a, axis=axes, keepdims=True, **({"dtype": a.dtype} if combine in ("add", "mul") else {}))
    assert_close(got, want, scale=4 if combine == "mul" else 2)  # products of 80 numbers, each rounded


def test_the_largest_of_a_row_with_nan_is_nan():
    a = normal(3, 40)
    a[1, 17] = np.nan
    for combine, kept in (("maximum", (3, 1)), ("minimum", (3, 1)), ("maximum", (1, 40))):
        axis = 1 if kept[1] == 1 else 0
        got = run(Expression((load(0, F32),), combine=combine), [a], [np.zeros(kept, F32)])
        assert_close(got, FOLDS[combine](a, axis=axis, keepdims=True))


def test_reducing_nothing_gives_the_identity():
    for combine, want in (("add", 0), ("mul", 1), ("maximum", -np.inf), ("minimum", np.inf)):
        got = run(Expression((load(0, F32),), combine=combine), [np.zeros((0, 3), F32)], [np.zeros((1, 3), F32)])
        assert (got == want).all()


def test_a_reduction_in_two_stages_equals_one_in_one():
    a = normal(30, 20, 40)
    e = Expression((load(0, F32),))
    for split in (2, 7):
        plan, spec = LaunchPlan(), Spec((1, 20, 1), F32)
        plan.launches += reduction_launches(plan, e, [Spec(a.shape, F32)], StoreTarget(e.outputs[0], spec, Req.WRITE, ("out", 0)),
                                 a.shape, "k", CodegenTarget(True, 32), split=split)
        out = np.zeros((1, 20, 1), F32)
        plan.run(RUN, [a], [out])
        assert len(plan.launches) == 2
        assert_close(out, a.astype("float64").sum((0, 2), keepdims=True).astype(F32), scale=4)  # 1200 terms of both signs
    plan = LaunchPlan()
    total = StoreTarget(e.outputs[0], Spec((1, 1, 1), F32), Req.ADD, ("out", 0))
    plan.launches += reduction_launches(plan, e, [Spec(a.shape, F32)], total, a.shape, "k", CodegenTarget(True, 64), split=9)
    out = np.full((1, 1, 1), 5, F32)
    plan.run(RUN, [a], [out])
    assert_close(out, 5 + a.astype("float64").sum(keepdims=True).astype(F32), scale=10)  # 24000 terms of both signs


@pytest.mark.parametrize("dtype", [F32, np.dtype("float16"), bfloat16, np.dtype("int32"), np.dtype("bool")], ids=str)
def test_write_requests(dtype):
    a, old = (normal(70) * 4).astype(dtype), (normal(70, seed=2) * 4).astype(dtype)
    e = Expression((load(0, dtype) + 1 if dtype.kind != "b" else load(0, dtype),))
    plus = a.astype("float64") + 1 if dtype.kind != "b" else a
    added = old.astype("float64") + plus if dtype.kind != "b" else old | a
    for req, want in ((Req.WRITE, plus), (Req.INPLACE, plus), (Req.ADD, added), (Req.NULL, old)):
        got = run(e, [a], [old.copy()], [req], largest=32)
        assert_close(got, np.asarray(want).astype(dtype))
    in_place = a.copy()
    run(e, [in_place], [in_place], [Req.INPLACE], largest=32)
    assert_close(in_place, np.asarray(plus).astype(dtype))


def test_reductions_run_before_an_input_is_overwritten():
    dy, a, b = normal(6, 8), normal(6, 8, seed=1), normal(8, seed=2)
    g, x, y = loads(3)
    db, da = (dy * a).sum(0), dy * b
    overwritten = b.copy()
    run(Expression((g * y, g * x)), [dy, a, overwritten], [dy, overwritten], [Req.INPLACE, Req.INPLACE])
    assert_close(dy, da)
    assert_close(overwritten, db)


def test_scalars_are_run_time_arguments():
    a = normal(10)
    x = load(0, F32)
    e = Expression((x * param("b") + param("a"),), scalars=("a", "b"))
    assert_close(run(e, [a], [np.zeros(10, F32)], scalars=(2.5, -3.0)), a * -3 + 2.5)
    i = np.arange(10, dtype="int64")
    e = Expression((load(0, i.dtype) + param("a"),), scalars=("a",))
    assert (run(e, [i], [i * 0], scalars=(7.0,)) == i + 7).all()
    d = a.astype("float64")
    e = Expression((load(0, d.dtype) * param("a"),), scalars=("a",))
    assert (run(e, [d], [d * 0], scalars=(0.1,)) == d * 0.1).all()
    assert "0.1" not in triton_source(e, [Spec((3,), d.dtype)], [Spec((3,), d.dtype)], [Req.WRITE])


def test_states_and_outputs_without_inputs():
    w, m = normal(9), normal(9, seed=1)
    x, y = loads(2)
    e = Expression((x - y, y * 0.5), states=((1, 1),))
    moved = m.copy()
    assert_close(run(e, [w, moved], [np.zeros(9, F32)]), w - m)
    assert_close(moved, m * 0.5)
    assert (run(Expression((const(3),)), [], [np.zeros((2, 3), F32)]) == 3).all()
    assert (run(Expression((x,)), [normal(1, 3)], [np.zeros((5, 3), F32)]) == normal(1, 3)).all()


def softmax(x):
    e = L.exp(x - L.row_max(x))
    return e / L.row_sum(e)


def numpy_softmax(a):
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 16), (7, 129), (1, 1), (40, 3), (2, 300)], ids=str)
@pytest.mark.parametrize("longest", [16384, 64])
def test_softmax_of_rows(shape, longest, monkeypatch):
    monkeypatch.setattr(gpu_row, "LONGEST_BLOCK", longest)
    a = normal(*shape) * 5
    x = load(0, F32)
    got = run(Expression((softmax(x),), kind="row"), [a], [np.zeros(shape, F32)])
    assert_close(got, numpy_softmax(a.astype("float64")).astype(F32))


@pytest.mark.parametrize("shape", [(2, 5, 3), (1, 129, 16), (3, 40, 1), (40, 7, 9)], ids=str)
@pytest.mark.parametrize("longest", [16384, 32])
def test_softmax_of_rows_beside_each_other(shape, longest, monkeypatch):
    monkeypatch.setattr(gpu_row, "LONGEST_BLOCK", longest)
    a, w = normal(*shape) * 5, normal(shape[1], 1, seed=1)
    x, v = loads(2)
    got = run(Expression((softmax(x) * v + L.row_index(),), kind="row", axis=-2), [a, w], [np.zeros(shape, F32)])
    want = np.moveaxis(numpy_softmax(np.moveaxis(a, 1, -1).astype("float64")), -1, 1) * w
    assert_close(got, (want + np.arange(shape[1])[:, None]).astype(F32))


@pytest.mark.parametrize("rows, wide", [(40_000, False), (60_000, True)])
def test_many_rows_beside_each_other_have_offsets_of_64_bits(rows, wide):
    spec = Spec((1, 40_000, rows), F32)
    source = triton_source(Expression((softmax(load(0, F32)),), kind="row", axis=-2), [spec], [spec], [Req.WRITE])
    assert ("outer: tl.int64" in source) == wide == ("tl.program_id(0).to(tl.int64)" in source)


def layer_norm(x, gamma, beta, n):
    centred = x - L.row_sum(x) / n
    scale = L.rsqrt(L.row_sum(centred * centred) / n + 1e-5)
    return centred * scale * gamma + beta, scale


@pytest.mark.parametrize("n", [8, 100])
@pytest.mark.parametrize("longest", [16384, 32])
def test_a_row_with_vectors_and_a_value_per_row(n, longest, monkeypatch):
    monkeypatch.setattr(gpu_row, "LONGEST_BLOCK", longest)
    a, gamma, beta = normal(2, 3, n), normal(n, seed=1), normal(n, seed=2)
    y, scale = run(Expression(layer_norm(*loads(3), n), kind="row"), [a, gamma, beta],
                   [np.zeros((2, 3, n), F32), np.zeros((2, 3, 1), F32)], [Req.WRITE, Req.WRITE])
    wide = a.astype("float64")
    inverse = 1 / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    assert_close(scale, inverse.astype(F32))
    assert_close(y, ((wide - wide.mean(-1, keepdims=True)) * inverse * gamma + beta).astype(F32))


def test_a_row_output_reduced_over_the_rows():
    """The derivative by gamma: per row a product, summed over all rows."""
    a, dy = normal(2, 3, 8), normal(2, 3, 8, seed=1)
    x, g = loads(2)
    got = run(Expression((g * softmax(x),), kind="row"), [a, dy], [np.zeros(8, F32)], [Req.WRITE])
    assert_close(got, (dy * numpy_softmax(a)).sum((0, 1)))


@pytest.mark.parametrize("longest", [16384, 16])
def test_a_row_rounded_inside_the_body_is_reduced_in_float32(longest, monkeypatch):
    monkeypatch.setattr(gpu_row, "LONGEST_BLOCK", longest)
    a = normal(3, 40)
    for dtype in (np.dtype("float16"), bfloat16):
        rounded = cast(load(0, F32), dtype)
        got = run(Expression((L.row_sum(rounded) + L.row_max(rounded),), kind="row"), [a], [np.zeros((3, 1), dtype)])
        wide = a.astype(dtype).astype("float64")
        want = wide.sum(-1, keepdims=True).astype(dtype).astype("float64") + wide.max(-1, keepdims=True)
        assert_close(got, want.astype(dtype))


def test_rows_with_nan_and_infinity():
    a = normal(4, 20)
    a[0, 3], a[1, 4], a[2, 5] = np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        want = numpy_softmax(a)
    assert_close(run(Expression((softmax(load(0, F32)),), kind="row"), [a], [np.zeros_like(a)]), want)


def test_every_program_stays_within_the_length():
    source = triton_source(Expression((load(0, F32) + 1,)), [Spec((10,), F32)], [Spec((10,), F32)], [Req.ADD])
    assert source.count("mask=mask") == 3 and source.count("if base + BLOCK <= n") == 1
