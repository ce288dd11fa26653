"""The C kernels under the sanitizers of addresses and of undefined behaviour: no test reads or writes beyond an array."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BEYOND = """
import ctypes
import numpy as np
from tritium.kernels.cpu import c_compile

text = "#include <stdint.h>\\nvoid last(void *const *a, int64_t i, int64_t n) { for (; i <= n; i++) ((float *)a[0])[i] = 1; }"
arrays = np.zeros(1000, np.float32)
c_compile.library(text, ["last"])["last"].free((ctypes.c_void_p * 1)(arrays.ctypes.data), 0, arrays.size)
"""


def sanitized(tmp_path, *arguments, seconds=1500):
    """Run Python with C kernels that are compiled with the sanitizers; return what it printed and its exit status."""
    libraries = [subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip()
                 for name in ("libasan.so", "libubsan.so")]
    if not all(os.path.isabs(path) for path in libraries):
        pytest.skip("gcc has no sanitizers here")
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=seconds, cwd=HERE.parent, env={
        **os.environ, "LD_PRELOAD": " ".join(libraries), "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0:handle_segv=0",
        "TRITIUM_CC": "gcc -fsanitize=address,undefined -fno-sanitize-recover=undefined", "TRITIUM_CPU_CODE": "c",
        "TRITIUM_GPU": "off", "TRITIUM_CACHE_DIR": str(tmp_path / "cache")})
    return done.stdout + done.stderr, done.returncode


needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")


@needs_gcc
@pytest.mark.nightly
def test_a_write_beyond_an_array_is_found(tmp_path):
    said, status = sanitized(tmp_path, "-c", BEYOND, seconds=120)
    assert status != 0 and "AddressSanitizer: heap-buffer-overflow" in said, said[-2000:]


@needs_gcc
@pytest.mark.nightly
@pytest.mark.timeout(1600)
@pytest.mark.parametrize("tests", ["cpu", "declare", "fusion", "ops/linalg", "ops/loss", "ops/nn", "ops/optimizer", "ops/random",
                                   "ops/rnn", "ops/tensor"])
def test_no_kernel_reads_or_writes_beyond_its_arrays(tests, tmp_path):
    said, status = sanitized(tmp_path, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "not gpu and not interpret",
                             f"tests/kernels/{tests}")
    assert status == 0, said[-5000:]
