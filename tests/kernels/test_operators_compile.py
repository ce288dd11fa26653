"""Every registered operator as machine code, compiled without a GPU: each dtype it takes for each target (all of them
nightly, a sample for every change), nothing spilled in quantity; and those that are bound by memory read and write 128 bits
at once."""

import importlib.util
import re
import zlib
from dataclasses import replace

import pytest
from operator_jobs import DTYPES, FLOATS, INTEGERS, INTS, TARGETS, jobs_of, operators, uses
from tritium.errors import MXNetError
from tritium.kernels.op import get
from tritium.kernels.triton_check import gate
from tritium.kernels.triton_compile import build, compile_all

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
#: A GPU's slow path for the sine of a huge argument, and values of several words, lie in local memory.
STACK = 200


def nameless(job):
    """What job compiles to, whatever its kernel is called: operators that say the same are compiled once."""
    return replace(job, name="kernel", source=re.sub(rf"\b{job.name}\b", "kernel", job.source)).digest()


def all_jobs(ops, dtypes, targets):
    """{digest: (operator, dtype, job)}; a dtype that an operator refuses by name is left out."""
    found = {}
    for op in ops:
        for dtype in dtypes:
            for target in targets:
                for use in uses(op):
                    try:
                        jobs = jobs_of(op, *use, DTYPES[dtype], target)
                    except (MXNetError, OverflowError):  # Overflow: an infinity among whole numbers
                        assert dtype != "float32", f"{op.name} refuses float32"
                        continue
                    found = {nameless(job): (op.name, dtype, job) for job in jobs} | found
    return found


def check(found):
    wrong = []
    rows = list(found.values())
    for i, outcome in build([job for _, _, job in rows], timeout=120):
        name, dtype, job = rows[i]
        what = f"{name} {dtype} {job.name} sm_{job.target}"
        if isinstance(outcome, Exception):
            wrong.append(f"{what}: {str(outcome)[:300]}")
        else:
            wrong += [f"{what}: {w}" for w in gate(outcome, wide_offsets=False, spills=outcome.stack <= STACK)]
    assert not wrong, "\n".join(wrong)


def test_a_sample():
    """One operator in eighteen, in a dtype and for a target that its name decides."""
    found = {}
    for op in operators():
        number = zlib.crc32(op.name.encode())
        if number % 18 == 0:
            found |= all_jobs([op], [FLOATS[number // 18 % 4]], [TARGETS[number // 72 % 3]])
    assert len(found) > 10
    check(found)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("target", TARGETS)
def test_all(dtype, target):
    found = all_jobs(operators(), [dtype], [target])
    assert len(found) > 300
    check(found)


# ---- bound by memory ---------------------------------------------------------------------------------------------------
IMAGES, LAST, ROWS = (128, 64, 56, 56), (128, 56, 56, 64), (4096, 1024)
CHANNELS = [(64,)] * 4
#: name -> (input shapes, parameters, {kernel: how many narrower loads it may have: numbers per row or channel})
WIDE = {
    "transpose": ([(64, 1024, 1024)], {"axes": (0, 2, 1)}, {}), "Concat": ([ROWS, ROWS], {"num_args": 2, "dim": 1}, {}),
    "SliceChannel": ([ROWS], {"num_outputs": 2}, {}), "slice_axis": ([ROWS], {"axis": 1, "begin": 64, "end": 512}, {}),
    "Flatten": ([IMAGES], {}, {}), "tile": ([ROWS], {"reps": (2, 2)}, {}), "stack": ([ROWS] * 2, {"num_args": 2, "axis": 1}, {}),
    "reverse": ([ROWS], {"axis": (0,)}, {}), "add_n": ([ROWS] * 4, {"num_args": 4}, {}), "where": ([ROWS] * 3, {}, {}),
    "Embedding": ([(INTS, (4096,), 50_000), (50_000, 512)], {"input_dim": 50_000, "output_dim": 512}, {"take_rows": 4}),
    "Dropout": ([ROWS], {}, {"_apply_dense": 99}), "softmax": ([ROWS], {}, {}), "log_softmax": ([ROWS], {}, {}),
    "SoftmaxOutput": ([ROWS, (INTS, ROWS[:1], 1000)], {}, {"_loss": 8}), "LinearRegressionOutput": ([ROWS] * 2, {}, {}),
    "Pooling": ([LAST], {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "layout": "NHWC"}, {}),
    "LRN": ([IMAGES], {"nsize": 5}, {}), "L2Normalization": ([ROWS], {}, {}), "sgd_mom_update": ([ROWS] * 3, {"lr": 0.1}, {}),
    "LayerNorm": ([ROWS, ROWS[1:], ROWS[1:]], {}, {"k_LayerNorm": 8, "k_LayerNorm_backward": 8}),
    "BatchNorm": ([LAST, *CHANNELS], {"axis": 3, "fix_gamma": False}, {}),
    "SequenceMask": ([(128, 32, 512), (INTS, (32,), 128)], {"use_sequence_length": True}, {"_mask_steps": 32}),
    "sum": ([ROWS], {"axis": (1,)}, {"k__backward_sum": 99}), "max": ([ROWS], {"axis": (1,)}, {"k__backward_max": 99}),
    "broadcast_add": ([ROWS, ROWS[1:]], {}, {}), "relu": ([ROWS], {}, {}), "Cast": ([ROWS], {"dtype": "float32"}, {}),
}
#: What a kernel of a few numbers per channel does is not bound by memory.
SMALL = ("norm_shift", "norm_statistics", "norm_channels", "take_rank", "take_segments", "_mask")


def wide_jobs(names, dtype, target):
    return [(name, job) for name in names for job in jobs_of(get(name), *WIDE[name][:2], DTYPES[dtype], target)
            if job.name not in SMALL and not job.name.endswith("_parts")]


def check_wide(names, dtype, target):
    jobs = wide_jobs(names, dtype, target)
    wrong = []
    for (name, _), kernel in zip(jobs, compile_all([job for _, job in jobs])):
        narrow = WIDE[name][2].get(kernel.name, 0)
        hot = any(not a.masked and a.bits >= 128 for a in kernel.accesses)  # a branch without masks; else every access counts
        fill = not any(a.kind == "load" for a in kernel.accesses)
        wrong += [f"{name} {kernel.name}: {w}" for w in gate(kernel, loads=not fill, masked=not hot, narrow_loads=narrow,
                                                             wide_offsets=False, min_occupancy=0.12)]
        if not any(a.kind == "store" and a.bits >= 128 for a in kernel.accesses) and "_fold" not in kernel.name \
                and not kernel.name.startswith("norm_sums"):
            wrong.append(f"{name} {kernel.name}: no 128-bit store")
    assert not wrong, "\n".join(wrong)


def test_a_sample_is_wide():
    check_wide(["transpose", "Concat", "softmax", "Pooling", "LayerNorm", "Embedding"], "bfloat16", 90)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("target", TARGETS)
def test_all_are_wide(dtype, target):
    check_wide(WIDE, dtype, target)
