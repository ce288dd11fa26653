"""Recurrent cells and layers: outputs, states, gradients and names. Oracle: MXNet 1.9.1, in tests/golden/gluon/rnn_cases.npz.
Layers with projections prove `_rnn_projected`, and every fused layer `_rnn_param_concat`."""

import json
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from golden.gluon import rnn_cases as cases
from support.helpers import assert_close

STORED = np.load(Path(cases.__file__).with_suffix(".npz"))
VALID = [2, 4, 1]


def check(case, found):
    """found holds all that MXNet recorded of a case, with equal values."""
    wanted = {name.partition("/")[2]: name for name in STORED.files if name.startswith(f"{case}/")}
    assert wanted and set(found) <= set(wanted)
    for what, values in found.items():
        assert values.shape == STORED[wanted[what]].shape, what
        assert_close(values, STORED[wanted[what]], scale=4)  # several steps, each of which adds to the difference


@pytest.mark.parametrize("hybrid", [False, True], ids=["", "hybrid"])
@pytest.mark.parametrize("name", list(cases.cells(mx)))
def test_unrolled_cells_compute_what_mxnet_computes(name, hybrid):
    check(name, cases.unrolled(mx, name, hybrid=hybrid))


@pytest.mark.parametrize("name", ["lstm", "stack", "bidirectional", "residual"])
def test_valid_lengths_mask_outputs_and_choose_states(name):
    check(f"{name} TNC valid", cases.unrolled(mx, name, "TNC", VALID))


@pytest.mark.parametrize("name", list(cases.conv_cells(mx)))
def test_convolutional_cells_compute_what_mxnet_computes(name):
    check(name, cases.conv_unrolled(mx, name))


@pytest.mark.parametrize("hybrid", [False, True], ids=["", "hybrid"])
@pytest.mark.parametrize("name", list(cases.layers(mx)))
def test_layers_compute_what_mxnet_computes(name, hybrid):
    check(name, cases.layered(mx, name, hybrid=hybrid))


@pytest.mark.parametrize("valid", [None, VALID], ids=["", "valid"])
def test_dynamic_unroll_computes_what_mxnet_computes(valid):
    check("dynamic valid" if valid else "dynamic", cases.dynamic(mx, valid))


def test_files_of_mxnet_are_read(tmp_path):
    folder = Path(cases.__file__).parent
    net, x = cases.network(mx)
    wanted = STORED["network/output"]
    assert_close(net(x), wanted)
    for param in net.collect_params().values():
        param.data()[:] = 0
    net.load_parameters(str(folder / "rnn_net.params"))
    assert_close(net(x), wanted)
    imported = mx.gluon.SymbolBlock.imports(str(folder / "rnn_net-symbol.json"), ["data"], str(folder / "rnn_net-0000.params"))
    assert_close(imported(x), wanted)
    net.export(str(tmp_path / "ours"))
    again = mx.gluon.SymbolBlock.imports(str(tmp_path / "ours-symbol.json"), ["data"], str(tmp_path / "ours-0000.params"))
    assert_close(again(x), wanted)
    net.save_parameters(str(tmp_path / "ours.params"))
    assert set(mx.nd.load(str(tmp_path / "ours.params"))) == set(mx.nd.load(str(folder / "rnn_net.params")))


def test_parameters_and_descriptions_have_mxnets_names():
    wanted = json.loads(bytes(STORED["names"]))
    assert cases.names(mx) == wanted


def test_unrolled_symbols_have_mxnets_names():
    assert cases.symbols(mx) == json.loads(bytes(STORED["symbols"]))
