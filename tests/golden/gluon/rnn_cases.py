"""Every recurrent cell and layer on data and weights that follow from formulas: outputs, states, gradients, parameter names.

`python rnn_cases.py` with MXNet 1.9.1 installed records rnn_cases.npz and rnn_net*, which tests/gluon/rnn/test_golden.py reads.
The functions take the package as mx, so that the same code runs with both.
"""

import sys
from pathlib import Path

import numpy as np

T, N, C, H = 4, 3, 5, 6


def formula(shape, number):
    """A float32 array of this shape; another one for each number."""
    return (np.sin(np.arange(int(np.prod(shape))) * 0.71 + number) * 0.6).astype(np.float32).reshape(shape)


def cells(mx):
    """{name: a function that makes a block} of all cells that unroll."""
    rnn, more = mx.gluon.rnn, mx.gluon.contrib.rnn

    def stack(kind, *parts):
        whole = kind()
        for part in parts:
            whole.add(part)
        return whole

    return {
        "rnn": lambda: rnn.RNNCell(H), "rnn_relu": lambda: rnn.RNNCell(H, activation="relu", input_size=C),
        "rnn_softsign": lambda: rnn.RNNCell(H, activation="softsign"),
        "lstm": lambda: rnn.LSTMCell(H), "gru": lambda: rnn.GRUCell(H, prefix="mine_"),
        "lstm_relu": lambda: rnn.LSTMCell(H, activation="relu", recurrent_activation="softsign"),
        "stack": lambda: stack(rnn.SequentialRNNCell, rnn.LSTMCell(H), rnn.DropoutCell(0.3), rnn.GRUCell(H)),
        "hybrid_stack": lambda: stack(rnn.HybridSequentialRNNCell, rnn.GRUCell(H), rnn.ResidualCell(rnn.RNNCell(H))),
        "zoneout": lambda: rnn.ZoneoutCell(rnn.LSTMCell(H), 0.3, 0.2),
        "residual": lambda: rnn.ResidualCell(rnn.GRUCell(C)),
        "bidirectional": lambda: rnn.BidirectionalCell(rnn.LSTMCell(H, prefix="l_"), rnn.GRUCell(H, prefix="r_")),
        "vardrop": lambda: more.VariationalDropoutCell(rnn.LSTMCell(H), 0.2, 0.3, 0.4),
        "lstmp": lambda: more.LSTMPCell(H, 2),
    }


def conv_cells(mx):
    """{name: (function that makes a cell, shape of a step)}."""
    rnn = mx.gluon.contrib.rnn
    made = {}
    for dims, space in ((1, (5,)), (2, (4, 5)), (3, (3, 4, 3))):
        for kind in ("RNN", "LSTM", "GRU"):
            cls = getattr(rnn, f"Conv{dims}D{kind}Cell")
            made[f"conv{dims}_{kind.lower()}"] = (lambda cls=cls, space=space: cls((2, *space), 3, 3, 3, i2h_pad=1)), (2, *space)
    made["conv2_dilated"] = (lambda: rnn.Conv2DLSTMCell((2, 6, 5), 3, (3, 2), (3, 5), (1, 0), (2, 1), (1, 2),
                                                        activation="relu")), (2, 6, 5)
    return made


def layers(mx):
    """{name: (function that makes a layer, whether its input is [batch, time, features])}."""
    rnn = mx.gluon.rnn
    return {
        "layer_rnn": (lambda: rnn.RNN(H), False),
        "layer_rnn_tanh": (lambda: rnn.RNN(H, 2, activation="tanh", dropout=0.3), False),
        "layer_lstm": (lambda: rnn.LSTM(H), False), "layer_gru": (lambda: rnn.GRU(H, input_size=C), False),
        "layer_lstm_ntc": (lambda: rnn.LSTM(H, 2, layout="NTC", bidirectional=True, prefix="enc_"), True),
        "layer_gru_bi": (lambda: rnn.GRU(H, 2, bidirectional=True), False),
        "layer_lstm_proj": (lambda: rnn.LSTM(H, 2, projection_size=3), False),
        "layer_lstm_proj_bi": (lambda: rnn.LSTM(H, 2, projection_size=3, bidirectional=True), False),
    }


def fill(block):
    """Give every parameter its formula, in the order of collect_params."""
    for number, param in enumerate(block.collect_params().values()):
        param.data()[:] = formula(param.shape, number)


def results(mx, block, x, call, train=False):
    """{what: array} of a forward and backward. call(x) returns (outputs, states)."""
    x = mx.nd.array(x)
    call(x)  # shapes become known
    fill(block)
    x.attach_grad()
    with mx.autograd.record(train_mode=train):
        outputs, states = call(x)
        total = (outputs * mx.nd.array(formula(outputs.shape, 50))).sum()
        for i, state in enumerate(states):
            total = total + (state * mx.nd.array(formula(state.shape, 60 + i))).sum()
    total.backward()
    found = {"output": outputs, "dx": x.grad}
    found.update({f"state{i}": s for i, s in enumerate(states)})
    found.update({f"grad {name}": p.grad() for name, p in block.collect_params().items()})
    return {name: a.asnumpy() for name, a in found.items()}


def unrolled(mx, name, layout="NTC", valid=None, hybrid=False):
    """The results of a cell unrolled over time."""
    with mx.name.NameManager():
        cell = cells(mx)[name]()
    cell.initialize()
    if hybrid:
        cell.hybridize()
    x = formula((N, T, C) if layout == "NTC" else (T, N, C), 40)
    lengths = None if valid is None else mx.nd.array(valid)
    return results(mx, cell, x, lambda a: cell.unroll(T, a, layout=layout, merge_outputs=True, valid_length=lengths))


def conv_unrolled(mx, name, hybrid=False):
    """The results of a convolutional cell unrolled over two steps."""
    make, step = conv_cells(mx)[name]
    with mx.name.NameManager():
        cell = make()
    cell.initialize()
    if hybrid:
        cell.hybridize()
    return results(mx, cell, formula((1, 2, *step), 40),
                   lambda a: cell.unroll(2, a, layout="NTC" + "DHW"[-len(step) + 1:], merge_outputs=True))


def layered(mx, name, hybrid=False):
    """The results of a layer, from given states."""
    make, batch_first = layers(mx)[name]
    with mx.name.NameManager():
        layer = make()
    layer.initialize()
    if hybrid:
        layer.hybridize()
    begin = [mx.nd.array(formula(info["shape"], 70 + i)) for i, info in enumerate(layer.state_info(N))]
    x = formula((N, T, C) if batch_first else (T, N, C), 40)
    if "proj" in name:  # of which MXNet has no derivative on the CPU
        layer(mx.nd.array(x), begin)
        fill(layer)
        output, states = layer(mx.nd.array(x), begin)
        found = {"output": output.asnumpy(), **{f"state{i}": s.asnumpy() for i, s in enumerate(states)}}
    else:
        found = results(mx, layer, x, lambda a: layer(a, begin))
    if not hybrid:  # a traced layer keeps returning states
        found["without states"] = layer(mx.nd.array(x)).asnumpy()
    return found


def dynamic(mx, valid):
    """The results of dynamic_unroll."""
    with mx.name.NameManager():
        cell = mx.gluon.rnn.LSTMCell(H)
    cell.initialize()
    begin = [mx.nd.array(formula((N, H), 70 + i)) for i in range(2)]
    lengths = None if valid is None else mx.nd.array(valid)
    unroll = mx.gluon.contrib.rnn.rnn_cell.dynamic_unroll
    return results(mx, cell, formula((T, N, C), 40), lambda a: unroll(cell, a, begin, valid_length=lengths))


def names(mx):
    """{name: [names of parameters in files, repr]} of all blocks."""
    made = {}
    blocks = {**cells(mx), **{n: m for n, (m, _) in conv_cells(mx).items()}, **{n: m for n, (m, _) in layers(mx).items()}}
    for name, make in blocks.items():
        with mx.name.NameManager():
            block = make()
        made[name] = [*block.collect_params().keys(), *block._collect_params_with_prefix(), repr(block)]
    return made


def symbols(mx):
    """[names of outputs, arguments and inner nodes] of unrolled symbols: a stack and a cell twice, both directions, a layer."""
    rnn, x, found = mx.gluon.rnn, mx.sym.var("x"), []
    with mx.name.NameManager():
        stack = rnn.HybridSequentialRNNCell(prefix="s_")
        stack.add(rnn.LSTMCell(4, prefix="l_"))
        stack.add(rnn.ZoneoutCell(rnn.GRUCell(3, prefix="g_"), 0.2, 0.2))
        for _ in range(2):
            outputs, states = stack.unroll(2, x, merge_outputs=False)
            found.append(mx.sym.Group(list(outputs) + states))
        both = rnn.BidirectionalCell(rnn.LSTMCell(4, prefix="a_"), rnn.LSTMCell(4, prefix="b_"))
        found.append(both.unroll(2, [x, mx.sym.var("y")], merge_outputs=True)[0])
        cell = rnn.RNNCell(3, prefix="r_")
        found += [cell.unroll(2, x, merge_outputs=True)[0] for _ in range(2)]
        found.append(rnn.GRU(3, 2, prefix="gru_")(x))
    return [[s.list_outputs(), s.list_arguments(), s.get_internals().list_outputs()] for s in found]


def network(mx):
    """A hybridized network of layers and an unrolled cell, with weights by formula, and its input."""
    gluon = mx.gluon

    class Net(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.embedding = gluon.nn.Embedding(20, 6)
                self.lstm = gluon.rnn.LSTM(5, 2, layout="NTC", bidirectional=True)
                self.cell = gluon.rnn.LSTMCell(4)
                self.out = gluon.nn.Dense(3, flatten=False)

        def hybrid_forward(self, F, x):
            steps, _ = self.cell.unroll(7, self.lstm(self.embedding(x)), layout="NTC", merge_outputs=True)
            return self.out(steps)

    net, x = Net(prefix="net_"), mx.nd.array(np.arange(14).reshape(2, 7))
    net.initialize()
    net.hybridize()
    net(x)
    fill(net)
    return net, x


def every_case(mx):
    """{case: results} of all."""
    cases = {name: unrolled(mx, name) for name in cells(mx)}
    for name in ("lstm", "stack", "bidirectional", "residual"):
        cases[f"{name} TNC valid"] = unrolled(mx, name, "TNC", [2, 4, 1])
    cases.update({name: conv_unrolled(mx, name) for name in conv_cells(mx)})
    cases.update({name: layered(mx, name) for name in layers(mx)})
    cases["dynamic"] = dynamic(mx, None)
    cases["dynamic valid"] = dynamic(mx, [2, 4, 1])
    return cases


if __name__ == "__main__":
    import json

    import mxnet

    arrays = {f"{case}/{what}": a for case, found in every_case(mxnet).items() for what, a in found.items()}
    target = Path(__file__).with_suffix(".npz")
    net, x = network(mxnet)
    arrays["network/output"] = net(x).asnumpy()
    net.export(str(target.with_name("rnn_net")))
    net.save_parameters(str(target.with_name("rnn_net.params")))
    texts = {what: np.frombuffer(json.dumps(call(mxnet)).encode(), np.uint8)
             for what, call in (("names", names), ("symbols", symbols))}
    np.savez_compressed(target, **texts, **arrays)
    print(len(arrays), "arrays,", target.stat().st_size, "bytes", file=sys.stderr)
