"""The body of a trained network of the model zoo, with a new last layer."""

import os
import tempfile

import tritium as mx
from formula import classes_of, fill, noise
from tritium import autograd, gluon
from tritium.gluon.model_zoo import vision


def trained(folder):
    """Write the parameters of a network, in place of a published file, and return their path."""
    net = vision.mobilenet0_25(classes=10)
    net.initialize()
    net(mx.nd.zeros((1, 3, 32, 32)))
    fill(net, mx.nd.array, scale=1.6)
    path = os.path.join(folder, "mobilenet.params")
    net.save_parameters(path)
    return path


def main():
    images = noise((16, 3, 32, 32))
    labels = classes_of(images, 2)
    with tempfile.TemporaryDirectory() as folder:
        source = vision.get_model("mobilenet0.25", classes=10)
        source.load_parameters(trained(folder))
    net = vision.get_model("mobilenet0.25", classes=2)
    net.features = source.features
    net.output.initialize()
    net(mx.nd.array(images[:1]))
    fill(net.output, mx.nd.array, scale=0.5)
    net.output.collect_params().setattr("lr_mult", 10)
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    net.features.collect_params().setattr("grad_req", "null")
    trainer = gluon.Trainer(net.output.collect_params(), "sgd", {"learning_rate": 0.02})
    for step in range(6):
        if step == 3:
            for name, p in net.features.collect_params().items():
                p.grad_req = "null" if "running" in name else "write"
            trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.0002})
        with autograd.record():
            loss = loss_of(net(mx.nd.array(images)), mx.nd.array(labels))
        loss.backward()
        trainer.step(16)
        print(f"{'all layers' if step >= 3 else 'last layer'}: {loss.mean().asscalar():.4f}")


if __name__ == "__main__":
    main()
