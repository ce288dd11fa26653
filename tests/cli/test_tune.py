"""`tritium tune`: bad input, a run piped and in a terminal, resuming, exchange, and output without running."""

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from tritium.cli import commands
from tritium.cli.parameters import named_shape
from tritium.cli.tune import TuningDisplay, capability, clock_text, duration
from tritium.kernels.gpu import compile as gpu_compile

TUNE = [sys.executable, "-m", "tritium", "tune"]
DOT = ["--op", "dot", "--shapes", "256x256x256", "--inference"]


@pytest.fixture(autouse=True)
def _own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITIUM_TUNE_STORE", str(tmp_path / "tune.sqlite"))
    monkeypatch.delenv("TRITIUM_TUNED", raising=False)


def run(*arguments):
    result = CliRunner().invoke(commands.main, ["tune", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def piped(*arguments):
    return subprocess.run([*TUNE, *arguments], capture_output=True, text=True, check=True).stdout


def test_help_explains():
    text = run("--help").output
    for option in ("--model", "--shape", "--op", "--shapes", "--budget", "--jobs", "--resume", "--dry-run", "--offline",
                   "--export", "--import", "--report", "--explain", "--json"):
        assert option in text
    assert "They are used only if TRITIUM_TUNED=1 is set" in " ".join(text.split())


@pytest.mark.parametrize("arguments, text", [
    ([], "nothing to tune. Give --model X-symbol.json --shape data=32,3,224,224"),
    (["--op", "dot"], "--op needs --shapes"), (["--op", "dot", "--shapes", "7"], "'7' is not three sizes"),
    (["--op", "dott", "--shapes", "1x1x1"], "Did you mean 'dot'"),
    (["--budget", "soon"], "'soon' is not a time. Give 90s, 10m, or 1h."),
    (["--offline", "sm_75"], "'sm_75' is not a known target. Give sm_80, sm_90, sm_100."),
    (["--shape", "data"], "'data' is not a name and a shape. Write data=32,3,224,224."),
    (["--resume"], "holds no unfinished run"),
    ([*DOT, "--dtype", "float33"], "float33"), (["--model", "none.json"], "does not exist"),
    (["--op", "dot", "--shapes", "8x8x8", "--device", "gpu"], "Use --offline sm_90 to compile, check and prune without a GPU"),
])
def test_bad_input_is_named(arguments, text):
    result = run(*arguments)
    assert result.exit_code in (1, 2)
    assert text in " ".join(result.output.split()), result.output


def test_a_damaged_import_changes_nothing(tmp_path):
    (tmp_path / "bad").write_text("{}\n")
    result = run("--import", str(tmp_path / "bad"))
    assert result.exit_code == 1 and "line 1 is not a tuning result" in " ".join(result.output.split())


def test_words_of_the_command_line():
    assert [duration(t) for t in ("90", "90s", "10m", "1h", "1m30s", "0.5m")] == [90, 90, 600, 3600, 90, 30]
    assert named_shape("a:b:32,3x4") == ("a:b", (32, 3, 4))
    assert named_shape("a=32,3") == ("a", (32, 3))
    assert capability("SM_90a") == 90
    assert [clock_text(s) for s in (5, 245, 3723)] == ["0:05", "4:05", "1:02:03"]


def test_piped_it_prints_plain_lines_keeps_results_and_ends_with_json(tmp_path):
    text = piped(*DOT, "--budget", "5m", "--json", "--report", str(tmp_path / "r.html"), "--export", str(tmp_path / "a.jsonl"))
    assert "\x1b" not in text and "\r" not in text
    line = next(t for t in text.splitlines() if t.startswith("{"))
    report = json.loads(line)
    assert report["finished"] and report["timed"] == report["rows"] > 3 and report["mode"] == "timed"
    assert report["configurations"] == report["pruned"] + report["timed"]
    assert re.search(r"^1/1 dot 256x256x256 \(100\.0%\): ", text, re.M)
    assert "roofline" in (tmp_path / "r.html").read_text().lower()
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == report["rows"]
    again = run(*DOT, "--json")
    assert json.loads(again.output.splitlines()[-1])["timed"] == 0, "all is known"
    explained = run("--explain", "dot", "256x256x256").output
    assert "tuned for these sizes" in explained and "rounds" in explained
    near = run("--explain", "dot", "320x256x256").output
    assert "doublings away" in near


def test_a_dry_run_shows_the_space_and_writes_nothing():
    result = run("--op", "Convolution", "--shapes", "8x64x28x28@256x3x3+1", "--offline", "sm_90", "--dtype", "float16",
                 "--dry-run", "--json")
    report = json.loads(result.output.splitlines()[-1])
    assert report["mode"] == "dry run" and report["pruned_share"] > 0 and report["rows"] == 0
    assert "same as another, for example" in result.output and "for 64: more than half of every tile is empty" in result.output
    assert "idle or uneven multiprocessors, for example" in result.output


@pytest.mark.parametrize("times", [10, pytest.param(1.2, marks=pytest.mark.nightly)])
def test_the_budget_holds_whatever_is_at_work(times, tmp_path, monkeypatch):
    """Every compiler hangs: they are killed when the time is over, and nothing is said against their kernels."""
    hangs = tmp_path / "compiler"
    hangs.write_text(f"#!{sys.executable} -S\nimport signal\nsignal.pause()\n")
    hangs.chmod(0o755)
    monkeypatch.setattr(gpu_compile.sys, "executable", str(hangs))
    monkeypatch.setenv("TRITIUM_CACHE_DIR", str(tmp_path / "cache"))
    shapes = ",".join(f"{m}x512x512" for m in (512, 640, 768))
    store = tmp_path / "here.sqlite"
    result = run("--op", "dot", "--shapes", shapes, "--dtype", "float16", "--inference", "--offline", "sm_90", "--budget", "3s",
                 "--store", str(store), "--json")
    report = json.loads(result.output.splitlines()[-1])
    assert 3.0 <= report["seconds"] <= times * 3.0 and report["failed"] == report["rows"] == 0 and not report["finished"]
    assert "The time ran out: 0 of 3 kernels have a choice" in result.output
    assert f"Continue with: tritium tune --resume --store {store}\n" in result.output
    assert f"To use them: TRITIUM_TUNE_STORE={store} TRITIUM_TUNED=estimate\n" in result.output


def test_an_interrupt_keeps_results_and_resume_goes_on():
    lines, sent = [], False
    shapes = ",".join(f"512x512x{k}" for k in range(512, 448, -2))  # more than it gets through before it hears
    with subprocess.Popen([*TUNE, "--op", "dot", "--shapes", shapes, "--inference", "--json"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            lines.append(line)
            if "1/32" in line and not sent:  # the first is done
                process.send_signal(signal.SIGINT)
                sent = True
    assert process.returncode == 130, lines
    report = json.loads(lines[-1])
    assert report["interrupted"] and not report["finished"] and report["rows"] > 3
    assert any("Continue with: tritium tune --resume" in line for line in lines)
    done = json.loads(piped("--resume", "--budget", "1s", "--json").splitlines()[-1])
    assert done["known"] >= report["rows"] - 1 and done["tasks"] == 32


def test_results_travel_by_export_and_import(tmp_path, monkeypatch):
    run(*DOT, "--budget", "5m", "--export", str(tmp_path / "a.jsonl"))
    monkeypatch.setenv("TRITIUM_TUNE_STORE", str(tmp_path / "other.sqlite"))
    result = run("--import", str(tmp_path / "a.jsonl"), "--export", str(tmp_path / "b.jsonl"))
    assert re.search(r"Imported \d+ results", result.output)
    assert (tmp_path / "a.jsonl").read_text() == (tmp_path / "b.jsonl").read_text()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_in_a_terminal_it_shows_time_left_and_the_best_so_far(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    now, terminal = [0.0], Terminal()
    part = SimpleNamespace(item=SimpleNamespace(name="dot 256x256x256", share=1.0))
    with TuningDisplay(300.0, 0.0, terminal, lambda: now[0]) as display:
        display.begin(9, "configurations")
        display.task(part, 1, 1)
        now[0] = 0.2  # too early for a picture
        display.advance(1, "1.2 ms piece=2^20")
        assert terminal.getvalue() == ""
        now[0] = 10.0
        display.advance(3, "227 µs piece=2^21")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert re.search(r"1/1 dot 256x256x256.*3/9.*0:20 left, best 227 µs piece=2\^21", text), text


def test_in_a_terminal_the_results_stay():
    master, slave = pty.openpty()
    process = subprocess.Popen([*TUNE, *DOT, "--budget", "5m"], stdout=slave, stderr=slave,
                               env={**os.environ, "TERM": "xterm", "COLUMNS": "120"})
    os.close(slave)
    seen = b""
    try:
        while piece := os.read(master, 65536):
            seen += piece
    except OSError:  # Linux's way to say that the other end is closed
        pass
    os.close(master)
    assert process.wait() == 0, seen.decode()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert re.search(r"1/1 dot 256x256x256 \(100\.0%\): [\d.]+ [mµ]s", text), text


def test_time_left_is_the_pace_or_the_budget():
    display = TuningDisplay(100.0, began=0.0)
    display.total = 10
    assert [display.left(done, now) for done, now in ((0, 0.0), (5, 20.0), (1, 20.0), (5, 101.0))] == [100.0, 20.0, 80.0, 0.0]
