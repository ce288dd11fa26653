"""Every Python block of every page runs: the blocks of a page are one program, in a process of its own, in an empty folder.

`<!-- not run: reason -->` before a block leaves it out. docs/operators.md runs in tests/test_operators_page.py, on both devices.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [p for p in (*sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md")
         if not p.relative_to(ROOT).as_posix().startswith(("docs/_build", "docs/reference", "docs/project", "docs/operators.md"))]
BLOCK = re.compile(r"^(<!-- not run: [^\n]+ -->\n)?```python\n(.*?)^```", re.M | re.S)
LONG = {"tutorial.md"}  # seconds: with the nightly tests


def blocks(text):
    """(code, True if it runs) of each block."""
    return [(found[2], not found[1]) for found in BLOCK.finditer(text)]


def program(page):
    """The blocks of a page as one program, with the line numbers of the page in its tracebacks."""
    text, parts = page.read_text(encoding="utf-8"), []
    for found in BLOCK.finditer(text):
        if not found[1]:
            line = text[:found.start(2)].count("\n")
            parts.append((line, found[2]))
    lines = []
    for line, code in parts:
        lines += [""] * (line - len(lines)) + code.split("\n")[:-1]
    return "\n".join(lines)


def those_that_run():
    for p in PAGES:
        if any(runs for _, runs in blocks(p.read_text(encoding="utf-8"))):
            yield pytest.param(p, id=p.relative_to(ROOT).as_posix(), marks=[pytest.mark.nightly] if p.name in LONG else [])


@pytest.mark.parametrize("page", list(those_that_run()))
def test_the_blocks_of_a_page_run(page, tmp_path):
    script = tmp_path / page.name.replace(".md", ".py")
    script.write_text(program(page), encoding="utf-8")
    done = subprocess.run([sys.executable, "-W", "error", script.name], cwd=tmp_path, capture_output=True, text=True, timeout=280,
                          env={**os.environ, "TRITIUM_GPU": os.environ.get("TRITIUM_GPU", "off")})
    assert done.returncode == 0, f"{page.name}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}"


def test_the_new_pages_are_among_them_and_a_reason_is_given():
    names = {p.relative_to(ROOT).as_posix() for p in PAGES}
    assert {"docs/tutorial.md", "docs/howto/profile.md", "docs/io.md", "CONTRIBUTING.md"} <= names
    assert blocks("<!-- not run: it needs a server -->\n```python\nx\n```\n```python\ny\n```") == [("x\n", False), ("y\n", True)]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text):
        assert (page.parent / target).exists() or target.startswith("reference/"), target


def test_every_page_is_in_the_contents():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    trees = re.findall(r"^```\{toctree\}\n(.*?)^```", index, re.M | re.S)
    listed = [line for tree in trees for line in tree.split("\n") if line and not line.startswith(":")]
    assert len(set(listed)) == len(listed)
    pages = {p.relative_to(ROOT / "docs").with_suffix("").as_posix() for p in (*PAGES, *(ROOT / "docs").glob("notebooks/*.ipynb"))
             if p.is_relative_to(ROOT / "docs")}
    assert pages | {"operators"} == {n for n in listed if not n.startswith(("project/", "reference/"))} | {"index"}
