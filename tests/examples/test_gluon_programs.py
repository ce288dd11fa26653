"""Every program of examples/gluon prints what MXNet 1.9.1 prints (tests/golden/gluon/examples.json), but for last digits."""

import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRINTED = json.loads((ROOT / "tests/golden/gluon/examples.json").read_text())
NUMBER = re.compile(r"-?\d+\.\d+")


OURS = {"mixed_precision", "onnx_round_trip"}  # MXNet's CPU has no float16 layers; onnx is not installed beside it


def test_every_program_has_recorded_figures():
    assert set(PRINTED) | OURS == {p.stem for p in (ROOT / "examples/gluon").glob("*.py")} - {"formula"}


@pytest.mark.parametrize("name", PRINTED)
def test_prints_mxnets_figures(name, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples/gluon"))
    runpy.run_path(str(ROOT / f"examples/gluon/{name}.py"), run_name="__main__")
    got = capsys.readouterr().out.splitlines()
    assert [NUMBER.sub("#", line) for line in got] == [NUMBER.sub("#", line) for line in PRINTED[name]]
    for line, wanted in zip(got, PRINTED[name]):
        figures = [[float(v) for v in NUMBER.findall(text)] for text in (line, wanted)]
        assert figures[0] == pytest.approx(figures[1], rel=2e-3, abs=2e-4), line
