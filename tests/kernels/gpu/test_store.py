"""The artefact store and the compilers' pool: the key, damage, time limits, failures of single jobs."""

import os
import signal
import sys
import time
from dataclasses import replace

import pytest
from tritium.errors import OperatorError
from tritium.kernels.gpu import compile as gpu_compile
from tritium.kernels.gpu import compile_pool
from tritium.kernels.gpu import job as gpu_job
from tritium.kernels.gpu import store as gpu_store
from tritium.kernels.gpu.compile import build, prepare
from tritium.kernels.gpu.compile_pool import run_pool
from tritium.kernels.gpu.job import CompileJob
from tritium.kernels.gpu.source import Name

SOURCE = """@triton.jit
def small(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)
"""
JOB = CompileJob(SOURCE, "small", {"x": "*fp32", "n": "i32"}, {"BLOCK": 64})


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITIUM_CACHE_DIR", str(tmp_path))
    getattr(gpu_job.toolchain, "cache_clear", int)()
    yield tmp_path
    getattr(gpu_job.toolchain, "cache_clear", int)()


def facts(name="small"):
    return gpu_store.CompiledKernel(name, 90, 16, 0, 0, 0, 0, 4, (gpu_store.Access("load", 128, False),), True, 0, 0,
                                       parameters=(("x", "*fp32"),), scratch=(128, 64))


def test_a_key_covers_everything_the_code_depends_on(cache):
    others = [replace(JOB, source=SOURCE + "\n"), replace(JOB, name="other"), replace(JOB, signature={"x": "*fp16", "n": "i32"}),
              replace(JOB, constexprs={"BLOCK": 128}), replace(JOB, constexprs={"BLOCK": Name("float32")}),
              replace(JOB, target=80), replace(JOB, align16=()), replace(JOB, num_warps=8), replace(JOB, num_stages=2)]
    digests = [JOB.digest(), *(o.digest() for o in others)]
    assert len(set(digests)) == len(digests)
    assert replace(JOB, align16=("x",)).digest() == JOB.digest() == replace(JOB).digest()


def test_a_key_covers_the_compilers(cache, monkeypatch):
    here = JOB.digest()
    monkeypatch.setattr(gpu_job, "toolchain", lambda: ("9.9", "ptxas 1"))
    assert JOB.digest() != here


def test_an_artefact_is_stored_found_and_cleared(cache):
    assert gpu_store.find("ab12") is None
    assert gpu_store.keep("ab12", facts(), b"code")
    assert gpu_store.find("ab12") == (facts(), b"code")
    assert gpu_store.usage()[0] == 1 and gpu_store.usage()[1] > 4
    assert gpu_store.clear() == 1 and gpu_store.find("ab12") is None


@pytest.mark.parametrize("suffix, damage", [(".cubin", b"cod"), (".json", b"{"), (".json", b"[]"), (".json", b"{}")])
def test_a_damaged_artefact_counts_as_absent(cache, suffix, damage):
    gpu_store.keep("ab12", facts(), b"code")
    (gpu_store.folder() / "ab" / f"ab12{suffix}").write_bytes(damage)
    assert gpu_store.find("ab12") is None
    gpu_store.keep("ab12", facts(), b"code")
    assert gpu_store.find("ab12") == (facts(), b"code")


def test_a_folder_that_cannot_be_written_stores_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRITIUM_CACHE_DIR", str(tmp_path / "file"))
    assert not gpu_store.keep("ab12", facts(), b"code")
    assert gpu_store.find("ab12") is None


def test_prepare_compiles_each_once(cache):
    pytest.importorskip("triton")
    broken = replace(JOB, source=SOURCE.replace("tl.load", "tl.lode"))
    outcomes = dict(build([JOB, broken, JOB]))
    assert outcomes[0] == outcomes[2] and outcomes[0].parameters == (("x", "*fp32"), ("n", "i32"))
    assert isinstance(outcomes[1], OperatorError) and "small: does not compile for sm_90" in str(outcomes[1])
    assert prepare([JOB]) == 0  # nor is a compiler started
    with pytest.raises(OperatorError, match="small: does not compile"):
        prepare([JOB, broken])


@pytest.fixture
def only_late(monkeypatch):
    """only_late(i): nothing but job i is ever found late. Another may merely not have been run for a while."""
    def only_late(late):
        class Patient(compile_pool._Compiler):
            def __getattribute__(self, name):
                value = super().__getattribute__(name)
                return value if name != "deadline" or self.jobs[:1] == [late] else value + 1e6

        monkeypatch.setattr(compile_pool, "_Compiler", Patient)
    return only_late


def test_the_pool_survives_late_and_dying_jobs(only_late):
    def work(job):
        if job == "late":
            time.sleep(600)
        if job == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        return {"said": job}

    answers = {}
    only_late(1)
    run_pool(["a", "late", "dies", "b"], work, 2, 0.5, lambda i, reply: answers.__setitem__(i, reply))
    assert answers[0] == {"said": "a"} and answers[3] == {"said": "b"}
    assert answers[1] == {"error": "the compiler took more than 0.5 s", "late": True}
    assert answers[2] == {"error": "the compiler ended with exit code -9"}


def test_a_fork_compiles_several_jobs_and_its_rest_goes_to_another(only_late):
    """Of forty jobs each fork gets ten: the first of them fails in each way, and still all are answered once."""
    def work(job):
        if job % 10 == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        if job == 15:
            time.sleep(600)
        return {"by": os.getpid()}

    answers = {}
    only_late(15)
    run_pool(list(range(40)), work, 1, 0.5, lambda i, reply: answers.setdefault(i, []).append(reply))
    assert sorted(answers) == list(range(40)) and all(len(a) == 1 for a in answers.values())
    assert [i for i, (a,) in answers.items() if "late" in a] == [15]
    assert [i for i, (a,) in answers.items() if "exit code -9" in a.get("error", "")] == [3, 13, 23, 33]
    forks = {a["by"] for (a,) in answers.values() if "by" in a}
    assert len(forks) == 9 and answers[0][0]["by"] == answers[2][0]["by"] != answers[4][0]["by"]


def test_leaving_early_stops_the_compilers(cache, monkeypatch):
    stopped = []

    def children(jobs, timeout, workers, until):
        try:
            for i in range(len(jobs)):
                yield i, {"error": "none"}
        finally:
            stopped.append(True)

    monkeypatch.setattr(gpu_compile, "_children", children)
    jobs = build([JOB, replace(JOB, num_warps=8)])
    next(jobs)
    jobs.close()
    assert stopped == [True]


TALKATIVE = """#!{python}
import json, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it came at a moment when the exception was swallowed
print(json.dumps({{"i": 0, "error": "first"}}), flush=True)
print(json.dumps({{"i": 1, "error": "x" * (1 << 20)}}), flush=True)  # more than a pipe holds
"""


@pytest.mark.timeout(60)
def test_leaving_early_does_not_wait_for_unread_output(cache, tmp_path, monkeypatch):
    script = tmp_path / "compiler"
    script.write_text(TALKATIVE.format(python=sys.executable))
    script.chmod(0o755)
    monkeypatch.setattr(gpu_compile.sys, "executable", str(script))
    for i, answer in gpu_compile._children([{}, {}], 5, 1):
        assert (i, answer) == (0, {"error": "first"})
        break
