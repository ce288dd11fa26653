"""The GPU kernels of the layers compile for sm_90, without a GPU: the interpreter accepts what the compiler may not. All of
them are launched; one in five is compiled for every change, the others nightly."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2] / "support"
OPS = HERE.parents[1] / "kernels" / "ops"
# called by kernels, compiled with them
HELPERS = {"_within", "_window_size", "_place", "_word", "_rounded", "_scale", "_finish", "_add_terms", "_walk", "_dropped",
           "_element", "_channel", "_unravel", "_tile", "_sum_parts", "_take", "_precedes"}


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize("dtype, one_in", [("float32", 5), pytest.param("float32", 1, marks=pytest.mark.nightly),
                                           pytest.param("float16", 1, marks=pytest.mark.nightly)])
def test_every_layer_compiles(dtype, one_in):
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"TRITIUM_GPU": "cuda"}
    done = subprocess.run([sys.executable, str(HERE / "compile_layers.py"), str(one_in), dtype], env=env, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    *rows, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert last["errors"] == [] and last["compiled"] > len(rows) // (2 * one_in)
    # triton_x.py files of other operators hold no kernels launched here; those imported must have launched all of theirs
    seen = {(r["module"], r["kernel"]) for r in rows}
    written = {m for m, _ in seen} - {""}  # the others are printed from bodies
    assert len(written) >= 8
    for module in written:
        declared = set(re.findall(r"@triton\.jit\ndef (_\w+)", (OPS / f"{module.replace('.', '/')}.py").read_text())) - HELPERS
        assert declared <= {k for m, k in seen if m == module}, module  # public names are templates: test_codegen_gates.py
