"""The machine code of generated kernels, compiled without a GPU: wide accesses for any length, no spilling, 64-bit addresses.
One child process compiles all of them, and kernels with the faults that the gates must find."""

from dataclasses import replace

import numpy as np
import pytest
from tritium.dtype import bfloat16
from tritium.errors import GraphError, OperatorError, ParameterError
from tritium.kernels.gpu.codegen_checks import gate, hardly_spills
from tritium.kernels.gpu.compile import Access, CompileJob, compile_all, read_accesses
from tritium.kernels.gpu.printer import plan_launches
from tritium.kernels.gpu.record import FakeArray, FakeRun, record
from tritium.kernels.gpu.target import CodegenTarget
from tritium.kernels.ir import lang as L
from tritium.kernels.ir.expr import load, prim
from tritium.kernels.ir.primitives import PRIMITIVES
from tritium.kernels.op import Expression, Req, Spec, registered
from tritium.kernels.params import REQUIRED

pytest.importorskip("triton")

F32, F16, F64 = np.dtype("float32"), np.dtype("float16"), np.dtype("float64")
COMPILED = CodegenTarget(False)
ODD = 1_000_003  # divides by nothing


def jobs_of(root, shapes, out, dtype=F32, req=Req.WRITE, targets=(80, 90, 100), combine="add", kind="elementwise"):
    ins, outs = [Spec(s, dtype) for s in shapes], [Spec(out, dtype)]
    plan = plan_launches(Expression((root,), kind, combine), ins, outs, [req], codegen=COMPILED)
    return [job for target in targets for job in recorded(plan, ins, outs, target)]


def recorded(plan, ins, outs, target):
    """The jobs of all launches of a plan."""
    with record(target) as recorder:
        arrays = ([FakeArray(s.shape, s.dtype) for s in specs] for specs in (ins, outs))
        plan.run(FakeRun(), *arrays, scalars=(1.0,) * 9, random=(0, 0))
    return [job for job, _ in recorder.launches]


def softmax(x):
    e = L.exp(x - L.row_max(x))
    return e / L.row_sum(e)


def cases():
    """name -> (jobs, gate arguments)."""
    found = {}
    for dtype in (F32, bfloat16):
        x, y = load(0, dtype), load(1, dtype)
        flat = [(ODD,), (ODD,)]

        def add(name, jobs, dtype=dtype, **gates):
            found[f"{name} {dtype.name}"] = jobs, gates

        add("chain", jobs_of(L.exp(x) * y + L.tanh(x), flat, (ODD,), dtype), loads=2, stores=1, max_registers=64)
        only = (90,)
        add("request add", jobs_of(x * y, flat, (ODD,), dtype, Req.ADD, only), loads=3, stores=1, min_occupancy=0.5)
        add("scalar operand", jobs_of(x * y, [(ODD,), (1,)], (ODD,), dtype, targets=only), loads=1, stores=1, narrow_loads=1)
        add("row vector", jobs_of(x * y, [(1003, 64), (64,)], (1003, 64), dtype, targets=only), loads=2, stores=1)
        add("column vector", jobs_of(x * y, [(1003, 64), (1003, 1)], (1003, 64), dtype, targets=only),
            loads=1, stores=1, narrow_loads=8)
        add("channel", jobs_of(x * y, [(32, 64, 7, 7), (64, 1, 1)], (32, 64, 7, 7), dtype, targets=only),
            loads=1, stores=1, narrow_loads=8)
        total = jobs_of(x * y, flat, (1,), dtype, targets=only)
        add("sum of all, parts", total[:1], loads=2, wide_offsets=False)
        add("sum of all, whole", total[1:], wide_offsets=False)
        add("sum of 3 milliard", jobs_of(x, [(3 * 10**9 + 1,)], (1,), dtype, targets=only)[:1], loads=1)
        add("sum of rows", jobs_of(x, [(4096, 1024)], (4096, 1), dtype, targets=only), loads=1)
        add("sum of columns", jobs_of(x, [(131_072, 1024)], (1, 1024), dtype, targets=only)[:1], loads=8, wide_offsets=False)
        add("largest of rows", jobs_of(x, [(4096, 1000)], (4096, 1), dtype, targets=only, combine="maximum"))
        add("softmax of 1000", jobs_of(softmax(x), [(512, 1000)], (512, 1000), dtype, kind="row"), wide_offsets=False)
        add("softmax of 50000", jobs_of(softmax(x), [(512, 50_000)], (512, 50_000), dtype, kind="row", targets=only),
            wide_offsets=False, max_registers=64, async_copies=4)  # of 32 warps, whose loads run ahead
        add("softmax of a huge array", jobs_of(softmax(x), [(3 * 10**6, 1000)], (3 * 10**6, 1000), dtype, kind="row",
                                               targets=only))
    return found


CASES = cases()
# what a GPU's slow path for huge arguments keeps in slow memory
SPILLING = {"sin", "cos", "tan"}


@pytest.fixture(scope="module")
def compiled():
    jobs = [job for jobs, _ in CASES.values() for job in jobs]
    kernels = iter(compile_all(jobs))
    return {name: [next(kernels) for _ in jobs] for name, (jobs, _) in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_generated_kernels_pass_their_gates(name, compiled):
    for kernel in compiled[name]:
        assert gate(kernel, **CASES[name][1]) == [], f"sm_{kernel.target}"


def test_rows_of_a_length_divisible_by_16_are_read_wide(compiled):
    for kernel in compiled["softmax of 1000 float32"]:
        assert {a.bits for a in kernel.accesses} == {128}


MASKED = """@triton.jit
def masked(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)
"""
CROWDED = """@triton.jit
def crowded(x, y, BLOCK: tl.constexpr):
    a = tl.arange(0, BLOCK)
    t = tl.load(x + a[:, None] * BLOCK + a[None, :])
    tl.store(y + a[:, None] * BLOCK + a[None, :], tl.sort(t) * tl.sum(t) + t)
"""


def test_gates_find_masked_accesses_and_spills():
    pointers = {"x": "*fp32", "y": "*fp32"}
    masked, crowded = compile_all([CompileJob(MASKED, "masked", {**pointers, "n": "i32"}, {"BLOCK": 1024}),
                                   CompileJob(CROWDED, "crowded", pointers, {"BLOCK": 128})])
    wrong = gate(masked, loads=1, stores=1)
    assert wrong[0] == "0 unmasked 128-bit loads, 1 needed; loads are 8x32"
    assert wrong[1] == "0 unmasked 128-bit stores, 1 needed; stores are 8x32"
    assert wrong[2] == "no 64-bit address arithmetic"
    assert len(wrong) == 3
    assert any("spill instructions, stack" in w for w in gate(crowded))
    assert any("registers, 32 allowed" in w for w in gate(crowded, max_registers=32))
    assert any("occupancy" in w for w in gate(crowded, min_occupancy=0.9))
    assert "no tensor core instruction" in gate(masked, tensor_ops=True)


def test_gates_find_a_kernel_that_needs_more_shared_memory_than_there_is(compiled):
    kernel = compiled["sum of rows float32"][0]
    fits, more = (replace(kernel, target=90, shared=n) for n in (232_448, 232_449))
    assert gate(fits, wide_offsets=False) == []
    assert gate(more, wide_offsets=False) == ["232449 bytes of shared memory, 232448 fit: it cannot be launched"]


def test_an_error_names_the_kernel_that_does_not_compile():
    with pytest.raises(OperatorError, match=r"masked: does not compile for sm_90: .*neither a type nor a value"):
        compile_all([CompileJob(MASKED, "masked", {"x": "*fp32"})])


def test_accesses_are_read_from_ptx():
    ptx = """
    @%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
    ld.global.nc.L1::evict_last.v2.b64 {%rd2, %rd3}, [%rd4];
    ld.global.b16 { %rs1 }, [ %rd1 + 0 ];
    @!%p2 st.global.v8.b32 [ %rd1 + 0 ], { %r1 };
    ld.param.u64 %rd1, [k_param_0];
    """
    assert read_accesses(ptx) == (Access("load", 128, True), Access("load", 128, False), Access("load", 16, False),
                                  Access("store", 256, True))


def primitive_jobs(dtype, target):
    jobs = []
    for name, row in PRIMITIVES.items():
        own = np.dtype("int64") if row.rule == "whole" else dtype
        dtypes = [np.dtype("bool") if row.rule == "where" and i == 0 else own for i in range(row.arity)]
        root = prim(name, *(load(i, d) for i, d in enumerate(dtypes)))
        ins, outs = [Spec((ODD,), d) for d in dtypes], [Spec((ODD,), root.dtype)]
        plan = plan_launches(Expression((root,)), ins, outs, [Req.WRITE], name=name, codegen=COMPILED)
        jobs += recorded(plan, ins, outs, target)
    return jobs


@pytest.mark.nightly
@pytest.mark.parametrize("target", [80, 90, 100])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_every_primitive_compiles(dtype, target):
    jobs = primitive_jobs(dtype, target)
    for job, kernel in zip(jobs, compile_all(jobs)):
        name = kernel.name.removeprefix("k_")
        row = PRIMITIVES[name]
        slow = name in SPILLING
        stores = 1 if row.rule not in ("compare", "logic") else 0
        enough = job.constexprs["BLOCK"] * dtype.itemsize >= 2048  # 128 bits a thread; long functions have fewer
        wrong = gate(kernel, loads=enough * (row.arity - (row.rule == "where")), stores=enough * stores,
                     spills=hardly_spills(job, kernel), narrow_loads=256 if slow else 1)
        assert wrong == [], name


@pytest.mark.nightly
def test_every_declared_operator_and_its_derivative_compiles():
    """As many as print a kernel of their own with the parameters' defaults."""
    jobs = []
    for op in dict.fromkeys(registered().values()):
        try:
            p = op.parse({d.name: "1" for d in op.params if d.default is REQUIRED})
            op.arguments(p)
        except (ParameterError, GraphError, OperatorError):
            continue  # a required choice or shape: the operator's own tests give one; a loop, which holds graphs; Custom
        gradient = op.gradient_of(p)
        for part in (op, gradient.op) if gradient else (op,):
            n = len(part.arguments(p)) + len(part.auxiliaries(p))
            e = part.expression(p, [F32] * n)
            if e is None:
                continue
            spec = Spec((128, 96), F32)
            outs = [spec] * len(part.outputs(p))
            plan = plan_launches(e, [spec] * n, outs, [Req.WRITE] * len(outs), name=part.name, codegen=COMPILED)
            jobs += recorded(plan, [spec] * n, outs, 90)
    assert len(jobs) > 100
    kernels = [k for i in range(0, len(jobs), 50) for k in compile_all(jobs[i:i + 50])]
    wrong = {k.name: gate(k, wide_offsets=False, spills=hardly_spills(job, k)) for job, k in zip(jobs, kernels)}
    assert {name: w for name, w in wrong.items() if w} == {}
