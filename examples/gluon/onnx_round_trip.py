"""A network goes to an ONNX file, is run by ONNX Runtime if that is installed, and comes back as a block."""

import importlib.util
import os
import tempfile

import numpy as np
import tritium as mx
from formula import fill, noise
from tritium.contrib import onnx as mx_onnx
from tritium.gluon.model_zoo import vision

IMAGES = noise((2, 3, 64, 64))


def network():
    net = vision.mobilenet0_25(classes=5)
    net.initialize()
    net(mx.nd.array(IMAGES))  # the shapes of the weights are known from here on
    fill(net, mx.nd.array, scale=1.4)
    net.hybridize()
    net(mx.nd.array(IMAGES))
    return net


def run_by_onnx_runtime(path):
    """Return the outputs, or None if ONNX Runtime is not installed."""
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"data": IMAGES})[0]


def main():
    net = network()
    expected = net(mx.nd.array(IMAGES)).asnumpy()
    with tempfile.TemporaryDirectory() as folder:
        prefix, path = os.path.join(folder, "mobilenet"), os.path.join(folder, "mobilenet.onnx")
        net.export(prefix)
        mx_onnx.export_model(f"{prefix}-symbol.json", f"{prefix}-0000.params", [IMAGES.shape], np.float32, path)
        print("inputs and outputs", mx_onnx.get_model_metadata(path))
        found = run_by_onnx_runtime(path)
        if found is not None:
            print(f"ONNX Runtime: the largest difference is {abs(found - expected).max():.4f}")
        back = mx_onnx.import_to_gluon(path, ctx=mx.cpu())
    print(f"back as a block: the largest difference is {abs(back(mx.nd.array(IMAGES)).asnumpy() - expected).max():.4f}")


if __name__ == "__main__":
    main()
