"""A network is trained in float16 with a scaled loss, and then converted for inference. On a GPU this is faster."""

import tritium as mx
from formula import classes_of, fill, noise
from tritium import autograd, gluon
from tritium.contrib import amp
from tritium.gluon import nn

IMAGES = noise((96, 1, 10, 10))
LABELS = classes_of(IMAGES, 4)
CTX = mx.gpu() if mx.context.num_gpus() else mx.cpu()


def network():
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Conv2D(8, kernel_size=3, in_channels=1), nn.BatchNorm(in_channels=8), nn.Activation("relu"), nn.Flatten(),
                nn.Dense(32, activation="relu", in_units=512), nn.Dense(4, in_units=32))
    net.initialize(mx.init.Xavier(), ctx=CTX)
    fill(net, mx.nd.array, scale=1.4)
    return net


def train(net, scaled, epochs=4):
    """Return the mean loss of each epoch. scaled: by amp, for gradients that float16 cannot hold otherwise."""
    net.hybridize()
    loader = gluon.data.DataLoader(gluon.data.ArrayDataset(IMAGES, LABELS), batch_size=16)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9})
    if scaled:
        amp.init_trainer(trainer)
    figures = []
    for _ in range(epochs):
        total = 0.0
        for x, y in loader:
            x, y = x.as_in_context(CTX), y.as_in_context(CTX)
            with autograd.record():
                loss = loss_of(net(x), y).mean()
                if scaled:
                    with amp.scale_loss(loss, trainer) as scaled_loss:
                        autograd.backward(scaled_loss)
                else:
                    autograd.backward(loss)
            trainer.step(1)
            total += loss.asscalar() * len(x)
        figures.append(total / len(IMAGES))
    return figures


def main():
    net = network()
    single = train(net, scaled=False)
    print("float32", *(f"{v:.3f}" for v in single))
    half = amp.convert_hybrid_block(net, "float16", cast_optional_params=True)
    x = mx.nd.array(IMAGES, ctx=CTX)
    same = (half(x).argmax(axis=1) == net(x).argmax(axis=1)).mean().asscalar()
    print(f"converted for inference: {same:.2f} of the classes are the same")
    amp.init("float16")
    print("float16", *(f"{v:.3f}" for v in train(network(), scaled=True)))


if __name__ == "__main__":
    main()
