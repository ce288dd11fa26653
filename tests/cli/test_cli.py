"""The command line: help, bad input, a whole run piped and in a terminal."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest
import tritium as mx
from click.testing import CliRunner
from tritium.cli import commands
from tritium.cli.parameters import Device

TRAIN = [sys.executable, "-m", "tritium", "train", "--network", "mlp"]


def run(*arguments):
    return CliRunner().invoke(commands.main, list(arguments))


def piped(*arguments, cwd):
    return subprocess.run([*TRAIN, *arguments], capture_output=True, text=True, cwd=cwd, check=True).stdout


def test_help_explains():
    assert "Train a network on 1,797 real handwritten digits" in run("--help").output
    text = run("train", "-h").output
    for option in ("--device", "--epochs", "--batch-size", "--seed", "--network", "--engine", "--workers", "--out", "--json"):
        assert option in text
    assert run("--version").output.strip().endswith(mx.__version__)


@pytest.mark.parametrize("given, meant", [
    ("cpu", mx.cpu(0)), ("gpu", mx.gpu(0)), ("cpu(1)", mx.cpu(1)), ("GPU:2", mx.gpu(2))])
def test_a_device_as_it_is_written(given, meant):
    assert Device().convert(given, None, None) == meant


@pytest.mark.parametrize("arguments, text", [
    (["--device", "tpu"], r"'tpu' is not a device\. Give cpu, gpu, or one with a number"),
    (["--device", "gpu(7)"], r"gpu\(7\): no such device: \d+ GPUs? here\."),
    (["--network", "vgg"], r"'vgg' is not one of 'mlp', 'lenet'"),
    (["--epochs", "0"], r"0 is not in the range x>=1"),
    (["--engine", "naive", "--workers", "2"], r"--workers is for --engine threaded"),
])
def test_bad_input_is_named(arguments, text):
    before = mx.engine.current()
    result = run("train", *arguments)
    assert result.exit_code == 2
    assert re.search(text, " ".join(result.output.split())), result.output
    assert mx.engine.current() is before


def test_a_missing_gpu_says_how_to_get_one(tmp_path):
    done = subprocess.run([*TRAIN, "--device", "gpu"], capture_output=True, text=True, cwd=tmp_path,
                          env={**os.environ, "TRITIUM_GPU": "off"})
    assert done.returncode == 2
    assert "gpu(0): no such device: 0 GPUs here. TRITIUM_GPU=off forbids GPUs: unset it." in " ".join(done.stderr.split())


def test_piped_it_prints_plain_lines_and_ends_with_json(tmp_path):
    text = piped("--epochs", "6", "--out", "a", "--json", cwd=tmp_path)
    assert "\x1b" not in text and "\r" not in text
    assert len(re.findall(r"^epoch \d/6  loss \d+\.\d+  training accuracy [01]\.\d+  [\d,]+ images/s$", text, re.M)) == 6
    assert "Loaded again: accuracy" in text and "the same" in text
    report = json.loads(text.splitlines()[-1])
    assert report["accuracy"] == report["loaded_accuracy"] > 0.9
    assert report["held_out"] == 360 and report["images_per_s"] > 0
    assert 0 < report["planned_bytes"] <= report["naive_bytes"] and report["fused_operators"] >= 0
    assert sorted(os.listdir(tmp_path / "a")) == ["digits-mlp-0006.params", "digits-mlp-symbol.json"]


def test_the_same_seed_gives_the_same_weights_with_any_engine(tmp_path):
    """In one process, of its own: each run sets the engine anew."""
    runs = [["--workers", "1"], ["--workers", "4"], ["--engine", "naive"], ["--seed", "1"]]
    code = ("import json, sys\nfrom tritium.cli.commands import main\n"
            "for run in json.loads(sys.argv[1]): main(run, standalone_mode=False)")
    runs = [["train", "--network", "mlp", "--epochs", "2", "--json", *more] for more in runs]
    text = subprocess.run([sys.executable, "-c", code, json.dumps(runs)], capture_output=True, text=True, cwd=tmp_path,
                          check=True).stdout
    one, four, naive, other = [json.loads(t)["weights_sha256"] for t in text.splitlines() if t.startswith("{")]
    assert one == four == naive != other


def test_in_a_terminal_it_shows_a_bar(tmp_path):
    master, slave = pty.openpty()
    process = subprocess.Popen([*TRAIN, "--epochs", "40"], stdout=slave, stderr=slave, cwd=tmp_path,
                               env={**os.environ, "TERM": "xterm", "COLUMNS": "100"})
    os.close(slave)
    seen = b""
    try:
        while piece := os.read(master, 65536):
            seen += piece
    except OSError:  # Linux's way to say that the other end is closed
        pass
    os.close(master)
    text = seen.decode()
    assert process.wait() == 0, text
    assert re.search(r"\repoch +\d+/40: +\d+%\|.*\d+/1800 \[", text), "one line, drawn over"
    assert "epoch 40/40  loss" in text
    assert "images/s" in text and "Accuracy on the 360 held-out digits" in text
