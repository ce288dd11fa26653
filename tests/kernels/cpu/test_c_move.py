"""Copies of views in C: equal to NumPy's assignment, for all element sizes, axes, steps and sizes, and any number of threads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritium.kernels.cpu import c_compile, c_move
from tritium.kernels.cpu.c_team import Phases
from tritium.kernels.ir.strided import layout
from tritium.kernels.kernel import HostRun

pytestmark = pytest.mark.skipif(c_compile.compiler() is None, reason="there is no C compiler")

DTYPES = ["int8", "float16", "float32", "float64"]


@pytest.fixture(autouse=True)
def _wherever_it_can(cpu_code):
    cpu_code("c")


def copied(x, take, y, put, add=False, threads=1):
    """y after put(y) = take(x) in C, or += ; None where there is no C function."""
    moves = [(layout(x.shape, take), layout(y.shape, put))]
    calls = c_move.copies(moves, x.dtype, y.dtype, add)
    if calls is None:
        return None
    out = y.copy()
    run = HostRun()
    run.threads = threads
    Phases([[calls[0].prepare(x, out)]])(run)
    return out


def numbers(rng, shape, dtype):
    return rng.integers(-100, 100, shape).astype(dtype)


def check(rng, shape, take, target, put, dtype, add=False):
    x, y = numbers(rng, shape, dtype), numbers(rng, target, dtype)
    want = y.copy()
    if add:
        put(want)[...] += take(x)
    else:
        put(want)[...] = take(x)
    for threads in (1, 3):
        found = copied(x, take, y, put, add, threads)
        assert found is not None
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (16, 16), (64, 64), (65, 63), (257, 131), (8, 700), (1031, 9)])
def test_two_axes_change_places(rng, dtype, shape):
    check(rng, shape, np.transpose, shape[::-1], lambda a: a, dtype)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_any_axes_and_steps(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    rank = data.draw(st.integers(1, 5))
    shape = tuple(data.draw(st.sampled_from([1, 2, 3, 8, 17, 40])) for _ in range(rank))
    order = tuple(data.draw(st.permutations(range(rank))))
    steps = tuple(data.draw(st.sampled_from([1, -1, 2, -3])) for _ in range(rank))
    cut = tuple(slice(None, None, s) for s in steps)
    seen = np.empty(shape, np.int8)[cut].transpose(order).shape
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, rank - 1))
        width, begin = seen[at] * 2 + 1, data.draw(st.integers(0, 1))
        target = (*seen[:at], width, *seen[at + 1:])
        put = lambda a: a[(slice(None),) * at + (slice(begin, begin + 2 * seen[at], 2),)]
    else:
        target, put = seen, lambda a: a
    dtype = data.draw(st.sampled_from(DTYPES))
    add = dtype in c_move.ADDED and data.draw(st.booleans())
    check(rng, shape, lambda a: a[cut].transpose(order), target, put, dtype, add)


@pytest.mark.parametrize("repeats", [(1, 1, 300), (3, 1, 1), (1, 2, 1)])
def test_repeated_elements(rng, repeats):
    x = numbers(rng, (4, 1, 30, 1, 5, 1), "float32")
    often = (4, repeats[0], 30, repeats[1], 5, repeats[2])
    check(rng, x.shape, lambda a: np.broadcast_to(a, often), often, lambda a: a, "float32")
    check(rng, x.shape, lambda a: np.broadcast_to(a, often), often, lambda a: a, "float32", add=True)


def test_pieces_of_long_rows_and_of_many_rows(rng):
    for shape in [(3, 100_003), (100_003, 3), (300_007,)]:
        check(rng, shape, lambda a: a[..., ::-1], shape, lambda a: a, "float32")


def test_what_numpy_copies(cpu_code):
    whole = [(layout((9, 9)), layout((9, 9)))]
    f4, f8, f2 = (np.dtype(d) for d in ("float32", "float64", "float16"))
    assert c_move.copies(whole, f4, f8, False) is None  # another dtype
    assert c_move.copies(whole, f2, f2, True) is None  # a sum in half precision is rounded in another way
    assert c_move.copies([], f4, f4, False) is None
    cpu_code("auto")
    c_move.template(4, "").functions()
    assert c_move.copies([(layout((1,)), layout((1,)))], f4, f4, False) is not None  # of any size
    cpu_code("numpy")
    assert c_move.copies([(layout((999, 999)), layout((999, 999)))], f4, f4, False) is None


def test_nans_keep_their_bits():
    x = np.array([0x7F800001, 0xFFC12345, 0x80000000], np.uint32).view(np.float32).repeat(40).reshape(3, 40)
    np.testing.assert_array_equal(copied(x, np.transpose, np.zeros((40, 3), np.float32), lambda a: a).view(np.uint32),
                                  x.T.view(np.uint32))


def test_copies_that_are_cut_alike_have_as_many_pieces(rng):
    x, y = numbers(rng, (37, 40, 30), "float32"), np.zeros((37, 41, 31), "float32")
    ends = [(np.s_[:], np.s_[:, :40, :30]), (np.s_[:, 39:], np.s_[:, 40:, :30]), (np.s_[:, :, 29:], np.s_[:, :40, 30:]),
            (np.s_[:, 39:, 29:], np.s_[:, 40:, 30:])]
    calls = c_move.copies([(layout(x.shape, lambda a, i=i: a[i]), layout(y.shape, lambda a, j=j: a[j])) for i, j in ends],
                          x.dtype, y.dtype, False, True)
    assert len({call.pieces for call in calls}) == 1
    for call in calls:
        Phases([[call.prepare(x, y)]])(HostRun())
    assert np.array_equal(y, np.pad(x, ((0, 0), (0, 1), (0, 1)), mode="edge"))
