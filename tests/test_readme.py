"""The README: its Python examples run, and the files it links to exist."""

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"
EXAMPLES = re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?```python\n(.*?)```", README.read_text(encoding="utf-8"), re.M | re.S)


def test_there_are_four_short_examples():
    assert len(EXAMPLES) == 4
    for title, code in EXAMPLES:
        assert len([line for line in code.splitlines() if line.strip()]) <= 20, title


@pytest.mark.parametrize("code", [code for _, code in EXAMPLES], ids=[title for title, _ in EXAMPLES])
def test_an_example_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})


def test_links_lead_somewhere():
    for document in ("README.md", "CONTRIBUTING.md", "SECURITY.md"):
        text = re.sub(r"```.*?```", "", README.with_name(document).read_text(encoding="utf-8"), flags=re.S)
        targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", text)
        assert targets
        for target in targets:
            assert (README.parent / target).exists(), f"{document}: {target}"


def test_tests_that_the_security_page_names_exist():
    named = re.findall(r"`(tests/[^`]+)`", README.with_name("SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) >= 8 and all((README.parent / name).exists() for name in named)
