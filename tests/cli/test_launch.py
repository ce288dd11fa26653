"""`tritium launch`: ranks, exit status, restarts, and the example that gives one answer on any number of workers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner
from tritium.cli.commands import main

ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("TRITIUM_KV")} | {"TRITIUM_GPU": "off"}


def launch(*arguments, timeout=250):
    return subprocess.run([sys.executable, "-m", "tritium", "launch", *map(str, arguments)], capture_output=True, text=True,
                          timeout=timeout, env=ENVIRONMENT)


def lines(done):
    written = [re.sub(r"^\[worker \d+\] ", "", x) for x in done.stdout.splitlines()]
    found = sorted((json.loads(x) for x in written if x.startswith("{")), key=lambda x: x["rank"])
    assert done.returncode == 0, done.stderr
    return found


def run_alone():
    return subprocess.run([*map(str, EXAMPLE), "--kvstore", "local"], capture_output=True, text=True, timeout=250,
                          env=ENVIRONMENT)


EXAMPLE = (sys.executable, "-m", "tritium.examples.train_digits_dist", "--epochs", 2)


def test_two_workers_learn_what_one_process_does():
    alone = run_alone()
    (one,), two = lines(alone), lines(launch("-n", 2, "-s", 2, *EXAMPLE))
    assert [w["rank"] for w in two] == [0, 1] and two[0]["weights"] == two[1]["weights"]
    assert abs(two[0]["accuracy"] - one["accuracy"]) < 0.02 and one["accuracy"] > 0.9


@pytest.mark.nightly
def test_one_two_and_four_workers():
    """One worker: the bits of `local`. Two runs: the same bits. Accuracy: that of one process."""
    alone = run_alone()
    (local,), (one,) = lines(alone), lines(launch("-n", 1, *EXAMPLE))
    assert one["weights"] == local["weights"]
    for n in (2, 4):
        runs = [lines(launch("-n", n, "-s", 2, *EXAMPLE)) for _ in range(2)]
        assert len({w["weights"] for run in runs for w in run}) == 1
        assert abs(runs[0][0]["accuracy"] - local["accuracy"]) < 0.02


@pytest.mark.nightly
def test_a_failing_worker_gives_its_status_and_is_started_again_if_asked(tmp_path):
    flag = tmp_path / "flag"
    code = f"import os, sys; r = os.environ['TRITIUM_KV_RANK']; first = not os.path.exists({str(flag)!r}); " \
           f"open({str(flag)!r}, 'w'); sys.exit(7 if first else 0)"
    done = launch("-n", 1, "--restarts", 1, sys.executable, "-c", code)
    assert done.returncode == 0 and "worker 0 ended with status 7; it is started again" in done.stderr
    flag.unlink()
    done = launch("-n", 1, sys.executable, "-c", code)
    assert done.returncode == 7 and "worker 0 ended with status 7" in done.stderr


TALKING = """
import os, sys
rank = os.environ["TRITIUM_KV_RANK"]
print("first of", rank)
sys.stdout.write("10 %\\r50 %\\r100 %\\nwithout an end")
if rank == "1":
    raise ValueError("no such digit")
"""


def test_each_line_has_its_rank_and_the_last_one_says_who_failed_and_why(tmp_path):
    done = launch("-n", 2, "--tee", tmp_path / "logs", sys.executable, "-c", TALKING)
    assert done.returncode == 1
    assert sorted(done.stdout.splitlines()) == sorted(
        f"[worker {r}] {text}" for r in (0, 1) for text in (f"first of {r}", "100 %", "without an end"))
    errors = done.stderr.splitlines()
    assert "[worker 1] ValueError: no such digit" in errors and "tritium launch: worker 1 ended with status 1" in errors
    assert errors[-1] == ("tritium launch: 1 of 2 workers failed. The first was worker 1, which ended with status 1. "
                          "Its last line: ValueError: no such digit")
    assert (tmp_path / "logs" / "worker-0.log").read_bytes() == b"first of 0\n10 %\r50 %\r100 %\nwithout an end"
    assert b"no such digit" in (tmp_path / "logs" / "worker-1.log").read_bytes()


def test_an_interrupt_ends_all_workers_and_says_so():
    process = subprocess.Popen([sys.executable, "-m", "tritium", "launch", "-n", "2", sys.executable, "-c",
                                "import time; print('here'); time.sleep(300)"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=ENVIRONMENT)
    assert {process.stdout.readline(), process.stdout.readline()} == {"[worker 0] here\n", "[worker 1] here\n"}
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.splitlines()[-1]) == (130, "tritium launch: interrupted: 2 workers ended"), errors


def test_a_variable_that_the_shell_lacks_is_named():
    result = CliRunner().invoke(main, ["launch", "-n", "1", "--env", "NO_SUCH_VARIABLE", "true"])
    assert result.exit_code == 2 and "--env NO_SUCH_VARIABLE: this shell has no such variable" in result.output


def test_a_folder_for_output_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(main, ["launch", "-n", "1", "--tee", str(tmp_path / "file" / "logs"), "true"])
    assert result.exit_code == 1 and f"{tmp_path / 'file' / 'logs'}: Not a directory." in result.output


def test_the_example_of_the_help_runs(tmp_path):
    help_text = CliRunner().invoke(main, ["launch", "--help"]).output
    script = help_text.partition("examples below:\n")[2].partition("Options:")[0]
    (tmp_path / "train.py").write_text(textwrap.dedent(script))
    done = launch("-n", 2, "-s", 2, sys.executable, tmp_path / "train.py")
    assert done.returncode == 0 and len(re.findall(r"^\[worker [01]\] accuracy 0\.\d+$", done.stdout, re.M)) == 2, done


def test_the_script_of_the_guide_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    """docs/kvstore.md: a job that was ended after two epochs and one that was not have the same weights, bit for bit."""
    guide = (Path(__file__).parents[2] / "docs/kvstore.md").read_text(encoding="utf-8")
    script = re.search(r"```python\n(from pathlib.*?)```", guide, re.S)[1]
    weights = []
    for name, parts in (("ended", (2, 4)), ("not", (4,))):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        for epochs in parts:
            Path("train.py").write_text(script.replace('"checkpoints/sums", 4,', f'"checkpoints/sums", {epochs},'))
            done = launch("-n", 2, "-s", 2, sys.executable, "train.py")
            assert done.returncode == 0 and done.stdout.count("accuracy 0.9") == 2, done
        weights.append(Path("checkpoints/sums-0004.params").read_bytes())
    assert weights[0] == weights[1]


def test_what_cannot_be_started_is_named():
    result = CliRunner().invoke(main, ["launch", "-n", "1", "/no/such/program"])
    assert result.exit_code == 1 and "/no/such/program: cannot be started" in result.output


def test_a_cluster_without_a_token_is_refused():
    result = CliRunner().invoke(main, ["launch", "-n", "1", "--address", "127.0.0.1:1", "true"],
                                env={"RAY_AUTH_MODE": None, "RAY_AUTH_TOKEN_PATH": None, "TRITIUM_KV_INSECURE": None})
    assert result.exit_code == 1 and "a cluster without a token is not used" in result.output


KILLED = """
import os, signal, sys
import tritium as mx
from tritium.examples import train_digits_restarted as example
flag, rank, epoch, batch = sys.argv.pop(), *map(int, sys.argv.pop().split(","))

def kill(at):
    if int(os.environ["TRITIUM_KV_RANK"]) == rank and (at.epoch, at.nbatch) == (epoch, batch) and not os.path.exists(flag):
        mx.nd.waitall()  # between two steps: in the middle of one, the bits would depend on which keys had been sent
        open(flag, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)

train = example.train
example.train = lambda **more: train(**more, batch_end_callback=kill)
example.main()
"""


def restarted(folder, *, epochs=3, killed=None, workers=2):
    """The weights that the example's workers end with, where worker `rank` is killed once after a batch."""
    more = ("-m", "tritium.examples.train_digits_restarted") if killed is None else ("-c", KILLED)
    done = launch("-n", workers, "-s", 2, "--policy", "wait", "--restarts", 1, sys.executable, *more, folder / "digits",
                  "--epochs", epochs, *(() if killed is None else (killed, folder / "flag")))
    assert killed is None or "was killed by SIGKILL; it is started again" in done.stderr
    (weights,) = {w["weights"] for w in lines(done)}
    return weights


def test_a_killed_worker_is_started_again_and_the_weights_are_those_of_an_undisturbed_run(tmp_path):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    assert restarted(tmp_path / "a", epochs=2, killed="1,1,7") == restarted(tmp_path / "b", epochs=2)


@pytest.mark.nightly
def test_a_job_that_is_started_again_goes_on_from_its_last_checkpoint(tmp_path):
    """A worker of it is killed, too. The weights are those of one long run."""
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    restarted(tmp_path / "a", epochs=1)
    assert restarted(tmp_path / "a", killed="0,2,3") == restarted(tmp_path / "b")


@pytest.mark.nightly
@pytest.mark.parametrize("killed", ["0,0,0", "0,1,12", "1,0,21", "0,2,21", "1,2,20"])
def test_whoever_is_killed_whenever_the_weights_are_those_of_an_undisturbed_run(tmp_path, killed):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    assert restarted(tmp_path / "a", killed=killed) == restarted(tmp_path / "b")


PLAIN = """
import os, signal, sys
import numpy as np, tritium as mx
data = mx.io.NDArrayIter(np.ones((16, 4), "f"), np.zeros(16, "f"), 4)
net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2), name="softmax")

def kill(at):
    if os.environ["TRITIUM_KV_RANK"] == "1" and (at.epoch, at.nbatch) == (1, 2) and not os.path.exists(sys.argv[1]):
        open(sys.argv[1], "w").close()
        os.kill(os.getpid(), signal.SIGKILL)

mx.mod.Module(net).fit(data, num_epoch=3, kvstore="dist_sync", batch_end_callback=kill)
"""


def test_a_plain_script_that_begins_anew_does_not_wait_for_who_has_ended(tmp_path):
    done = launch("-n", 2, "--policy", "wait", "--restarts", 1, sys.executable, "-c", PLAIN, tmp_path / "flag")
    assert done.returncode == 0 and "worker 1 was killed by SIGKILL; it is started again" in done.stderr
