"""An MLP and a CNN classify small images."""

import tritium as mx
from formula import classes_of, fill, noise
from tritium import autograd, gluon
from tritium.gluon import nn

IMAGES = noise((96, 1, 10, 10))
LABELS = classes_of(IMAGES, 4)


def mlp():
    net = nn.Sequential()
    with net.name_scope():
        net.add(nn.Dense(32, activation="relu"), nn.Dense(16, activation="relu"), nn.Dense(4))
    return net


def cnn():
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Conv2D(8, kernel_size=3, activation="relu"), nn.MaxPool2D(2, 2),
                nn.Conv2D(16, kernel_size=3, activation="relu"), nn.Flatten(), nn.Dense(32, activation="relu"), nn.Dense(4))
    net.hybridize()
    return net


def train(net, epochs, learning_rate):
    """Return the mean loss and the accuracy of each epoch."""
    net.initialize(mx.init.Xavier())
    net(mx.nd.array(IMAGES[:1]))  # the shapes of the weights are known from here on
    fill(net, mx.nd.array, scale=1.4)
    loader = gluon.data.DataLoader(gluon.data.ArrayDataset(IMAGES, LABELS), batch_size=16)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": learning_rate, "momentum": 0.9})
    metric, figures = mx.metric.Accuracy(), []
    for _ in range(epochs):
        metric.reset()
        total = 0.0
        for x, y in loader:
            with autograd.record():
                output = net(x)
                loss = loss_of(output, y)
            loss.backward()
            trainer.step(x.shape[0])
            metric.update(y, output)
            total += loss.sum().asscalar()
        figures += [total / len(IMAGES), metric.get()[1]]
    return figures


def main():
    for name, make, rate in (("MLP", mlp, 0.1), ("CNN", cnn, 0.1)):
        print(name, *(f"{v:.4f}" for v in train(make(), 4, rate)))


if __name__ == "__main__":
    main()
