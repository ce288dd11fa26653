"""Files that MXNet 1.9.1 wrote for a small network (tests/golden/gluon/net*), and ours of the same network."""

from pathlib import Path

import numpy as np
import tritium as mx
from golden.gluon.cases import in_files

GOLDEN = Path(__file__).parents[1] / "golden" / "gluon"
OUTPUT = np.load(GOLDEN / "net-output.npy")


def same(y):
    np.testing.assert_allclose(y.asnumpy(), OUTPUT, 1e-4, 1e-5)


def test_parameters_have_mxnets_bytes(tmp_path):
    net, _ = in_files(mx)
    net.save_parameters(str(tmp_path / "p"))
    assert (tmp_path / "p").read_bytes() == (GOLDEN / "net.params").read_bytes()


def test_parameters_of_mxnet_are_read():
    net, x = in_files(mx)
    for p in net.collect_params().values():
        p.set_data(mx.nd.zeros(p.shape))
    net.load_parameters(str(GOLDEN / "net.params"))
    same(net(x))


def test_an_exported_graph_of_mxnet_is_read():
    _, x = in_files(mx)
    net = mx.gluon.SymbolBlock.imports(str(GOLDEN / "net-symbol.json"), ["data"], str(GOLDEN / "net-0000.params"))
    same(net(x))


def test_an_exported_graph_has_mxnets_parameters_and_inputs(tmp_path):
    net, x = in_files(mx)
    net.hybridize()
    same(net(x))
    net.export(str(tmp_path / "net"))
    ours, theirs = (mx.nd.load(str(folder / "net-0000.params")) for folder in (tmp_path, GOLDEN))
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name].asnumpy(), array.asnumpy())
    ours, theirs = (mx.sym.load(str(folder / "net-symbol.json")) for folder in (tmp_path, GOLDEN))
    assert ours.list_inputs() == theirs.list_inputs() and ours.list_outputs() == theirs.list_outputs()
