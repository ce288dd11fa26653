"""The networks that bench_train.py trains, in MXNet's names, and what each is fed."""

from __future__ import annotations

CLASSES, WORDS, STEPS, HIDDEN = 10, 1000, 35, 256  # of the images; of the language model


def mlp(mx):
    """784 - 512 - 256 - 10, rectified."""
    x = mx.sym.Flatten(mx.sym.Variable("data"))
    for i, hidden in enumerate((512, 256)):
        x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=hidden, name=f"fc{i}"), act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=CLASSES, name="out"), name="softmax")


def lenet(mx):
    """LeNet for 28 × 28: 20 and 50 filters of 5 × 5, 500 hidden."""
    x = mx.sym.Variable("data")
    for i, filters in enumerate((20, 50)):
        x = mx.sym.Convolution(x, kernel=(5, 5), num_filter=filters, name=f"conv{i}")
        x = mx.sym.Activation(x, act_type="tanh")
        x = mx.sym.Pooling(x, pool_type="max", kernel=(2, 2), stride=(2, 2))
    x = mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=500, name="fc0")
    x = mx.sym.Activation(x, act_type="tanh")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=CLASSES, name="out"), name="softmax")


def resnet20(mx):
    """The CIFAR ResNet with pre-activation: three stages of three units, 16, 32 and 64 filters."""
    def convolution(x, filters, kernel, stride, pad, name):
        return mx.sym.Convolution(x, num_filter=filters, kernel=kernel, stride=stride, pad=pad, no_bias=True, name=name)

    def rectified(x, name):
        return mx.sym.Activation(mx.sym.BatchNorm(x, fix_gamma=False, eps=2e-5, name=name), act_type="relu")

    x = convolution(mx.sym.Variable("data"), 16, (3, 3), (1, 1), (1, 1), "conv0")
    for stage, filters in enumerate((16, 32, 64)):
        for unit in range(3):
            name, stride = f"s{stage}u{unit}", (2, 2) if stage and not unit else (1, 1)
            a = rectified(x, name + "_bn1")
            y = convolution(a, filters, (3, 3), stride, (1, 1), name + "_conv1")
            y = convolution(rectified(y, name + "_bn2"), filters, (3, 3), (1, 1), (1, 1), name + "_conv2")
            x = y + (convolution(a, filters, (1, 1), stride, (0, 0), name + "_sc") if stage and not unit else x)
    x = mx.sym.Pooling(rectified(x, "bn1"), global_pool=True, kernel=(7, 7), pool_type="avg")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=CLASSES, name="out"), name="softmax")


def tiny_deep(mx):
    """x · 1.01 + 0.01, tanh, a hundred times over, on 32 numbers a sample."""
    x = mx.sym.FullyConnected(mx.sym.Flatten(mx.sym.Variable("data")), num_hidden=32, name="fc0")
    for _ in range(100):
        x = mx.sym.Activation(x * 1.01 + 0.01, act_type="tanh")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=CLASSES, name="out"), name="softmax")


def chain(mx):
    """200 elementwise operators in a row, on 32 numbers a sample: x · 1.001, + 0.001, in turn."""
    x = mx.sym.FullyConnected(mx.sym.Flatten(mx.sym.Variable("data")), num_hidden=32, name="fc0")
    for _ in range(100):
        x = x * 1.001 + 0.001
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=CLASSES, name="out"), name="softmax")


def resnet50(mx):
    """ResNet-50 for 224 × 224: bottlenecks, 3, 4, 6 and 3 of them."""
    def convolution(x, filters, kernel, stride, name):
        x = mx.sym.Convolution(x, num_filter=filters, kernel=(kernel, kernel), stride=(stride, stride),
                               pad=(kernel // 2, kernel // 2), no_bias=True, name=name)
        return mx.sym.BatchNorm(x, fix_gamma=False, eps=1e-5, name=name + "_bn")

    def rectified(x):
        return mx.sym.Activation(x, act_type="relu")

    x = rectified(convolution(mx.sym.Variable("data"), 64, 7, 2, "conv0"))
    x = mx.sym.Pooling(x, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max")
    for stage, units in enumerate((3, 4, 6, 3)):
        filters = 64 << stage
        for unit in range(units):
            name, stride = f"s{stage}u{unit}", 2 if stage and not unit else 1
            y = rectified(convolution(x, filters, 1, 1, name + "_a"))
            y = convolution(rectified(convolution(y, filters, 3, stride, name + "_b")), 4 * filters, 1, 1, name + "_c")
            x = rectified(y + (x if unit else convolution(x, 4 * filters, 1, stride, name + "_sc")))
    x = mx.sym.Pooling(x, global_pool=True, kernel=(7, 7), pool_type="avg")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=CLASSES, name="out"), name="softmax")


def _language_model(mx, unroll):
    """A language model of two layers; unroll(x) gives their outputs, [batch, steps, hidden]."""
    x = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=WORDS, output_dim=HIDDEN, name="embed")
    y = mx.sym.FullyConnected(mx.sym.Reshape(unroll(x), shape=(-1, HIDDEN)), num_hidden=WORDS, name="out")
    return mx.sym.SoftmaxOutput(y, mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,)), name="softmax")


def lstm(mx):
    """The language model with the fused operator."""
    cell = mx.rnn.FusedRNNCell(HIDDEN, num_layers=2, mode="lstm", prefix="lstm_")
    return _language_model(mx, lambda x: cell.unroll(STEPS, x, layout="NTC", merge_outputs=True)[0])


def lstm_cells(mx):
    """The language model, unrolled cell by cell."""
    cells = mx.rnn.SequentialRNNCell()
    for layer in range(2):
        cells.add(mx.rnn.LSTMCell(HIDDEN, prefix=f"lstm{layer}_"))
    return _language_model(mx, lambda x: cells.unroll(STEPS, x, layout="NTC", merge_outputs=True)[0])


NETS = {f.__name__: f for f in (mlp, lenet, resnet20, resnet50, lstm, lstm_cells, tiny_deep, chain)}
SHAPES = {"mlp": (1, 28, 28), "lenet": (1, 28, 28), "resnet20": (3, 32, 32), "resnet50": (3, 224, 224), "lstm": (STEPS,),
          "lstm_cells": (STEPS,), "tiny_deep": (1, 8, 8), "chain": (1, 8, 8)}
BATCH = {"resnet50": 8}  # of the others: 64


def classes(net):
    """Return the number of classes, and the shape of the labels of a sample."""
    return (WORDS, (STEPS,)) if net.startswith("lstm") else (CLASSES, ())
