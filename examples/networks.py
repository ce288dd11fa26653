"""The networks of the demo, as Symbols. Input: `data` [batch, 1, 8, 8]. Output: probabilities [batch, classes]."""

import tritium as mx


def centred():
    """Return the input, with pixels scaled from 0..1 to -1..1."""
    return 2 * mx.sym.Variable("data") - 1


def mlp(classes=10):
    """Return a network with two hidden layers, of 128 and 64."""
    x = mx.sym.Flatten(centred())
    for i, hidden in enumerate((128, 64), 1):
        x = mx.sym.FullyConnected(x, num_hidden=hidden, name=f"fc{i}")
        x = mx.sym.Activation(x, act_type="relu", name=f"relu{i}")
    x = mx.sym.FullyConnected(x, num_hidden=classes, name="fc3")
    return mx.sym.SoftmaxOutput(x, name="softmax")


def lenet(classes=10):
    """Return LeNet for 8 × 8 images: two blocks of convolution, tanh and max pooling, then two fully connected layers."""
    x = centred()
    for i, filters in enumerate((16, 32), 1):
        x = mx.sym.Convolution(x, num_filter=filters, kernel=(3, 3), pad=(1, 1), name=f"conv{i}")
        x = mx.sym.Activation(x, act_type="tanh", name=f"tanh{i}")
        x = mx.sym.Pooling(x, pool_type="max", kernel=(2, 2), stride=(2, 2), name=f"pool{i}")
    x = mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=64, name="fc1")
    x = mx.sym.Activation(x, act_type="tanh", name="tanh3")
    x = mx.sym.FullyConnected(x, num_hidden=classes, name="fc2")
    return mx.sym.SoftmaxOutput(x, name="softmax")


NETWORKS = {"mlp": mlp, "lenet": lenet}
