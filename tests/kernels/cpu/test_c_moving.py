"""Kernels in C of arrays that differ from run to run: where arrays may lie, and which program computes them where C may not."""

import itertools
import threading

import numpy as np
import pytest
from tritium.kernels.cpu import c_compile, c_moving
from tritium.kernels.cpu.c_kernel import cpu_kernel
from tritium.kernels.cpu.c_moving import MovingKernel, Places
from tritium.kernels.ir.expr import load
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
