"""The notebooks: stored with the outputs of one run from top to bottom; the nightly run runs them."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_six():
    assert len(NOTEBOOKS) == 6


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_the_outputs_are_those_of_a_whole_run(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [c for c in cells if c["cell_type"] == "code"]
    assert [c["execution_count"] for c in code] == list(range(1, len(code) + 1)), "run docs/notebooks/run.py"
    outputs = [o for c in code for o in c["outputs"]]
    assert outputs and not [o for o in outputs if o["output_type"] == "error"]
    assert not re.search(r"/tmp/|/home/|/root/|ipykernel_|WARNING", json.dumps(outputs)), "nothing of the machine that ran it"
    assert path.stat().st_size < 200_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_links_lead_somewhere(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", text):
        assert (FOLDER / target).exists(), target


@pytest.mark.nightly
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_it_runs(path, monkeypatch):
    """An exception in a cell fails here, and so does a cell whose outputs are of other kinds than the stored ones."""
    pytest.importorskip("nbclient")
    monkeypatch.delenv("TRITIUM_GPU", raising=False)
    spec = importlib.util.spec_from_file_location("run_notebooks", FOLDER / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("PATH", module.os.environ["PATH"])
    notebook = module.run(path)
    stored = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert [[o.output_type for o in c.get("outputs", [])] for c in notebook.cells] == \
        [[o["output_type"] for o in c.get("outputs", [])] for c in stored]
