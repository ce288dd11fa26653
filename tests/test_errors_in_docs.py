"""Errors by name: what the documentation names can be caught as it says, and every public error is where users look for it."""

from __future__ import annotations

import builtins
import importlib
import pkgutil
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import tritium as mx

PAGES = sorted([*Path(mx.__file__).parent.glob("docs/*.md"), *Path(mx.__file__).parent.glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_errors_that_a_page_names_are_there(page):
    text = page.read_text()
    for name in set(re.findall(r"mx\.errors\.(\w+)", text)):
        assert issubclass(getattr(mx.errors, name), mx.MXNetError)
    for name in set(re.findall(r"\b([A-Z][a-z]\w*Error)\b", text)):
        found = getattr(mx.errors, name, None) or getattr(builtins, name, None)
        assert found is not None, f"{page.name} names {name}, which is neither in mx.errors nor Python's"


def test_every_public_error_is_in_errors():
    folder = Path(mx.__file__).parent
    for part in ("kvstore", "gluon", "train", "io", "ndarray", "graph", "engine"):
        for module in pkgutil.walk_packages([str(folder / part)], f"tritium.{part}."):
            if module.name.rpartition(".")[2] in ("cuda", "host", "ray_job") or "triton" in module.name:
                continue  # a GPU's, a process's
            importlib.import_module(module.name)

    def below(cls):
        for sub in cls.__subclasses__():
            yield sub
            yield from below(sub)

    for cls in below(mx.MXNetError):
        if cls.__module__.startswith("tritium.") and cls.__name__.endswith("Error") and cls.__name__[0] != "_":
            assert getattr(mx.errors, cls.__name__, None) is cls, f"{cls.__module__}.{cls.__name__}"


def test_the_loop_that_the_page_shows_pushes_until_it_counts():
    """Refused for a death, then because an earlier push counted after all, then not."""
    text = (Path(mx.__file__).parent / "docs" / "howto" / "distribute.md").read_text()
    (code,) = re.findall(r"^(def push_until_applied.*?)```", text, re.DOTALL | re.MULTILINE)
    what, dead, waited = {"mx": mx}, [1, 1, 0], []
    what["time"] = SimpleNamespace(sleep=waited.append)
    exec(code, what)
    answers, pushed = [mx.errors.DeadWorkerError("died"), mx.errors.RoundMadeError("made after all"), None], []

    class Store:
        def push(self, key, gradient):
            pushed.append((key, gradient))

        def pull(self, key, out):
            pass

        def get_num_dead_node(self, _group):
            return dead.pop(0)

    class Out:
        def wait_to_read(self):
            answer = answers.pop(0)
            if answer is not None:
                raise answer

    assert what["push_until_applied"](Store(), "w", 5, Out()) is None
    assert pushed == [("w", 5)] * 3 and waited == [1, 1] and not answers
