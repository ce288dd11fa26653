"""Random numbers of consecutive elements: all four words of a counter are used, and the numbers are those of the CPU."""

import importlib.util

import numpy as np
import pytest
from support.machine_instructions import instructions
from tritium.kernels import philox
from tritium.kernels.declare.random_fill import _kernel
from tritium.kernels.gpu.load import INTERPRET
from tritium.kernels.gpu.record import FakeArray, FakeRun, record
from tritium.kernels.kernel import HostRun

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


@pytest.mark.skipif(not INTERPRET, reason="needs TRITIUM_GPU=interpret")
@pytest.mark.parametrize("n", [1, 5, 16, 4097, 70_000])
@pytest.mark.parametrize("offset", [0, 1, 2, 3, 2**32 * 4 - 2])
def test_the_numbers_are_those_of_philox(n, offset):
    """70 000 elements are two programs of the interpreter; the last offset goes over the lower half of the counter."""
    seed = 2**63 + 12345
    for kind, numbers in (("uniform", philox.uniform), ("normal", philox.normal)):
        out = np.zeros(n, np.float32)
        _kernel(kind, (n,), "float32", "gpu").run(HostRun(), [], [out], scalars=(0.0, 1.0), random=(seed, offset))
        want = numbers(seed, offset, n)
        assert np.array_equal(out, want) if kind == "uniform" else np.abs(out - want).max() < 1e-6  # its logarithm may differ


def test_four_numbers_take_the_rounds_of_one_or_two_counters():
    """A counter takes ten rounds of two wide multiplications; two branches hold a counter, and another for starts within four."""
    with record(90) as recorder:
        _kernel("uniform", (1 << 20,), "float32", "gpu").run(
            FakeRun(), [], [FakeArray((1 << 20,), "float32")], scalars=(0.0, 1.0), random=(1, 2))
    (job,) = recorder.jobs
    counters = job.constexprs["BLOCK"] // (32 * job.num_warps) // 4
    assert instructions(job)["IMAD.WIDE"] + instructions(job)["IMAD.HI"] <= 2 * 2 * 20 * counters
