"""Training and inference through gluon, beside the same network as a Symbol; and the cost of binding a Symbol again.

    python perf/bench_gluon.py [--mxnet PYTHON] [--case TEXT] [--pairs 3]

JSON lines: median and spread of seconds per call; MXNet runs in the same minute, in pairs with ours, and a line says how many
times as fast we are. Use OMP_NUM_THREADS=2 TRITIUM_NUM_WORKERS=2 for two threads each.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import common
import networks
import numpy

ROUNDS = 7
BATCH, WORDS, HIDDEN, BEAMS, LENGTH = 64, 1000, 256, 12, 20  # 12 beams: 4 of each of 3 sentences
Work = Callable[[], Any]


def lenet(nn: Any) -> Any:
    """The network of networks.lenet, as a block."""
    net = nn.HybridSequential()
    with net.name_scope():
        for filters in (20, 50):
            net.add(nn.Conv2D(filters, 5, activation="tanh"), nn.MaxPool2D(2, 2))
        net.add(nn.Dense(500, activation="tanh"), nn.Dense(networks.CLASSES))
    return net


def training(mx: Any, kind: str) -> Work:
    """Return a step of SGD with momentum. kind: "symbol", "hybridized" or "imperative"."""
    draw = numpy.random.RandomState(0)
    data = mx.nd.array(draw.uniform(0, 1, (BATCH, 1, 28, 28)).astype("float32"))
    label = mx.nd.array(draw.randint(0, networks.CLASSES, BATCH).astype("float32"))
    settings = {"learning_rate": 0.01, "momentum": 0.9}
    if kind == "symbol":
        module = mx.mod.Module(networks.lenet(mx), label_names=["softmax_label"])
        module.bind([("data", data.shape)], [("softmax_label", label.shape)])
        module.init_params(mx.init.Xavier())
        module.init_optimizer(optimizer="sgd", optimizer_params=settings)
        batch = mx.io.DataBatch([data], [label])

        def step() -> None:
            module.forward_backward(batch)
            module.update()
            module.get_outputs()[0].wait_to_read()
            module._exec_group.execs[0].arg_dict["fc0_weight"].wait_to_read()
        return step
    net, loss = lenet(mx.gluon.nn), mx.gluon.loss.SoftmaxCrossEntropyLoss()
    net.initialize(mx.init.Xavier())
    if kind == "hybridized":
        net.hybridize(static_alloc=True, static_shape=True)
        loss.hybridize(static_alloc=True, static_shape=True)
    net(data)
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", settings)
    weight = net[4].weight

    def train() -> None:
        with mx.autograd.record():
            cost = loss(net(data), label)
        cost.backward()
        trainer.step(BATCH)
        cost.wait_to_read()
        weight.data().wait_to_read()
    return train


def binding(mx: Any, then_run: bool) -> Work:
    """Return a bind of LeNet over the same arrays, for training; then_run: and a forward pass of one row, as in eval."""
    net = networks.lenet(mx)
    shapes = {"data": (1, 1, 28, 28), "softmax_label": (1,)}
    given, _, _ = net.infer_shape(**shapes)
    arrays = {n: mx.nd.ones(s) for n, s in zip(net.list_arguments(), given)}
    grads = {n: mx.nd.zeros(s) for n, s in zip(net.list_arguments(), given)}
    if then_run:
        return lambda: net.eval(ctx=mx.cpu(), **arrays)[0].wait_to_read()
    return lambda: net.bind(mx.cpu(), arrays, grads)


def decoding(mx: Any) -> Work:
    """Return a beam search of LENGTH small steps: an LSTM decoder, hybridized, and a choice of the best words after each step."""
    gluon, nd = mx.gluon, mx.nd

    class Decoder(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.words = gluon.nn.Embedding(WORDS, HIDDEN)
                self.cell = gluon.rnn.LSTMCell(HIDDEN, input_size=HIDDEN)
                self.out = gluon.nn.Dense(WORDS, in_units=HIDDEN)

        def hybrid_forward(self, F: Any, word: Any, h: Any, c: Any) -> Any:
            y, (h, c) = self.cell(self.words(word), [h, c])
            return F.log_softmax(self.out(y)), h, c

    decoder = Decoder()
    decoder.initialize(mx.init.Xavier())
    decoder.hybridize(static_alloc=True)

    def search() -> None:
        word, score = nd.zeros((BEAMS,)), nd.zeros((BEAMS, 1))
        h = c = nd.zeros((BEAMS, HIDDEN))
        each = BEAMS // 3
        for _ in range(LENGTH):
            scores, h, c = decoder(word, h, c)
            total = (scores + score).reshape((3, each * WORDS))
            best, at = nd.topk(total, k=each, ret_typ="both")
            rows = (nd.floor(at / WORDS) + nd.array([[0], [each], [2 * each]])).reshape((-1,))
            word, score = (at % WORDS).reshape((-1,)), best.reshape((-1, 1))
            h, c = nd.take(h, rows), nd.take(c, rows)
        word.wait_to_read()
    return search


def works(mx: Any) -> dict[str, tuple[Callable[[], Work], int]]:
    """Return the cases: what makes the work, and how many calls are a round."""
    steps = {f"LeNet {BATCH}, step, {kind}": (lambda kind=kind: training(mx, kind), 10)
             for kind in ("symbol", "hybridized", "imperative")}
    return {**steps, "LeNet, bind again": (lambda: binding(mx, False), 20), "LeNet, eval again": (lambda: binding(mx, True), 20),
            f"beam search, {LENGTH} steps": (lambda: decoding(mx), 3)}


def measure(package: str, text: str) -> list[dict[str, Any]]:
    """Print and return one line per case whose name contains text, of one package in this process."""
    if package == "mxnet":
        import mxnet as mx  # type: ignore[import-not-found]
    else:
        import tritium as mx
    made = {case: (make(), calls) for case, (make, calls) in works(mx).items() if text in case}
    seconds: dict[str, list[float]] = {case: [] for case in made}
    for k in range(ROUNDS + 1):  # in turn, so that a slow moment of the machine does not fall on one case alone
        for case, (work, calls) in made.items():
            measured = common.rounds_of(work, calls=calls, rounds=1, warmup=5 if k == 0 else 1)
            seconds[case] += measured if k else []
    return [common.emit("gluon", values, case=case, package=package) for case, values in seconds.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mxnet", help="a Python with MXNet")
    parser.add_argument("--case", default="", help="only cases whose names contain this")
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--only", help="the package to measure in this process")
    given = parser.parse_args()
    if given.only:
        measure(given.only, given.case)
        return
    common.say(common.machine())
    ours: dict[str, list[Any]] = {}
    peers: dict[str, list[Any]] = {}
    for _ in range(given.pairs):
        for python, package, lines in ((sys.executable, "tritium", ours), (given.mxnet, "mxnet", peers)):
            for line in common.run_peer(python, __file__, "--only", package, "--case", given.case) if python else ():
                lines.setdefault(line["case"], []).append(line)
    for case in ours.keys() & peers.keys():
        common.ratio("gluon", ours[case], peers[case], case=case)
    symbol = ours.get(f"LeNet {BATCH}, step, symbol")
    hybrid = ours.get(f"LeNet {BATCH}, step, hybridized")
    if symbol and hybrid:
        common.say({"bench": "gluon", "case": "LeNet, time of hybridized / symbol",
                    "ratio": common.median_and_spread([h["median_s"] / s["median_s"] for h, s in zip(hybrid, symbol)])[0],
                    "ratio_of_best": min(h["best_s"] for h in hybrid) / min(s["best_s"] for s in symbol)})


if __name__ == "__main__":
    main()
