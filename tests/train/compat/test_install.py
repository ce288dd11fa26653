"""`import mxnet` for Tritium: each case runs in a new process, because it changes the modules of the process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tritium

SCRIPT = """
import sys
import mxnet as mx
from mxnet import nd
from mxnet.io import NDArrayIter
from mxnet.module.base_module import BaseModule
import mxnet.ndarray.ndarray
import tritium
import warnings
import numpy as np
assert str([mx.gpu(1), mx.nd.ones(2, ctx=mx.gpu()).context, mx.Context("gpu", 2)]) == "[cpu(1), cpu(0), cpu(2)]"
assert mx.__version__ == "1.9.1" and mx.__tritium_version__[0] == "0"
assert sys.modules["mxnet.symbol"] is mx.sym and sys.modules["mxnet.ndarray.ndarray"].array is mx.nd.array
assert np.float(3) == 3.0 and np.int is int and np.fromstring(b"\\1\\0\\0\\0", dtype="int32")[0] == 1
assert mx is tritium and nd is tritium.nd and BaseModule is tritium.mod.BaseModule and NDArrayIter is tritium.io.NDArrayIter
assert mx.ndarray.__spec__.name == "tritium.ndarray" and mx.nd.NDArray is mxnet.ndarray.ndarray.NDArray
try:
    import mxnet.no_such_thing
except ModuleNotFoundError:
    print("ran", __name__, sys.argv[1:])
"""


@pytest.mark.parametrize("how", ["file", "module"])
def test_a_script_for_mxnet_runs_unchanged(how, tmp_path):
    (tmp_path / "old_script.py").write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "old_script.py").write_text("import beside\n" + SCRIPT)
    script = ["-m", "old_script"] if how == "module" else [str(tmp_path / "old_script.py")]
    done = subprocess.run([sys.executable, "-m", "tritium", "run", "--device", "cpu", *script, "--lr", "3", "-x"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=250)
    assert done.stdout == "ran __main__ ['--lr', '3', '-x']\n", done.stderr
    assert done.stderr.count("tritium run: np.float is used") == 1 and len(done.stderr.splitlines()) == 1


def test_errors_and_exit_codes_of_the_script_are_passed_on(tmp_path):
    assert run_script(tmp_path, "raise SystemExit(7)").returncode == 7
    done = subprocess.run([sys.executable, "-m", "tritium", "run", "nowhere.py"], capture_output=True, text=True, timeout=250)
    assert done.returncode == 2 and "nowhere.py is not a file" in done.stderr


def test_an_imported_mxnet_is_not_replaced():
    code = ("import sys, types; sys.modules['mxnet'] = types.ModuleType('mxnet'); import tritium\n"
            "try:\n    tritium.install_as_mxnet()\nexcept tritium.MXNetError as e:\n    print(e)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250)
    assert "mxnet is already imported. Call this before any import of mxnet." in done.stdout, done.stderr


@pytest.mark.parametrize("name", ["optimizer.adaptive", "rnn.cells", "mod.module", "image.im2rec", "nd.core.chunk",
                                  "kv.job.host"])
def test_a_module_of_an_aliased_package_is_loaded_once(name):
    """Also for modules that the package only imports on demand, which a new process has not loaded yet."""
    alias, _, rest = name.partition(".")
    code = ("import importlib, sys, tritium\n"
            f"real = sys.modules['tritium.{alias}'].__name__ + '.{rest}'\n"
            f"assert importlib.import_module('tritium.{name}') is importlib.import_module(real)\n"
            "print(real)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250)
    assert done.stdout.startswith("tritium.") and done.stdout.strip().endswith(rest), done.stderr


def run_script(tmp_path, text):
    """Run text in the process that `tritium run` starts, without the command's own process."""
    (tmp_path / "s.py").write_text(text)
    cli = Path(tritium.__file__).parent / "cli"
    path = os.pathsep.join([str(cli / "as_mxnet"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run([sys.executable, str(cli / "run_script.py"), str(tmp_path / "s.py")], capture_output=True, text=True,
                          timeout=250, env={**os.environ, "PYTHONPATH": path})


def test_a_traceback_begins_with_the_script(tmp_path):
    done = run_script(tmp_path, "def f():\n    raise ValueError('no')\n\nf()\n")
    path = tmp_path / "s.py"
    assert done.returncode == 1 and done.stderr.splitlines()[:2] == [
        "Traceback (most recent call last):", f'  File "{path}", line 4, in <module>']
    assert done.stderr.count("File ") == 2 and done.stderr.endswith("ValueError: no\n")
    done = run_script(tmp_path, "x = = 1")
    assert done.returncode == 1 and done.stderr.startswith(f'  File "{path}", line 1') and "SyntaxError" in done.stderr


def test_nothing_is_imported_before_the_script_asks(tmp_path):
    done = run_script(tmp_path, "import sys\nprint([n for n in ('tritium', 'numpy', 'mxnet', 'click') if n in sys.modules])")
    assert done.stdout == "[]\n", done.stderr


def test_processes_that_the_script_starts_find_tritium_too(tmp_path):
    done = run_script(tmp_path, "import subprocess, sys\n"
                       "subprocess.run([sys.executable, '-c', 'import mxnet; print(mxnet.__version__)'], check=True)")
    assert done.stdout == "1.9.1\n", done.stderr


def test_modules_of_mxnet_hold_the_names_that_they_import(tmp_path):
    done = run_script(tmp_path, """
import numpy, mxnet as mx
from mxnet.gluon.block import np, nd, OrderedDict, Symbol, warnings, _mx_np
from mxnet.optimizer.optimizer import sgd_update, NDArray, math
from mxnet.symbol.symbol import pow, zeros
from mxnet.model import DataDesc, sym
from mxnet.gluon.data.dataloader import context, is_np_array
from mxnet.io.utils import _init_data
from mxnet.contrib.onnx.mx2onnx import export_model
from mxnet.onnx import mx2onnx
assert np is numpy and nd is mx.nd and sgd_update is mx.nd.sgd_update and zeros is mx.sym.zeros and Symbol is mx.sym.Symbol
assert [k for k, _ in _init_data([np.zeros(2), nd.ones(3)], False, "data")] == ["_0_data", "_1_data"]
for module, name in ((mx.gluon.block, "no_such_name"), (mx.model, "sgd_update")):
    try:
        getattr(module, name)
    except AttributeError as e:
        print(e)
""")
    assert done.stdout == "module 'mxnet.gluon.block' has no attribute 'no_such_name'\n" \
                          "module 'mxnet.model' has no attribute 'sgd_update'\n", done.stderr
