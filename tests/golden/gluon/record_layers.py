"""Record what MXNet 1.9.1 computes for every case of cases.py: `python record_layers.py` with MXNet's Python, in this folder.

Writes layers.npz, losses.npz (arrays), text.json (repr and names of parameters), zoo.json.gz (parameters of all networks) and
outputs.json (outputs of some), net* (the files of a small network).
"""

import gzip
import json
import sys
from pathlib import Path

import mxnet as mx
import numpy as np
from cases import FORWARD_ALONE, OUTPUTS, embeddings, fill, in_files, layers, losses, noise, parameters, run, write, zoo

HERE = Path(__file__).parent


def layer(make, arrays, hold):
    """Run one layer; its repr before and after its shapes are known, and the names of its parameters."""
    net = make()
    before = repr(net)
    net.initialize()
    net(*[mx.nd.array(a) for a in arrays])
    fill(mx, net)
    hold.update(before=before, after=repr(net), prefix=net.prefix, names=list(net.collect_params()))
    return net


def main():
    assert mx.__version__ == "1.9.1", mx.__version__
    text, stored = {}, {}
    for name, (make, shapes) in layers(mx).items():
        with mx.name.NameManager():
            arrays = [noise(s, 50 + i) for i, s in enumerate(shapes)]
            net = layer(make, arrays, text.setdefault(name, {}))
            found = run(mx, net, arrays, backward=name not in FORWARD_ALONE)
            stored.update({f"{name}.{k}": v for k, v in found.items() if name != "dropout" or k == "infer"})
    for name, (make, integers) in embeddings(mx).items():
        with mx.name.NameManager():
            net = make()
            hold = text[name] = {"before": repr(net), "prefix": net.prefix, "names": list(net.collect_params())}
            net.initialize()
            weight = net.weight
            if name == "sparseembedding":
                trainer = mx.gluon.Trainer(net.collect_params(), "sgd")
                weight.set_data(mx.nd.array(noise(weight.shape, 1)).tostype("row_sparse"))
                net(mx.nd.array(integers))
                del trainer
            else:
                fill(mx, net)
            hold["after"] = repr(net)
            with mx.autograd.record():
                out = net(mx.nd.array(integers))
            out.backward(mx.nd.array(noise(out.shape, 99)))
            stored[f"{name}.out"], stored[f"{name}.p0"] = out.asnumpy(), weight.grad().tostype("default").asnumpy()
    write(HERE / "layers.npz", stored)

    stored = {}
    for name, (make, arrays) in losses(mx).items():
        loss = make()
        text[f"loss.{name}"] = {"before": repr(loss)}
        found = run(mx, loss, arrays, parameters=False, backward=name not in FORWARD_ALONE)
        stored.update({f"{name}.{k}": v for k, v in found.items()})
    write(HERE / "losses.npz", stored)
    (HERE / "text.json").write_text(json.dumps(text, separators=(",", ":")) + "\n")

    net, x = in_files(mx)
    net.save_parameters(str(HERE / "net.params"))
    net.hybridize()
    np.save(HERE / "net-output.npy", net(x).asnumpy())
    net.export(str(HERE / "net"))

    networks, outputs = {}, {}
    for name in zoo():
        with mx.name.NameManager():
            net = mx.gluon.model_zoo.vision.get_model(name)
        size = 299 if name == "inceptionv3" else 224
        net.infer_shape(mx.nd.zeros((1, 3, size, size)))
        networks[name] = {"prefix": net.prefix, "parameters": parameters(net)}
        if name in OUTPUTS:
            net = mx.gluon.model_zoo.vision.get_model(name, classes=10)
            net.initialize()
            x = mx.nd.array(noise((1, 3, OUTPUTS[name], OUTPUTS[name]), 7))
            net(x)
            fill(mx, net, scale_by_fan_in=True)
            outputs[name] = [float(f"{v:.7g}") for v in net(x).asnumpy()[0]]
    with gzip.GzipFile(HERE / "zoo.json.gz", "wb", mtime=0) as f:
        f.write(json.dumps(networks, separators=(",", ":")).encode())
    (HERE / "outputs.json").write_text(json.dumps(outputs, indent=0) + "\n")


if __name__ == "__main__":
    sys.exit(main())
