"""`tritium doctor`: facts, reasons, the self-test, and messages for broken parts."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner
from tritium.cli import commands, doctor
from tritium.cli.selftest import CHECKS
from tritium.kernels.cpu import c_compile


def run(*arguments):
    return CliRunner().invoke(commands.main, ["doctor", *arguments])


@pytest.fixture(autouse=True)
def _own_caches(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITIUM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TRITIUM_TUNE_STORE", raising=False)


def test_every_context_is_tested_and_the_last_line_is_json(monkeypatch):
    result = run("--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.output.splitlines()[-1])
    assert report["healthy"] and report["problems"] == []
    assert [c["context"] for c in report["contexts"]] == ["cpu(0)", "gpu(0)"]
    for c in report["contexts"]:
        if c["exists"]:
            assert [t["check"] for t in c["test"]["checks"]] == [f.__name__ for f in CHECKS][:len(c["test"]["checks"])]
            assert not any(t["wrong"] for t in c["test"]["checks"])
    assert "Everything that is installed works." in result.output


def test_a_context_that_does_not_exist_says_why():
    done = subprocess.run([sys.executable, "-m", "tritium", "doctor", "--no-test"], capture_output=True, text=True, check=True,
                          env={**os.environ, "TRITIUM_GPU": "off"})
    assert "gpu(0)  no: no such device: 0 GPUs here. TRITIUM_GPU=off forbids GPUs: unset it." in done.stdout
    assert "TRITIUM_GPU=off" in done.stdout and "Nothing was tested." in done.stdout


def test_caches_have_sizes(tmp_path):
    folder = tmp_path / "cache"
    (folder / "artefacts" / "ab").mkdir(parents=True)
    (folder / "k.py").write_bytes(b"x" * 2048)
    (folder / "artefacts" / "ab" / "x.cubin").write_bytes(b"x" * 100)
    text = run("--no-test").output
    assert f"kernel source           1     2.0 KiB  {folder}" in text
    assert "compiled kernels        1   100 bytes" in text


def test_the_c_compiler_is_named_and_one_that_fails_is_noted(tmp_path, monkeypatch):
    script = tmp_path / "cc.sh"
    script.write_text('#!/bin/sh\n[ "$1" = --version ] && echo fake 7 && exit 0\necho out of order >&2; exit 1\n')
    script.chmod(0o755)
    for command, said in ((str(script), f"C compiler: {script}: fake 7"),
                          ("no-such-compiler", "C compiler: none, so NumPy computes")):
        monkeypatch.setenv("TRITIUM_CC", command)
        c_compile.compiler.cache_clear()
        text = run("--no-test").output
        assert said in text and "C libraries" in text
        noted = "The C compiler fails, so NumPy computes, several times slower: out of order" in text
        assert noted == (command == str(script)) and ("pip install 'tritium[compiler]'" in text) == (not noted)
    monkeypatch.undo()
    c_compile.compiler.cache_clear()


def test_a_damaged_store_is_a_problem(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "tune.sqlite").write_bytes(b"no database at all " * 100)
    result = run("--no-test")
    assert result.exit_code == 1 and "Problem:" in result.output and "not a store of tuning results" in result.output


@pytest.mark.parametrize("found, low, high, state", [
    ("3.6.0", "3.6", "3.7", "tested"), ("3.7.0", "3.6", "3.7", "newer"), ("3.5.9", "3.6", "3.7", "older"),
    ("", "1", "2", "missing"), ("2.13.0+cpu", "2.10", "2.14", "tested"),
    ("10.0", "9.9", "10.1", "tested"), ("2.0rc1", "1.26", "2.4", "tested")])
def test_versions_are_compared_as_numbers(found, low, high, state):
    assert doctor.compare(found, doctor.Tested("x", "", low, high)) == state


def test_versions_outside_the_range_and_missing_packages_are_said(monkeypatch):
    known = {"numpy": "9.0", "rich": ""}
    monkeypatch.setattr(doctor, "installed", lambda name: known.get(name, "0.0"))
    result = run("--no-test")
    text = " ".join(result.output.split())
    assert result.exit_code == 1
    assert "rich is missing, and nothing works without it." in text
    assert "numpy 9.0 is newer than the tested versions: 1.26 to below" in text
    assert "torch 0.0 is older than the tested versions" in text


def test_a_check_that_fails_is_a_problem(monkeypatch):
    monkeypatch.setattr(doctor, "run_test", lambda context: {
        "checks": [{"check": "product", "wrong": "differs from NumPy by 3", "seconds": 0.1}], "error": ""})
    result = run()
    assert result.exit_code == 1 and "product WRONG" in result.output
    assert "Problem: cpu(0): product: differs from NumPy by 3" in result.output


def test_a_test_that_breaks_off_is_a_problem():
    found = doctor.run_test("cpu(no)")
    assert found["checks"] == [] and "the process ended (1)" in found["error"]


def test_sizes_as_they_are_shown():
    assert [doctor.size_text(n) for n in (5, 1536, 3 << 20, 5 << 30)] == ["5 bytes", "1.5 KiB", "3.0 MiB", "5.0 GiB"]


def test_a_product_is_timed_and_the_kernels_of_blas_are_named():
    report = json.loads(run("--no-test", "--json").output.splitlines()[-1])
    assert all(speed > 0.1 for speed in report["machine"]["gflops"].values())
    assert all(" for " in name for name in report["machine"]["blas"])
    assert "GFLOP/s, by BLAS " in run("--no-test").output


@pytest.mark.parametrize(("features", "cores", "advised"), [
    ("fpu avx2 avx512f", ["Haswell"], True), ("fpu avx2", ["Haswell"], False), ("fpu avx2 avx512f", ["SkylakeX"], False),
    ("fpu avx2 avx512f", ["Haswell", "SkylakeX"], False), ("", ["Haswell"], False), ("avx512f", [], False),
    ("avx512f", [""], False)])
def test_kernels_of_an_older_processor_are_noted(features, cores, advised):
    report = doctor.Report("1", "3", {"cores_of_blas": cores, "compiler": "cc"})
    doctor.advise_on_blas(report, features)
    assert len(report.advice) == advised
    assert all(a.startswith("OpenBLAS takes its kernels for Haswell, but the processor has AVX-512.") for a in report.advice)


@pytest.mark.parametrize(("name", "value"), [("TRITIUM_CC", 'gcc "'), ("TRITIUM_CPU_CODE", "fortran")])
def test_a_wrong_setting_does_not_stop_the_report(name, value):
    done = subprocess.run([sys.executable, "-m", "tritium", "doctor", "--no-test"], capture_output=True, text=True,
                          env={**os.environ, "TRITIUM_GPU": "off", name: value})
    assert "one thread: by BLAS " in done.stdout and f"Problem: {name}: {value!r} is not " in done.stdout
    assert done.returncode == 1 and not done.stderr
