"""The README: its blocks run, its links lead somewhere, its picture is what its program draws, its figures are measured ones."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^### ([^\n]+)\n(?:(?!^##).)*?```[a-z]+\n(.*?)```", TEXT, re.M | re.S))


def test_it_is_short():
    assert len(TEXT.splitlines()) <= 150
    assert list(BLOCKS) == ["As a library", "On the command line", "In a notebook"]
    for title, code in BLOCKS.items():
        assert len([line for line in code.splitlines() if line.strip()]) <= 15, title


def test_the_library_and_a_checkpoint(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    exec(compile(BLOCKS["As a library"], "README.md", "exec"), names)
    (block,) = re.findall(r"```python\n(.*?)```", TEXT.split("## Coming from MXNet")[1], re.S)
    exec(compile(block, "README.md", "exec"), names)
    said = capsys.readouterr().out
    assert "'accuracy', 0.9" in said and re.search(r"^hidden .*\d %$", said, re.M), said
    assert (tmp_path / "profile.json").exists()
    names["mx"].profiler.dumps(reset=True)


def test_the_command_line(tmp_path):
    """In bash, which stops at the first line that fails."""
    script = f'set -e\ntritium() {{ "{sys.executable}" -m tritium "$@"; }}\n' + BLOCKS["On the command line"]
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {"trace.json", "out", "digits.safetensors"} <= set(os.listdir(tmp_path))


def test_the_notebook(tmp_path, monkeypatch):
    testing = pytest.importorskip("IPython.testing.globalipapp")
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.chdir(tmp_path)
    InteractiveShell.clear_instance()
    shell = testing.start_ipython() or InteractiveShell.instance()
    try:
        results = [shell.run_cell(cell) for cell in BLOCKS["In a notebook"].split("\n\n")]
        for result in results:
            result.raise_error()
        assert results[2].result.shape == (3,) and "swish" in {row.name for row in results[3].result}
    finally:
        InteractiveShell.clear_instance()


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_lead_somewhere(document):
    text = re.sub(r"```.*?```", "", (ROOT / document).read_text(encoding="utf-8"), flags=re.S)
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]+)(#[^)\s]+)?\)", text):
        assert (ROOT / target).exists(), f"{document}: {target}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", (ROOT / target).read_text(encoding="utf-8"), re.M)
            assert anchor[1:] in {re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles}, f"{document}: {anchor}"


def test_the_picture_is_drawn_from_the_code_as_it_is():
    pytest.importorskip("triton")
    folder = ROOT / "docs" / "pictures"
    drawn = subprocess.run([sys.executable, "-c", "import draw_operator; print(draw_operator.draw(), end='')"], cwd=folder,
                           capture_output=True, text=True, check=True).stdout
    assert drawn == (folder / "operator.svg").read_text(encoding="utf-8"), "run python docs/pictures/draw_operator.py"


def test_the_figures_are_those_of_the_stored_runs():
    """Each cell is a stored figure, rounded; PyTorch's time on the GPU is ours times the stored ratio."""
    cpu = json.loads((ROOT / "perf" / "results" / "cpu_bench.json").read_text())["seconds"]
    gpu = [json.loads(line.rstrip(",\n")) for line in (ROOT / "perf" / "results" / "h100_4_last.json").read_text().splitlines()
           if line.startswith("{")]
    stored = {r["bench"]: r for r in gpu}
    want = [[cpu[package][case] for package in ("tritium", "torch", "mxnet")] for case in cpu["tritium"]]
    for name in ("lenet", "resnet20", "resnet50"):
        row = stored[f"training step {name}"]
        want.append([row["median_s"], row["median_s"] * row["of_torch"]])
    rows = [re.findall(r"([\d.]+) (µs|ms)", line) for line in re.findall(r"^\|(.*)\|$", TEXT, re.M)[2:]]
    assert len(rows) == len(want) + 2  # the last two stand in perf/README.md
    for got, figures in zip(rows, want):
        assert len(got) == len(figures)
        for (number, unit), figure in zip(got, figures):
            assert abs(float(number) * {"µs": 1e-6, "ms": 1e-3}[unit] / figure - 1) < 0.01, (got, figures)
