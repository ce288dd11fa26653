"""Random numbers of consecutive elements: all four words of a counter are used, and the numbers are those of the CPU."""

import importlib.util
import math

import numpy as np
import pytest
import tritium as mx
from support.machine_instructions import instructions
from tritium.kernels import philox
from tritium.kernels.declare.random_fill import _kernel
from tritium.kernels.gpu.load import INTERPRET
from tritium.kernels.gpu.record import FakeArray, FakeRun, record
from tritium.kernels.kernel import HostRun
from tritium.kernels.op import Req, Spec, compiled
from tritium.lang import bernoulli, normal, row_max, uniform, where

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


@mx.simple_op(name="_test_rows_of_numbers", outputs=("one", "pair", "shared", "bits"), replace=True)
def rows_of_numbers(x):
    rest = row_max(x)
    return uniform() + rest, normal() + rest, uniform(shared=(0,)) + rest, where(bernoulli(0.5), 1, 0) + rest


@mx.simple_op(name="_test_lowered_rows", replace=True)
def lowered_rows(x):
    return uniform() - row_max(x)


@pytest.mark.skipif(not INTERPRET, reason="needs TRITIUM_GPU=interpret")
@pytest.mark.parametrize("offset", [0, 2, 3, 2**32 * 4 - 2])
@pytest.mark.parametrize("shape", [(3, 1), (3, 4), (5, 7), (4, 10), (2, 3, 12), (1, 9), (3, 20_000), (2, 16_386)])
def test_rows_have_the_numbers_of_philox(shape, offset):
    """Rows of whole counters, of whole pairs, and others; the last two are read in blocks."""
    seed, n = 2**63 + 12345, math.prod(shape)
    spec = Spec(shape, np.dtype("float32"))
    kernel = compiled(rows_of_numbers, rows_of_numbers.parse({}), (spec,), (spec,) * 4, (Req.WRITE,) * 4, "gpu", True)
    outs = [np.full(shape, 9, np.float32) for _ in range(4)]
    kernel(HostRun(), [np.zeros(shape, np.float32)], outs, random=(seed, offset))
    pairs = n + n % 2
    assert np.array_equal(outs[0].ravel(), philox.uniform(seed, offset, n))
    assert np.abs(outs[1].ravel() - philox.normal(seed, offset + n, n)).max() < 1e-6
    assert np.array_equal(outs[2], np.broadcast_to(philox.uniform(seed, offset + n + pairs, n // shape[0]).reshape(
        1, *shape[1:]), shape))
    assert np.array_equal(outs[3].ravel(), philox.words(seed, offset + n + pairs + n // shape[0], n) < 2**31)


@pytest.mark.parametrize("last", [1024, 1022, 1023])
def test_a_row_takes_the_rounds_of_two_counters_for_four_numbers(last):
    """Of whole counters it takes those of one, and the other is in a branch."""
    spec = Spec((64, last), np.dtype("float32"))
    with record(90) as recorder:
        compiled(lowered_rows, lowered_rows.parse({}), (spec,), (spec,), (Req.WRITE,), "gpu", True)(
            FakeRun(), [FakeArray(spec.shape, "float32")], [FakeArray(spec.shape, "float32")], random=(1, 2))
    (job,) = recorder.jobs
    elements = job.constexprs["BLOCK"] * job.constexprs["BLOCK_ROWS"] // (32 * job.num_warps)
    found = instructions(job)
    assert found["IMAD.WIDE"] + found["IMAD.HI"] <= 2 * 20 * elements // 4
