"""Index formulas of layers: elements read, and elements put, at computed places, against loops in plain Python."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS
from tritium.dtype import DTYPES
from tritium.errors import OperatorError, ShapeError, TraceError
from tritium.kernels.cpu import indexed_printer
from tritium.kernels.cpu.index_limits import Limits
from tritium.kernels.declare.index_kernel import index_kernel, put, scatter_kernel
from tritium.kernels.kernel import HostRun
from tritium.kernels.op import Req, Spec

DTYPE_NAMES = ("float32", "float64", "float16", "bfloat16", "int32", "int64")


def specs(*arrays):
    return [Spec(a.shape, a.dtype) for a in arrays]


def scattered(body, space, ins, y, target, req=Req.WRITE, **options):
    scatter_kernel(body, space, specs(*ins), specs(y), [req], target, "test", **options)(HostRun(), ins, [y])
    return y


def data(rng, dtype, rows=40, columns=6, places=5):
    x = rng.integers(-5, 5, size=(rows, columns)).astype(DTYPES[dtype])
    return x, rng.integers(-1, places, size=rows).astype("int32")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPE_NAMES)
@pytest.mark.parametrize("req", [Req.WRITE, Req.ADD])
@pytest.mark.parametrize("columns", [1, 6, 20])
def test_elements_at_one_place_add_up(target, dtype, req, columns, rng):
    """Whole rows; and elements one by one, with several for each index of the space."""
    x, i = data(rng, dtype, columns=columns)
    first = 1.0 if req == Req.ADD else 0.0
    rows = np.full((5, columns), first)
    apart = np.full((5, columns), first)
    for r in range(len(x)):
        for c in range(columns):
            if i[r] >= 0:
                rows[i[r], c] += float(x[r, c])
                apart[i[r], columns - 1 - c] += float(x[r, c])
            apart[0, c] += 1
    y = scattered(lambda at, x, i: put(x[at], i[at[0]].astype("int64"), at[1], inside=i[at[0]] >= 0), x.shape, [x, i],
                  np.ones(rows.shape, x.dtype), target, req)
    assert (y.astype(float) == rows).all()
    y = scattered(lambda at, x, i: [put(x[at], i[at[0]].astype("int64"), x.shape[1] - 1 - at[1], inside=i[at[0]] >= 0),
                                    put(1, 0, at[1])], x.shape, [x, i], np.ones(rows.shape, x.dtype), target, req)
    assert (y.astype(float) == apart).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPE_NAMES)
@pytest.mark.parametrize("req", [Req.WRITE, Req.ADD])
@pytest.mark.parametrize("columns", [1, 20])
def test_the_last_of_several_elements_replaces_the_others(target, dtype, req, columns, rng):
    x, i = data(rng, dtype, columns=columns)
    want = np.full((7, columns), 3.0)
    for r in range(len(x)):
        if i[r] >= 0:
            want[i[r]] = x[r].astype(float)
    y = scattered(lambda at, x, i, *, start: put(x[at], i[at[0]].astype("int64"), at[1], inside=i[at[0]] >= 0), x.shape, [x, i],
                  np.ones(want.shape, x.dtype), target, req, combine="put", scalars={"start": 3}, start="start")
    assert (y.astype(float) == want + (req == Req.ADD)).all()


@pytest.mark.parametrize("target", TARGETS)
def test_the_largest_of_several_elements_stays(target, rng):
    i = rng.integers(0, 4, size=30).astype("int32")
    want = [max((r for r in range(30) if i[r] == p), default=-1) for p in range(6)]
    y = scattered(lambda at, i: put(at[0], i[at[0]].astype("int64")), (30,), [i], np.zeros(6, "int64"), target,
                  combine="maximum", start=-1)
    assert y.tolist() == want


@pytest.mark.parametrize("target", TARGETS)
def test_distinct_places_and_several_outputs(target, rng):
    x = rng.normal(size=(3, 4)).astype("float32")
    a, b = np.full((4, 3), 9, "float32"), np.full((12,), 9, "float32")
    kernel = scatter_kernel(lambda at, x: (put(x[at], at[1], at[0]), put(2 * x[at], 11 - at[0] * 4 - at[1])), x.shape, specs(x),
                            specs(a, b), [Req.WRITE, Req.ADD], target, "test", distinct=True)
    kernel(HostRun(), [x], [a, b])
    assert (a == x.T).all() and (b == np.float32(9) + 2 * x.ravel()[::-1]).all()


@pytest.mark.parametrize("target", TARGETS)
def test_arrays_are_viewed_and_scalars_come_at_run_time(target, rng):
    x = rng.normal(size=(2, 3, 4)).astype("float32")
    for scale in (0.5, 3.0):
        y = np.empty((4, 6), "float32")
        index_kernel(lambda at, x, *, scale: x[at[1], at[0]] * scale, specs(x), specs(y), [Req.WRITE], target, "test",
                     views=[(6, 4)], results=[(4, 6)], scalars={"scale": scale})(HostRun(), [x], [y])
        assert (y == x.reshape(6, 4).T * np.float32(scale)).all()


@pytest.mark.parametrize("tile", [1, 7, 64])
def test_sums_do_not_depend_on_tiles_or_threads(rng, tile, monkeypatch):
    """With tiles computed in reverse, as threads may: to the bit, though the numbers are of very different sizes."""
    class Backwards(HostRun):
        def parallel(self, fn, n):
            for i in reversed(range(n)):
                fn(i)

    x = (rng.normal(size=(40, 6)) * 10.0 ** rng.integers(-6, 6, size=(40, 6))).astype("float32")
    i = rng.integers(0, 5, size=40).astype("int32")
    for column in (lambda at: at[1], lambda at: 5 - at[1]):
        def body(at, x, i, column=column):
            return put(x[at] * 3, i[at[0]].astype("int64"), column(at))

        want = scattered(body, x.shape, [x, i], np.zeros((5, 6), "float32"), "cpu")
        monkeypatch.setattr(indexed_printer, "TILE", tile)
        got = np.zeros((5, 6), "float32")
        scatter_kernel(body, x.shape, specs(x, i), specs(got), [Req.WRITE], "cpu", "test")(Backwards(), [x, i], [got])
        monkeypatch.undo()
        assert (got == want).all()


def test_indices_beyond_their_limits_are_told_on_a_cpu():
    x, i = np.arange(12, dtype="float32").reshape(3, 4), np.array([[0, 2, -1], [3, 0, 1]], "float32")

    def run(i, **options):
        y = np.empty(3, "float32")
        index_kernel(lambda at, x, i: x[i[0, at[0]].astype("int64") % 3, i[1, at[0]].astype("int64")], specs(x, i), specs(y),
                     [Req.WRITE], "cpu", "test", limits=Limits(1, (3, 4), **options))(HostRun(), [x, i], [y])
        return y

    assert run(i, wraps=True).tolist() == [3, 8, 9]
    with pytest.raises(ShapeError, match=r"^test: index -1 is out of range for axis 0 of size 3\.$"):
        run(i)
    with pytest.raises(ShapeError, match=r"^test: 4 in 0 to 4\.$"):
        run(np.array([[0, 1, 2], [0, 4, 1]], "float32"), text="{index} in {least} to {most}.")


def test_an_element_without_a_place_is_told():
    x = np.zeros((2, 3), "float32")
    with pytest.raises(TraceError, match=r"test: an element is put at 1 indices of an output of 2 axes, \(2, 3\)"):
        scattered(lambda at, x: put(x[at], at[0]), x.shape, [x], x.copy(), "cpu")
    with pytest.raises(OperatorError, match=r"test: the body puts elements into 2 outputs of 1"):
        scattered(lambda at, x: (put(x[at], *at), put(x[at], *at)), x.shape, [x], x.copy(), "cpu")
