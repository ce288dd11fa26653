"""Kernels in C of arrays that differ from run to run: where arrays may lie, and which program computes them where C may not."""

import ctypes
import gc
import itertools
import threading
import weakref

import numpy as np
import pytest
import tritium as mx
from tritium.kernels.cpu import c_compile, c_moving
from tritium.kernels.cpu.c_kernel import cpu_kernel
from tritium.kernels.cpu.c_math import PREAMBLE
from tritium.kernels.cpu.c_move import copies
from tritium.kernels.cpu.c_moving import MovingKernel, Places, ReboundKernel
from tritium.kernels.cpu.c_team import Phases, int64s, step_of_elements
from tritium.kernels.ir.expr import load, param
from tritium.kernels.ir.strided import Strided
from tritium.kernels.kernel import HostRun
from tritium.kernels.op import Expression, Req, Spec

F32, F64 = np.dtype("float32"), np.dtype("float64")
X, Y = load(0, F32), load(1, F32)
needs_compiler = pytest.mark.skipif(c_compile.compiler() is None, reason="no C compiler here")


def may_lie(specs, written, places):
    """The oracle: a written array and another one share no byte, or all of them where the other is only read."""
    for i, j in itertools.permutations(range(len(specs)), 2):
        one, other = (set(range(places[k], places[k] + specs[k].nbytes)) for k in (i, j))
        alike = places[i] == places[j] and specs[i] == specs[j]
        if i in written and one & other and not (alike and j not in written):
            return False
    return all(at % s.dtype.itemsize == 0 for at, s in zip(places, specs))


@pytest.mark.parametrize("few", [8, 0], ids=["pairs", "neighbours"])
def test_written_arrays_lie_apart_or_exactly_on_one_that_is_read(few, monkeypatch, rng):
    monkeypatch.setattr(c_moving, "FEW", few)
    specs = [Spec((2,), F32), Spec((2,), F32), Spec((1,), F64), Spec((2,), F32)]
    seen = set()
    for written in ((3,), (1, 3), (2,)):
        fit = Places(specs, range(4), written).fit
        for places in rng.integers(0, 12, (3000, 4)) * 4:
            found, want = fit(places.tolist()), may_lie(specs, written, places.tolist())
            seen.add((found, want))
            assert found <= want  # neighbours refuse arrays too that are only read and overlap
            assert found == want or few == 0
    assert {(True, True), (False, False)} <= seen


@pytest.fixture
def kernel(monkeypatch):
    """x - 2 y of 5,000 elements."""
    monkeypatch.setenv("TRITIUM_CPU_CODE", "c")
    spec = Spec((5000,), F32)
    return cpu_kernel(Expression((X - Y * 2,)), [spec, spec], [spec], [Req.WRITE], "k")


@needs_compiler
def test_addresses_are_taken_from_the_first_run_on(kernel, rng):
    x, y = (rng.normal(size=5000).astype(F32) for _ in range(2))
    out, again = np.empty_like(x), np.empty_like(x)
    assert isinstance(kernel, MovingKernel) and kernel.at is None
    kernel(HostRun(), [x, y], [out])
    assert kernel.at(HostRun(), [a.ctypes.data for a in (x, y, again)])
    np.testing.assert_array_equal(out, x - y * 2)
    np.testing.assert_array_equal(again, out)


@needs_compiler
def test_arrays_that_c_refuses_are_computed_all_the_same(kernel, rng):
    memory = rng.normal(size=10_003).astype(F32)
    x, y = memory[:5000].copy(), memory[5000:10_000].copy()
    want = x - y * 2
    kernel(HostRun(), [x, y], [np.empty_like(x)])
    shifted = memory[1:5001]  # the output overlaps x in part
    places = [memory[:5000].ctypes.data, y.ctypes.data, shifted.ctypes.data]
    assert not kernel.at(HostRun(), places)
    assert not kernel.at(HostRun(), [x.ctypes.data + 1, y.ctypes.data, shifted.ctypes.data])
    odd = np.empty(20_001, np.uint8)[1:].view(F32)
    kernel(HostRun(), [x, y], [odd])
    np.testing.assert_array_equal(odd, want)
    spread = np.empty((5000, 2), F32)[:, 0]
    kernel(HostRun(), [x, y], [spread])
    np.testing.assert_array_equal(spread, want)


@needs_compiler
def test_arrays_that_it_does_not_read_are_left_out(kernel, rng):
    x, y = (rng.normal(size=5000).astype(F32) for _ in range(2))
    for _ in range(2):
        out = np.empty_like(x)
        kernel(HostRun(), [x, y, "more"], [out])
        np.testing.assert_array_equal(out, x - y * 2)
    assert not kernel.at(HostRun(), [x.ctypes.data, y.ctypes.data, 0, out.ctypes.data])


@needs_compiler
def test_runs_may_overlap(kernel, rng):
    arrays = [[rng.normal(size=5000).astype(F32) for _ in range(2)] for _ in range(4)]
    wrong = []

    def work(x, y):
        for _ in range(200):
            out = np.empty_like(x)
            kernel(HostRun(), [x, y], [out])
            if (out != x - y * 2).any():
                wrong.append(out)
    threads = [threading.Thread(target=work, args=pair) for pair in arrays]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@needs_compiler
def test_a_short_kernel_finds_the_memory_of_a_new_result(kernel, rng):
    x, y = (rng.normal(size=5000).astype(F32) for _ in range(2))
    kernel(HostRun(), [x, y], [np.empty_like(x)])
    out = np.empty_like(x)
    assert kernel.into([x.ctypes.data, y.ctypes.data], out) == out.ctypes.data
    np.testing.assert_array_equal(out, x - y * 2)
    assert kernel.into([x.ctypes.data], out) == 0


@needs_compiler
def test_a_kernel_with_numbers_given_at_run_time_or_of_several_pieces_keeps_calls(monkeypatch, rng):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "c")
    few, many = Spec((50,), F32), Spec((200_000,), F32)
    scaled = Expression((X * param("scale"),), scalars=("scale",))
    for e, spec, scalars in ((scaled, few, (3.0,)), (Expression((X * 3,)), many, ())):
        kernel = cpu_kernel(e, [spec], [spec], [Req.WRITE], "k")
        x, out, again = rng.normal(size=spec.shape).astype(F32), *np.empty((2, *spec.shape), F32)
        kernel(HostRun(), [x], [out], **({"scalars": scalars} if scalars else {}))
        assert kernel.into is None and kernel.at(HostRun(), [x.ctypes.data, again.ctypes.data], scalars, True)
        np.testing.assert_array_equal(out, x * np.float32(3))
        np.testing.assert_array_equal(again, out)


TEXT = PREAMBLE + """
/* y[i] = 2 x[i] + n[0] for the second half of x */
void test_moving_double(void *const *arrays, int64_t begin, int64_t end)
{
    const float *x = arrays[0];
    float *y = arrays[1];
    for (int64_t i = begin; i < end; i++) y[i] = 2 * x[i] + *(const int64_t *)arrays[2];
}
"""
HALF = 3000


def rebound(hides=None):
    """A kernel: y = 2 * the second half of x + 5. hides: what its step holds, too, given its arrays."""
    counted = []

    def bind(inputs, outputs):
        counted.append(None)
        five = int64s(5)
        function = c_compile.library(TEXT, ("test_moving_double",))["test_moving_double"]
        given = (ctypes.c_void_p * 3)(inputs[0].ctypes.data + 4 * HALF, outputs[0].ctypes.data, ctypes.addressof(five))
        held = (inputs, outputs, five, () if hides is None else hides(inputs, outputs))
        return Phases([[step_of_elements(function, given, HALF, 1000, held)]])
    return ReboundKernel(bind), counted


def check_rebound(kernel, rng):
    x, y = rng.normal(size=2 * HALF).astype(F32), np.empty(HALF, F32)
    kernel(HostRun(), [x], [y])
    np.testing.assert_array_equal(y, 2 * x[HALF:] + 5)


@needs_compiler
def test_what_was_bound_is_moved_to_other_arrays(rng):
    kernel, counted = rebound()
    for _ in range(5):
        check_rebound(kernel, rng)
    assert len(counted) == 1
    x, y = rng.normal(size=2 * HALF).astype(F32), np.empty(HALF, F32)
    assert kernel.at(HostRun(), [x.ctypes.data, y.ctypes.data], (), True)
    np.testing.assert_array_equal(y, 2 * x[HALF:] + 5)
    assert not kernel.at(HostRun(), [x.ctypes.data, x.ctypes.data])  # they share memory
    assert not kernel.at(HostRun(), [x.ctypes.data])


@needs_compiler
def test_functions_of_one_piece_run_in_turn_on_any_arrays(rng):
    """z[i] = 2 (2 x[i + 100] + 5) + 5, by way of y: a place behind the beginning, and two functions."""
    def bind(inputs, outputs):
        five = int64s(5)
        function = c_compile.library(TEXT, ("test_moving_double",))["test_moving_double"]
        (x,), (y, z) = inputs, outputs
        pairs = (x.ctypes.data + 400, y.ctypes.data), (y.ctypes.data, z.ctypes.data)
        steps = [step_of_elements(function, (ctypes.c_void_p * 3)(*pair, ctypes.addressof(five)), 100, 100,
                                  (inputs, outputs, five)) for pair in pairs]
        steps[0].then = steps[1]
        return Phases([steps[:1]])

    kernel = ReboundKernel(bind, reentrant=True)
    for _ in range(3):
        x, (y, z) = rng.normal(size=200).astype(F32), np.empty((2, 100), F32)
        if kernel.at is None:
            kernel(HostRun(), [x], [y, z])
        else:
            assert kernel.at(None, [a.ctypes.data for a in (x, y, z)], (), True)
        np.testing.assert_array_equal(y, 2 * x[100:] + 5)
        np.testing.assert_array_equal(z, 2 * y + 5)
    assert kernel.into is None and not kernel.at(None, [x.ctypes.data, y.ctypes.data, y.ctypes.data])


@needs_compiler
@pytest.mark.parametrize(("reentrant", "nested"), [(True, False), (False, False), (True, True)])
def test_only_a_call_that_changes_nothing_but_arrays_gets_them_in_a_record(reentrant, nested, rng):
    """nested: the function finds the address of x in a table of its own, where that is changed from run to run."""
    text = PREAMBLE + """
void test_moving_nested(void *const *arrays, int64_t begin, int64_t end)
{
    const float *x = ((float *const *)arrays[0])[0];
    for (int64_t i = begin; i < end; i++) ((float *)arrays[1])[i] = 2 * x[i] + 5;
}
"""

    def bind(inputs, outputs):
        five, name = int64s(5), "test_moving_nested" if nested else "test_moving_double"
        function = c_compile.library(text if nested else TEXT, (name,))[name]
        (x,), (y,) = ([a.ctypes.data for a in arrays] for arrays in (inputs, outputs))
        table = int64s(x if nested else 0)
        given = int64s(ctypes.addressof(table), y) if nested else int64s(x, y, ctypes.addressof(five))
        return Phases([[step_of_elements(function, given, 100, 100, (inputs, outputs, five, table))]])

    kernel = ReboundKernel(bind, reentrant=reentrant)
    for _ in range(3):
        x, y = rng.normal(size=100).astype(F32), np.empty(100, F32)
        kernel(HostRun(), [x], [y])
        np.testing.assert_array_equal(y, 2 * x + 5)
        x, y = rng.normal(size=100).astype(F32), np.empty(100, F32)
        assert kernel.at(HostRun(), [x.ctypes.data, y.ctypes.data], (), True)
        np.testing.assert_array_equal(y, 2 * x + 5)
    assert (kernel.into is not None) == (reentrant and not nested)
    if kernel.into is not None:
        out = np.empty(100, F32)
        assert kernel.into([x.ctypes.data], out) == out.ctypes.data
        np.testing.assert_array_equal(out, y)


@needs_compiler
def test_a_helper_begins_on_arrays_and_the_function_that_it_returns_ends_the_run(rng):
    kernel, _ = rebound()
    assert kernel.begin is None
    check_rebound(kernel, rng)
    check_rebound(kernel, rng)
    x, y = rng.normal(size=2 * HALF).astype(F32), np.empty(HALF, F32)
    run = HostRun()
    run.threads = 2
    kernel(run, [x], [y])  # from now on the number of threads is known
    for k in range(50):
        x, y = rng.normal(size=2 * HALF).astype(F32), np.empty(HALF, F32)
        end = kernel.begin([x.ctypes.data, y.ctypes.data])
        assert k or kernel.begin([x.ctypes.data, y.ctypes.data]) is None  # its one call is taken; the next run makes another
        check_rebound(kernel, rng)  # another run meanwhile
        end(run)
        np.testing.assert_array_equal(y, 2 * x[HALF:] + 5)
    assert kernel.begin([x.ctypes.data, x.ctypes.data]) is None  # they share memory


@needs_compiler
def test_inputs_may_be_one_array(monkeypatch, rng):
    """The first call gives one array twice, as concat(x, x) does; the next ones two, and two that share a part."""
    monkeypatch.setenv("TRITIUM_CPU_CODE", "c")
    add = lambda inputs, outputs: Phases([[added.prepare(a, outputs[0])] for a in inputs])
    n = 5000
    line = Strided(0, (n,), (1,))
    added, = copies([(line, line)], F32, F32, True)
    kernel, memory = ReboundKernel(add), rng.normal(size=2 * n).astype(F32)
    for a, b in ((memory[:n], memory[:n]), (memory[:n], memory[n:]), (memory[:n], memory[5:n + 5])):
        y = np.zeros(n, F32)
        kernel(HostRun(), [a, b], [y])
        np.testing.assert_array_equal(y, a + b)
    assert kernel.at is not None
    y = np.zeros(n, F32)
    assert kernel.at(HostRun(), [memory.ctypes.data, memory.ctypes.data, y.ctypes.data])
    assert not kernel.at(HostRun(), [memory.ctypes.data, y.ctypes.data, y.ctypes.data])


@needs_compiler
def test_arrays_that_were_bound_are_let_go(rng):
    kernel, _ = rebound()
    x, y = rng.normal(size=2 * HALF).astype(F32), np.empty(HALF, F32)
    kernel(HostRun(), [x], [y])
    gone = weakref.ref(x), weakref.ref(y)
    del x, y
    gc.collect()
    assert [g() for g in gone] == [None, None]


@needs_compiler
def test_arrays_that_share_memory_are_bound_again(rng):
    kernel, counted = rebound()
    for _ in range(3):
        x = rng.normal(size=2 * HALF).astype(F32)
        want = 2 * x[HALF:] + 5
        kernel(HostRun(), [x], [x[HALF:]])
        np.testing.assert_array_equal(x[HALF:], want)
    assert len(counted) == 3 and kernel.at is None


HIDDEN = {"an object": lambda i, o: object(), "a table of addresses": lambda i, o: np.array([i[0].ctypes.data]),
          "an address of other memory": lambda i, o: (ctypes.c_void_p * 1)(i[0].ctypes.data - 8)}


@needs_compiler
@pytest.mark.parametrize("hides", HIDDEN.values(), ids=list(HIDDEN))
def test_what_may_hide_an_address_is_bound_each_time(hides, rng):
    kernel, counted = rebound(hides)
    for _ in range(3):
        check_rebound(kernel, rng)
    assert len(counted) == 3 and kernel.at is None


@needs_compiler
def test_layers_give_the_same_on_other_arrays(rng):
    """Each is called on several arrays in turn, and twice in a row on the same."""
    a = lambda *shape: mx.nd.array(rng.normal(size=shape))
    calls = {"Convolution": lambda x: mx.nd.Convolution(x, w, b, kernel=(3, 3), num_filter=8, pad=(1, 1)),
             "Pooling": lambda x: mx.nd.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max"),
             "FullyConnected": lambda x: mx.nd.FullyConnected(x, v, num_hidden=64, no_bias=True),
             "dot": lambda x: mx.nd.dot(x.reshape((64, 128)), v2), "transpose": lambda x: mx.nd.transpose(x, axes=(0, 2, 3, 1))}
    w, b, v, v2 = a(8, 8, 3, 3), a(8), a(64, 512), a(128, 64)
    xs = [a(16, 8, 8, 8) for _ in range(3)]
    for name, call in calls.items():
        results = [[call(x).asnumpy() for x in xs] for _ in range(3)]
        for again in results[1:]:
            for first, later in zip(results[0], again):
                np.testing.assert_array_equal(first, later, err_msg=name)
        x, = xs[:1]
        x.attach_grad()
        grads = []
        for other in (*xs, *xs[::-1]):
            other.attach_grad()
            with mx.autograd.record():
                y = call(other)
            y.backward()
            grads.append(other.grad.asnumpy())
        for one, two in zip(grads, grads[::-1]):
            np.testing.assert_array_equal(one, two, err_msg=name)
