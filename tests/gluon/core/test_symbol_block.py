"""SymbolBlock: a block made of a graph, of this package or of a file of MXNet's."""

import json
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from golden.gluon_core import cases
from tritium.gluon import SymbolBlock, nn

GOLDEN = Path(__file__).parents[2] / "golden" / "gluon_core"
KNOWN = json.loads((GOLDEN / "outputs.json").read_text())


@pytest.mark.parametrize("inputs", ["data", ["data"]])
def test_files_that_mxnet_exported(inputs):
    block = SymbolBlock.imports(str(GOLDEN / "exported-symbol.json"), inputs, str(GOLDEN / "exported-0000.params"))
    x, _ = cases.data(mx)
    np.testing.assert_allclose(block(x).asnumpy(), KNOWN["outputs"], rtol=1e-5)
    assert list(block.collect_params().keys()) == KNOWN["arguments"][1:4] + ["net_batchnorm0_beta"] + KNOWN["arguments"][5:] + [
        "net_batchnorm0_running_mean", "net_batchnorm0_running_var"]
    assert repr(block) == "SymbolBlock(\n<Symbol net_dense1_fwd> : 1 -> 1\n)"


def test_it_is_trained_and_exported_again(tmp_path):
    block = SymbolBlock.imports(str(GOLDEN / "exported-symbol.json"), "data", str(GOLDEN / "exported-0000.params"))
    x, _ = cases.data(mx)
    trainer = mx.gluon.Trainer(block.collect_params(), "sgd", {"learning_rate": 0.1})
    with mx.autograd.record():
        y = (block(x) ** 2).sum()
    y.backward()
    trainer.step(1)
    block.hybridize()
    want = block(x).asnumpy()
    assert not np.allclose(want, KNOWN["outputs"], rtol=1e-3)
    block.export(str(tmp_path / "b"))
    again = SymbolBlock.imports(str(tmp_path / "b-symbol.json"), "data", str(tmp_path / "b-0000.params"))
    assert np.array_equal(again(x).asnumpy(), want)


def test_internals_as_features():
    net = nn.HybridSequential(prefix="model_")
    with net.name_scope():
        net.add(nn.Dense(4, in_units=5), nn.Dense(3, in_units=4))
    net.initialize(mx.init.One())
    data = mx.sym.var("data")
    internals = net(data).get_internals()
    block = SymbolBlock([internals["model_dense0_fwd_output"], internals["model_dense1_fwd_output"]], data,
                        params=net.collect_params())
    x = mx.nd.ones((2, 5))
    first, second = block(x)
    assert first.asnumpy().tolist() == [[5] * 4] * 2 and second.asnumpy().tolist() == [[20] * 3] * 2
    assert block.params.get("model_dense0_weight") is net[0].weight and sorted(block._reg_params) == [
        "0_bias", "0_weight", "1_bias", "1_weight"]
    outer = nn.HybridSequential()
    outer.add(SymbolBlock(internals["model_dense0_fwd_output"], data, params=net.collect_params()), nn.Dense(1))
    outer[1].initialize(mx.init.One())
    outer.hybridize()
    assert outer(x).asnumpy().tolist() == [[20]] * 2


def test_half_precision_leaves_norms_alone():
    block = SymbolBlock.imports(str(GOLDEN / "exported-symbol.json"), "data", str(GOLDEN / "exported-0000.params"))
    block.cast("float16")
    dtypes = {name: np.dtype(p.dtype).name for name, p in block.collect_params().items()}
    assert {d for n, d in dtypes.items() if "batchnorm" in n} == {"float32"}
    assert {d for n, d in dtypes.items() if "batchnorm" not in n} == {"float16"}


def test_inputs_must_be_variables():
    out = nn.Dense(2)(mx.sym.var("data"))
    with pytest.raises(AssertionError, match=r"Input symbols must be variable, but .* is an output of operators"):
        SymbolBlock(out, out)
