"""Running sums in C: the bits of NumPy's."""

import numpy as np
import pytest
from support.layer_helpers import Run
from tritium.kernels.cpu import c_compile, c_scan
from tritium.kernels.cpu.c_team import Phases

pytestmark = pytest.mark.skipif(c_compile.compiler() is None, reason="there is no C compiler")


@pytest.fixture(autouse=True)
def _wherever_it_can(cpu_code):
    cpu_code("c")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("lines", [(1, 1, 1), (1, 100_003, 1), (7, 30, 1), (8, 129, 1), (1031, 5, 1), (3, 40, 2), (2, 9, 700)])
@pytest.mark.parametrize("back", [False, True])
def test_the_sums_are_numpys(rng, dtype, lines, back):
    x = rng.normal(scale=1e3, size=lines).astype(dtype)
    want = np.cumsum(x[:, ::-1] if back else x, axis=1, dtype=dtype)
    want = want[:, ::-1] if back else want
    found = np.empty_like(x)
    assert c_scan.sums(x.dtype, lines)
    Phases([[c_scan.running_sums(x.dtype, lines, back).prepare(x, found)]])(Run(backwards=True))
    assert found.tobytes() == np.ascontiguousarray(want).tobytes()


def test_where_c_sums(cpu_code):
    assert not c_scan.sums(np.dtype("float16"), (1, 99, 1)) and not c_scan.sums(np.dtype("float32"), (0, 9, 1))
    cpu_code("auto")
    assert c_scan.sums(np.dtype("float32"), (1, 1, 1))
