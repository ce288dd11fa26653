"""`import mxnet` for Tritium: each case runs in a new process, because it changes the modules of the process."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
import mxnet as mx
from mxnet import nd
from mxnet.io import NDArrayIter
from mxnet.module.base_module import BaseModule
import mxnet.ndarray.ndarray
import tritium
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
    done = subprocess.run([sys.executable, "-m", "tritium", "run", *script, "--lr", "3", "-x"], cwd=tmp_path, capture_output=True,
                          text=True, timeout=250)
    assert done.stdout == "ran __main__ ['--lr', '3', '-x']\n", done.stderr


def test_errors_and_exit_codes_of_the_script_are_passed_on(tmp_path):
    (tmp_path / "s.py").write_text("import mxnet\nraise SystemExit(7)")
    assert subprocess.run([sys.executable, "-m", "tritium", "run", str(tmp_path / "s.py")], timeout=250).returncode == 7
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
