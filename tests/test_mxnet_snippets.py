"""Small programs print what they print with MXNet 1.9.1 (tests/golden/snippets)."""

import importlib.util
import json
import re
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import tritium as mx

FOLDER = Path(__file__).parent / "golden" / "snippets"
spec = importlib.util.spec_from_file_location("snippets", FOLDER / "run.py")
snippets = importlib.util.module_from_spec(spec)
spec.loader.exec_module(snippets)
SNIPPETS = snippets.load(FOLDER / "snippets.txt")
RECORDED = json.loads((FOLDER / "recorded.json").read_text())
_NUMBER = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")


def parts(text):
    """Return the words of an output, and its numbers. The names of modules do not count, nor NumPy's way to print a scalar."""
    text = re.sub(r"np\.\w+\(([^()]*)\)", r"\1", text)
    text = re.sub(r"<class '(?:mxnet|tritium)[\w.]*\.(\w+)'>", r"<class \1>", text).replace("numpy.bool_", "numpy.bool")
    return _NUMBER.sub("#", text).split(), [float(n) for n in _NUMBER.findall(text)]


@pytest.mark.parametrize("title", SNIPPETS)
def test_a_snippet_prints_what_mxnet_prints(title, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what MXNet does without a word
        words, numbers = parts(snippets.run(title, SNIPPETS[title], mx, np))
    wanted_words, wanted_numbers = parts(RECORDED[title])
    assert words == wanted_words
    np.testing.assert_allclose(numbers, wanted_numbers, rtol=2e-5, atol=1e-6)
