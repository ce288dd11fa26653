"""gpu/launch: from text to function to launch; errors; and no generated kernel touches a byte outside its arrays (guard pages:
the memory after an array is unreadable, and a child process makes the attempt)."""

import ast
import gc
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from support.guard_pages import dies_of, guarded
from tritium.errors import OperatorError, ParameterError, ShapeError
from tritium.integers import cdiv, next_power_of_2
from tritium.kernels.gpu.launch import launch
from tritium.kernels.gpu.load import HEADER, INTERPRET, load, write_source
from tritium.kernels.gpu.printer import plan_launches
from tritium.kernels.gpu.source import kernel_of
from tritium.kernels.gpu.target import CodegenTarget, block_for
from tritium.kernels.ir import lang as L
from tritium.kernels.ir.expr import load as load_input
from tritium.kernels.op import Expression, Req, Spec

pytestmark = pytest.mark.skipif(not INTERPRET, reason="needs TRITIUM_GPU=interpret")
torch = pytest.importorskip("torch")

ADD_ONE = """@triton.jit
def add_one(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at{load}) + 1{store})
"""
MASK = ", mask=at < n"
WHOLE = ADD_ONE.format(load=MASK, store=MASK)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITIUM_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def test_sizes_and_blocks():
    assert [cdiv(a, 4) for a in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert [next_power_of_2(n) for n in (0, 1, 2, 3, 64, 65)] == [1, 1, 2, 4, 64, 128]
    assert block_for(10**9) == 1 << 16 and block_for(3) == 16
    assert CodegenTarget(False).block(10**9) == 1024 and CodegenTarget(False).block(3) == 1024


def test_a_kernel_runs_on_tensors_and_on_numpy_arrays(cache):
    fn = kernel_of(WHOLE, "add_one")
    x, y = torch.arange(10.0), torch.zeros(10)
    launch(fn, (2,), x, y, 10, BLOCK=8)
    assert torch.equal(y, x + 1)
    out = np.zeros(10, "int64")
    launch(fn, (1,), np.arange(10), out, 10, BLOCK=16)
    assert (out == np.arange(1, 11)).all()


def test_a_finalizer_that_parses_does_not_break_the_interpreters_parsing(cache):
    """CPython 3.11 counts the depth of all parsing in one place: "AST constructor recursion depth mismatch"."""

    class Finalized:
        def __init__(self):
            self.cycle = self

        def __del__(self):
            if running:
                (lambda: (lambda: ast.parse("x = 1"))())()  # at another depth than what the collector interrupts
                Finalized()  # for its next round

    running, before = [True], gc.get_threshold()
    lines = "".join(f"    # {i}\n    n = n + {i} - {i}\n" for i in range(100))
    fn = kernel_of(WHOLE.replace("    at =", lines + "    at =", 1), "add_one")
    x, y = torch.arange(10.0), torch.zeros(10)
    gc.set_threshold(30, 1, 1)
    try:
        Finalized()
        launch(fn, (2,), x, y, 10, BLOCK=8)
    finally:
        running.clear()
        gc.set_threshold(*before)
    assert torch.equal(y, x + 1)


def test_the_same_text_is_one_function_and_one_file(cache):
    assert load(WHOLE + "# a\n", "add_one") is load(WHOLE + "# a\n", "add_one")
    (file,) = cache.iterdir()
    assert file.read_text() == HEADER + WHOLE + "# a\n"


def test_a_changed_file_is_replaced(cache):
    path = write_source("import triton\n", "k")
    path.write_text("raise SystemExit\n")
    assert write_source("import triton\n", "k") == path
    assert path.read_text() == "import triton\n"
    assert [p.name for p in cache.iterdir()] == [path.name]  # no temporary file is left


def test_kernels_run_without_a_writable_cache_folder(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRITIUM_CACHE_DIR", str(tmp_path / "file" / "kernels"))
    y = np.zeros(4, "float32")
    launch(kernel_of(WHOLE + "# b\n", "add_one"), (1,), np.ones(4, "float32"), y, 4, BLOCK=4)
    assert (y == 2).all()


def test_a_source_that_lacks_the_name_raises():
    with pytest.raises(OperatorError, match="load: the source does not define 'other'"):
        load(WHOLE, "other")


def test_bad_grids_and_numbers_raise_errors(cache):
    fn = kernel_of(WHOLE, "add_one")
    a = np.zeros(4, "float32")
    with pytest.raises(ShapeError, match=r"add_one: a grid of 65536 x 32768 is 2147483648 programs, the limit is"):
        launch(fn, (65536, 32768), a, a, 4, BLOCK=4)
    with pytest.raises(ParameterError, match=r"add_one: n=2147483648 does not fit int32. Annotate"):
        launch(fn, (1,), a, a, 2**31, BLOCK=4)
    with pytest.raises(ParameterError, match=r"add_one: y is None. Pass another array for one that the kernel leaves alone."):
        launch(fn, (1,), a, None, 4, BLOCK=4)
    launch(fn, (0,), a, a, 4, BLOCK=4)
    launch(fn, (3, 0), a, a, 4, BLOCK=4)
    assert (a == 0).all()


def test_numbers_keep_the_width_they_are_annotated_with(cache):
    text = """@triton.jit
def widths(y, z, i: tl.int64, d: tl.float64):
    tl.store(y, i)
    tl.store(z, d)
"""
    y, z = np.zeros(1, "int64"), np.zeros(1, "float64")
    launch(kernel_of(text, "widths"), (1,), y, z, 2**40 + 1, 0.1)
    assert y[0] == 2**40 + 1 and z[0] == 0.1


def test_loops_run_up_to_a_scalar(cache):
    """Without the patched interpreter, a warning here (an error in this suite), and a TypeError with newer NumPy."""
    text = """@triton.jit
def count(y, n):
    total = 0
    for i in range(0, tl.cdiv(n, 2)):
        total += i
    tl.store(y, total)
"""
    y = np.zeros(1, "int32")
    launch(kernel_of(text, "count"), (1,), y, 9)
    assert y[0] == 10


# ---- guard pages -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("missing", ["load", "store", ""])
def test_guard_pages_catch_a_missing_mask(cache, missing):
    text = ADD_ONE.format(load="" if missing == "load" else MASK, store="" if missing == "store" else MASK)
    fn = kernel_of(text, "add_one")
    x, y = guarded(np.ones(1000, "float32")), guarded(np.zeros(1000, "float32"))
    died = dies_of(lambda: launch(fn, (1,), x, y, 1000, BLOCK=4096))
    assert died == (signal.SIGSEGV if missing else 0)


def softmax(x):
    e = L.exp(x - L.row_max(x))
    return e / L.row_sum(e)


X = [load_input(i, np.dtype("float32")) for i in range(2)]
GUARDED = {
    "flat": (X[0] + X[1], [(1003,), (1003,)], (1003,)),
    "scalar": (X[0] * X[1], [(1003,), (1,)], (1003,)),
    "row vector": (X[0] * X[1], [(31, 33), (33,)], (31, 33)),
    "column vector": (X[0] * X[1], [(31, 33), (31, 1)], (31, 33)),
    "channel": (X[0] * X[1], [(3, 5, 7, 7), (5, 1, 1)], (3, 5, 7, 7)),
    "fold all": (X[0] * X[1], [(1003,), (1003,)], (1,)),
    "fold rows": (X[0] * X[1], [(31, 33), (33,)], (31, 1)),
    "fold columns": (X[0] * X[1], [(31, 33), (31, 33)], (33,)),
    "fold channel": (X[0] * X[1], [(3, 5, 7, 7), (3, 1, 7, 7)], (5, 1, 1)),
    "rows": (softmax(X[0]), [(31, 33)], (31, 33)),
    "long rows": (softmax(X[0] * X[1]), [(3, 20001), (20001,)], (3, 20001)),
    "value per row": (L.row_sum(X[0]), [(31, 33)], (31, 1)),
}


@pytest.mark.parametrize("case", GUARDED)
def test_generated_kernels_stay_inside_their_arrays(case):
    root, shapes, shape = GUARDED[case]
    row = "row" in case and case not in ("row vector", "fold rows")
    arrays = [guarded(np.ones(s, "float32")) for s in shapes]
    out = guarded(np.zeros(shape, "float32"))
    for req in (Req.WRITE, Req.ADD):
        plan = plan_launches(Expression((root,), kind="row" if row else "elementwise"),
                          [Spec(a.shape, a.dtype) for a in arrays], [Spec(out.shape, out.dtype)], [req],
                          codegen=CodegenTarget(True, 1 << 12))
        run = SimpleNamespace(stream=None, workspace=lambda s, d: guarded(np.zeros(s, d)))
        assert dies_of(lambda plan=plan, run=run: plan.run(run, arrays, [out])) == 0
