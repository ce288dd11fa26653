"""C functions of random expression graphs compute what the NumPy program computes: exactly, but for functions such as tanh."""

import ctypes

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.helpers import assert_close
from tritium.kernels.cpu import c_compile, c_printer
from tritium.kernels.cpu.c_math import BLOCKWISE
from tritium.kernels.cpu.c_printer import c_function, constant, program
from tritium.kernels.cpu.numpy_printer import numpy_kernel
from tritium.kernels.fusion.fused import fused_op
from tritium.kernels.ir.expr import Expr, cast, load, param, prim, topological
from tritium.kernels.ir.primitives import PRIMITIVES
from tritium.kernels.op import Expression, Req, Spec
from tritium.kernels.params import Params

F32 = np.dtype("float32")
needs_compiler = pytest.mark.skipif(c_compile.compiler() is None, reason="no C compiler here")

DTYPES = [np.dtype(d) for d in ("float32", "float64", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "bool")]
SHAPES = [(), (1,), (7,), (3, 5), (2, 129), (700,), (3, 4, 5)]
EXACT = [n for n, r in PRIMITIVES.items() if r.c and not any(f"_{b}(" in r.c for b in BLOCKWISE)]
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 1e-45, 3e38, 127.0, -128.0, 255.0, 2**31 - 1.0, 1e-3]


def sample(dtype, shape, seed):
    """Numbers of dtype with awkward ones among them."""
    rng = np.random.default_rng(seed)
    size = int(np.prod(shape))
    if dtype == np.bool_:
        return (rng.random(shape) < 0.5).reshape(shape)
    if dtype.kind in "iu":
        known = np.iinfo(dtype)
        wide = rng.integers(known.min, known.max, size, dtype=dtype, endpoint=True)
        small = rng.integers(0, 5, size).astype(dtype)
        return np.where(rng.random(size) < 0.5, wide, small).astype(dtype).reshape(shape)
    x = np.where(rng.random(size) < 0.2, rng.choice(EDGES, size), rng.normal(scale=10, size=size))
    return x.astype(dtype).reshape(shape)


@st.composite
def graphs(draw, names=tuple(EXACT), dtypes=tuple(DTYPES), most=12):
    """(roots, input dtypes, input shapes, output dtypes): inputs broadcast to the first one's shape."""
    shape = draw(st.sampled_from(SHAPES))
    n = draw(st.integers(1, 3))
    ins = [draw(st.sampled_from(dtypes)) for _ in range(n)]
    shapes = [shape]
    for _ in range(n - 1):
        keep = [draw(st.booleans()) for _ in shape]
        shapes.append(tuple(d if k else 1 for d, k in zip(shape, keep)))
    pool = [load(i, d) for i, d in enumerate(ins)]
    for _ in range(draw(st.integers(1, most))):
        if draw(st.integers(0, 5)) == 0:
            pool.append(cast(draw(st.sampled_from(pool)), draw(st.sampled_from(dtypes))))
            continue
        row = PRIMITIVES[draw(st.sampled_from(names))]
        args = [draw(st.sampled_from(pool)) if draw(st.integers(0, 4)) else draw(st.sampled_from([0.5, 2, -1, 3.25, 1e-3]))
                for _ in range(row.arity)]
        if all(isinstance(a, (int, float)) for a in args):
            args[0] = pool[0]
        made = prim(row.name, *args)
        if made.op != "const" and made.dtype is not None:  # a number is no root, and infinity not whole
            pool.append(made)
    roots = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3))
    outs = [r.dtype if draw(st.integers(0, 4)) else draw(st.sampled_from(dtypes)) for r in roots]
    return roots, ins, shapes, outs


def run_c(f, arrays, pieces=1):
    loaded = c_compile.function(f)
    assert loaded is not None
    sizes = np.array(f.sizes, np.int64)
    addresses = (ctypes.c_void_p * (len(arrays) + 1))(*(a.ctypes.data for a in arrays), sizes.ctypes.data)
    size = f.layout.size
    for k in range(pieces):
        loaded.free(addresses, k * size // pieces, (k + 1) * size // pieces)


def check(graph, req, pieces, close=False):
    """The C function and the NumPy program, on the same arrays; None where there is no C."""
    roots, dtypes, shapes, out_dtypes = graph
    arrays = [np.array(sample(d, s, i)) for i, (d, s) in enumerate(zip(dtypes, shapes))]
    ins = [Spec(s, d) for s, d in zip(shapes, dtypes)]
    outs = [Spec(shapes[0], d) for d in out_dtypes]
    e = Expression(tuple(roots))
    f = c_function(e, ins, outs, [req] * len(outs))
    if isinstance(f, str):
        assert f
        return
    want, got = ([np.array(sample(s.dtype, s.shape, 9)) for s in outs] for _ in range(2))
    try:
        numpy_kernel(e, ins, outs, [req] * len(outs))(None, arrays, want)
    except OverflowError:  # a constant that the dtype does not have
        raise AssertionError("C computes what NumPy refuses") from None
    run_c(f, [*arrays, *got], pieces)
    for g, w in zip(got, want):
        if close:  # digits are lost where the result nearly cancels what it is added to
            added = np.abs(sample(g.dtype, g.shape, 9)) if req == Req.ADD else 0
            with np.errstate(all="ignore"):
                assert_close(np.where(g == w, 0, np.abs(g - w)) + added + np.abs(w), added + np.abs(w))
            assert (np.isnan(g) == np.isnan(w)).all()
        else:
            np.testing.assert_array_equal(g, w)


SLOW_PROPERTY = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@needs_compiler
@settings(max_examples=25, **SLOW_PROPERTY)
@given(graphs(), st.sampled_from([Req.WRITE, Req.ADD]), st.sampled_from([1, 3]))
def test_arithmetic_is_numpys_to_the_bit(graph, req, pieces):
    check(graph, req, pieces)


@needs_compiler
@settings(max_examples=25, **SLOW_PROPERTY)
@given(graphs(), st.sampled_from([1, 3]))
def test_outputs_past_the_caches_are_numpys_to_the_bit(graph, pieces):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(c_printer, "PAST_CACHES", 0)
        check(graph, Req.WRITE, pieces)


def test_outputs_of_large_arrays_go_past_the_caches_but_where_they_are_added_to_or_lie_on_inputs():
    many = c_printer.PAST_CACHES // 12
    for size, req, past in [(many, Req.WRITE, True), (many - 1, Req.WRITE, False), (many, Req.ADD, False),
                            (many, Req.INPLACE, False)]:
        f = printed([X * Y], [(size,), (size,)], [req])
        assert ("stream(o0 + i, w0, n * sizeof *w0);" in f.text, "STREAMED;" in f.text, "stream" in f.uses) == (past,) * 3


@needs_compiler
@pytest.mark.nightly
@settings(max_examples=1000, **SLOW_PROPERTY)
@given(graphs(most=30), st.sampled_from([Req.WRITE, Req.ADD]), st.sampled_from([1, 3]))
def test_arithmetic_is_numpys_to_the_bit_at_length(graph, req, pieces):
    check(graph, req, pieces)


@needs_compiler
@settings(max_examples=15, **SLOW_PROPERTY)
@given(graphs(names=("add", "mul", "sub", "where", *BLOCKWISE), dtypes=(F32,)), st.sampled_from([Req.WRITE, Req.ADD]))
def test_functions_are_within_the_table_of_tolerances(graph, req):
    """Each by itself: in a chain, and in a sum that cancels, a small difference grows (exp of 80, tanh of a difference)."""
    below = {id(x): sum(y.op in BLOCKWISE for y in topological([x])) for r in graph[0] for x in topological([r])}
    sums = [x for r in graph[0] for x in topological([r]) if x.op in ("add", "sub")]
    if max(below.values()) <= 1 and not any(below[id(x)] for x in sums):
        check(graph, req, 1, close=True)


def with_numbers(seed):
    """(expression, input dtypes): a random formula of arrays and numbers given at run time; results go where inputs lie."""
    rng = np.random.default_rng(seed)
    dtypes = [DTYPES[rng.integers(0, 2)] for _ in range(rng.integers(1, 4))]
    pool = [load(i, d) for i, d in enumerate(dtypes)] + [param("a"), param("b"), param("c")]
    names = [n for n in EXACT if PRIMITIVES[n].rule in ("same", "float") and n != "mod"]
    for _ in range(rng.integers(3, 15)):
        row = PRIMITIVES[names[rng.integers(len(names))]]
        args = [pool[rng.integers(len(pool))] if rng.random() < 0.8 else float(rng.normal()) for _ in range(row.arity)]
        if any(isinstance(x, Expr) for x in args):
            pool.append(prim(row.name, *args))
    roots = [x for x in pool[::-1] if x.dtype is not None][:rng.integers(1, len(dtypes) + 1)]
    return Expression(tuple(roots), states=tuple((k, k) for k in range(1, len(roots))), scalars=("a", "b", "c")), dtypes


@needs_compiler
def test_states_and_numbers_given_at_run_time_are_numpys_to_the_bit():
    made = []
    for seed in range(60):
        e, dtypes = with_numbers(seed)
        ins = [Spec((700,), d) for d in dtypes]
        reqs = [[Req.WRITE, Req.INPLACE, Req.ADD][seed % 3]]
        f = c_function(e, ins, ins[:1], reqs)
        if not isinstance(f, str):
            assert f.exact and f.scalars == 3
            c_compile.request(f)  # all by one call of the compiler
            made.append((seed, e, ins, reqs, f))
    assert len(made) > 40
    for seed, e, ins, reqs, f in made:
        plain, in_c = ([np.array(sample(s.dtype, s.shape, i)) for i, s in enumerate([*ins, ins[0]])] for _ in range(2))
        for scalars in ((0.1, -3.7, 1e-3), (1e60, 2.0, float("nan")), (0.0, -0.0, 1 / 3)):
            numbers = np.array(scalars)
            out = 0 if reqs[0] == Req.INPLACE else -1
            numpy_kernel(e, ins, ins[:1], reqs)(None, plain[:-1], [plain[out]], scalars=scalars)
            results = [in_c[f.states[t]] if t in f.states else in_c[out] for t in f.targets]
            run_c(f, [*in_c[:-1], *results, numbers], 3)
            for a, b in zip(plain, in_c):
                np.testing.assert_array_equal(a, b, err_msg=f"seed {seed}, {scalars}")


# ---- the text -----------------------------------------------------------------------------------------------------------
X, Y = load(0, F32), load(1, F32)


def printed(roots, shapes=((8,),), reqs=None, outs=None):
    n = len(shapes)
    ins = [Spec(s, F32) for s in shapes]
    outs = outs or [Spec(shapes[0], F32)] * len(roots)
    return c_function(Expression(tuple(roots)), ins[:n], outs, reqs or [Req.WRITE] * len(roots))


def test_text_of_a_small_kernel():
    f = printed([X * 2 + 1])
    assert f.text.splitlines() == [
        f"void {f.name}(void *const *arrays, int64_t begin, int64_t end)", "{",
        "    const float *const x0 = arrays[0];",
        "    float *const o0 = arrays[1];",
        "    for (int64_t i = begin; i < end; i += 512) {",
        "        const int64_t n = end - i < 512 ? end - i : 512;",
        "        float a0[512];",
        "        float a1[512];",
        "        const float *v0 = x0 + i;",
        "        if (n < 512) { COPY(a0, v0, n); CLEAR(a0, n, 512); v0 = a0; }",
        "        float *const w0 = n < 512 ? a1 : o0 + i;",
        "        LANEWISE",
        "        for (int j = 0; j < 512; j++) {",
        "            const float t0 = v0[j] * 0x1.0000000000000p+1f;",
        "            const float t1 = t0 + 0x1.0000000000000p+0f;",
        "            const float r0 = t1;",
        "            w0[j] = r0;",
        "        }",
        "        if (n < 512) COPY(o0 + i, w0, n);",
        "    }", "}"]
    assert not f.uses and (f.nodes, f.cost) == (2, 2)


def test_the_text_of_a_dense_kernel_does_not_know_its_size():
    assert printed([X * 2]) == printed([X * 2], [(8,)]) and printed([X * 2]).text == printed([X * 2], [(3, 1000)]).text


@pytest.mark.parametrize("shapes", [
    [(4, 600), (1, 600)], [(7, 3), (7, 1)], [(7, 80), (7, 1)], [(4, 3, 5), (1, 3, 1)], [(9,), (1,)]])
def test_the_text_of_a_broadcast_kernel_does_not_know_its_sizes(shapes):
    larger = [tuple(n if n == 1 else 2 * n + 1 for n in s) for s in shapes]
    small, large = (printed([X * Y], s) for s in (shapes, larger))
    assert small.text == large.text and small.sizes != large.sizes and len(small.sizes) == len(small.layout.dims)


def test_a_long_run_takes_its_number_from_a_register():
    long, short, called = printed([X * Y], [(7, 80), (7, 1)]), printed([X * Y], [(7, 8), (7, 1)]), prim("tanh", X * Y)
    assert "v0[j] * u1" in long.text and "b1" not in long.text and "v0[j] * v1[j]" in short.text
    assert "v0[j] * v1[j]" in printed([called], [(7, 80), (7, 1)]).text


def test_the_larger_of_two_arrays_is_one_comparison():
    assert printed([prim("maximum", X, Y)], [(8,), (8,)]).uses == {"larger_float32"}
    assert printed([prim("maximum", X, 0.0)], [(8,)]).uses == {"max_float32"}


def test_a_function_is_called_for_a_block_and_defined_once():
    f = printed([prim("tanh", prim("tanh", X) + Y)], [(8,), (8,)])
    assert f.text.count("all_tanh_float32(") == 2 and f.uses == {"tanh_float32"} and not f.exact
    text = program([f, printed([prim("log1p", X)])])
    assert text.count("static inline float tanh_float32") == 1
    assert text.index("float log_float32(") < text.index("float log1p_float32(")


@pytest.mark.parametrize(("value", "dtype", "text"), [
    (0.1, "float32", "0x1.99999a0000000p-4f"), (0.1, "float64", "0x1.999999999999ap-4"), (1e60, "float32", "INFINITY"),
    (-0.0, "float32", "(-0x0.0p+0f)"), (float("-inf"), "float64", "(-INFINITY)"), (float("nan"), "float32", "NAN"),
    (3, "int8", "((int8_t)3LL)"), (-(2**63), "int64", "(-INT64_C(9223372036854775807) - 1)"),
    (2**64 - 1, "uint64", "UINT64_C(18446744073709551615)"), (True, "bool", "1")])
def test_numbers(value, dtype, text):
    assert constant(value, np.dtype(dtype)) == text


HALF = np.dtype("float16")


@pytest.mark.parametrize(("roots", "outs", "reason"), [
    ((cast(X, np.dtype("float64")),), [Spec((8,), HALF)], "float64 becomes float16, which rounds once"),
    ((prim("tan", X),), None, "tan has no C spelling for float32"),
    ((prim("exp", cast(X, np.dtype("float64"))),), [Spec((8,), np.dtype("float64"))], "exp has no C spelling for float64"),
    ((X + 1,), [Spec((1,), F32)], "an output is summed, or nothing is computed"),
])
def test_reasons_why_there_is_none(roots, outs, reason):
    assert printed(roots, outs=outs) == reason


def test_values_of_scalars_alone_are_computed_once_in_double_precision():
    e = Expression(((param("b") * param("a") + 1) * X,), scalars=("a", "b"))
    f = c_function(e, [Spec((8,), F32)], [Spec((8,), F32)], [Req.WRITE])
    assert f.scalars == 2 and f.nodes == 3 and f.cost == 1
    lines = [t.strip() for t in f.text.splitlines()]
    assert lines[4:9] == ["const double *const numbers = arrays[2];", "const double s0 = numbers[1];",
                          "const double s1 = numbers[0];", "const double s2 = s0 * s1;",
                          "const double s3 = s2 + 0x1.0000000000000p+0;"]
    assert "const float t0 = (float)(s3) * v0[j];" in lines


def test_names_never_reach_the_text(cpu_code):
    """Whatever an operator is called: a function's name is made of its text."""
    cpu_code("c")
    op = fused_op(Expression((X * 2,)), 1, name='"; } int main() { system("true"); } /*')
    spec = [Spec((1_000_000,), F32)]
    f = op.c_code(Params({}), spec, spec, [Req.WRITE])
    assert f.text == printed([X * 2]).text and "system" not in f.text
