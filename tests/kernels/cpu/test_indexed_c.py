"""Index formulas in C. Oracle: the NumPy program, to the bit; for exponentials, within the table of tolerances."""

import functools
import operator

import numpy as np
import pytest
import tritium as mx
from tritium.errors import OperatorError, ParameterError
from tritium.kernels.cpu import c_compile, indexed_kernel
from tritium.kernels.cpu.c_moving import MovingKernel
from tritium.kernels.cpu.c_team import Phases
from tritium.kernels.cpu.indexed_c import BLOCK, indexed_function
from tritium.kernels.cpu.indexed_printer import indexed_kernel as numpy_kernel
from tritium.kernels.declare.index_kernel import put, scatter_kernel
from tritium.kernels.kernel import HostRun, InTurn
from tritium.kernels.op import Req, Spec, registered
from tritium.kernels.ops.tensor.pick import pick_kernel
from tritium.kernels.tolerance import differs
from tritium.lang import argmax, exp, fold, maximum, minimum, where
from tritium.lang import max as largest
from tritium.lang import sum as total

pytestmark = pytest.mark.skipif(c_compile.compiler() is None, reason="no C compiler")


def declared(name, **options):
    return mx.indexed(f"_test_c_{name}", replace=True, **options)


@declared("reverse")
def reverse(at, x):
    return x[(*at[:-1], x.shape[-1] - 1 - at[-1])]


@declared("border", shape=lambda x: tuple(d + 2 for d in x))
def border(at, x):
    source = [i - 1 for i in at]
    inside = functools.reduce(operator.and_, [(i >= 0) & (i < d) for i, d in zip(source, x.shape)])
    return x.at(*source, inside=inside, otherwise=7)


@declared("lookup", free=("index",), shape=lambda x, index: (*index, x[-1]))
def lookup(at, x, index):
    return x[minimum(maximum(index[at[:-1]].astype("int64"), 0), x.shape[0] - 1), at[-1]]


@declared("pairs", shape=lambda a, b: (a[0], b[0]))
def pairs(at, a, b):
    """Products and differences of rows: two even loops, of which one reads the result of the other."""
    dot = total(a.shape[1], lambda k: a[at[0], k] * b[at[1], k])
    return dot + largest(a.shape[1], lambda k: abs(a[at[0], k] - b[at[1], k]) - dot)


@declared("windows", shape=lambda x: (x[0], x[1] - 2, x[2] - 2))
def windows(at, x):
    """Loops in a loop, with values between them that differ along the row, along rows, and from step to step."""
    def line(p):
        edge = x[at[0], at[1] + p, at[2]]
        return edge * total(3, lambda q: x[at[0], at[1] + p, at[2] + q] * x[at[0], at[1] + p, 0]) + total(p, lambda q: x[0, q, 0])

    return total(3, line)


@declared("prefix", free=("n",))
def prefix(at, x, n):
    """A loop that is as long as the data says, inside an even one."""
    return total(2, lambda p: total(n[at[1]].astype("int64"), lambda k: x[at[0], k] + p)) - x[at]


@declared("fibonacci", shape=lambda x: x)
def fibonacci(at, x):
    """Accumulators that change at once; one of them is the same for the whole row."""
    a, b, c = fold(5, (x[at], 1.0, x[at[0], 0]), lambda k, a, b, c: (b, a + b, c + x[at[0], k % x.shape[1]]))
    return a * c - b


@declared("best", outputs=("value", "place"), shape=lambda x: (x[:-1], x[:-1]), dtype=lambda x: (x, "int64"))
def best(at, x):
    return largest(x.shape[-1], lambda k: x[(*at, k)]), argmax(x.shape[-1], lambda k: x[(*at, k)])


@declared("turned", outputs=("channel", "sum"), shape=lambda x: (x, x))
def turned(at, x):
    """Elements of a last axis that share what is computed, and differ by their index and by what they read."""
    all_of = [x[(*at[:-1], k)] for k in range(x.sizes[-1])]
    mean = functools.reduce(operator.add, all_of) * 2
    return where(at[-1] % 2 == 0, all_of[-1], x[at]) - mean, mean + at[-1]


@declared("arithmetic", free=("y",))
def arithmetic(at, x, y):
    return (x[at] // y[at]) * 3 + x[at] % y[at] - where(x[at] > y[at], x[at], -y[at])


@declared("scaled", dtype="float32")
def scaled(at, x, *, by: mx.Scalar = 1.0, rows: int = 2):
    return x[at] * by + at[0] % rows


@declared("gaussian")
def gaussian(at, x):
    return exp(-x[at] * x[at])


@declared("cast", shape=lambda x, *, dtype: x, dtype=lambda x, *, dtype: dtype)
def cast(at, x, *, dtype: str = "int8"):
    return x[at].astype(dtype)


def both(op, arrays, params=None, reqs=None, before=None, monkeypatch=None):
    """The outputs of the NumPy program and of the C function, from outputs that hold `before`."""
    p = op.parse(params or {})
    ins = [Spec(a.shape, a.dtype) for a in arrays]
    _, shapes = op.infer_shape(p, [s.shape for s in ins])
    _, dtypes = op.infer_dtype(p, [s.dtype for s in ins])
    outs = [Spec(s, np.dtype(d)) for s, d in zip(shapes, dtypes)]
    reqs = reqs or [Req.WRITE] * len(outs)
    ((_, program),) = op.programs(p, ins, outs)
    results = []
    for make in (numpy_kernel, indexed_kernel.cpu_kernel):
        y = [np.full(s.shape, 3 if before is None else before, s.dtype) for s in outs]
        make(program, ins, outs, reqs, name=op.name)(HostRun(), list(arrays), y, scalars=p.scalars)
        results.append(y)
    return results


@pytest.fixture(autouse=True)
def _in_c(monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "c")


SHAPES = [(1, 1), (1, 7), (5, 1), (3, 5), (4, BLOCK), (3, 2 * BLOCK + 3)]
CASES = [
    *[(reverse, [s]) for s in [(7,), (3, 5), (2, 3, 4)]], *[(border, [s]) for s in [(1,), (3, 5), (2, 3, 4)]],
    *[(lookup, [s, (6,)]) for s in SHAPES], *[(pairs, [s, (s[1] + 1, s[1])]) for s in SHAPES],
    *[(windows, [s]) for s in [(2, 3, 4), (1, 5, BLOCK + 9)]], *[(prefix, [s, s[1:]]) for s in SHAPES],
    *[(turned, [s]) for s in [(5, 2), (2, 3, 4), (300, 3), (3, 5)]],
    *[(fibonacci, [s]) for s in SHAPES], *[(best, [s]) for s in [(7,), (3, 5), (2, 3, 4), (BLOCK + 1, 3)]],
]


@pytest.mark.parametrize("op, shapes", CASES, ids=lambda v: getattr(v, "name", str(v)))
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_c_gives_the_bits_of_numpy(op, shapes, dtype, rng):
    arrays = [rng.integers(-4, 5, size=s).astype(dtype) if dtype == "int32" else rng.normal(size=s).astype(dtype) for s in shapes]
    if op.name in ("_test_c_lookup", "_test_c_prefix"):
        arrays[1] = rng.integers(0, min(shapes[0]) + 1, size=shapes[1]).astype("int32")
    want, got = both(op, arrays)
    for w, g in zip(want, got):
        assert w.dtype == g.dtype and np.array_equal(w, g)


def test_it_was_c():
    """The other tests compare nothing if both are NumPy."""
    f = indexed_function(*pairs._samples([(3, 5), (4, 5)], "float32", {})[0])
    assert c_compile.function(f) is not None


def test_nan_and_infinity_go_where_numpy_lets_them(rng):
    x = rng.normal(size=(4, 9)).astype("float32")
    x[rng.random(x.shape) < 0.4] = np.nan
    x[rng.random(x.shape) < 0.2] = -np.inf
    for op in (best, reverse):
        for w, g in zip(*both(op, [x])):
            assert np.array_equal(w, g, equal_nan=True)


@pytest.mark.parametrize("have", ["float32", "float64"])
@pytest.mark.parametrize("want", ["int8", "uint8", "int32", "int64", "uint64", "bool", "float32"])
def test_floats_become_integers_as_everywhere(have, want):
    numbers = [s * n for n in (0, 0.5, 1.5, 300.7, 4e4, 2.0**31 - 1, 2.0**31, 3e9, 2.0**63, 1.5 * 2.0**63, 2.0**64, 1e25, np.inf)
               for s in (1, -1)] + [np.nan]
    ((w,), (g,)) = both(cast, [np.array(numbers, have)], {"dtype": want})
    assert np.array_equal(w, g, equal_nan=want == "float32")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint32"])
def test_integers_wrap_and_divide_as_numpys_do(dtype, rng):
    ends = np.iinfo(dtype)
    x = rng.integers(ends.min, ends.max, size=(6, 50), dtype=dtype, endpoint=True)
    y = rng.integers(max(ends.min, -3), 4, size=(6, 50)).astype(dtype)  # 0 and -1 among them
    ((w,), (g,)) = both(arithmetic, [x, y])
    assert np.array_equal(w, g)


@pytest.mark.parametrize("req", [Req.WRITE, Req.ADD])
def test_requests_and_numbers_at_run_time(req, rng):
    x = rng.normal(size=(5, 6)).astype("float32")
    ((w,), (g,)) = both(scaled, [x], {"by": 0.3, "rows": 3}, [req], 0.25)
    assert np.array_equal(w, g)
    (w, g) = both(best, [x], reqs=[Req.NULL, req])
    assert np.array_equal(w[1], g[1]) and (g[0] == 3).all()


@pytest.mark.parametrize("req", [Req.WRITE, Req.ADD])
@pytest.mark.parametrize("reqs", [(1, 0), (0, 1), (1, 1)])
def test_requests_of_elements_that_are_computed_together(req, reqs, rng):
    x = rng.normal(size=(7, 3)).astype("float32")
    want, got = both(turned, [x], reqs=[req if r else Req.NULL for r in reqs], before=0.25)
    for w, g in zip(want, got):
        assert np.array_equal(w, g)


def test_a_short_last_axis_is_no_loop_and_a_long_one_is():
    for last, text in ((3, "* 3 + 2] ="), (9, "[i1] =")):
        assert text in indexed_function(*border._samples([(40, last - 2)], "float32", {})[0]).text


def test_exponentials_agree_within_the_table(rng):
    ((w,), (g,)) = both(gaussian, [rng.normal(size=(40, 50)).astype("float32")])
    assert not differs(g, w, "float32", scale=1)


@pytest.mark.parametrize("dtype, op, reason", [
    ("float16", reverse, "float16 is not computed in C"), ("float64", gaussian, "exp has no C spelling for float64")])
def test_what_c_cannot_say_is_computed_with_numpy(dtype, op, reason, rng):
    x = rng.normal(size=(3, 5)).astype(dtype)
    ((w,), (g,)) = both(op, [x])
    assert np.array_equal(w, g)
    with pytest.raises(OperatorError, match=f"has no C kernel: {reason}. It is computed with NumPy"):
        op.cpu_source((3, 5), dtype=dtype, code="c")


def test_one_function_serves_all_shapes():
    names = {indexed_function(*pairs._samples([(m, k), (n, k)], "float32", {})[0]).name for m, n, k in [(30, 4, 50), (30, 7, 64)]}
    assert len(names) == 1
    (name,) = names
    quick = indexed_function(*pairs._samples([(3, 5), (4, 5)], "float32", {})[0])
    assert quick.quick and quick.name == name.replace("indexed_", "indexed_quick_")  # the same text, for few steps
    text = pairs.cpu_source((3, 4), (5, 4), code="c")
    assert "sizes[0]" in text and "#include" in text
    with pytest.raises(ParameterError, match="code 'fortran' is neither 'numpy' nor 'c'"):
        pairs.cpu_source((3, 4), (5, 4), code="fortran")


def test_results_do_not_depend_on_the_pieces(rng, monkeypatch):
    arrays = [rng.normal(size=(40, 30)).astype("float32"), rng.normal(size=(50, 30)).astype("float32")]
    want, got = both(pairs, arrays)
    for piece in (1, 1000, 20_000):
        monkeypatch.setattr(indexed_kernel, "PIECE", piece)
        assert np.array_equal(both(pairs, arrays)[1][0], want[0])
    assert np.array_equal(want[0], got[0])


def test_read_only_and_bound_arrays(rng):
    x = rng.normal(size=(6, 6)).astype("float32")
    ins, outs = [Spec((6, 6), np.dtype("float32"))], [Spec((6, 6), np.dtype("float32"))]
    ((_, program),) = reverse.programs(reverse.parse({}), ins, outs)
    kernel = indexed_kernel.cpu_kernel(program, ins, outs, [Req.WRITE])
    for writeable in (True, False):
        x.flags.writeable = writeable
        for run in (kernel, lambda r, i, o: kernel.bind(i, o)(r)):
            y = np.zeros((6, 6), "float32")
            run(HostRun(), [x], [y])
            assert np.array_equal(y, x[:, ::-1])


@pytest.mark.parametrize("mode, shape, word", [
    ("numpy", (500, 500), "TRITIUM_CPU_CODE is numpy"), ("auto", (2, 2), indexed_kernel.TOO_SMALL), ("auto", (500, 500), ""),
    ("c", (2, 2), "")])
def test_the_choice_is_a_function_of_formula_and_shape(mode, shape, word, monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", mode)
    f = indexed_kernel.select_function(*border._samples([shape], "float32", {})[0])
    assert (f if isinstance(f, str) else "") == word


def test_what_only_moves_elements_stays_numpys(monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "auto")
    assert indexed_kernel.select_function(*reverse._samples([(2000, 2000)], "float32", {})[0]) == indexed_kernel.TOO_SMALL


def test_without_a_compiler_numpy_computes(monkeypatch, rng):
    monkeypatch.setattr(c_compile, "compiler", lambda: None)
    f = indexed_kernel.select_function(*pairs._samples([(3, 5), (4, 5)], "float32", {})[0])
    assert f == "no C compiler is available"


def test_it_reaches_users(monkeypatch, rng):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "auto")
    a, b = (rng.normal(size=(300, 40)).astype("float32") for _ in range(2))
    called, made = [], indexed_kernel._c_kernel
    monkeypatch.setattr(indexed_kernel, "_c_kernel", lambda *given: called.append(given[0]) or made(*given))
    got = mx.nd._test_c_pairs(mx.nd.array(a), mx.nd.array(b)).asnumpy()
    assert called and registered()["_test_c_pairs"] is pairs
    dot = a.astype("float64") @ b.T.astype("float64")
    want = dot + (np.abs(a[:, None] - b[None]).max(axis=2) - dot)
    assert np.allclose(got, want, rtol=1e-4, atol=1e-4)


def test_explain_says_which_kernels_are_c(monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "auto")
    a, b = mx.sym.Variable("a"), mx.sym.Variable("b")
    both_kinds = mx.sym.Group([mx.sym._test_c_pairs(a, b), mx.sym._test_c_reverse(a)])
    kernels = both_kinds.simple_bind(mx.cpu(), "null", a=(300, 40), b=(300, 40)).explain()
    assert {k.operators[0].partition("(")[2]: k.code for k in kernels} == {"_test_c_pairs)": "C", "_test_c_reverse)": "NumPy"}
    assert all(("indexed_" in k.source) == (k.code == "C") for k in kernels)


# ---- elements put at computed indices -----------------------------------------------------------------------------------
def rows(at, x, index):
    """Row i of x goes to row index[i]: a part of the last axis is apart from the others."""
    return put(x[at], index[at[0]].astype("int64"), at[1])


def windows_of(at, x, index):
    """Elements where a mask holds, twice, at places from data along both axes: no axis is apart."""
    i = (index[at[0]].astype("int64") + at[1]) % 5
    return [put(x[at] * total(3, lambda k: x[at[0], (at[1] + k) % x.shape[1]]), i, i // 2, inside=x[at] > 0),
            put(x[at], i, at[1] % 3)]


def per_image(at, x, index):
    """The first axis is apart; the element does not depend on the last."""
    return put(x[at[0], 0] + 1, at[0], index[at[1] % index.shape[0]].astype("int64"))


@pytest.mark.parametrize("body, out", [(rows, (5, 9)), (windows_of, (5, 3)), (per_image, (8, 5))])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "float16"])
@pytest.mark.parametrize("req", [Req.WRITE, Req.ADD])
@pytest.mark.parametrize("combine", ["add", "maximum"])
def test_elements_are_put_as_numpy_puts_them(body, out, dtype, req, combine, rng, monkeypatch):
    x = rng.integers(-3, 4, size=(8, 9)).astype(dtype)  # whose sums are exact in any order
    index = rng.integers(0, 5, size=8).astype("int32")
    ins, outs = [Spec(a.shape, a.dtype) for a in (x, index)], [Spec(out, x.dtype)]
    results = []
    for mode in ("numpy", "c"):
        monkeypatch.setenv("TRITIUM_CPU_CODE", mode)
        for piece in (indexed_kernel.PIECE, 1):
            monkeypatch.setattr(indexed_kernel, "PIECE", piece)
            kernel = scatter_kernel(body, x.shape, ins, outs, [req], "cpu", "put", combine=combine)
            y = np.full(out, 2, dtype)
            kernel(HostRun(), [x, index], [y])
            bound = np.full(out, 2, dtype)
            kernel.bind([x, index], [bound])(HostRun())
            results += [y, bound]
    assert all(np.array_equal(results[0], r) for r in results[1:]) and (results[0] != 2).any()


@pytest.mark.parametrize("req, steps", [(Req.WRITE, ["move_fill", "indexed"]), (Req.ADD, ["indexed"])])
def test_a_bound_kernel_that_puts_elements_is_c_alone(req, steps, rng, monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "c")
    x, index = rng.normal(size=(40, 70)).astype("float32"), rng.integers(0, 5, size=40).astype("int32")
    y = np.zeros((5, 70), "float32")
    bound = scatter_kernel(rows, x.shape, [Spec(a.shape, a.dtype) for a in (x, index)], [Spec(y.shape, y.dtype)], [req], "cpu",
                           "put").bind([x, index], [y])
    assert isinstance(bound, InTurn) and len(bound.calls) == len(steps) and all(isinstance(c, Phases) for c in bound.calls)


@pytest.mark.parametrize("size, chosen", [(7, "numpy"), (300, "c")])
def test_a_formula_of_some_elements_is_worth_a_function(size, chosen, monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "auto")
    x, index = Spec((size, 4), np.dtype("float32")), Spec((size,), np.dtype("float32"))
    kernel = pick_kernel((size, 4, 1, 1, 1), "clip", [x, index], [index], [Req.WRITE], "cpu", "pick")
    assert isinstance(kernel, MovingKernel) == (chosen == "c")


def test_sums_are_made_in_the_order_of_the_index_space(rng):
    """Float sums depend on their order: they must be those of one loop, whatever the pieces."""
    x, index = rng.normal(size=(400, 70)).astype("float32"), rng.integers(0, 5, size=400).astype("int32")
    want = np.zeros((5, 70), "float32")
    for i in range(400):
        want[index[i]] += x[i]
    y = np.empty_like(want)
    scatter_kernel(rows, x.shape, [Spec(a.shape, a.dtype) for a in (x, index)], [Spec(y.shape, y.dtype)], [Req.WRITE], "cpu",
                   "put")(HostRun(), [x, index], [y])
    assert np.array_equal(y, want)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_a_call_that_puts_elements_is_kept_for_other_arrays(dtype, rng, monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "c")
    x, got = rng.integers(0, 10, 50).astype("float32"), [np.empty(10, dtype) for _ in range(2)]
    kernel = scatter_kernel(lambda at, x: put(1, x[at].astype("int64")), (50,), [Spec((50,), x.dtype)],
                            [Spec((10,), np.dtype(dtype))], [Req.WRITE], "cpu", "counts")
    kernel.run(HostRun(), [x], got[:1])
    assert kernel.at is not None and kernel.at(HostRun(), [x.ctypes.data, got[1].ctypes.data])
    for counts in got:
        assert np.array_equal(counts, np.bincount(x.astype(int), minlength=10))
