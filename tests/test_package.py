"""The package built from the checkout: the wheel's and the source distribution's files, their metadata, and that they work."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON") and k != "TRITIUM_GPU"}


def backend():
    spec = importlib.util.spec_from_file_location("backend", ROOT / ".ci" / "backend.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("repository, want", [
    ("https://h/main/", "[a](https://h/main/docs/a.md#b) [c](https://c.org) [d](#d) ![e](https://h/main/e.svg)"),
    ("", "a [c](https://c.org) [d](#d) !e")])
def test_links_of_the_readme_work_on_an_index_page(repository, want):
    pytest.importorskip("setuptools")
    assert backend().index_page("[a](docs/a.md#b) [c](https://c.org) [d](#d) ![e](e.svg)", repository) == want


def test_every_folder_with_code_is_a_package():
    listed = {p.replace("tritium.", "").replace(".", "/") for p in PROJECT["tool"]["setuptools"]["packages"]}
    apart = ("tests", "perf", "docs", ".ci", "cli/as_mxnet", "examples/gluon")
    tracked = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("this is no git checkout")
    folders = {str(Path(f).parent) for f in tracked.stdout.split() if not f.startswith(apart)} - {"."}
    assert folders - listed == set()


def pythons():
    """Return the interpreters of the versions that pyproject.toml names, as far as they are here."""
    versions = [c.rsplit(" ", 1)[1] for c in PROJECT["project"]["classifiers"] if re.search(r"Python :: 3\.\d+$", c)]
    assert versions
    for version in versions:
        found = [*sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))[-1:], shutil.which(f"python{version}")]
        yield pytest.param(next((str(f) for f in found if f), None), id=version)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of a wheel and a source distribution."""
    before = set(os.listdir(ROOT)), {*os.listdir(ROOT / ".ci")} - {"__pycache__"}
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "-o", folder, ROOT], check=True, capture_output=True, env=ENVIRONMENT)
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder / "by_pip", ROOT], check=True,
                   env=ENVIRONMENT)
    assert (set(os.listdir(ROOT)), set(os.listdir(ROOT / ".ci"))) == before, "the checkout is as it was"
    return folder


@pytest.mark.nightly
def test_the_wheel_holds_the_package_alone(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        metadata = message_from_bytes(next(file.read(n) for n in names if n.endswith(".dist-info/METADATA")))
    top = {n.split("/")[1] for n in names if n.startswith("tritium/")}
    assert not top & {"tests", "perf", "docs", ".ci", "setup.py", "build"}
    assert {"py.typed", "cli", "examples"} <= top and any(n.startswith("tritium/cli/as_mxnet/") for n in names)
    assert metadata["Author"] == "Tritium contributors" and metadata["Requires-Python"] == ">=3.11"
    text = metadata.get_payload()
    assert text.startswith("# Tritium") and not re.search(r"\]\((?!https?:|#)", text)


@pytest.mark.nightly
def test_the_source_distribution_is_the_whole_checkout(built):
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("this is no git checkout")
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as file:
        names = {m.name.split("/", 1)[1] for m in file.getmembers() if m.isfile()}
    assert set(tracked.stdout.split()) - names == set()


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("python", list(pythons()))
def test_the_wheel_works_in_a_fresh_environment(python, built, tmp_path):
    if python is None:
        pytest.skip("this Python is not installed")
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True, env=ENVIRONMENT)
    own = tmp_path / "venv" / "bin"
    (wheel,) = built.glob("*.whl")
    subprocess.run([own / "python", "-m", "pip", "install", "-q", wheel], check=True, env=ENVIRONMENT)
    code = ("import tritium as mx, sys\nassert mx.__file__.startswith(sys.prefix)\n"
            "x = mx.nd.array([1.0, 2.0]); x.attach_grad()\n"
            "with mx.autograd.record():\n    y = (x * x).sum()\ny.backward()\nprint(x.grad.asnumpy().tolist())\n")
    done = subprocess.run([own / "python", "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True,
                          env=ENVIRONMENT)
    assert done.stdout.strip() == "[2.0, 4.0]", done.stderr
    done = subprocess.run([own / "tritium", "train", "--network", "mlp", "--epochs", "2"], cwd=tmp_path, capture_output=True,
                          text=True, env=ENVIRONMENT)
    assert done.returncode == 0 and "Loaded again: accuracy" in done.stdout, done.stderr
