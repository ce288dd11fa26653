"""Index formulas: values, derivatives, requests and dtypes against loops in plain Python; what a declaration refuses."""

import functools
import operator
from typing import Literal

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from tritium.dtype import DTYPES
from tritium.errors import DTypeError, OperatorError, ShapeError, TraceError
from tritium.kernels.cpu import indexed_printer
from tritium.kernels.declare.check_op import run_cpu
from tritium.kernels.kernel import HostRun
from tritium.kernels.op import Req, Spec, compiled
from tritium.lang import argmax, exp, floor, fold, log, maximum, minimum, where
from tritium.lang import max as largest
from tritium.lang import sum as total


@mx.indexed("_test_reverse_rows", replace=True)
def reverse_rows(at, x):
    """The rows in reverse order."""
    i, *rest = at
    return x[(x.shape[0] - 1 - i, *rest)]


@reverse_rows.gradient
def _(at, dy):
    i, *rest = at
    return dy[(dy.shape[0] - 1 - i, *rest)]


@mx.indexed("_test_lookup", free=("index",), shape=lambda x, index, **_: (*index, x[-1]), replace=True)
def lookup(at, x, index, *, scale: mx.Scalar = 1.0):
    """Rows of x [n, k] at indices that come from data, cut to the range; times a run-time scalar."""
    i = minimum(maximum(floor(index[at[:-1]]).astype("int64"), 0), x.shape[0] - 1)
    return scale * x[i, at[-1]]


@mx.indexed("_test_pairs", shape=lambda a, b, **_: (*a[:-1], *b[:-1]), replace=True)
def pairs(at, a, b, *, how: Literal["dot", "far"] = "dot"):
    """The product, or the largest difference, of all rows of a with all rows of b."""
    i, j = at[:a.ndim - 1], at[a.ndim - 1:]
    if how == "far":
        return largest(a.shape[-1], lambda k: abs(a[(*i, k)] - b[(*j, k)]))
    return total(a.sizes[-1], lambda k: a[(*i, k)] * b[(*j, k)])


@pairs.gradient("a")
def _(at, dy, b, *, how):
    return total(b.shape[0], lambda j: dy[at[0], j] * b[j, at[1]])


@pairs.gradient("b")
def _(at, dy, a, *, how):
    return total(a.shape[0], lambda i: dy[i, at[0]] * a[i, at[1]])


@mx.indexed("_test_border", shape=lambda x, *, by, **_: tuple(d + 2 * by for d in x), replace=True)
def border(at, x, *, by: int = 1, value: float = 0.0):
    """x with a border."""
    source = [i - by for i in at]
    inside = functools.reduce(operator.and_, [(i >= 0) & (i < d) for i, d in zip(source, x.shape)])
    return x.at(*source, inside=inside, otherwise=value)


@mx.indexed("_test_prefix", free=("length",), shape=lambda x, length, **_: x[:1], replace=True)
def prefix(at, x, length):
    """The sum of the first length[i] elements of row i: a loop as long as the data says."""
    return total(length[at[0]].astype("int64"), lambda k: x[at[0], k])


@mx.indexed("_test_best", outputs=("value", "place", "count"), replace=True,
            shape=lambda x: (x[:-1], x[:-1], (1,)), dtype=lambda x: (x, "int64", "int32"))
def best(at, x):
    """The largest of each row, where it is, and how many numbers of x[0] are positive: outputs of two shapes."""
    if at.output == 2:
        return total(x.shape[-1], lambda k: x[(*[0] * (x.ndim - 1), k)] > 0)
    return (largest(x.shape[-1], lambda k: x[(*at, k)]), argmax(x.shape[-1], lambda k: x[(*at, k)]), 0)


def pairs_oracle(a, b, how="dot"):
    out = np.empty((len(a), len(b)))
    for i in range(len(a)):
        for j in range(len(b)):
            steps = [float(u) * float(v) if how == "dot" else abs(float(u) - float(v)) for u, v in zip(a[i], b[j])]
            out[i, j] = sum(steps) if how == "dot" else max(steps)
    return out


def border_oracle(x, by, value=0.0):
    out = np.full([d + 2 * by for d in x.shape], value)
    for i in np.ndindex(*x.shape):
        out[tuple(k + by for k in i)] = x[i]
    return out


# ---- values -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"])
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (4, 1, 6), (0, 3)])
def test_elements_move_in_every_dtype(ctx, rng, shape, dtype):
    x = rng.integers(0, 2 if dtype == "bool" else 100, size=shape).astype(DTYPES[dtype])
    got = mx.nd._test_reverse_rows(mx.nd.array(x, ctx=ctx, dtype=dtype)).asnumpy()
    assert got.dtype == x.dtype and got.shape == x.shape
    for i in range(shape[0]):
        assert (got[i] == x[shape[0] - 1 - i]).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_indices_come_from_data_and_scalars_at_run_time(ctx, rng, dtype):
    x, at = rng.normal(size=(5, 6)).astype(DTYPES[dtype]), np.array([[3.7, -2, 9], [0, 4.2, 1]], "float32")
    for scale in (0.5, 2.0):
        got = mx.nd._test_lookup(mx.nd.array(x, ctx=ctx, dtype=dtype), mx.nd.array(at, ctx=ctx), scale=scale).asnumpy()
        assert got.dtype == x.dtype
        for i in np.ndindex(2, 3):
            row = min(max(int(np.floor(at[i])), 0), 4)
            assert (got[i] == (x[row].astype("float32") * np.float32(scale)).astype(x.dtype)).all()


@pytest.mark.parametrize("how", ["dot", "far"])
def test_a_loop_sums_or_finds_the_largest(ctx, rng, how):
    a, b = rng.normal(size=(3, 7)).astype("float32"), rng.normal(size=(4, 7)).astype("float32")
    assert_close(mx.nd._test_pairs(mx.nd.array(a, ctx=ctx), mx.nd.array(b, ctx=ctx), how=how), pairs_oracle(a, b, how))


@pytest.mark.parametrize("shape", [(4,), (3, 5), (2, 3, 4), (0, 3)])
@pytest.mark.parametrize("value", [0.0, -1.5])
def test_outside_of_an_array_is_the_other_value(ctx, rng, shape, value):
    x = rng.normal(size=shape).astype("float32")
    got = mx.nd._test_border(mx.nd.array(x, ctx=ctx), by=2, value=value).asnumpy()
    assert (got == border_oracle(x, 2, value)).all()


def test_a_loop_may_be_as_long_as_the_data_says(ctx, rng):
    x, length = rng.integers(-9, 9, size=(5, 8)).astype("float32"), np.array([0, 8, 3, 1, -2], "int32")
    got = mx.nd._test_prefix(mx.nd.array(x, ctx=ctx), mx.nd.array(length, ctx=ctx, dtype="int32")).asnumpy()
    assert got.tolist() == [sum(float(v) for v in row[:max(0, n)]) for row, n in zip(x, length)]


def test_several_outputs_have_their_own_shapes_and_dtypes(ctx, rng):
    x = rng.integers(-9, 9, size=(2, 3, 6)).astype("float32")
    value, place, count = (a.asnumpy() for a in mx.nd._test_best(mx.nd.array(x, ctx=ctx)))
    assert value.dtype == np.float32 and place.dtype == np.int64 and count.dtype == np.int32
    for i in np.ndindex(2, 3):
        row = x[i].tolist()
        assert value[i] == max(row) and place[i] == row.index(max(row))
    assert count.tolist() == [sum(v > 0 for v in x[0, 0])]


def test_the_first_nan_is_the_largest(ctx):
    x = np.array([[1, np.nan, 7, np.nan], [3, 3, 1, 2]], "float32")
    value, place, _ = mx.nd._test_best(mx.nd.array(x, ctx=ctx))
    assert np.isnan(value.asnumpy()[0]) and value.asnumpy()[1] == 3 and place.asnumpy().tolist() == [1, 0]


@mx.indexed("_test_fibonacci", shape=lambda n: n, free=("n",), dtype="int64", replace=True)
def fibonacci(at, n):
    """Two accumulators of which each reads the other."""
    return fold(n[at].astype("int64"), (0, 1), lambda k, a, b: (b, a + b))[0]


def test_accumulators_change_all_at_once(ctx):
    n = np.arange(12).reshape(3, 4)
    known = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]
    assert mx.nd._test_fibonacci(mx.nd.array(n, ctx=ctx, dtype="int32")).asnumpy().ravel().tolist() == known


@mx.indexed("_test_triangle", shape=lambda x: x, replace=True)
def triangle(at, x):
    """Loops in a loop, whose extents differ from element to element; the inner one reads outer counters."""
    return total(at[0] + 1, lambda i: largest(minimum(i, at[1]) + 1, lambda j: x[i, j] * (1 + at[1] - j)))


def test_loops_nest_and_know_the_counters_around_them(ctx, rng):
    x = rng.integers(-9, 9, size=(4, 5)).astype("float32")
    got = mx.nd._test_triangle(mx.nd.array(x, ctx=ctx)).asnumpy()
    for r, c in np.ndindex(4, 5):
        assert got[r, c] == sum(max(float(x[i, j]) * (1 + c - j) for j in range(min(i, c) + 1)) for i in range(r + 1))


@mx.indexed("_test_mix", shape=lambda x: x, dtype="float32", replace=True)
def mix(at, x):
    """Integer arithmetic of indices, also of negative numbers; floor division and modulus as in Python."""
    i, j = at
    far = (i * 7 - j * 3 - 5) // 4 + (i - j) % 3 + (j * j) // 3 - 2 * (i // 2)
    return where(far % 2 == 0, far, -far) + x[i, (j + 1) % x.shape[1]]


def test_index_arithmetic_is_pythons(ctx, rng):
    x = rng.integers(-9, 9, size=(5, 6)).astype("float32")
    got = mx.nd._test_mix(mx.nd.array(x, ctx=ctx)).asnumpy()
    for i, j in np.ndindex(5, 6):
        far = (i * 7 - j * 3 - 5) // 4 + (i - j) % 3 + (j * j) // 3 - 2 * (i // 2)
        assert got[i, j] == (far if far % 2 == 0 else -far) + x[i, (j + 1) % 6]


@mx.indexed("_test_window", shape=lambda x, *, by: (*x[:-1], x[-1] - by + 1), replace=True)
def window(at, x, *, by: int = 3):
    """Sums over windows: views of the input that move with the loop."""
    *lead, i = at
    return total(by, lambda k: x[(*lead, i + k)])


@pytest.mark.parametrize("shape", [(9,), (3, 70001), (5, 7, 3)])
def test_windows_and_arrays_of_several_tiles(ctx, rng, shape):
    x = rng.integers(-9, 9, size=shape).astype("float32")
    got = mx.nd._test_window(mx.nd.array(x, ctx=ctx)).asnumpy()
    assert (got == x[..., :-2] + x[..., 1:-1] + x[..., 2:]).all()


@pytest.mark.parametrize("tile", [1, 6, 20, 64])
def test_results_do_not_depend_on_the_tiles(rng, tile, monkeypatch):
    """Cut along each axis, with threads that run the tiles in reverse, each formula gives the bits of one tile."""
    class Backwards(HostRun):
        def parallel(self, fn, n):
            for i in reversed(range(n)):
                fn(i)

    x, b = rng.normal(size=(4, 6)).astype("float32"), rng.normal(size=(3, 6)).astype("float32")
    at = np.array([[3, 1], [0, 9], [2, 2]], "float32")
    for op, arrays in ((reverse_rows, [x]), (pairs, [x, b]), (border, [x]), (lookup, [x, at]), (triangle, [x]), (mix, [x])):
        p = op.parse({})
        (whole,) = run_cpu(op, p, arrays)
        specs = [Spec(a.shape, a.dtype) for a in arrays]
        outs = [Spec(whole.shape, whole.dtype)]
        monkeypatch.setattr(indexed_printer, "TILE", tile)
        monkeypatch.setattr(indexed_printer, "LOOP_TILE", tile)
        got = np.full_like(whole, -77)
        op.kernel(p, specs, outs, [Req.WRITE], "cpu")(Backwards(), arrays, [got], **({"scalars": p.scalars} if p.scalars else {}))
        monkeypatch.undo()
        assert (got == whole).all(), op.name


# ---- requests, derivatives, graphs ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_results_are_written_added_or_left_out(rng, dtype):
    x = rng.integers(-9, 9, size=(3, 4)).astype(dtype)
    (y,) = run_cpu(reverse_rows, reverse_rows.parse({}), [x])
    held = np.full_like(y, 2)
    run_cpu(reverse_rows, reverse_rows.parse({}), [x], [Req.ADD], [held])
    assert (held == y + 2).all()
    spec = (Spec(x.shape, x.dtype),)
    kernel = compiled(reverse_rows, reverse_rows.parse({}), spec, spec, (Req.NULL,), "cpu")
    kernel(HostRun(), [x], [held])
    assert (held == y + 2).all()


def test_requests_reach_the_gpu(ctx, rng):
    x = mx.nd.array(rng.normal(size=(3, 4)), ctx=ctx)
    x.attach_grad(grad_req="add")
    for _ in range(2):
        with mx.autograd.record():
            y = mx.nd._test_reverse_rows(x)
        y.backward(mx.nd.array(np.arange(12).reshape(3, 4), ctx=ctx))
    assert (x.grad.asnumpy() == 2 * np.arange(12).reshape(3, 4)[::-1]).all()


def test_declared_derivatives_are_the_slopes(ctx, rng):
    check_gradient(lambda a: mx.nd._test_reverse_rows(a), rng.normal(size=(3, 4)), ctx, rng)
    b = mx.nd.array(rng.normal(size=(4, 5)), ctx=ctx, dtype="float64")
    check_gradient(lambda a: mx.nd._test_pairs(a, b), rng.normal(size=(3, 5)), ctx, rng)
    check_gradient(lambda a: mx.nd._test_pairs(b, a), rng.normal(size=(3, 5)), ctx, rng)


DERIVED = {"lookup": (lookup, (5, 6)), "border": (border, (3, 4)), "triangle": (triangle, (4, 5)),
           "window": (window, (3, 9)), "best": (best, (2, 3, 4))}


@pytest.mark.parametrize("name", DERIVED)
def test_derived_derivatives_are_the_slopes(ctx, rng, name):
    op, shape = DERIVED[name]
    more = [mx.nd.array([[3, 1, 1], [0, 9, 1]], ctx=ctx)] if name == "lookup" else []

    def run(a):
        found = op(a, *more)
        return found[0] if name == "best" else found.astype("float64")

    check_gradient(run, rng.normal(size=shape), ctx, rng)


@mx.indexed("_test_smooth_pairs", shape=lambda a, b, **_: (*a[:-1], *b[:-1]), replace=True)
def smooth_pairs(at, a, b, *, power: mx.Scalar = 2.0):
    """A sum of functions of two arrays, and what is outside of the loop."""
    i, j = at
    inside = total(a.shape[1], lambda k: exp(-abs(a[i, k] - b[j, k]) * power) * a[i, k])
    return inside * b[j, 0] + largest(i + 1, lambda k: a[k, 0] * b[j, 1])


def test_the_derivative_of_a_sum_of_functions_is_derived(ctx, rng):
    a, b = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    check_gradient(lambda x: smooth_pairs(x, mx.nd.array(b, ctx=ctx, dtype="float64"), power=1.5), a, ctx, rng)
    check_gradient(lambda x: smooth_pairs(mx.nd.array(a, ctx=ctx, dtype="float64"), x, power=1.5), b, ctx, rng)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_what_is_put_at_one_place_adds_up(ctx, rng, dtype):
    """Whole rows, and elements one by one; half precision adds up in float32."""
    x = mx.nd.array(rng.integers(-3, 3, size=(3, 4)), ctx=ctx, dtype=dtype)
    x.attach_grad()
    index = mx.nd.array([[2, 0, 2], [2, 2, 7]], ctx=ctx)
    dy = rng.integers(-3, 3, size=(2, 3, 4))
    with mx.autograd.record():
        y = lookup(x, index)
    y.backward(mx.nd.array(dy, ctx=ctx, dtype=dtype))
    want = np.zeros((3, 4))
    for i in np.ndindex(2, 3):
        want[min(int(index.asnumpy()[i]), 2)] += dy[i]
    assert (x.grad.asnumpy().astype("float64") == want).all()


def test_graphs_infer_and_compute(ctx, rng):
    symbol = mx.sym._test_lookup(mx.sym.Variable("x"), mx.sym.Variable("index"), scale=2.0)
    assert symbol.infer_shape(x=(5, 6), index=(2, 3))[1] == [(2, 3, 6)]
    x, index = rng.normal(size=(5, 6)).astype("float32"), np.array([[3, 1, 0]], "float32")
    bound = symbol.bind(ctx, {"x": mx.nd.array(x, ctx), "index": mx.nd.array(index, ctx)})
    assert (bound.forward()[0].asnumpy() == 2 * x[[3, 1, 0]][None]).all()


def test_both_sources_can_be_read():
    assert "np.ndarray((3, 4,), d_float32, x0, 32" in reverse_rows.cpu_source((3, 4))
    assert "tl.load(x0" in reverse_rows.triton_source((3, 4))


def test_a_formula_proves_itself_with_given_inputs(rng, capsys):
    lookup.check(rng.normal(size=(5, 6)), np.array([[3, 1, 0], [4, 9, 1]], "float32"), scale=2.0)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["values", "requests", "gradient", "gpu"], lines
    with pytest.raises(AssertionError, match="_test_skewed: gradient is off by"):
        skewed.check(rng.normal(size=(3, 4)))


@mx.indexed("_test_skewed", replace=True)
def skewed(at, x):
    """With a gradient that is wrong."""
    return x[at] * x[at]


@skewed.gradient
def _(at, dy, x):
    return dy[at] * x[at]


# ---- what a declaration refuses --------------------------------------------------------------------------------------------
def declared(body, **options):
    return mx.indexed("_test_refused", replace=True, **{"shape": lambda x, **_: x, **options})(body)


@pytest.mark.parametrize("body, error, text", [
    (lambda at, x: x[at[0]], TraceError, r"x: 1 indices for an array of 2 axes, \(2, 3\) .* Give one for each axis"),
    (lambda at, x: x[at[0], 3], TraceError, r"x: index 3 is outside of an axis of 3"),
    (lambda at, x: x[at[0], -1], TraceError, r"x: index -1 is outside .* x.shape\[axis\] - 1"),
    (lambda at, x: x[at[0], at[1] * 0.5], TraceError, r"an index must be an integer, not float32"),
    (lambda at, x: x[at[0], 1.5], TraceError, r"index 1.5 is not an integer"),
    (lambda at, x: x[at] if at[0] > 1 else 0, TraceError, r"cannot branch on a traced value"),
    (lambda at, x: next(iter(x)), TraceError, r"x: an input of an index formula cannot be iterated"),
    (lambda at, x: (x[at], x[at]), OperatorError, r"returned 2 values for 1 outputs"),
])
def test_a_wrong_body_is_told(body, error, text):
    op = declared(body)
    with pytest.raises(error, match=text):
        op(mx.nd.zeros((2, 3)))


def test_a_counter_does_not_leave_its_loop():
    leaked = []
    op = declared(lambda at, x: total(3, lambda k: (leaked.append(k), x[at])[1]) + leaked[-1])
    with pytest.raises(TraceError, match=r"uses the counter or an accumulator of a loop outside of that loop"):
        op(mx.nd.zeros((2, 3)))


@pytest.mark.parametrize("answer", [None, 3, (2, -1), (2, 1.5), ((2,), (3,)), "ab"])
def test_a_shape_rule_that_answers_nonsense_is_told(answer):
    op = declared(lambda at, x: x[at], shape=lambda x: answer)
    with pytest.raises(OperatorError, match=r"the shape rule returned .* for inputs \(2, 3\). It must return a shape"):
        op(mx.nd.zeros((2, 3)))


def test_a_wrong_declaration_is_told():
    with pytest.raises(OperatorError, match=r"the first argument of an index formula is `at`.*not 'x'"):
        declared(lambda x, y: x)
    with pytest.raises(OperatorError, match=r"free=\['z'\] are not inputs. The inputs are x"):
        declared(lambda at, x: x[at], free=("z",))
    op = declared(lambda at, x: x[at])
    with pytest.raises(OperatorError, match=r"there is no input 'y' to have a gradient. The inputs are x"):
        op.gradient("y")
    with pytest.raises(OperatorError, match=r"the gradient asks for 'z'. It can ask for dy, y, x"):
        op.gradient(lambda at, dy, z: dy[at])
    with pytest.raises(OperatorError, match=r"the first argument of a gradient is `at`, and it must ask for dy"):
        op.gradient(lambda at, x: x[at])


@mx.indexed("_test_log_sum_exp", shape=lambda x: (1,), replace=True)
def log_sum_exp(at, x):
    """Σ log Σ exp(x) over rows: loops beside one another, of which the second reads the first, inside another loop."""
    def row(i):
        top = largest(x.shape[1], lambda k: x[i, k])
        return log(total(x.shape[1], lambda k: exp(x[i, k] - top))) + top

    return total(x.shape[0], row)


def test_the_derivative_of_loops_beside_one_another_is_derived(ctx, rng):
    check_gradient(lambda a: mx.nd._test_log_sum_exp(a), rng.normal(size=(3, 5)), ctx, rng)


def test_a_loop_without_a_derivative_is_told():
    op = declared(lambda at, x: fold(3, 1.0, lambda k, a: a * x[at] + 1))
    x = mx.nd.ones((2, 3))
    x.attach_grad()
    with mx.autograd.record():
        y = op(x)
    with pytest.raises(OperatorError, match=r"the derivative of this loop is not derived.*Declare it with @op.gradient"):
        y.backward()
        x.grad.asnumpy()


def test_inputs_that_do_not_fit_are_told():
    with pytest.raises(DTypeError, match=r"inputs disagree: a float32, b float64"):
        pairs(mx.nd.zeros((2, 3)), mx.nd.zeros((2, 3), dtype="float64"))
    op = mx.indexed("_test_refused", replace=True, shape=_square)(lambda at, x: x[at])
    with pytest.raises(ShapeError, match=r"x \(2, 3\) is not square"):
        op(mx.nd.zeros((2, 3)))


def _square(x):
    if x[0] != x[1]:
        raise ShapeError(f"_test_refused: x {x} is not square.")
    return x
