"""Networks and operators go to ONNX, are run by ONNX Runtime, and come back. Outputs must agree each time."""

import numpy as np
import pytest
from support.onnx_cases import NETWORKS, OPERATORS, RECURRENT, prepared, run
from tritium.contrib import onnx as mx_onnx

pytest.importorskip("onnx", reason="the package onnx is not installed")
ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


def runtime(path, data):
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, data)


def agree(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [*NETWORKS, *OPERATORS, *RECURRENT])
def test_to_onnx_and_back(name, rng, tmp_path):
    sym, shape = {**NETWORKS, **OPERATORS, **RECURRENT}[name]
    args, auxes, labels, data = prepared(sym, shape, rng)
    path = str(tmp_path / "m.onnx")
    assert mx_onnx.export_model(sym, [args, auxes], [shape], np.float32, path) == path
    given = {"data": data}
    expected = run(sym, {**args, **labels}, auxes, given)
    found = runtime(path, given)
    agree(found, expected)
    assert [a.dtype for a in found] == [b.dtype for b in expected]
    if name not in RECURRENT:
        back, new_args, new_auxes = mx_onnx.import_model(path)
        agree(run(back, new_args, new_auxes, given), expected)
