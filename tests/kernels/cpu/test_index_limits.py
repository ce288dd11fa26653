"""The check of indices in C: which arrays pass, and by addresses. Oracle: a loop over Python numbers."""

import math

import numpy as np
import pytest
from tritium.errors import ShapeError
from tritium.kernels.cpu import c_compile
from tritium.kernels.cpu.c_take import INDICES
from tritium.kernels.cpu.index_limits import Limits
from tritium.kernels.kernel import HostRun, Kernel
from tritium.kernels.op import Spec

pytestmark = pytest.mark.skipif(c_compile.compiler() is None, reason="there is no C compiler")


class Inner(Kernel):
    """Counts its runs, on arrays and by addresses."""

    def __init__(self):
        self.runs = []
        super().__init__(lambda run, inputs, outputs: self.runs.append("arrays"))
        self.at = lambda run, places, scalars, apart: not self.runs.append("places")


def within(indices, sizes, wraps):
    return all(math.isfinite(v) and (-n if wraps else 0) <= int(v) < n
               for row, n in zip(indices.reshape(len(sizes), -1).tolist(), sizes) for v in row)


@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("dtype", INDICES)
def test_indices_pass_where_a_loop_finds_none_beyond(dtype, wraps, cpu_code, rng):
    cpu_code("c")
    sizes, passed = (3, 70), 0
    for trial in range(60):
        indices = np.stack([rng.integers(0, n, 19) for n in sizes]).astype(dtype)
        signed = np.dtype(dtype).kind != "u"
        odd = [2, 3, 69, 70, *([-1, -3, -4, -70, -71] if signed else [255]),
               *([-0.5, 69.5, 70.5, np.nan, np.inf, -1e30, 2.0**63] if np.dtype(dtype).kind == "f" else [])]
        if trial % 3:
            indices[trial % 2, trial % 19] = odd[trial % len(odd)]
        inner = Inner()
        kernel = Limits(1, sizes, wraps).checked(inner, "test", Spec(indices.shape, indices.dtype))
        fits, run = within(indices, sizes, wraps), HostRun()
        if fits:
            kernel.run(run, [None, indices], [None])
        else:
            with pytest.raises(ShapeError, match=r"^test: index .* is out of range for axis [01] of size"):
                kernel.run(run, [None, indices], [None])
            kernel.run(run, [None, np.zeros_like(indices)], [None])
        assert inner.runs == ["arrays"]
        assert kernel.at(run, [0, indices.ctypes.data, 0], (), True) == fits
        assert inner.runs == ["arrays", *["places"] * fits]
        passed += fits
    assert 20 < passed < 60


def test_numpy_looks_where_c_does_not(cpu_code):
    for mode, dtype in (("numpy", "int64"), ("c", "float16")):
        cpu_code(mode)
        inner, indices = Inner(), np.array([0, 2], dtype)
        kernel = Limits(0, (3,)).checked(inner, "test", Spec((2,), indices.dtype))
        kernel.run(HostRun(), [indices], [None])
        assert kernel.at is None
        with pytest.raises(ShapeError, match="index 3"):
            kernel.run(HostRun(), [np.array([0, 3], dtype)], [None])
        assert inner.runs == ["arrays"]
