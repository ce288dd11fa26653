"""Matrix product on a GPU: every template against float64, under guard pages; which template is chosen, by shape alone."""

import types

import numpy as np
import pytest
from support.guard_pages import dies_of, guarded
from tritium.kernels.gpu.epilogue import Epilogue
from tritium.kernels.gpu.load import INTERPRET
from tritium.kernels.ir import lang as L
from tritium.kernels.ir.expr import load
from tritium.kernels.ops.linalg import triton_gemm
from tritium.kernels.ops.linalg.triton_gemm import GEMV, POINTER, SPECIALISED, TMA, Blocks, choose, gemm

pytestmark = pytest.mark.skipif(not INTERPRET, reason="needs TRITIUM_GPU=interpret")
torch = pytest.importorskip("torch")
RUN = types.SimpleNamespace(stream=None, workspace=lambda s, d: torch.from_numpy(guarded(np.zeros(s, d))))

TEMPLATES = {
    "pointer": Blocks(POINTER, 32, 32, 16),
    "split": Blocks(POINTER, 32, 32, 16, splits=3),
    "tma": Blocks(TMA, 32, 32, 32),
    "specialised": Blocks(SPECIALISED, 32, 32, 32),
    "chosen": None,
}


def operand(rng, batch, rows, columns, turned, dtype):
    """A guarded tensor, its view, and the matrix it holds."""
    shape = (batch, columns, rows) if turned else (batch, rows, columns)
    values = guarded(rng.normal(size=shape).astype(dtype))
    view = ((batch, rows, columns), (rows * columns, 1, rows) if turned else (rows * columns, columns, 1))
    return torch.from_numpy(values), view, values.swapaxes(1, 2) if turned else values


def check(rng, batch, m, n, k, *, ta=False, tb=False, tc=False, dtype="float32", blocks=None, bias=False, add=False, relu=False):
    a, a_view, a_values = operand(rng, batch, m, k, ta, dtype)
    b, b_view, b_values = operand(rng, batch, k, n, tb, dtype)
    c, c_view, c_values = operand(rng, batch, m, n, tc, dtype)
    want = a_values.astype("float64") @ b_values
    shift = None
    if bias:
        shift = torch.from_numpy(guarded(rng.normal(size=n).astype(dtype)))
        want += shift.numpy()
    if relu:
        want = want.clip(0)
    if add:
        want += c_values
    epilogue = Epilogue(L.maximum(load(0, np.dtype(dtype)), 0), (np.dtype(dtype),), (-1,)) if relu else None
    gemm(RUN, a, a_view, b, b_view, c, c_view, bias=shift, add=add, blocks=blocks, epilogue=epilogue)
    error = np.abs(c_values - want).max() / max(1, np.abs(want).max())
    assert error < {"float32": 3e-6, "float16": 2e-3, "float64": 1e-13}[dtype], error


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("ta, tb", [(False, False), (True, False), (False, True), (True, True)])
def test_templates(template, ta, tb, rng):
    """Sizes that divide by 8 (units) but by no block."""
    check(rng, 1, 72, 40, 88, ta=ta, tb=tb, blocks=TEMPLATES[template], bias=True, add=True, relu=True)


@pytest.mark.parametrize("template", ["pointer", "split", "chosen"])
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_batches_of_awkward_sizes(template, dtype, rng):
    check(rng, 3, 33, 17, 51, tb=True, dtype=dtype, blocks=TEMPLATES[template], add=True)


def test_a_result_that_lies_by_columns(rng):
    check(rng, 2, 33, 17, 51, tc=True, ta=True)


@pytest.mark.parametrize("m, n", [(1, 40), (40, 1), (1, 1), (37, 1), (1, 37)])
@pytest.mark.parametrize("turned", [False, True])
def test_vectors(m, n, turned, rng):
    check(rng, 1, m, n, 72, ta=turned, tb=turned, bias=True, add=True)
    check(rng, 1, m, n, 35, ta=turned, tb=not turned)


@pytest.mark.parametrize("template", TEMPLATES)
def test_nothing_beyond_the_arrays_is_touched(template):
    rng = np.random.default_rng(0)
    assert dies_of(lambda: check(rng, 1, 40, 24, 56, bias=True, add=True, blocks=TEMPLATES[template])) == 0
    assert dies_of(lambda: check(rng, 1, 40, 24, 56, ta=True, tb=True, blocks=TEMPLATES[template])) == 0


def pick(m, n, k, *, batch=1, itemsize=2, tensor_cores=True, aligned=True, capability=90, sms=132):
    return choose(batch, m, n, k, itemsize, tensor_cores, aligned, capability, sms)


def test_the_choice_is_by_shape():
    assert pick(4096, 4096, 4096).template == TMA and pick(4096, 4096, 4096).BN == 256
    assert pick(4096, 4096, 4096, capability=80).template == POINTER
    assert pick(4096, 4096, 4096, aligned=False) == pick(4096, 4096, 4096)  # the copy engine gets a copy
    assert pick(200, 16384, 4096, aligned=False).template == POINTER  # which would take long beside so few rows
    assert pick(2048, 2048, 2048).BN == 256 and pick(1408, 1408, 1408).BN == 128  # one wave or two: what ends sooner
    assert pick(4096, 4096, 4096, batch=8).template == POINTER
    assert pick(4096, 1, 4096).template == GEMV == pick(1, 4096, 4096).template
    assert pick(4096, 4096, 4096, itemsize=4, tensor_cores=False) == Blocks(POINTER, 128, 128, 16, 8)
    assert pick(256, 256, 8192).splits == 8 and pick(4096, 4096, 64).splits == 1
    assert pick(256, 256, 8192) == pick(256, 256, 8192)
    assert SPECIALISED not in {pick(m, m, m).template for m in (64, 1024, 8192)}  # never without a measurement


@pytest.mark.parametrize("how", ["ieee", "tf32"])
@pytest.mark.parametrize("ta, tb", [(False, False), (True, False), (False, True), (True, True)])
def test_operands_that_the_copy_engine_does_not_take_are_copied(how, ta, tb, rng, monkeypatch):
    """Rows of odd lengths; in TF32 also those that lie across the sum's axis. A wide tile is stored in halves."""
    monkeypatch.setenv("TRITIUM_FLOAT32_MATMUL", how)
    for blocks in (Blocks(TMA, 32, 32, 32), Blocks(TMA, 32, 256, 32)):
        check(rng, 1, 71, 301, 87, ta=ta, tb=tb, blocks=blocks, bias=True, add=True, relu=True)
    check(rng, 1, 71, 41, 87, ta=ta, tb=tb, dtype="float16", blocks=Blocks(TMA, 32, 32, 32))


def test_split_sums_give_the_same_bits_every_time(rng):
    a, a_view, _ = operand(rng, 1, 40, 160, False, "float32")
    b, b_view, _ = operand(rng, 1, 160, 24, False, "float32")
    results = []
    for _ in range(2):
        c, c_view, values = operand(rng, 1, 40, 24, False, "float32")
        gemm(RUN, a, a_view, b, b_view, c, c_view, blocks=TEMPLATES["split"])
        results.append(values.tobytes())
    assert results[0] == results[1]


def test_leading_dimensions():
    lead = triton_gemm._leading
    assert lead(((1, 3, 5), (15, 5, 1))) == (False, 5)
    assert lead(((1, 3, 5), (15, 1, 3))) == (True, 3)
    assert lead(((1, 3, 1), (3, 1, 3))) == (False, 1)
    assert lead(((1, 1, 5), (5, 1, 1))) == (False, 5)
