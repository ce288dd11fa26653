"""Four small batches for one update: gradients are added, and the norm of their sum is clipped."""

import tritium as mx
from formula import classes_of, fill, noise
from tritium import autograd, gluon
from tritium.gluon import nn


def train(size, count):
    """Return the norm of the gradients, and the last loss, with `count` batches of `size` items for each update."""
    x = noise((64, 10))
    labels = classes_of(x, 4)
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Dense(20, activation="relu"), nn.Dense(4))
    net.initialize()
    net(mx.nd.array(x))
    fill(net, mx.nd.array, scale=1.4)
    params = net.collect_params()
    params.setattr("grad_req", "add")
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(params, "sgd", {"learning_rate": 0.5, "wd": 1e-3})
    figures = []
    for i in range(64 // size):
        part = slice(i * size, (i + 1) * size)
        with autograd.record():
            loss = loss_of(net(mx.nd.array(x[part])), mx.nd.array(labels[part]))
        loss.backward()
        if (i + 1) % count == 0:
            norm = gluon.utils.clip_global_norm([p.grad() for p in params.values()], max_norm=10)
            trainer.step(size * count)
            params.zero_grad()
            figures.append(float(norm))
    return [*figures, loss.mean().asscalar()]


def main():
    for size, count in ((4, 4), (16, 1)):
        print(f"{count} x {size}:", *(f"{v:.4f}" for v in train(size, count)))


if __name__ == "__main__":
    main()
