"""Kernels of index formulas, compiled for every target: no spills, narrow index arithmetic, 128-bit accesses where rows are
contiguous, and 64-bit indices where an array has 2³¹ elements or more. Their values are tested in declare/test_indexed.py."""

import importlib.util
import re

import numpy as np
import pytest
import tritium as mx
from support.operator_jobs import TARGETS, jobs_of
from tritium.kernels.gpu.codegen_checks import wrong_with
from tritium.kernels.gpu.compile import compile_all
from tritium.kernels.gpu.record import FakeArray, FakeRun, record
from tritium.kernels.op import Req, Spec
from tritium.lang import argmax, maximum, minimum
from tritium.lang import sum as total

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


@mx.indexed("_test_rows", free=("index",), shape=lambda x, index: (*index, x[-1]), replace=True)
def rows(at, x, index):
    """Rows of x at indices from data."""
    return x[minimum(maximum(index[at[0]].astype("int64"), 0), x.shape[0] - 1), at[1]]


@rows.gradient
def _(at, dy, index):
    """As an operator's would be, by searching."""
    return total(index.shape[0], lambda k: dy.at(k, at[1], inside=index[k].astype("int64") == at[0]))


@mx.indexed("_test_best_of", shape=lambda x: x[:1], dtype="int64", replace=True)
def best_of(at, x):
    """A loop, with a search."""
    return argmax(x.shape[1], lambda k: x[at[0], k])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int8"])
def test_formulas_compile_without_faults(dtype):
    d = mx.dtype.DTYPES[dtype]
    jobs = [job for op, shapes in ((rows, [(1000, 256), (5000,)]), (best_of, [(1000, 256)]))
            for job in jobs_of(op, shapes, {}, d, TARGETS[len(dtype) % 3])]
    assert len(jobs) == 3
    for job, kernel in zip(jobs, compile_all(jobs, timeout=120)):
        assert not wrong_with(job, kernel), (job.source, wrong_with(job, kernel))


@pytest.mark.parametrize("target", TARGETS)
def test_rows_are_read_128_bits_at_once_with_narrow_indices(target):
    (job, *_) = jobs_of(rows, [(1000, 256), (5000,)], {}, np.dtype("float32"), target)
    (kernel,) = compile_all([job], timeout=120)
    widths = {kind: [a.bits for a in kernel.accesses if a.kind == kind] for kind in ("load", "store")}
    assert set(widths["store"]) == {128} and widths["load"].count(128) == len(widths["store"]), widths
    assert "int64" not in job.source.partition("def k_")[2].replace("_to_int64", ""), job.source


@pytest.mark.parametrize("size, wide", [(1 << 20, False), (1 << 26, True)])
def test_large_arrays_are_indexed_with_64_bits(size, wide):
    with record(90) as recorder:
        ins = (Spec((64, size), np.dtype("int8")), Spec((8,), np.dtype("int32")))
        outs = (Spec((8, size), np.dtype("int8")),)
        arrays = [[FakeArray(s.shape, s.dtype) for s in group] for group in (ins, outs)]
        rows.kernel(rows.parse({}), ins, outs, [Req.WRITE], "gpu")(FakeRun(), *arrays)
    (job,) = recorder.jobs
    parameters = re.search(r"def \w+\((.*)\)", job.source)[1]
    assert ("m0_by_16: tl.int64" in parameters) == wide, job.source


@mx.indexed("_test_weighted", free=("index",), shape=lambda x, index: (*index, x[-1]), replace=True)
def weighted(at, x, index):
    """Without a declared derivative: rows and single elements are added at computed places."""
    i = minimum(maximum(index[at[0]].astype("int64"), 0), x.shape[0] - 1)
    return x[i, at[1]] * 2 + x[i, x.shape[1] - 1 - at[1]]


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("target", TARGETS)
def test_derived_derivatives_compile_without_faults(dtype, target):
    jobs = jobs_of(weighted, [(1000, 256), (5000,)], {}, np.dtype(dtype), target, gradient=Req.WRITE)
    assert sum("tl.atomic_add" in job.source for job in jobs) == 2
    for job, kernel in zip(jobs, compile_all(jobs, timeout=120)):
        assert not wrong_with(job, kernel), (job.source, wrong_with(job, kernel))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_elements_at_distinct_places_are_added_without_atomics_or_a_copy(dtype):
    last = mx.kernels.op.get("SequenceLast")
    _, *jobs = jobs_of(last, [(128, 32, 512), (32,)], {"use_sequence_length": True}, mx.dtype.DTYPES[dtype], 90)
    (kernel,) = compile_all(jobs, timeout=120)
    assert "atomic" not in jobs[0].source
    assert {a.bits for a in kernel.accesses if a.kind == "store"} == {128}
