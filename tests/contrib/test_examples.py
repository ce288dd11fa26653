"""The programs of examples/gluon that use mx.contrib."""

import logging
import re
import runpy
from pathlib import Path

import pytest
from tritium.contrib import amp

PROGRAMS = Path(__file__).parents[2] / "examples" / "gluon"


def printed(name, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(PROGRAMS))
    runpy.run_path(str(PROGRAMS / name), run_name="__main__")
    return capsys.readouterr().out.splitlines()


def test_mixed_precision_learns_as_float32_does(capsys, monkeypatch):
    logging.getLogger().setLevel(logging.ERROR)
    try:
        single, converted, half = printed("mixed_precision.py", capsys, monkeypatch)
    finally:
        logging.getLogger().setLevel(logging.WARNING)
        amp.amp._uninit()
    losses = [[float(v) for v in line.split()[1:]] for line in (single, half)]
    assert losses[0] == pytest.approx(losses[1], abs=0.1)  # the first steps overflow, and are skipped
    assert losses[0][-1] < 0.3
    assert converted == "converted for inference: 1.00 of the classes are the same"


def test_a_network_of_the_zoo_goes_to_onnx_and_back(capsys, monkeypatch):
    pytest.importorskip("onnx", reason="the package onnx is not installed")
    lines = printed("onnx_round_trip.py", capsys, monkeypatch)
    assert lines[0].startswith("inputs and outputs {'input_tensor_data': [('data', (2, 3, 64, 64), 1)]")
    assert {re.search(r"difference is ([\d.]+)", line)[1] for line in lines[1:]} == {"0.0000"}
