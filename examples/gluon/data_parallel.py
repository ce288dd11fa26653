"""One batch on two contexts: each computes gradients of its half, and a KVStore adds them."""

import tritium as mx
from formula import classes_of, fill, noise
from tritium import autograd, gluon
from tritium.gluon import nn


def train(contexts):
    """Return the loss of each step."""
    x = noise((64, 12))
    labels = classes_of(x, 3)
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Dense(24, activation="relu", in_units=12), nn.Dense(3, in_units=24))
    net.initialize(ctx=contexts)
    fill(net, mx.nd.array, scale=1.4)
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.3, "momentum": 0.9}, kvstore="device")
    figures = []
    for _ in range(2):
        for start in range(0, 64, 16):
            data = gluon.utils.split_and_load(x[start:start + 16], contexts)
            target = gluon.utils.split_and_load(labels[start:start + 16], contexts)
            with autograd.record():
                losses = [loss_of(net(d), t) for d, t in zip(data, target)]
            autograd.backward(losses)
            trainer.step(16)
            figures.append(sum(loss.sum().asscalar() for loss in losses) / 16)
    return figures


def main():
    for contexts in ([mx.cpu(0)], [mx.cpu(0), mx.cpu(1)]):
        print(len(contexts), *(f"{v:.4f}" for v in train(contexts)))


if __name__ == "__main__":
    main()
