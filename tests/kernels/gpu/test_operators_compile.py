"""The machine code of every registered operator, compiled without a GPU, for each dtype and target: all of them nightly, a sample
for every change. Nothing is spilled, registers are bounded, products use tensor cores, and kernels bound by memory read and write
128 bits at once. Compiled kernels are found in the store, so a nightly run compiles only the changed ones."""

import importlib
import importlib.util
import re
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from support.operator_jobs import DTYPES, FLOATS, INTEGERS, TARGETS, Integers, jobs_of, operators, uses
from tritium.errors import MXNetError
from tritium.kernels import ops
from tritium.kernels.gpu import codegen_checks, triton_copy
from tritium.kernels.gpu.codegen_checks import excuse, gate, hardly_spills, wrong_with
from tritium.kernels.gpu.compile import Access, CompiledKernel, CompileJob, build, compile_all
from tritium.kernels.gpu.source import KernelSource
from tritium.kernels.op import get

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


def nameless(job):
    """The job without its kernel's name: operators with equal kernels are compiled once."""
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
                    except (MXNetError, OverflowError):  # Overflow: an infinity among integers
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
            wrong += [f"{what}: {w}" for w in wrong_with(job, outcome)]
    assert not wrong, "\n".join(wrong)


def test_a_sample_of_operators_compiles_without_faults():
    """One operator in eighteen, in a dtype and for a target that its name decides."""
    found = {}
    for op in operators():
        number = zlib.crc32(op.name.encode())
        if number % 18 == 0:
            found |= all_jobs([op], [FLOATS[number // 18 % 4]], [TARGETS[number // 72 % 3]])
    assert len(found) > 10
    check(found)


def test_partial_sums_of_wide_integers_leave_registers():
    """The mean of 8-bit integers is summed in 64 bits: a program holds fewer of them than it could read at once."""
    check(all_jobs([get("mean")], ["int8"], [80]))


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("target", TARGETS)
def test_all_operators_compile_without_faults(dtype, target):
    found = all_jobs(operators(), [dtype], [target])
    assert len(found) > 300
    check(found)


def test_faults_of_a_kernel_are_found():
    flat = "if base + BLOCK <= n:\n    t = tl.load(x0 + base + lane)\n    tl.store(y0 + base + lane, t)"
    job = CompileJob(flat, "k", {"x0": "*fp16", "y0": "*i8"}, {"BLOCK": 1024})
    wide, narrow = Access("load", 128, False), Access("load", 16, True)
    good = CompiledKernel("k", 90, 40, 0, 0, 0, 0, 4, (wide, narrow), True, 0, 0)
    product = replace(job, source="tl.dot(a, b)", constexprs={"PRECISION": "ieee"})
    assert wrong_with(job, good) == []
    scalar = replace(good, accesses=(replace(narrow, masked=False),))
    assert wrong_with(job, scalar) == ["no 128-bit load in the branch without masks"]
    assert wrong_with(replace(job, constexprs={"BLOCK": 256}), scalar) == []  # two a thread
    assert wrong_with(replace(job, align16=()), scalar) == []  # a slice that begins anywhere
    numbers = replace(job, signature={"x0": "*i16", "y0": "*i16"})
    assert wrong_with(numbers, scalar) == ["no 128-bit store in the branch without masks"]
    assert wrong_with(numbers, replace(good, accesses=(replace(wide, kind="store"),))) == []  # isnan reads nothing
    assert wrong_with(job, replace(good, stack=64, spills=30)) == ["30 spill instructions, stack 64 bytes, local 0 bytes"]
    assert wrong_with(replace(job, source=flat + "tl.sin(t)"), replace(good, stack=48, spills=30)) == []
    assert wrong_with(job, replace(good, stack=8, spills=2)) == []
    assert wrong_with(job, replace(good, registers=130)) == ["130 registers, 128 allowed"]
    assert wrong_with(product, replace(good, tensor_ops=4, registers=255)) == []
    assert wrong_with(product, good) == ["no tensor core instruction"]
    assert wrong_with(replace(product, signature={"x0": "*fp32"}), good) == []
    assert wrong_with(replace(product, signature={"x0": "*fp32"}, constexprs={"PRECISION": "tf32"}), good) == [
        "no tensor core instruction"]


def test_exceptions_name_kernels_that_exist():
    names = {step.name for op in operators() for use in uses(op) for step in jobs_of(op, *use, DTYPES["float32"], 90)}
    assert set(codegen_checks.CROWDED) <= names


# ---- bound by memory ---------------------------------------------------------------------------------------------------
IMAGES, LAST, ROWS, STEPS = (128, 64, 56, 56), (128, 56, 56, 64), (4096, 1024), (128, 32, 512)
CHANNELS = [(64,)] * 4
CLASSES, LENGTHS, MANY = Integers((4096,), 1000), Integers((32,), 128), 99
#: (operator, input shapes, parameters, {kernel: how many narrower loads it may have: numbers per row, channel or place})
WIDE = [
    ("transpose", [(64, 1024, 1024)], {"axes": (0, 2, 1)}, {}), ("SwapAxis", [(64, 1024, 1024)], {"dim1": 0, "dim2": 1}, {}),
    ("transpose", [(128, 4, 3136)], {"axes": (0, 2, 1)}, {}), ("depth_to_space", [(8, 64, 56, 512)], {"block_size": 2}, {}),
    ("space_to_depth", [(8, 64, 56, 512)], {"block_size": 2}, {}),
    ("Concat", [ROWS, ROWS], {"num_args": 2, "dim": 1}, {}), ("SliceChannel", [ROWS], {"num_outputs": 2}, {}),
    ("slice_axis", [ROWS], {"axis": 1, "begin": 64, "end": 512}, {}), ("Flatten", [IMAGES], {}, {}),
    ("tile", [ROWS], {"reps": (2, 2)}, {}), ("stack", [ROWS] * 2, {"num_args": 2, "axis": 1}, {}),
    ("reverse", [ROWS], {"axis": (0,)}, {}), ("repeat", [ROWS], {"repeats": 2, "axis": 0}, {}),
    ("repeat", [ROWS], {"repeats": 4, "axis": 1}, {}),
    ("add_n", [ROWS] * 4, {"num_args": 4}, {}), ("where", [ROWS] * 3, {}, {}),
    ("Crop", [IMAGES], {"h_w": (48, 48), "num_args": 1}, {}),
    ("relu", [ROWS], {}, {}), ("Cast", [ROWS], {"dtype": "float32"}, {}), ("smooth_l1", [ROWS], {"scalar": 1}, {}),
    ("broadcast_add", [ROWS, ROWS[1:]], {}, {}), ("broadcast_to", [(4096, 1)], {"shape": ROWS}, {}),
    ("broadcast_axis", [(1, 1024)], {"axis": 0, "size": 4096}, {}), ("one_hot", [CLASSES], {"depth": 1000}, {}),
    ("_eye", [], {"N": 1024}, {}), ("_arange", [], {"start": 0, "stop": 1 << 20}, {}),
    ("Embedding", [Integers((4096,), 50_000), (50_000, 512)], {"input_dim": 50_000, "output_dim": 512},
     {"k_Embedding": 8, "take_segments": 8}),
    ("scatter_nd", [(4096, 512), Integers((1, 4096), 4096)], {"shape": (4096, 512)}, {"k_scatter_nd": 8}),
    ("_unravel_index", [Integers((4096,), 4096)], {"shape": (64, 64)}, {}),
    ("SequenceMask", [STEPS, LENGTHS], {"use_sequence_length": True}, {"k_SequenceMask": 8}),
    ("SequenceLast", [STEPS, LENGTHS], {"use_sequence_length": True}, {"k_SequenceLast": 8}),
    ("SequenceReverse", [STEPS, LENGTHS], {"use_sequence_length": True}, {"k_SequenceReverse": 8}),
    ("Pad", [IMAGES], {"mode": "edge", "pad_width": (0, 0, 0, 0, 8, 8, 8, 8)}, {"k_Pad": MANY}),
    ("Dropout", [ROWS], {}, {"k_Dropout_backward": 1}),
    ("Dropout", [ROWS], {"axes": (0,)}, {"k_Dropout": 1, "k_Dropout_backward": 1}),
    ("softmax", [ROWS], {}, {}), ("log_softmax", [ROWS], {}, {}), ("softmax", [IMAGES], {"axis": 1}, {}),
    ("SoftmaxOutput", [ROWS, CLASSES], {}, {"k_SoftmaxOutput_backward": 16}), ("LinearRegressionOutput", [ROWS] * 2, {}, {}),
    ("SoftmaxOutput", [ROWS, CLASSES], {"normalization": "valid"}, {"k_SoftmaxOutput_backward": 17}),
    ("MAERegressionOutput", [ROWS] * 2, {}, {}), ("LogisticRegressionOutput", [ROWS] * 2, {}, {}), ("MakeLoss", [ROWS], {}, {}),
    ("MakeLoss", [ROWS], {"normalization": "valid"}, {}), ("SVMOutput", [ROWS, CLASSES], {}, {"k_SVMOutput": MANY}),
    ("Pooling", [LAST], {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "layout": "NHWC"}, {}),
    ("Pooling", [IMAGES], {"global_pool": True, "pool_type": "max"}, {}),
    ("UpSampling", [IMAGES], {"scale": 2, "sample_type": "nearest", "num_args": 1}, {}),
    ("UpSampling", [IMAGES, IMAGES], {"scale": 4, "sample_type": "nearest", "num_args": 2}, {}),
    ("LRN", [IMAGES], {"nsize": 5}, {}), ("L2Normalization", [ROWS], {}, {}), ("LeakyReLU", [IMAGES], {"act_type": "leaky"}, {}),
    ("LayerNorm", [ROWS, ROWS[1:], ROWS[1:]], {}, {"k_LayerNorm": 8, "k_LayerNorm_backward": 8}),
    ("InstanceNorm", [IMAGES, *CHANNELS[:2]], {}, {"k_InstanceNorm": 16, "k_InstanceNorm_backward": 8}),
    ("BatchNorm", [LAST, *CHANNELS], {"axis": 3, "fix_gamma": False}, {}),
    ("BatchNorm", [IMAGES, *CHANNELS], {"fix_gamma": False}, {"norm_apply": MANY, "norm_gradient": MANY, "norm_sums_first": 2}),
    ("sgd_mom_update", [ROWS] * 3, {"lr": 0.1}, {}), ("adam_update", [ROWS] * 4, {"lr": 0.1}, {}),
    ("sum", [ROWS], {"axis": (1,)}, {"k__backward_sum": MANY}), ("max", [ROWS], {"axis": (1,)}, {"k__backward_max": MANY}),
    ("sum", [ROWS], {"axis": (0,)}, {"k__backward_sum": MANY}), ("sum", [ROWS], {}, {"k__backward_sum": MANY}),
    ("mean", [IMAGES], {"axis": (2, 3)}, {"k__backward_mean": MANY}), ("all_finite", [ROWS], {}, {}),
    ("argmax", [ROWS], {"axis": 1}, {"_extreme": 4}), ("argmax", [ROWS], {"axis": 0}, {}),
    ("_np_cumsum", [ROWS], {"axis": 1}, {}), ("_np_cumsum", [ROWS], {"axis": 0}, {}),
    ("Convolution", [(32, 64, 64, 64), (64, 64, 4, 4), (64,)], {"kernel": (4, 4), "stride": (4, 4), "num_filter": 64}, {}),
    ("Convolution", [LAST, (64, 3, 3, 1)], {"kernel": (3, 3), "num_filter": 64, "num_group": 64, "pad": (1, 1), "no_bias": True,
                                            "layout": "NHWC"}, {"depthwise": MANY}),
    ("slice", [ROWS], {"begin": (0, 64), "end": (4096, 512)}, {}),
    ("FullyConnected", [ROWS, (1024, 1024), (1024,)], {"num_hidden": 1024}, {}),
    ("dot", [ROWS, (1024, 1)], {}, {"gemv": MANY}),
]
#: What a kernel of a few numbers per channel does is not bound by memory; parts of folds are few, and lie by columns.
SMALL = ("norm_statistics", "norm_channels", "norm_add")
#: What gives one number a row or column stores that: narrow, and little.
FOLDS = ("_fold", "_parts", "_part_sums", "norm_sums", "_extreme", "_count_", "gemv", "depthwise_weight", "_forward_whole")


def wide_jobs(rows, dtype, target):
    """[(operator, job, how many narrower loads)] of those bound by memory; kernels with an excuse only where UNIT is above 1."""
    found = {}
    for name, inputs, params, narrow in rows:
        for job in jobs_of(get(name), inputs, params, DTYPES[dtype], target):
            excused = excuse(job.source) and job.constexprs.get("UNIT", 1) == 1
            small = job.name in SMALL or job.name.endswith(("_parts", "_all_finite", "_store"))
            if not (excused or small or "PRECISION" in job.constexprs):
                found[job.digest()] = name, job, narrow.get(job.name, 0)
    return list(found.values())


def width(job):
    """The bits that a thread must read or write at once: 128; fewer where it draws too few random bytes for that."""
    if "_random_four(" not in job.source:
        return 128
    return min(128, job.constexprs["BLOCK"] // (32 * job.num_warps) * codegen_checks.BITS[job.signature["y0"][1:]])


def check_wide(rows, dtype, target):
    """The sources of kernels that passed."""
    jobs = wide_jobs(rows, dtype, target)
    wrong = []
    for (name, job, narrow), kernel in zip(jobs, compile_all([job for _, job, _ in jobs])):
        bits = width(job)
        hot = any(not a.masked and a.bits >= bits for a in kernel.accesses)  # a branch without masks; else every access counts
        fill = not any(a.kind == "load" for a in kernel.accesses)
        wrong += [f"{name} {kernel.name}: {w}" for w in gate(
            kernel, loads=not fill, bits=bits, masked=not hot, narrow_loads=narrow, wide_offsets=False, min_occupancy=0.12,
            spills=hardly_spills(job, kernel))]
        if not any(a.kind == "store" and a.bits >= bits for a in kernel.accesses) and not any(f in kernel.name for f in FOLDS):
            wrong.append(f"{name} {kernel.name}: no {bits}-bit store")
    assert not wrong, "\n".join(wrong)
    return {job.source for _, job, _ in jobs}


def test_a_sample_of_operators_has_wide_accesses():
    names = ("transpose", "Concat", "softmax", "Pooling", "UpSampling", "LayerNorm", "Embedding", "one_hot", "_np_cumsum",
             "SequenceLast")
    check_wide([row for row in WIDE if row[0] in names], "bfloat16", 90)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("target", TARGETS)
def test_all_operators_have_wide_accesses(dtype, target):
    check_wide(WIDE, dtype, target)


def test_every_kernel_is_wide_or_states_the_reason():
    """Written ones; those printed from formulas are checked one by one in wrong_with."""
    seen = {job.source for _, job, _ in wide_jobs(WIDE, "bfloat16", 90)}
    modules = [importlib.import_module(f"tritium.kernels.ops.{path.parent.name}.{path.stem}")
               for path in Path(ops.__path__[0]).rglob("triton_*.py")] + [triton_copy]
    assert len(modules) >= 20
    kernels = {f"{m.__name__}.{n}": k for m in modules for n, k in vars(m).items()
               if isinstance(k, KernelSource) and k.fn.__module__ == m.__name__}
    called = {n for k in kernels.values() for n in k.fn.__code__.co_names}  # compiled with those that call them
    missing = [where for where, k in kernels.items() if k.name not in called and k.name not in SMALL and not excuse(k.source)
               and "PRECISION" not in k.arg_names and k.source not in seen]
    assert missing == []
