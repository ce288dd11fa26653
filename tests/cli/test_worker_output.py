"""Lines of workers' output: any cut of the bytes gives the same lines, and nothing is lost but what was written over."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritium.cli import worker_output as output
from tritium.cli.worker_output import Lines, Output, describe_end


def lines_of(parts):
    lines = Lines()
    return [line for part in parts for line in lines.add(part)] + lines.end()


@given(st.lists(st.text("ab\r\n", max_size=12), max_size=6))
def test_lines_do_not_depend_on_how_their_bytes_arrive(parts):
    whole = "".join(parts)
    *complete, last = whole.split("\n")
    expected = [line.rstrip("\r").split("\r")[-1] for line in complete]
    last = last.rstrip("\r").split("\r")[-1]
    assert [line.decode() for line in lines_of([p.encode() for p in parts])] == expected + [last] * bool(last)


def test_a_line_without_an_end_takes_bounded_memory(monkeypatch):
    monkeypatch.setattr(output, "MOST", 4)
    lines = Lines()
    assert lines.add(b"abcdefghij") == [b"abcd", b"efgh"] and lines.add(b"kl") == [] and lines.add(b"m") == [b"ijkl"]
    assert lines.add(b"\n") == [b"m"] and lines.end() == []


@pytest.mark.parametrize(("status", "text"), [(0, "ended with status 0"), (3, "ended with status 3"),
                                              (-signal.SIGSEGV, "was killed by SIGSEGV"), (-63, "was killed by signal 63")])
def test_an_end_is_described_by_status_or_signal(status, text):
    assert describe_end(status) == text


def test_standard_error_is_where_the_last_line_comes_from(capfd):
    code = "import sys; print('out'); print('reason', file=sys.stderr); sys.stderr.flush(); print('out again')"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out = Output()
    out.attach(3, process)
    process.wait()
    out.detach(3)
    out.close()
    written = capfd.readouterr()
    assert out.last == {3: "reason"} and written.err == "[worker 3] reason\n"
    assert written.out == "[worker 3] out\n[worker 3] out again\n"
