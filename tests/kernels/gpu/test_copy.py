"""Copies between views, by tiles and without: against NumPy's strided assignment, under guard pages."""

import types

import numpy as np
import pytest
from support.guard_pages import dies_of, guarded
from tritium.kernels.gpu import copy, copy_tiles
from tritium.kernels.gpu.load import INTERPRET
from tritium.kernels.ir.strided import layout, merge

pytestmark = pytest.mark.skipif(not INTERPRET, reason="needs TRITIUM_GPU=interpret")
torch = pytest.importorskip("torch")
RUN = types.SimpleNamespace(stream=None)
WHOLE = lambda a: a
#: name -> (shape of the source, its view, shape of the target, its view, how tiles go: None for not at all)
CASES = {
    "all": ((40, 50), WHOLE, (40, 50), WHOLE, "along"),
    "into rows": ((40, 48), WHOLE, (40, 80), lambda a: a[:, 16:64], "along"),
    "out of rows": ((40, 80), lambda a: a[:, 3:51], (40, 48), WHOLE, "along"),
    "matrix turned": ((70, 130), lambda a: a.T, (130, 70), WHOLE, "turned"),
    "heads": ((3, 20, 4, 32), lambda a: a.transpose(0, 2, 1, 3), (3, 4, 20, 32), WHOLE, "along"),
    "channels last": ((2, 24, 7, 9), lambda a: a.transpose(0, 2, 3, 1), (2, 7, 9, 24), WHOLE, "turned"),
    "six axes": ((2, 3, 4, 2, 3, 50), lambda a: a.transpose(3, 1, 4, 0, 2, 5), (2, 3, 3, 2, 4, 50), WHOLE, "along"),
    "backwards": ((30, 40), lambda a: a[::-1, ::-1], (30, 40), WHOLE, "apart"),
    "every second": ((40, 80), lambda a: a[:, ::2], (40, 40), WHOLE, "apart"),
    "one value": ((1,), lambda a: np.broadcast_to(a, (40, 40)), (40, 40), WHOLE, "apart"),
    "repeated rows": ((1, 40), lambda a: np.broadcast_to(a, (30, 40)), (30, 40), WHOLE, "along"),
    "woven": ((3, 2, 600), lambda a: a.transpose(0, 2, 1), (3, 600, 2), WHOLE, "turned"),
    "unwoven": ((3, 600, 4), lambda a: a.transpose(0, 2, 1), (3, 4, 600), WHOLE, "turned"),
    "woven by three": ((3, 3, 40), lambda a: a.transpose(0, 2, 1), (3, 40, 3), WHOLE, "turned"),
    "each twice": ((30, 40), lambda a: np.broadcast_to(a[:, :, None], (30, 40, 2)), (30, 40, 2), WHOLE, "along"),
    "planes doubled": ((5, 7, 24), lambda a: np.broadcast_to(a[:, :, None, :, None], (5, 7, 2, 24, 4)), (5, 7, 2, 24, 4), WHOLE,
                       "along"),
    "each three times": ((30, 40), lambda a: np.broadcast_to(a[:, :, None], (30, 40, 3)), (30, 40, 3), WHOLE, "turned"),
    "into every second": ((40, 40), WHOLE, (40, 80), lambda a: a[:, ::2], None),
    "short runs": ((300, 2, 3, 5), lambda a: a.transpose(0, 2, 1, 3), (300, 3, 2, 5), WHOLE, "along"),
}


def check(case, dtypes=("float32", "float32"), add=False, by_tiles=True):
    source_shape, take, target_shape, put, how = CASES[case]
    rng = np.random.default_rng(0)
    x, y = (guarded((rng.normal(size=s) * 50).astype(d)) for s, d in zip((source_shape, target_shape), dtypes))
    want = y.copy()
    moved = take(x).astype(dtypes[1])
    put(want)[...] = put(want) + moved if add else moved
    src, dst = layout(source_shape, take), layout(target_shape, put)
    made = copy_tiles.plan(merge(src.shape, src.strides, dst.strides), src.offset, dst.offset)
    assert (made and made[2]["HOW"]) == how
    copy.plan(src, dst, add, by_tiles=by_tiles)(RUN, torch.from_numpy(x), torch.from_numpy(y))
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("case", CASES)
def test_every_view(case):
    check(case)
    assert dies_of(lambda: [check(case, add=add, by_tiles=by_tiles) for add in (False, True) for by_tiles in (False, True)]) == 0


@pytest.mark.parametrize("dtypes", [("float64", "float64"), ("float16", "float16"), ("float32", "int32"), ("int32", "float32"),
                                    ("float32", "uint8"), ("int64", "int64")], ids="-".join)
def test_every_conversion(dtypes):
    check("matrix turned", dtypes)


def test_sizes_and_starts_that_divide_are_said():
    src, dst = layout((40, 80), lambda a: a[:, 16:64]), layout((40, 48), WHOLE)
    _, numbers, fixed = copy_tiles.plan(merge(src.shape, src.strides, dst.strides), src.offset, dst.offset)
    assert (fixed["UNIT_S"], fixed["UNIT_T"], fixed["UNIT_R"], fixed["UNIT_C"]) == (16, 16, 8, 16)
    assert numbers[:4] == [1, 0, 5, 3]


@pytest.mark.parametrize("case, flat", [("woven", "target"), ("unwoven", "source"), ("woven by three", ""),
                                        ("matrix turned", "")])
def test_a_tile_that_stands_in_one_piece_is_moved_as_one(case, flat):
    source_shape, take, target_shape, put, _ = CASES[case]
    src, dst = layout(source_shape, take), layout(target_shape, put)
    _, _, fixed = copy_tiles.plan(merge(src.shape, src.strides, dst.strides), 0, 0)
    assert fixed["FLAT"] == flat and (not flat or fixed["BR"] * fixed["BC"] == 1024)


def test_what_is_repeated_is_read_once():
    src = layout((5, 7, 24), lambda a: np.broadcast_to(a[:, :, None, :, None], (5, 7, 2, 24, 4)))
    axes = merge(src.shape, src.strides, layout((5, 7, 2, 24, 4), WHOLE).strides)
    programs, _, fixed = copy_tiles.plan(axes, 0, 0)
    assert (programs, fixed["REPEAT"], fixed["AGAIN"], fixed["BR"], fixed["BC"]) == (2, 4, 2, 32, 32)


@pytest.mark.parametrize("n", [1, 2047, 2048, 5000])
def test_filling(n):
    y = guarded(np.zeros(n, "float32"))
    assert dies_of(lambda: copy.fill(RUN, torch.from_numpy(y), 3.0)) == 0
    copy.fill(RUN, torch.from_numpy(y), 3.0)
    assert (y == 3).all()
