"""Reductions and rows in C, beside NumPy in float64: values, layouts, requests, edges, and the same bits for any threads."""

import numpy as np
import pytest
from support.helpers import assert_close
from tritium.dtype import as_dtype
from tritium.kernels.cpu import c_compile, rows_kernel
from tritium.kernels.cpu.c_row_function import RowFunction
from tritium.kernels.cpu.c_rows import row_function
from tritium.kernels.cpu.numpy_printer import numpy_kernel
from tritium.kernels.cpu.rows_kernel import rows_in_c, select_row_function
from tritium.kernels.ir import lang
from tritium.kernels.ir.expr import Expr, load
from tritium.kernels.kernel import HostRun, Kernel
from tritium.kernels.op import Expression, Req, Spec

F32 = np.dtype("float32")
X, Y = load(0, F32), load(1, F32)
pytestmark = pytest.mark.skipif(c_compile.compiler() is None, reason="no C compiler here")


@pytest.fixture(autouse=True)
def _c_everywhere(monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "c")


class Threads:
    """A run context with so many threads."""

    stream = None

    def __init__(self, threads):
        self.threads = threads

    def parallel(self, fn, n):
        for i in range(n):
            fn(i)

    def workspace(self, shape, dtype):
        return np.empty(shape, dtype)


def none() -> Kernel:
    raise AssertionError("NumPy was asked")


def computed(roots, arrays, outs, reqs=None, *, run=None, axis=None, combine="add", finishes=()):
    """Compute outs in C, by a run and by a bound kernel, whose bits are the same. Return them."""
    e = Expression(tuple(roots), "elementwise" if axis is None else "row", combine, axis=axis or -1)
    reqs = reqs or [Req.WRITE] * len(outs)
    ins, specs = ([Spec(a.shape, a.dtype) for a in group] for group in (arrays, outs))
    kernel = rows_in_c(e, ins, specs, reqs, none, finishes)
    assert kernel is not None, select_row_function(e, ins, specs, reqs, finishes)
    other = [a.copy() for a in outs]
    kernel.run(run, arrays, outs)
    kernel.bind(arrays, other)(run)
    for a, b in zip(outs, other):
        np.testing.assert_array_equal(a, b)
    return outs


SHAPES = [  # the array, and what is left of it
    ((7,), (1,)), ((64,), (1,)), ((1031,), (1,)), ((100_003,), (1,)), ((700_001,), (1,)),
    ((5, 7), (5, 1)), ((5, 7), (1, 7)), ((3, 1000), (3, 1)), ((1000, 3), (1, 3)), ((2, 5003), (2, 1)), ((5, 5003), (1, 5003)),
    ((300, 4099), (1, 4099)), ((4099, 300), (1, 300)), ((70_001, 8), (1, 8)), ((70_001, 8), (70_001, 1)),
    ((3, 5, 7), (3, 1, 7)), ((3, 5, 7), (1, 5, 1)), ((17, 3, 513), (1, 3, 1)), ((2, 600, 65), (2, 1, 65)), ((3, 5, 7), (1, 1, 7)),
    ((2, 3, 4, 5), (1, 3, 1, 5)), ((2, 3, 4, 5), (2, 1, 4, 1)),
    ((40, 3, 50, 70), (1, 3, 1, 70)), ((40, 3, 50, 70), (40, 1, 50, 1))]


@pytest.mark.parametrize("shape, kept", SHAPES)
def test_sums(shape, kept, rng):
    x = rng.normal(size=shape).astype(F32)
    (got,) = computed([X], [x], [np.full(kept, 9, F32)])
    axes = tuple(i for i, n in enumerate(kept) if n == 1)
    want, length = x.astype("f8").sum(axes, keepdims=True), np.sqrt((x.astype("f8") ** 2).sum(axes, keepdims=True))
    assert (np.abs(got - want) <= 1e-7 * np.abs(want) + 1e-6 * length).all()  # one running sum loses 1e-4 of a million


@pytest.mark.parametrize("shape, kept", SHAPES[::3])
@pytest.mark.parametrize("combine", ["maximum", "minimum", "mul"])
def test_other_folds_and_their_request(shape, kept, combine, rng):
    x = np.exp(rng.normal(size=shape, scale=1e-3)).astype(F32)
    before = rng.normal(size=kept).astype(F32)
    (got,) = computed([X], [x], [before.copy()], [Req.ADD], combine=combine)
    axes = tuple(i for i, n in enumerate(kept) if n == 1)
    function = {"maximum": np.max, "minimum": np.min, "mul": np.prod}[combine]
    assert_close(got, before + function(x.astype("f8"), axes, keepdims=True), scale=10 if combine == "mul" else 1)


@pytest.mark.parametrize("dtype", ["float64", "int8", "uint8", "int32", "int64", "uint64"])
@pytest.mark.parametrize("combine", ["add", "maximum", "minimum"])
def test_other_dtypes_are_exact(dtype, combine, rng):
    x = rng.integers(0, 100, (70, 333)).astype(dtype)
    roots, function = [load(0, np.dtype(dtype))], {"add": np.sum, "maximum": np.max, "minimum": np.min}[combine]
    for kept, axis in (((1, 1), None), ((70, 1), 1), ((1, 333), 0)):
        (got,) = computed(roots, [x], [np.zeros(kept, dtype)], combine=combine)
        np.testing.assert_array_equal(got, function(x, axis, keepdims=True, **({"dtype": dtype} if combine == "add" else {})))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_summed_in_float32_and_rounded_once(dtype, rng):
    half = as_dtype(dtype)
    x, before = rng.normal(size=(150, 700)).astype(half), rng.normal(size=(1, 700)).astype(half)
    wide, read = x.astype("f8"), load(0, half)
    (got,) = computed([read], [x], [before.copy()], [Req.ADD])
    assert_close(got, before.astype("f8") + wide.sum(0, keepdims=True), dtype=half)
    (got,) = computed([read], [np.tile(x, (20, 1))], [np.zeros((1, 1), half)], combine="maximum", finishes=[load(0, F32) * 0.5])
    assert got[0, 0] == half.type(x.astype(F32).max() * 0.5)
    e = np.exp(wide - wide.max(-1, keepdims=True))
    (got,) = computed([softmax(read)], [x], [np.zeros(x.shape, half)], axis=-1)
    assert_close(got, e / e.sum(-1, keepdims=True), dtype=half)
    (got,) = computed([softmax(read)], [x[None]], [np.zeros((1, *x.shape), half)], axis=-2)
    e = np.exp(wide - wide.max(0, keepdims=True))
    assert_close(got[0], e / e.sum(0, keepdims=True), dtype=half)


def test_special_values():
    for values, want in (([np.inf, 1], np.inf), ([np.inf, -np.inf], np.nan), ([np.nan, 1], np.nan), ([-0.0] * 2, -0.0),
                         ([3e38, 3e38, -3e38], 3e38)):
        x = np.zeros(700, F32) if want == want else np.ones(700, F32)
        x = np.full(700, -0.0, F32) if str(want) == "-0.0" else x
        x[5:5 + len(values)] = values
        (got,) = computed([X], [x], [np.zeros(1, F32)])
        if values[0] != 3e38:  # sums of lanes overflow or not by the place of each
            assert str(float(got[0])) == str(float(want))
    x = np.full((3, 700), -np.inf, F32)
    x[1, 3], x[2, 699] = np.nan, 5
    (got,) = computed([X], [x], [np.zeros((3, 1), F32)], combine="maximum")
    np.testing.assert_array_equal(got[:, 0], [-np.inf, np.nan, 5])


def test_a_finishing_step_and_two_outputs(rng):
    x, y = rng.normal(size=(40, 3, 50)).astype(F32), rng.normal(size=(3, 1)).astype(F32)
    dx, dy = computed([X * Y, X * X], [x, y], [np.zeros(x.shape, F32), np.zeros((1, 3, 1), F32)],
                      finishes=[None, lang.sqrt(load(0, F32)) / 3.7])
    assert_close(dx, x.astype("f8") * y)
    assert_close(dy, np.sqrt((x.astype("f8") ** 2).sum((0, 2), keepdims=True)) / 3.7)


def softmax(x: Expr) -> Expr:
    e = lang.exp(x - lang.row_max(x))
    return e / lang.row_sum(e)


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (1, 10), (64, 10), (7, 64), (5, 513), (3, 4097), (2, 16384), (300, 700)])
def test_softmax_along_the_last_axis(shape, rng):
    x = rng.normal(size=shape, scale=3).astype(F32)
    e = np.exp(x.astype("f8") - x.max(-1, keepdims=True))
    (got,) = computed([softmax(X)], [x], [np.zeros(shape, F32)], axis=-1)
    assert_close(got, e / e.sum(-1, keepdims=True))
    e = Expression((softmax(X),), "row")
    spec = Spec(shape, F32)
    of = e, [spec], [spec], [Req.INPLACE]
    (rows_in_c(*of, lambda: numpy_kernel(*of)) or numpy_kernel(*of)).run(None, [x], [x])  # where the input lies
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 5), (2, 1, 70), (3, 7, 64), (2, 100, 65), (5, 4, 1100), (1, 3000, 3),
                                   (30, 40, 130)])
def test_softmax_along_the_axis_before(shape, rng):
    x = rng.normal(size=shape, scale=3).astype(F32)
    e = np.exp(x.astype("f8") - x.max(1, keepdims=True))
    (got,) = computed([softmax(X)], [x], [np.zeros(shape, F32)], axis=-2)
    assert_close(got, e / e.sum(1, keepdims=True))


@pytest.mark.parametrize("rows, n", [(1, 5), (3, 64), (70, 1), (131, 700), (2000, 300)])
def test_layer_norm_and_its_derivatives(rows, n, rng):
    dy, x = rng.normal(size=(2, rows, n)).astype(F32)
    gamma = rng.normal(size=n).astype(F32)

    def body(total, sqrt, dy, x, gamma):
        d = x - total(x) / n
        std = sqrt(total(d * d) / n + 1e-5)
        unit, g = d / std, dy * gamma
        return (g - total(g) / n - unit * (total(g * unit) / n)) / std, dy * unit, dy, total(x) / n

    roots = body(lang.row_sum, lang.sqrt, X, Y, load(2, F32))
    got = computed(roots, [dy, x, gamma], [np.zeros(s, F32) for s in ((rows, n), (1, n), (1, n), (rows, 1))], axis=-1)
    wants = body(lambda a: a.sum(-1, keepdims=True), np.sqrt, *(a.astype("f8") for a in (dy, x, gamma)))
    for g, want in zip(got, (wants[0], wants[1].sum(0, keepdims=True), wants[2].sum(0, keepdims=True), wants[3])):
        assert (np.abs(g - want) <= 2e-5 * np.abs(want).max() + 1e-6).all()


@pytest.mark.parametrize("axis", [-1, -2])
def test_the_index_in_a_row(axis, rng):
    x = rng.normal(size=(6, 90, 70)).astype(F32)
    kept = (6, 90, 1) if axis == -1 else (6, 1, 70)
    label = rng.integers(-1, x.shape[axis] + 1, kept).astype(F32)
    k = np.arange(x.shape[axis]).reshape((-1, 1)[:-1 - axis + 1])
    hit = k == label
    got = computed([lang.where(lang.row_index() == Y, X - 1, X * 2), lang.row_sum(lang.where(lang.row_index() == Y, X, 0))],
                   [x, label], [np.zeros(x.shape, F32), np.zeros(kept, F32)], axis=axis)
    assert_close(got[0], np.where(hit, x - 1, x * 2))
    assert_close(got[1], np.where(hit, x, 0).sum(axis, keepdims=True))


@pytest.mark.parametrize("case", range(5))
def test_any_number_of_threads_gives_the_same_bits(case, rng):
    shapes, outs, roots, axis = [
        ([(1_000_003,)], [(1,)], [X], None), ([(3000, 300)], [(1, 300)], [X], None), ([(300, 3000)], [(300, 1)], [X], None),
        ([(500, 700)], [(500, 700)], [softmax(X)], -1),
        ([(3000, 300)], [(3000, 300), (1, 300)], [X - lang.row_sum(X), X], -1)][case]
    arrays = [rng.normal(size=s).astype(F32) for s in shapes]
    found = [computed(roots, arrays, [np.zeros(s, F32) for s in outs], run=run, axis=axis)
             for run in (None, HostRun(), Threads(2), Threads(7))]
    for other in found[1:]:
        for a, b in zip(found[0], other):
            np.testing.assert_array_equal(a, b)


def test_one_text_serves_all_shapes_of_a_kind_and_constants():
    def function(shape, scale) -> RowFunction:
        found = row_function(Expression((softmax(X * scale),), "row"), [Spec(shape, F32)], [Spec(shape, F32)], [Req.WRITE])
        assert isinstance(found, RowFunction)
        return found

    small, large = function((3, 50), 0.3), function((3000, 5000), 0.7)
    assert small.function == large.function and small.sizes != large.sizes and small.numbers != large.numbers
    assert small.pieces == 1 < large.pieces


def test_which_one_runs_follows_from_sizes_and_the_setting(monkeypatch):
    def chosen(*shape):
        return select_row_function(Expression((X,)), [Spec(shape, F32)], [Spec((1,) * len(shape), F32)], [Req.WRITE])

    monkeypatch.setenv("TRITIUM_CPU_CODE", "auto")
    assert chosen(rows_kernel.LEAST - 1) == "it is too small to be worth compiling"
    assert isinstance(chosen(rows_kernel.LEAST), RowFunction)
    assert chosen(0, 3000) != chosen(3, 3000)
    monkeypatch.setenv("TRITIUM_CPU_CODE", "numpy")
    assert chosen(10**6) == "TRITIUM_CPU_CODE is numpy"


def test_arrays_at_odd_addresses_and_overlapping_ones_are_numpys(rng):
    spec, e = Spec((2000,), F32), Expression((X,))
    at = np.frombuffer(bytearray(8001), np.uint8)[1:8001].view(F32)
    at[:] = 1
    x = rng.normal(size=2000).astype(F32)
    for given, out in ((at, np.zeros(1, F32)), (x, x[5:6])):
        asked = []

        def plain(asked=asked) -> Kernel:
            asked.append(1)
            return Kernel(lambda run, inputs, outputs: None)

        kernel = rows_in_c(e, [spec], [Spec((1,), F32)], [Req.WRITE], plain)
        assert kernel is not None
        kernel.run(None, [given], [out])
        kernel.bind([given], [out])
        assert asked == [1]


def test_an_output_nobody_wants_has_no_array(rng):
    x = rng.normal(size=(50, 60)).astype(F32)
    e, specs = Expression((X, X * X)), [Spec((50, 1), F32)] * 2
    out = np.zeros((50, 1), F32)
    kernel = rows_in_c(e, [Spec(x.shape, F32)], specs, [Req.NULL, Req.WRITE], none)
    assert kernel is not None
    kernel.run(None, [x], [None, out])
    assert_close(out, (x.astype("f8") ** 2).sum(1, keepdims=True))


@pytest.mark.parametrize("wrong, reason", [
    (Expression((load(0, np.dtype("bool")),)), "truth is folded"), (Expression((lang.tan(X),)), "tan has no C spelling")])
def test_reasons(wrong, reason):
    found = row_function(wrong, [Spec((30,), F32)], [Spec((1,), F32)], [Req.WRITE])
    assert isinstance(found, str) and reason in found
