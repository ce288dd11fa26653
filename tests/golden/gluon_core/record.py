"""Record what MXNet 1.9.1 does: `python record.py` with MXNet's Python, in this folder.

Writes trainer.json (steps of Trainer), net.params (save_parameters), prefixed.params (save_params), exported-* (export) and
outputs.json.
"""

import json
import warnings
from pathlib import Path

import mxnet as mx
from cases import OPTIMIZERS, data, fill, network, train

HERE = Path(__file__).parent


def main():
    assert mx.__version__ == "1.9.1", mx.__version__
    found = {name: train(mx, name) for name in OPTIMIZERS}
    found["two contexts"] = train(mx, "sgd", contexts=[mx.cpu(0), mx.cpu(1)])
    (HERE / "trainer.json").write_text(json.dumps(found) + "\n")
    net, (x, _) = network(mx), data(mx)
    net.initialize()
    net.hybridize()
    net(x)
    fill(mx, net)
    outputs = net(x).asnumpy()
    net.save_parameters(str(HERE / "net.params"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.save_params(str(HERE / "prefixed.params"))
    net.export(str(HERE / "exported"))
    symbol = mx.sym.load(str(HERE / "exported-symbol.json"))
    (HERE / "outputs.json").write_text(json.dumps({
        "outputs": outputs.tolist(), "parameters": list(net.collect_params().keys()),
        "structural": list(net._collect_params_with_prefix()), "arguments": symbol.list_arguments(),
        "internals": symbol.get_internals().list_outputs(), "repr": repr(net.collect_params())}) + "\n")


main()
