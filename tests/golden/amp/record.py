"""Record the networks that MXNet's amp.convert_symbol gives: `python record.py`, with MXNet 1.9.1 installed."""

import json
from pathlib import Path


def networks(sym):
    """Return networks by name."""
    x = sym.Variable("data")
    conv = sym.Convolution(x, kernel=(3, 3), num_filter=2, name="conv")
    norm = sym.BatchNorm(conv, name="norm")
    rectified = sym.Activation(norm, act_type="relu", name="rectified")
    summed = sym.elemwise_add(rectified, conv, name="summed")
    soft = sym.Activation(summed, act_type="softrelu", name="soft")
    dense = sym.FullyConnected(sym.sum(soft, axis=(2, 3), name="pooled"), num_hidden=3, name="dense")
    prelu = sym.LeakyReLU(sym.Convolution(x, kernel=(1, 1), num_filter=2, name="c1"), act_type="prelu", name="prelu")
    mean = sym.mean(x, axis=1, keepdims=True, name="m")
    wide = sym.broadcast_add(sym.FullyConnected(x, num_hidden=2, name="f1"), mean, name="wide")
    return {"residual": sym.SoftmaxOutput(dense, name="softmax"), "prelu": sym.FullyConnected(prelu, num_hidden=2, name="f2"),
            "wide": sym.FullyConnected(wide, num_hidden=2, name="f3")}


CASES = [("residual", {}), ("residual", {"cast_optional_params": True}), ("residual", {"excluded_sym_names": ["dense"]}),
         ("residual", {"target_dtype": "bfloat16"}), ("prelu", {}), ("prelu", {"cast_optional_params": True}), ("wide", {}),
         ("residual", {"fp32_ops": ["sum", "mean", "BatchNorm"]})]


def results(sym, convert):
    """Return [[operator, name, dtype of a cast, inputs as names], ...] of each case."""
    nets = networks(sym)
    for name, settings in CASES:
        made = convert(nets[name], data_names=["data"], **settings)
        nodes = json.loads(made.tojson(remove_amp_cast=False))["nodes"]
        yield [[n["op"], n["name"], n.get("attrs", {}).get("dtype"), n.get("attrs", {}).get("__dtype__"),
                [f"{nodes[i]['name']}:{k}" for i, k, *_ in n["inputs"]]] for n in nodes]


if __name__ == "__main__":
    import mxnet as mx
    from mxnet.contrib import amp

    Path(__file__).with_name("converted.json").write_text(
        "[\n" + ",\n".join(map(json.dumps, results(mx.sym, amp.convert_symbol))) + "\n]\n")
