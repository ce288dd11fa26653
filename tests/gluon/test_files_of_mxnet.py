"""Files that MXNet 1.9.1 wrote for a small network (tests/golden/gluon/net*), and ours of the same network."""

import json
from pathlib import Path

import numpy as np
import tritium as mx
from golden.gluon.cases import fill, in_files, noise

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


def test_a_graph_with_mxnets_fused_batchnorm_is_read():
    names = ["data", "n_gamma", "n_beta", "n_running_mean", "n_running_var"]
    nodes = [{"op": "null", "name": n, "inputs": []} for n in names]
    nodes.append({"op": "_contrib_BatchNormWithReLU", "name": "n_fwd", "inputs": [[i, 0, int(i > 2)] for i in range(5)],
                  "attrs": {"axis": "1", "eps": "1e-05", "fix_gamma": "False", "momentum": "0.9", "use_global_stats": "False"}})
    text = {"nodes": nodes, "arg_nodes": [0, 1, 2, 3, 4], "heads": [[5, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}}
    net = mx.gluon.SymbolBlock(mx.sym.load_json(json.dumps(text)), mx.sym.var("data"))
    own = mx.gluon.nn.BatchNormReLU(in_channels=3)
    for block in (net, own):
        block.initialize()
        block(mx.nd.ones((2, 3, 2)))
        fill(mx, block)
    for p in own.collect_params().values():
        net.params[p.name.replace(own.prefix, "n_")].set_data(p.data())
    x = mx.nd.array(noise((2, 3, 2)))
    y = net(x).asnumpy()
    np.testing.assert_array_equal(y, own(x).asnumpy())
    assert (y == 0).any() and (y > 0).any()
