"""Kernels printed from formulas round each operation: their bits depend neither on the place of an element nor on the kernel."""

import importlib.util

import numpy as np
import pytest
from support.machine_instructions import instructions
from tritium.kernels.gpu.job import CompileJob
from tritium.kernels.gpu.record import FakeArray, FakeRun, record
from tritium.kernels.op import Req, Spec, get
from tritium.kernels.ops.optimizer.triton_multi import many_update

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
F32 = np.dtype("float32")


def arithmetic(job):
    """Return the number of each instruction on floats in the machine code of a job."""
    return {name: n for name, n in instructions(job).items() if name.startswith(("FFMA", "FMUL", "FADD", "FMNMX", "MUFU"))}


def jobs_of_update(name):
    """The kernels that update one array, and many."""
    op = get(name)
    p = op.parse({"lr": 0.1})
    n = len(op.arguments(p)) + len(op.auxiliaries(p))
    specs, arrays = [Spec((4096,), F32)] * n, [FakeArray((4096,), F32)] * n
    with record(90) as recorder:
        op.kernel(p, specs, specs[:1], (Req.WRITE,), "gpu")(FakeRun(), arrays, arrays[:1], scalars=p.scalars)
        many = many_update(name, op.expression(p, [F32] * n), [F32] * n, None)
        many.launch(None, FakeArray((n, 5), "int64"), FakeArray((5,), "int64"), FakeArray((9, 2), "int64"),
                    FakeArray((5, len(many.columns)), "float64"))
    return recorder.jobs


@pytest.mark.parametrize("name", ["_adamax_update", "adam_update"])
def test_an_update_of_one_array_and_of_many_do_the_same_operations(name):
    one, many = map(arithmetic, jobs_of_update(name))
    assert one == many and one["FMUL"] > 0 and one["FADD"] > 0
    assert name == "adam_update" or "FFMA" not in one  # a root that is rounded right has some


def test_kernels_written_by_hand_may_contract():
    assert not any(job.contracts for job in jobs_of_update("adam_update"))
    op = get("dot")
    p, specs = op.parse({}), [Spec((64, 64), F32)] * 2
    with record(90) as recorder:
        op.kernel(p, specs, specs[:1], (Req.WRITE,), "gpu")(FakeRun(), [FakeArray((64, 64), F32)] * 2, [FakeArray((64, 64), F32)])
    assert any(job.contracts for job in recorder.jobs)
    job = recorder.jobs[0]
    assert job.digest() != CompileJob(**{**vars(job), "contracts": False}).digest()
