"""The host's cost of one launch, with a CUDA driver that does nothing (tests/support/stub_cuda.c): no GPU needed.

    python perf/bench_launch.py [--rounds 7]

The first run compiles one kernel for sm_90; the second finds it in the store and prints whether Triton was imported.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["TRITIUM_GPU"] = "cuda"

import common

STUB = Path(__file__).parents[1] / "tests" / "support" / "stub_cuda.c"
CHAIN = """@triton.jit(do_not_specialize=["n"])
def chain(x, y, b, out, n: tl.int64, alpha, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n) * alpha + tl.load(y + at, mask=at < n) + tl.load(b + at, mask=at < n)
    tl.store(out + at, v, mask=at < n)
"""


class Array:
    """The part of a tensor that a launch needs."""

    def __init__(self, address: int, dtype: str = "torch.float32"):
        self.address, self.dtype = address, dtype

    def data_ptr(self) -> int:
        return self.address


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        library = str(Path(folder, "libcuda.so.1"))
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, str(STUB)], check=True)
        os.environ["TRITIUM_LIBCUDA"] = library
        from tritium.kernels.gpu import launch as gpu_launch
        from tritium.kernels.gpu.source import kernel_of

        kernel = kernel_of(CHAIN, "chain")
        arrays = [Array(1 << 20 + i) for i in range(4)]

        def launched() -> None:
            gpu_launch.launch(kernel, (1024,), *arrays, 1 << 20, 1.5, BLOCK=1024)

        def moved() -> None:
            gpu_launch.launch(kernel, (1025,), *arrays, 1 << 20, 1.5, BLOCK=1024)
            gpu_launch.launch(kernel, (1024,), *arrays, 1 << 20, 1.5, BLOCK=1024)

        launched()
        common.say({"bench": "launch", **common.machine(), "triton imported": "triton" in sys.modules})
        common.emit("launch, 4 arrays and 2 numbers", common.rounds_of(launched, calls=20_000, rounds=rounds))
        common.emit("two launches on two grids", common.rounds_of(moved, calls=10_000, rounds=rounds))


if __name__ == "__main__":
    main()
