"""A small network, and steps of Trainer with many optimizers, for MXNet and for Tritium alike."""

import numpy as np

OPTIMIZERS = {
    "sgd": {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}, "nag": {"learning_rate": 0.1, "momentum": 0.9},
    "adam": {"learning_rate": 0.01}, "rmsprop": {"learning_rate": 0.01}, "adagrad": {"learning_rate": 0.1}, "adadelta": {},
    "ftml": {}, "ftrl": {}, "signum": {"learning_rate": 0.02}, "nadam": {}, "lamb": {},
}


def network(mx, prefix="net_"):
    """A convolution, BatchNorm, pooling and two dense layers."""
    nn = mx.gluon.nn
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(nn.Conv2D(4, 3, activation="relu"), nn.BatchNorm(), nn.MaxPool2D(2), nn.Dense(8, activation="tanh"), nn.Dense(3))
    return net


def data(mx):
    """Return a batch of images and its labels."""
    return mx.nd.array(np.random.RandomState(3).rand(6, 1, 8, 8)), mx.nd.array([0, 1, 2, 0, 1, 2])


def fill(mx, net):
    """Write numbers that any NumPy draws alike into all parameters; variances stay positive."""
    rng = np.random.RandomState(1)
    for _, param in sorted(net._collect_params_with_prefix().items()):
        values = rng.uniform(-0.5, 0.5, param.shape)
        param.set_data(mx.nd.array(np.abs(values) + 0.1 if "var" in param.name else values))


def train(mx, name, hybridize=False, contexts=None):
    """Return the losses of three steps, and a weight afterwards."""
    net = network(mx)
    net.initialize(ctx=contexts or [mx.cpu()])
    net.hybridize(hybridize)
    x, y = data(mx)
    parts = [mx.gluon.utils.split_and_load(a, contexts or [mx.cpu()]) for a in (x, y)]
    for part in parts[0]:
        net(part)
    fill(mx, net)
    trainer = mx.gluon.Trainer(net.collect_params(), name, dict(OPTIMIZERS[name]))
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for _ in range(3):
        with mx.autograd.record():
            costs = [loss(net(a), b) for a, b in zip(*parts)]
        mx.autograd.backward(costs)
        trainer.step(len(x))
        losses += [float(v) for c in costs for v in c.asnumpy()]
    return {"losses": losses, "weight": net[3].weight.data(mx.cpu(0)).asnumpy()[:2, :4].reshape(-1).tolist()}
