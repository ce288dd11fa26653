"""A trace of two epochs of the demo: well formed, with decode, compute and update in it."""

import os
import subprocess
import sys

import pytest
from support.trace_format import check


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")
    subprocess.run([sys.executable, "-m", "tritium", "train", "--epochs", "2", "--workers", "2", "--out", str(folder),
                    "--profile", str(folder / "trace.json")], check=True, capture_output=True, timeout=250,
                   env={**os.environ, "TRITIUM_GPU": "off"}, cwd=folder)
    return check((folder / "trace.json").read_text(encoding="utf-8"))


def spans(events, chosen):
    """(start, end) of the slices, or of begin and end pairs, that are chosen; sorted."""
    found = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and chosen(e)]
    begun = {}
    for e in events:
        if e["ph"] == "b" and chosen(e):
            begun[e["id"]] = e["ts"]
        elif e["ph"] == "e" and chosen(e):
            found.append((begun.pop(e["id"]), e["ts"]))
    return sorted(found)


def overlaps(one, two):
    return sum(a < d and c < b for a, b in one for c, d in two)


def test_the_trace_holds_threads_arrows_memory_and_operations(events):
    kinds = {e["ph"] for e in events}
    assert {"X", "M", "s", "f", "C", "b", "e"} <= kinds
    names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert "MainThread" in names and any(n.startswith("tritium-cpu(0)-compute") for n in names)
    assert len([e for e in events if e["ph"] == "X" and e["cat"] == "operation"]) > 500


def test_decode_compute_and_update_are_in_the_trace(events):
    names = {e["name"] for e in events if e.get("cat") == "operation"}
    assert any("update" in n for n in names) and any(" forward " in n for n in names) and any(" backward " in n for n in names)
    assert len(spans(events, lambda e: e["name"] == "decode")) >= 2 * 45


@pytest.mark.nightly  # two seconds of training: if the machine stops a thread for that long, it shows no overlap
def test_decode_and_compute_overlap(events):
    computing = spans(events, lambda e: e.get("cat") == "operation" and (" forward " in e["name"] or " backward " in e["name"]))
    assert overlaps(spans(events, lambda e: e["name"] == "decode"), computing) > 0
