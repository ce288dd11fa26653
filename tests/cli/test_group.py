"""The common part of all commands: help with examples, suggestions, exit codes, --json, colours, and Ctrl-C."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tritium.cli import commands
from tritium.cli.group import Command, Group
from tritium.errors import FileError

NAMES = sorted(commands.main.commands)


def run(*arguments):
    return CliRunner().invoke(commands.main, list(arguments))


@pytest.mark.parametrize("name", NAMES)
def test_help_ends_with_examples_that_can_be_parsed(name):
    command = commands.main.commands[name]
    text = run(name, "--help").output
    assert text.split("Examples:\n")[1].splitlines() == [f"  tritium {line}" for line in command.examples]
    for line in command.examples:
        given = re.sub(r" >>? .*", "", line).split()
        assert given[0] == name
        context = click.Context(command, ignore_unknown_options=command.context_settings.get("ignore_unknown_options", False))
        context.allow_interspersed_args = command.context_settings.get("allow_interspersed_args", True)
        command.make_parser(context).parse_args(given[1:])  # raises for an option that there is not


@pytest.mark.parametrize("name", [n for n in NAMES if n != "run"])  # whose output is the script's
def test_every_command_has_json(name):
    assert "--json" in {o for p in commands.main.commands[name].params for o in p.opts}


def test_the_page_names_every_command():
    page = (Path(__file__).resolve().parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.M)) == NAMES
    for line in re.findall(r"^    tritium (.*)$", page, re.M):
        name, *given = re.sub(r" >>? .*| +#.*", "", line).split()
        command = commands.main.commands[name]
        command.make_parser(click.Context(command)).parse_args(given)


@pytest.mark.parametrize("given, meant", [("trian", "'train'"), ("inspekt", "'inspect'"), ("covnert", "'convert'")])
def test_a_wrong_command_names_the_near_ones(given, meant):
    result = run(given)
    assert result.exit_code == 2 and f"{given!r} is not a command. Did you mean {meant}?" in " ".join(result.output.split())
    assert "Commands: bench, completion, convert" in run("xyzzy").output and "Did you mean" not in run("xyzzy").output


@pytest.mark.parametrize("error, status, text", [
    (FileError("a.rec: cut short."), 1, "Error: a.rec: cut short."),
    (PermissionError(13, "Permission denied", "a.rec"), 1, "Error: a.rec: Permission denied."),
    (KeyboardInterrupt(), 130, "Interrupted."), (click.UsageError("--a excludes --b."), 2, "Error: --a excludes --b.")])
def test_how_a_command_ends(error, status, text):
    def body():
        raise error

    result = CliRunner().invoke(Group(commands={"fail": Command("fail", callback=body)}), ["fail"])
    assert result.exit_code == status and text in result.output, result.output


WAITING = {
    "train": ["train", "--network", "mlp", "--epochs", "100000"],
    "tune": ["tune", "--op", "dot", "--shapes", ",".join(f"512x512x{k}" for k in range(512, 400, -2)), "--inference",
             "--store", "tune.sqlite"],
    "launch": ["launch", "-n", "1", sys.executable, "-c", "print('epoch', flush=True); import signal; signal.pause()"],
    "run": ["run", "wait.py"],
}


@pytest.mark.parametrize("name", WAITING)
def test_control_c_ends_it_with_130(name, tmp_path):
    """The interrupt goes to all processes of the terminal, as the key sends it."""
    (tmp_path / "wait.py").write_text("print('epoch', flush=True)\nimport signal\nsignal.pause()\n")
    with subprocess.Popen([sys.executable, "-m", "tritium", *WAITING[name]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, cwd=tmp_path, start_new_session=True) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.removeprefix("[worker 0] ").startswith(("epoch", "1/56")):
                os.killpg(process.pid, signal.SIGINT)
                break
        lines += process.stdout.readlines()
    assert process.returncode == 130, lines


def test_no_color_takes_the_colours_away(tmp_path):
    (tmp_path / "a.rec").write_bytes(b"no records")
    seen = {}
    for value in ("", "1"):
        master, slave = pty.openpty()
        process = subprocess.Popen([sys.executable, "-m", "tritium", "inspect", str(tmp_path / "a.rec")], stdout=slave,
                                   stderr=slave, env={**os.environ, "TERM": "xterm-256color", "NO_COLOR": value})
        os.close(slave)
        text = b""
        try:
            while piece := os.read(master, 65536):
                text += piece
        except OSError:  # Linux's way to say that the other end is closed
            pass
        os.close(master)
        assert process.wait() == 1
        seen[value] = bool(re.search(rb"\x1b\[3\dm", text))
    assert seen == {"": True, "1": False}


@pytest.mark.parametrize("shell, text", [("bash", "complete -o nosort -F _tritium_completion tritium"),
                                         ("zsh", "#compdef tritium"), ("fish", "complete --no-files --command tritium")])
def test_completion(shell, text):
    assert text in run("completion", shell).output
    found = json.loads(run("completion", shell, "--json").output)
    assert found["shell"] == shell and text in found["script"]


def test_the_completion_offers_commands(tmp_path):
    done = subprocess.run([sys.executable, "-m", "tritium"], capture_output=True, text=True, cwd=tmp_path,
                          env={**os.environ, "_TRITIUM_COMPLETE": "bash_complete", "COMP_WORDS": "tritium tr", "COMP_CWORD": "1"})
    assert done.stdout.split() == ["plain,train"]
