"""`tritium doctor` names the tested versions: those that these tests run with, in two environments (see the Makefile)."""

import platform
from pathlib import Path

import pytest
from tritium.cli import doctor
from tritium.kernels.configs.store import installed

HERE = [p for p in doctor.TESTED if installed(p.name)]


@pytest.mark.parametrize("package", HERE, ids=lambda p: p.name)
def test_what_is_installed_counts_as_tested(package):
    found = installed(package.name)
    assert doctor.compare(found, package) == "tested", f"{package.name} {found}: raise TESTED in cli/doctor.py"


def test_this_python_counts_as_tested():
    assert doctor.compare(platform.python_version(), doctor.PYTHON) == "tested"


def test_numpy_is_tested_as_new_as_the_interpreter_takes_it_and_newer():
    constraints = (Path(__file__).parents[1] / "constraints.txt").read_text().split()
    (bound,) = (line.removeprefix("numpy<") for line in constraints if line.startswith("numpy<"))
    (numpy,) = (p for p in doctor.TESTED if p.name == "numpy")
    assert doctor.compare(bound, numpy) == "tested", "make newest tests beyond what the interpreter takes"
