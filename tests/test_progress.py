"""Progress in a pipe, in a terminal and in a notebook. The clock is counted by hand."""

import io
import os
import pty
import re
import subprocess
import sys
import types

import pytest
from tritium import progress
from tritium.progress import Progress


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_pipe_gets_a_plain_line_every_ten_seconds():
    clock, out, notes = Clock(), io.StringIO(), []
    with Progress(100, "packing", "image", file=out, clock=clock) as bar:
        for second in range(25):
            clock.now = float(second)
            bar.advance(4, note=lambda: notes.append(bar.done) or f"{len(notes)} bad")
    assert out.getvalue() == ("packing:  44% 44/100 [00:10<00:12,  4.40image/s, 1 bad]\n"
                              "packing:  84% 84/100 [00:20<00:03,  4.20image/s, 2 bad]\n")
    assert notes == [44, 84], "a note is made only for a line that is shown"


def test_a_total_may_be_unknown_and_come_later():
    clock, out = Clock(), io.StringIO()
    bar = Progress(title="file", unit="B", file=out, clock=clock)
    clock.now = 10.0
    bar.reach(2048)
    clock.now = 20.0
    bar.reach(1_000_000, 4_000_000)
    assert out.getvalue() == "file: 2.05kB [00:10, 205B/s]\nfile:  25% 1.00M/4.00M [00:20<01:00, 50.0kB/s]\n"


def test_a_terminal_shows_a_bar_and_lines_above_it(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    clock, out = Clock(), Terminal()
    with Progress(10, "train", "batch", file=out, clock=clock) as bar:
        clock.now = 1.0
        bar.advance(5, note=lambda: "loss 1")
        bar.say("epoch 1")
    text = out.getvalue()
    assert re.search(r"\rtrain:  50%\|[#█]+5? +\| 5/10 \[.*loss 1\]", text) and "\n" not in text
    assert re.search(r"\r {70,79}\r$", text), "the bar is taken away"
    assert max(map(len, text.split("\r"))) <= 79
    assert capsys.readouterr().out == "epoch 1\n"


def test_short_work_shows_no_bar():
    clock, out = Clock(), Terminal()
    with Progress(10, "train", "batch", file=out, clock=clock) as bar:
        clock.now = 0.25
        bar.advance(10)
    assert out.getvalue() == ""


def test_it_makes_no_thread_and_no_semaphore():
    """tqdm's own monitor would be a thread, and its lock a semaphore that a fork shares."""
    code = ("import sys, threading, io\nfrom tritium.progress import Progress\nclass T(io.StringIO):\n  isatty = lambda s: True\n"
            "before = threading.active_count()\nticks = iter([0.0, 1.0, 1.0])\n"
            "b = Progress(3, file=T(), clock=lambda: next(ticks))\nb.advance()\nassert threading.active_count() == before\n"
            "assert type(b._bar.get_lock()) is type(threading.RLock())\n")
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def notebook(monkeypatch):
    """An IPython whose shell has a kernel. Yields what it was told to display."""
    shown = []

    class Handle:
        def update(self, picture, raw):
            shown.append(("update", picture))

    def display(picture, raw, display_id):
        shown.append(("display", picture))
        return Handle()

    shell = types.SimpleNamespace(kernel=object())
    fake = types.SimpleNamespace(get_ipython=lambda: shell, display=types.SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", fake)
    return shown


def test_a_notebook_has_one_output_that_changes_and_is_empty_at_the_end(notebook):
    clock = Clock()
    with Progress(4, "<train>", "batch", clock=clock) as bar:
        for second in (1.0, 1.2, 2.0):
            clock.now = second
            bar.advance()
    assert [kind for kind, _ in notebook] == ["display", "update", "update"]
    assert notebook[0][1]["text/plain"] == "<train>:  25% 1/4 [00:01<00:03,  1.00batch/s]"
    assert notebook[-1][1] == {"text/plain": "", "text/html": ""}
    assert notebook[1][1]["text/html"].startswith('<progress value="3" max="4"></progress> <code>&lt;train&gt;:  75% 3/4')


def test_a_shell_without_a_kernel_is_no_notebook(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace()))
    assert progress.shown_in(io.StringIO()) == "pipe" and progress.shown_in(Terminal()) == "terminal"


def test_a_terminal_that_states_no_size_still_gets_a_bar():
    master, slave = pty.openpty()  # 0 rows and 0 columns
    code = ("import time\nfrom tritium.progress import Progress\nwith Progress(2, 'a', 'b') as bar:\n"
            "  bar._last = 0.0\n  bar.advance()\n")
    process = subprocess.Popen([sys.executable, "-c", code], stdout=slave, stderr=slave,
                               env={k: v for k, v in os.environ.items() if k != "COLUMNS"})
    os.close(slave)
    seen = b""
    try:
        while piece := os.read(master, 65536):
            seen += piece
    except OSError:  # Linux's way to say that the other end is closed
        pass
    os.close(master)
    assert process.wait() == 0 and "\ra:  50%|" in seen.decode(), seen
