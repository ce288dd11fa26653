"""A hybridized network is exported, and read back without its code: as a SymbolBlock, as a Module, and for its features alone."""

import os
import tempfile

import tritium as mx
from formula import fill, noise
from tritium import gluon
from tritium.gluon import nn


def network():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(6, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(), nn.Flatten(),
                nn.Dense(8, activation="tanh"), nn.Dense(3))
    return net


def show(name, y):
    print(f"{name}:", *(f"{v:.4f}" for v in y.asnumpy().ravel()))


def main():
    x = mx.nd.array(noise((2, 1, 8, 8)))
    net = network()
    net.initialize()
    net(x)
    fill(net, mx.nd.array, scale=1.4)
    net.hybridize()
    show("network", net(x))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net")
        net.export(path, epoch=3)
        print(sorted(os.listdir(folder)))
        deployed = gluon.SymbolBlock.imports(path + "-symbol.json", ["data"], path + "-0003.params")
        symbol, arg_params, aux_params = mx.model.load_checkpoint(path, 3)
    show("SymbolBlock", deployed(x))
    module = mx.mod.Module(symbol, label_names=None)
    module.bind(data_shapes=[("data", x.shape)], for_training=False)
    module.set_params(arg_params, aux_params)
    module.forward(mx.io.DataBatch([x]), is_train=False)
    show("Module", module.get_outputs()[0])
    inner = symbol.get_internals()
    last = next(n for n in inner.list_outputs() if n.endswith("tanh_fwd_output"))
    features = gluon.SymbolBlock(inner[last], mx.sym.var("data"))
    for name, p in features.collect_params().items():
        p._load_init({**arg_params, **aux_params}[name], mx.cpu())
    show("features", features(x))


if __name__ == "__main__":
    main()
