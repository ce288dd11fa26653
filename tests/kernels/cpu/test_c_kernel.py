"""Kernels of fused groups on the CPU: C and NumPy agree whatever the requests, sharing and layout, and which runs is decided
by graph, shape and machine."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import OperatorError, ParameterError
from tritium.kernels.cpu import c_compile, c_kernel
from tritium.kernels.cpu.c_kernel import PIECE, bind_in_c, cpu_kernel, select_c_function, worth_compiling
from tritium.kernels.cpu.c_moving import MovingKernel
from tritium.kernels.cpu.c_printer import CFunction, c_function
from tritium.kernels.cpu.numpy_printer import numpy_kernel
from tritium.kernels.ir import lang
from tritium.kernels.ir.expr import load, param
from tritium.kernels.op import Expression, Req, Spec, get

F32 = np.dtype("float32")
X, Y = load(0, F32), load(1, F32)
needs_compiler = pytest.mark.skipif(c_compile.compiler() is None, reason="no C compiler here")


@pytest.fixture(autouse=True)
def _c_everywhere(monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "c")


class Threads:
    """A RunContext that runs parts out of order, and counts them."""

    parts = 0

    def parallel(self, fn, n):
        self.parts += n
        for k in reversed(range(n)):
            fn(k)


def both(roots, arrays, outs, reqs, run=None, in_c=True):
    """The outputs by C, asserted to be NumPy's to the bit. outs: arrays, which may be among the inputs."""
    e = Expression(tuple(roots))
    ins, out_specs = ([Spec(a.shape, a.dtype) for a in group] for group in (arrays, outs))
    memory = {id(a): a.copy() for a in (*arrays, *outs)}
    numpy_kernel(e, ins, out_specs, reqs)(None, [memory[id(a)] for a in arrays], [memory[id(a)] for a in outs])
    assert isinstance(select_c_function(e, ins, out_specs, reqs), CFunction) == in_c
    cpu_kernel(e, ins, out_specs, reqs, "k").bind(arrays, outs)(run)
    for a in outs:
        np.testing.assert_array_equal(a, memory[id(a)])


@needs_compiler
@pytest.mark.parametrize("n", [1, 5, 512, 513, 3 * PIECE + 7])
@pytest.mark.parametrize("first, second", [(a, b) for a in range(3) for b in range(3) if a != b])
def test_outputs_may_lie_where_inputs_lie(first, second, n, rng):
    """first, second: where each output lies: on input 0, on input 1, or (2) on memory of its own."""
    x, y = rng.normal(size=n).astype(F32), rng.normal(size=n).astype(F32)
    memory = [x, y, np.empty_like(x)]
    both([lang.where(X > 0, X, Y), X - Y], [x, y], [memory[first], memory[second]],
         [Req.INPLACE if at < 2 else Req.WRITE for at in (first, second)])


@needs_compiler
@pytest.mark.parametrize("shapes", [
    ((), ()), ((1,), (1,)), ((7,), ()), ((3, 5), (1, 5)), ((3, 5), (3, 1)), ((4, 3, 5), (1, 3, 1)), ((4, 3, 5), (4, 1, 5)),
    ((2, 600), (1, 600)), ((600, 2), (600, 1)), ((5, 1000), (1, 1)), ((9, 129), (9, 1)), ((3, 7, 64), (1, 7, 1)),
    ((2, 3, 700), (2, 1, 1)), ((3, 512), (3, 1))])
@pytest.mark.parametrize("req", [Req.WRITE, Req.ADD])
def test_broadcast(shapes, req, rng):
    x, y = (rng.normal(size=s).astype(F32) for s in shapes)
    x, y = np.asarray(x), np.asarray(y)
    both([X * Y + 1, Y - X], [x, y], [np.full(x.shape, 3, F32), np.full(x.shape, 4, F32)], [req, Req.WRITE])


@needs_compiler
def test_an_output_nobody_wants(rng):
    x = rng.normal(size=9).astype(F32)
    e, spec = Expression((X * 2, X * 3)), Spec((9,), F32)
    out = np.zeros(9, F32)
    cpu_kernel(e, [spec], [spec, spec], [Req.NULL, Req.ADD], "k").bind([x], [None, out])(None)
    assert (out == x * 3).all()


@needs_compiler
def test_pieces_are_cut_by_size_alone(rng):
    x, run = rng.normal(size=5 * PIECE + 1).astype(F32), Threads()
    both([(X * 2 + 1) * X], [x], [np.empty_like(x)], [Req.WRITE], run)
    assert run.parts == 6


class Team(Threads):
    threads = 2


@needs_compiler
@pytest.mark.parametrize("run", [None, Threads(), Team()], ids=["alone", "in Python", "in C"])
@pytest.mark.parametrize("n", [1, 513, 5 * PIECE + 7])
def test_calls_with_other_arrays_each_time(n, run, rng):
    """Sharing, broadcasting, states and numbers of the call, as imperative calls have them."""
    e = Expression((X - param("lr") * Y, param("m") * Y + X), states=((1, 1),), scalars=("lr", "m"))
    ins = [Spec((n,), F32)] * 2
    kernel, plain = cpu_kernel(e, ins, ins[:1], [Req.INPLACE], "k"), numpy_kernel(e, ins, ins[:1], [Req.INPLACE])
    for scalars in ((0.1, 0.9), (0.05, 0.5)):
        in_c = [rng.normal(size=n).astype(F32) for _ in range(2)]
        want = [a.copy() for a in in_c]
        kernel.run(run, in_c, in_c[:1], scalars=scalars)
        plain.run(None, want, want[:1], scalars=scalars)
        for a, b in zip(in_c, want):
            np.testing.assert_array_equal(a, b)
    x, row, out = rng.normal(size=(n, 3)).astype(F32), rng.normal(size=3).astype(F32), np.empty((n, 3), F32)
    specs = [Spec((n, 3), F32), Spec((1, 3), F32)]
    cpu_kernel(Expression((X * Y,)), specs, specs[:1], [Req.WRITE], "k").run(run, [x, row], [out])
    np.testing.assert_array_equal(out, x * row)


@needs_compiler
def test_a_call_leaves_arrays_that_c_does_not_take_to_numpy(rng):
    n = 1500
    kernel = cpu_kernel(Expression((X * 2,)), [Spec((n,), F32)], [Spec((n,), F32)], [Req.WRITE], "k")
    memory = rng.normal(size=4 * n).astype(F32)
    for x, out in ((memory[:n], memory[10:n + 10]), (memory[:2 * n:2], np.empty(n, F32)),
                   (np.frombuffer(b"x" + memory.tobytes(), F32, n, 1), np.empty(n, F32))):
        want = x * np.float32(2)
        kernel.run(None, [x], [out])
        np.testing.assert_array_equal(out, want)
    x, out = memory[:n], np.empty(n, F32)
    x.flags.writeable = False
    kernel.run(None, [x], [out])
    np.testing.assert_array_equal(out, x * 2)


@needs_compiler
def test_memory_that_overlaps_otherwise_and_strided_views_are_left_to_numpy(rng):
    n = 1500  # several blocks
    for arrays, out in (
            (lambda m: [m[:n]], lambda m: m[10:n + 10]),  # shifted
            (lambda m: [m[:n]], lambda m: m.view("float64")[:n]),  # wider elements
            (lambda m: [m[:2 * n:2]], lambda m: m[2 * n:3 * n]),  # not dense
    ):
        memory = rng.normal(size=4 * n).astype(F32)
        want = arrays(memory)[0].copy() * np.float32(2)
        ins, target = arrays(memory), out(memory)
        e = Expression((X * 2,))
        call = cpu_kernel(e, [Spec((n,), F32)], [Spec((n,), target.dtype)], [Req.WRITE], "k").bind(ins, [target])
        call(None)
        np.testing.assert_array_equal(target, want.astype(target.dtype))


def test_c_is_for_groups_that_pay(monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "auto")
    monkeypatch.setattr(c_compile, "available", lambda: True)

    def decided(nodes, size):
        root = X
        for _ in range(nodes):
            root = root * 1.5
        return select_c_function(Expression((root,)), [Spec((size,), F32)], [Spec((size,), F32)], [Req.WRITE])

    assert decided(3, 1000) == "it is too small to be worth compiling" == decided(1, 4000)
    assert not isinstance(decided(60, 10), str) and not isinstance(decided(3, 100_000), str)
    monkeypatch.setattr(c_compile, "available", lambda: False)
    assert decided(60, 10) == "no C compiler is available"
    monkeypatch.setenv("TRITIUM_CPU_CODE", "numpy")
    assert decided(60, 10) == "TRITIUM_CPU_CODE is numpy"


def test_functions_that_run_together_pay_together(monkeypatch):
    spec, wanted = Spec((10,), F32), []
    root = X
    for _ in range(8):
        root = root * 1.5
    f = c_function(Expression((root,)), [spec], [spec], [Req.WRITE])
    monkeypatch.setattr(c_compile, "available", lambda: True)
    monkeypatch.setattr(c_compile, "request", wanted.append)
    for mode, few, many in (("auto", False, True), ("c", True, True), ("numpy", False, False)):
        monkeypatch.setenv("TRITIUM_CPU_CODE", mode)
        assert (worth_compiling([f] * 3), worth_compiling([f] * 4), worth_compiling([])) == (few, many, False)
    assert len(wanted) == 4 + 3 + 4
    monkeypatch.setattr(c_compile, "available", lambda: False)
    monkeypatch.setenv("TRITIUM_CPU_CODE", "c")
    assert not worth_compiling([f] * 4) and len(wanted) == 11


@needs_compiler
@pytest.mark.parametrize("n", [5, 3 * PIECE + 7])
def test_states_lie_where_their_inputs_lie_and_numbers_change_from_run_to_run(n, rng):
    e = Expression((X - param("lr") * Y, param("m") * Y + X), states=((1, 1),), scalars=("lr", "m"))
    ins = [Spec((n,), F32)] * 2
    plain, in_c = ([a.copy() for a in pair] for pair in [[rng.normal(size=n).astype(F32) for _ in range(2)]] * 2)
    f = c_function(e, ins, ins[:1], [Req.INPLACE])
    call, run = bind_in_c(f, in_c, in_c[:1]), Threads()
    bound_plain = numpy_kernel(e, ins, ins[:1], [Req.INPLACE]).bind(plain, plain[:1])
    for scalars in ((0.1, 0.9), (0.05, 0.9)):
        call(run, scalars)
        bound_plain(None, scalars)
        for a, b in zip(in_c, plain):
            np.testing.assert_array_equal(a, b)
    assert run.parts == (0 if n < PIECE else 8)


def test_without_a_compiler_numpy_computes(monkeypatch, rng):
    monkeypatch.setattr(c_kernel.c_compile, "available", lambda: False)
    both([X * 2], [rng.normal(size=9).astype(F32)], [np.empty(9, F32)], [Req.WRITE], in_c=False)
    monkeypatch.undo()
    monkeypatch.setenv("TRITIUM_CPU_CODE", "c")
    monkeypatch.setattr(c_compile, "function", lambda f: None)  # it was there, but failed
    x, out, spec = rng.normal(size=9).astype(F32), np.empty(9, F32), Spec((9,), F32)
    cpu_kernel(Expression((X * 2,)), [spec], [spec], [Req.WRITE], "k").bind([x], [out])(None)
    assert (out == x * 2).all()


@needs_compiler
def test_a_bound_graph_reports_whether_c_or_numpy_computes_it(monkeypatch):
    x = mx.sym.Variable("x")
    y = mx.sym.tanh(mx.sym.FullyConnected(x * 2 + 1, num_hidden=3, name="f") * 3)
    found = {k.operators[-1]: k for k in y.simple_bind(mx.cpu(), x=(4, 5), grad_req="null").explain()}
    (whole,) = (k for k in found.values() if "FullyConnected" not in str(k.operators))
    assert whole.code == "C" and "void kernel_" in whole.source and " C " in str(whole)
    assert all(k.code in ("C", "C, NumPy") for k in found.values())
    monkeypatch.setenv("TRITIUM_CPU_CODE", "numpy")
    for k in y.simple_bind(mx.cpu(), x=(4, 5), grad_req="null").explain():
        assert k.code == "NumPy" and "not in C: TRITIUM_CPU_CODE is numpy" in str(k)


@needs_compiler
def test_sums_and_steps_with_c_and_numpy_agree(monkeypatch, rng):
    data = rng.normal(size=(64, 300)).astype(F32)
    found = []
    for mode in ("c", "numpy"):
        monkeypatch.setenv("TRITIUM_CPU_CODE", mode)
        x = mx.sym.Variable("x")
        y = mx.sym.log(1 + mx.sym.exp(mx.sym.tanh(x * 1.5) - 0.25)) * x
        ex = y.simple_bind(mx.cpu(), x=data.shape)
        ex.arg_dict["x"][:] = data
        ex.forward(is_train=True)
        ex.backward(mx.nd.ones(data.shape))
        found.append((ex.outputs[0].asnumpy(), ex.grad_dict["x"].asnumpy(), {k.code for k in ex.explain()}))
    assert found[0][2] == {"C"} and found[1][2] == {"NumPy"}
    assert_close(found[0][0], found[1][0])
    assert_close(found[0][1], found[1][1])


def test_source_of_an_operator():
    assert get("tanh").cpu_source((4,)).startswith("def tanh(")
    assert "float tanh_float32(float x)" in get("tanh").cpu_source((4,), code="c")
    with pytest.raises(OperatorError, match=r"tan: has no C kernel: tan has no C spelling for float32\. It is computed"):
        get("tan").cpu_source((4,), code="c")
    with pytest.raises(ParameterError, match="cpu_source: code 'fortran' is neither 'numpy' nor 'c'"):
        get("tanh").cpu_source((4,), code="fortran")


@needs_compiler
def test_updates_in_place_are_c_from_few_elements_on(monkeypatch):
    """Their arrays stay, as those of a bound graph do; the bits are NumPy's."""
    monkeypatch.setenv("TRITIUM_CPU_CODE", "auto")
    op = get("sgd_mom_update")
    p = op.parse({"lr": 0.1, "momentum": 0.9})

    def kernel(size, req):
        spec = Spec((size,), np.dtype("f"))
        return op.kernel(p, [spec] * 3, [spec], (req,), "cpu")

    assert isinstance(kernel(1024, Req.INPLACE), MovingKernel)
    assert not isinstance(kernel(1024, Req.WRITE), MovingKernel) and not isinstance(kernel(16, Req.INPLACE), MovingKernel)
    arrays = np.random.default_rng(0).normal(size=(3, 1024)).astype("f")
    results = []
    for code in ("numpy", "auto"):
        monkeypatch.setenv("TRITIUM_CPU_CODE", code)
        w, g, mom = (a.copy() for a in arrays)
        kernel(1024, Req.INPLACE).run(None, [w, g, mom], [w], scalars=p.scalars)
        results.append((w, mom))
    np.testing.assert_array_equal(*results)


SPECIAL = [0.0, -0.0, 1.0, -2.5, 7.3, np.nan, np.inf, -np.inf, 1e-45, -1e-45, 3e38]
SMALL = {"clip": lambda x, y: lang.where(x > 1, 1, lang.maximum(x, -0.0)), "maximum": lang.maximum, "minimum": lang.minimum,
         "where": lambda x, y: lang.where(x < y, -x, abs(y)), "sums": lambda x, y: (x + y) * 0.3 - x / y,
         "roots": lambda x, y: lang.sqrt(x) + lang.floor(y), "compared": lambda x, y: lang.cast(x >= y, y.dtype),
         "bytes": lambda x, y: lang.cast(x >= y, np.dtype("uint8"))}


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SMALL)
def test_a_small_kernel_that_runs_often_gets_the_same_bits_from_c(name, dtype, monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "auto")
    monkeypatch.setattr(c_kernel, "OFTEN", 2)
    dtype = np.dtype(dtype)
    x, y = (a.ravel().astype(dtype) for a in np.meshgrid(SPECIAL, SPECIAL))
    root, spec = SMALL[name](load(0, dtype), load(1, dtype)), Spec(x.shape, dtype)
    e, out = Expression((root,)), np.empty(x.shape, root.dtype)
    made = Spec(out.shape, out.dtype)
    kernel = cpu_kernel(e, [spec, spec], [made], [Req.WRITE], "k")
    kernel.run(None, [x, y], [out])
    by_numpy = out.copy()
    f = select_c_function(e, [spec, spec], [made], [Req.WRITE], 0)
    c_compile.library(c_compile.program([f]), [f.name])  # as the thread does
    out.fill(5)
    kernel.run(None, [x, y], [out])
    assert kernel.at is not None
    np.testing.assert_array_equal(out, by_numpy)
    numbers = ~np.isnan(out)
    assert np.array_equal(np.signbit(out[numbers]), np.signbit(by_numpy[numbers]))


@needs_compiler
@pytest.mark.parametrize("mode, root", [("auto", lang.exp(X)), ("numpy", X + 1),
                                        ("auto", lang.cast(lang.cast(lang.exp(X), np.dtype("uint8")), F32))])
def test_a_small_kernel_stays_numpys_where_c_gives_other_bits_or_is_unwanted(mode, root, monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", mode)
    monkeypatch.setattr(c_kernel, "OFTEN", 1)
    x, out = np.linspace(0, 1, 50, dtype=F32), np.empty(50, F32)
    spec = Spec(x.shape, F32)
    kernel = cpu_kernel(Expression((root,)), [spec], [spec], [Req.WRITE], "k")
    for _ in range(3):
        kernel.run(None, [x], [out])
    assert kernel.at is None
    assert_close(out, x + 1 if mode == "numpy" else np.exp(x) if root.op == "exp" else np.floor(np.exp(x)))
