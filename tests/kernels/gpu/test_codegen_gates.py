"""The machine code of the template kernels, compiled without a GPU: tensor cores, asynchronous copies, no spilling. Registers
and shared memory are compared with codegen_snapshot.json; after an intended change, write it anew: TRITIUM_SNAPSHOT=write
with -m nightly."""

import json
import os
from pathlib import Path

import pytest
from support import gpu_cases
from tritium.kernels.gpu.codegen_checks import gate, hardly_spills
from tritium.kernels.gpu.compile import compile_all
from tritium.kernels.gpu.job import toolchain
from tritium.kernels.gpu.load import INTERPRET

pytestmark = pytest.mark.skipif(not INTERPRET, reason="needs TRITIUM_GPU=interpret")
pytest.importorskip("torch")
SNAPSHOT = Path(__file__).with_name("codegen_snapshot.json")
FEW = 8  # spill instructions outside loops that a kernel may have
CASES = gpu_cases.cases()


def check(names):
    jobs = [(name, job) for name in names for job in CASES[name][1]]
    snapshot = {}
    wrong = []
    for (name, job), kernel in zip(jobs, compile_all([j for _, j in jobs])):
        gates = CASES[name][2].get(kernel.name, {})
        few = (kernel.spills <= FEW and kernel.local == 0) or hardly_spills(job, kernel)
        wrong += [f"{name} {kernel.name}: {w}" for w in gate(kernel, wide_offsets=False, spills=few, **gates)]
        key = " ".join([name, kernel.name, *(f"{k}={v}" for k, v in job.constexprs.items() if k[0] in "BUTPL" and k.isupper()),
                        *job.signature.values(), str(len(job.align16 or ()))])
        snapshot[key] = [kernel.registers, kernel.spills, kernel.shared]
    assert wrong == []
    return snapshot


def compare(found):
    held = json.loads(SNAPSHOT.read_text())
    if held["triton"] != toolchain()[0]:
        pytest.skip(f"the snapshot is of triton {held['triton']}")
    changed = {k: (held["kernels"].get(k), v) for k, v in found.items() if differs(held["kernels"].get(k), v)}
    assert changed == {}, "registers, spills, shared memory: before, now"


def differs(before, now):
    return before is None or abs(before[0] - now[0]) > max(8, before[0] // 10) or now[1] > before[1] + 2 or \
        abs(before[2] - now[2]) > 1024


def test_a_sample_of_templates_has_the_expected_machine_code():
    compare(check(gpu_cases.SAMPLE))


@pytest.mark.nightly
@pytest.mark.timeout(3000)
def test_every_template_has_the_expected_machine_code():
    found = check(CASES)
    if os.environ.get("TRITIUM_SNAPSHOT") == "write":
        SNAPSHOT.write_text(json.dumps({"triton": toolchain()[0], "kernels": found}, indent=0, sort_keys=True) + "\n")
    compare(found)


def test_the_sample_has_some_of_every_family():
    assert {name.split()[0] for name in gpu_cases.SAMPLE} == {name.split()[0] for name in CASES}


def test_a_comparison_notices_registers_spills_and_shared_memory():
    assert differs(None, [32, 0, 0]) and differs([32, 0, 0], [64, 0, 0]) and differs([32, 0, 0], [32, 9, 0])
    assert differs([32, 0, 0], [32, 0, 4096]) and not differs([32, 0, 0], [36, 0, 512])
