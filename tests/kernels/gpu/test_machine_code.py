"""Loops in machine code: a short program written down; and nightly the table of docs/gpu.md against what the compiler gives."""

import importlib.util
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import tritium
from support import operator_jobs
from tritium.dtype import bfloat16
from tritium.kernels import op as ops
from tritium.kernels.gpu import store
from tritium.kernels.gpu.compile import compile_all
from tritium.kernels.gpu.load import INTERPRET
from tritium.kernels.gpu.machine_code import Loop, busiest, loops, tensor_cycles
from tritium.kernels.op import Req

ROOT = Path(tritium.__file__).parent

PROGRAM = """
        .headerflags    @"EF_CUDA_SM90"
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   IADD3 R2, R2, 0x1, RZ ;
        /*0020*/              @!P0 BRA `(.L_x_0) ;
.L_x_1:
        /*0030*/               @P1 BRA `(.L_x_2) ;
        /*0040*/                   MUFU.RCP R7, R7 ;
        /*0050*/                   MUFU.RCP R7, R7 ;
        /*0060*/                   MUFU.RCP R7, R7 ;
.L_x_2:
        /*0070*/                   HGMMA.64x256x16.F32.BF16 R24, gdesc[UR36], R24, gsb0 ;
        /*0080*/                   HGMMA.64x256x16.F32.BF16 R24, gdesc[UR40], R24, gsb0 ;
        /*0090*/                   ISETP.GE.AND P0, PT, R3, R4, PT ;
        /*00a0*/              @!P0 BRA `(.L_x_1) ;
        /*00b0*/                   EXIT ;
.L_x_9:
        /*00c0*/                   BRA `(.L_x_9);
"""


def test_loops_and_the_shortest_way_round():
    # the second loop: a branch over three instructions, two products, a comparison, the branch back
    assert loops(PROGRAM) == [Loop(2, 0.0), Loop(5, 64.0, products=2)] and busiest(PROGRAM) == Loop(5, 64.0, products=2)
    assert busiest("        /*0000*/                   EXIT ;\n") is None


def test_calls_in_a_loop_are_counted():
    called = PROGRAM.replace("MUFU.RCP R7, R7 ;", "CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_s64) ;", 1)
    assert loops(called)[1] == Loop(5, 64.0, calls=1, products=2)


def test_only_loops_without_loops_inside_count():
    outer = PROGRAM.replace("        /*00b0*/                   EXIT ;\n", "        /*00b0*/               @P3 BRA `(.L_x_0) ;\n")
    assert loops(outer) == loops(PROGRAM)


def test_products_that_wait_for_one_another():
    wait = "        /*00a8*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;\n"
    before, product, after = PROGRAM.partition("        /*0080*/")
    once, each = before + product + after.replace("gsb0 ;\n", "gsb0 ;\n" + wait, 1), before + wait + product + after.replace(
        "gsb0 ;\n", "gsb0 ;\n" + wait, 1)
    assert [busiest(text).waits for text in (PROGRAM, once, each)] == [0, 1, 2]
    assert [busiest(text).serial for text in (PROGRAM, once, each)] == [False, False, True]


@pytest.mark.skipif(not INTERPRET, reason="needs TRITIUM_GPU=interpret")
@pytest.mark.parametrize("params", [{}, {"causal": True}])
def test_attentions_products_do_not_wait_for_one_another(gpu_table, params):
    jobs = operator_jobs.jobs_of(ops.get("_contrib_attention"), [(8, 16, 2048, 64)] * 3, params, bfloat16, 90, gradient=Req.WRITE)
    compile_all(jobs)
    found = {job.name: busiest(gpu_table.disassemble(store.find(job.digest())[1])) for job in jobs}
    assert len(found) == 3 and all(loop.products > loop.waits > 0 for loop in found.values()), found


@pytest.mark.parametrize("text, cycles", [
    ("HGMMA.64x256x16.F32.BF16 R24, gdesc[UR36], R24", 32.0), ("HGMMA.64x64x8.F32.TF32 R24, gdesc[UR4], R24", 8.0),
    ("HMMA.16816.F32.BF16 R4, R12, R8, R4", 1.0), ("HMMA.1688.F32.TF32 R4, R12, R8, R4", 1.0), ("HADD2 R1, R2, R3", 0.0)])
def test_tensor_cycles(text, cycles):
    assert tensor_cycles(text) == cycles


class Bound(NamedTuple):
    """The most instructions of a round of the main loop, which calls nothing, and the fewest tensor cycles of the program in it;
    the most registers of a thread; the fewest programs that fit on a multiprocessor at once."""

    instructions: int
    cycles: int
    registers: int
    blocks: int


BOUNDS = {("product 4096³, bfloat16", "gemm_tma"): Bound(100, 1024, 195, 1),
          ("product 4096³, TF32", "gemm_tma"): Bound(95, 1024, 210, 1),
          ("product 4095 × 4097 × 4001, bfloat16", "gemm_tma"): Bound(110, 512, 210, 1),
          ("64 products 512 × 512 × 64, bfloat16", "gemm_pointer"): Bound(100, 256, 120, 2),
          ("convolution 3 × 3, 64 channels, 56², batch 128", "conv_gather"): Bound(112, 256, 84, 3),
          ("convolution 3 × 3, 512 channels, 7², batch 128", "conv_gather"): Bound(122, 512, 126, 2),
          ("convolution 3 × 3, 64 channels, 56², batch 128", "conv_weight"): Bound(305, 512, 170, 1),
          ("convolution 3 × 3, 512 channels, 7², batch 128", "conv_weight"): Bound(315, 1024, 232, 1),
          ("convolution 1 × 1, 256 to 64 channels, 56², batch 128", "gemm_pointer"): Bound(150, 128, 104, 2),
          ("attention, 8 × 16 heads of 2048 × 64", "attention_forward"): Bound(325, 256, 128, 4),
          ("attention, derivative", "attention_query_gradient"): Bound(265, 768, 128, 2),
          ("attention, derivative", "attention_key_gradient"): Bound(375, 512, 220, 2)}
#: The most bytes an element that the kernels of a case read and write together, and what no implementation can do without.
BYTES = {"BatchNorm, 64 channels, 56², batch 128": (24.1, 16.0), "LayerNorm 8192 × 1024": (4.1, 4.0),
         "LayerNorm 8192 × 1024, derivative": (6.8, 6.0), "softmax 8192 × 1024": (4.1, 4.0), "tanh, 8 M elements": (4.1, 4.0),
         "attention, 8 × 16 heads of 2048 × 64": (8.1, 8.0), "attention, derivative": (24.3, 16.06)}


@pytest.fixture
def gpu_table(monkeypatch):
    """The script perf/gpu_table.py."""
    pytest.importorskip("triton")
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("gpu_table", ROOT / "perf" / "gpu_table.py")
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gpu_table", made)
    spec.loader.exec_module(made)
    return made


@pytest.mark.skipif(not INTERPRET, reason="needs TRITIUM_GPU=interpret")
def test_bytes_that_kernels_move_for_an_element(gpu_table):
    moved = {name: (sum(launch.nbytes for launch in use.launches) / use.elements, use.least / use.elements)
             for name, use in gpu_table.cases().items() if use.elements}
    assert moved.keys() == BYTES.keys()
    for name, (all_, least) in moved.items():
        assert least <= all_ <= BYTES[name][0] and abs(least - BYTES[name][1]) < 0.02, name


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not INTERPRET, reason="needs TRITIUM_GPU=interpret")
def test_the_table_of_the_page_is_what_the_compiler_gives(gpu_table):
    made, figures = gpu_table, gpu_table.rows()
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8").partition(made.BEGIN)[2].partition(made.END)[0]
    held, now = ([re.split(r"\s*\|\s*", line)[1:-1] for line in text.splitlines()] for text in (page, made.table(figures)))
    assert [row[:3] for row in held] == [row[:3] for row in now]
    for before, after in zip(held[2:], now[2:]):
        for a, b in zip(before[3:10], after[3:10]):  # warps, registers, spills, shared memory, blocks, instructions, cycles
            assert abs(int(a or 0) - int(b or 0)) <= max(8, int(a or 0) // 10), (before, after)
    for (case, kernel), bound in BOUNDS.items():
        mine = [r for r in figures if (r["case"], r["kernel"]) == (case, kernel)]
        assert mine and all(r["instructions"] <= bound.instructions and r["tensor_cycles"] >= bound.cycles and not r["calls"]
                            and r["registers"] <= bound.registers and r["blocks"] >= bound.blocks for r in mine), mine
    assert all(r["spills"] == 0 and not r["serial"] for r in figures)
