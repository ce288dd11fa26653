"""One body with two heads: the class of an image, and its sum. Both losses train the body."""

import tritium as mx
from formula import classes_of, fill, noise
from tritium import autograd, gluon
from tritium.gluon import nn


class TwoHeads(gluon.HybridBlock):
    """A shared layer, then a layer per task."""

    def __init__(self, classes, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.HybridSequential()
            with self.body.name_scope():
                self.body.add(nn.Dense(24, activation="relu"), nn.Dense(16, activation="relu"))
            self.classes = nn.Dense(classes)
            self.amount = nn.Dense(1)

    def hybrid_forward(self, F, x):
        features = self.body(x)
        return self.classes(features), self.amount(features)


def main():
    x = noise((64, 12))
    labels, amounts = classes_of(x, 3), x.sum(axis=1)
    net = TwoHeads(3)
    net.initialize(mx.init.Xavier())
    net(mx.nd.array(x))
    fill(net, mx.nd.array, scale=1.4)
    net.hybridize()
    classify, regress = gluon.loss.SoftmaxCrossEntropyLoss(), gluon.loss.HuberLoss(rho=0.5)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    accuracy, error = mx.metric.Accuracy(), mx.metric.MAE()
    for epoch in range(6):
        for start in range(0, 64, 16):
            part = slice(start, start + 16)
            with autograd.record():
                scores, amount = net(mx.nd.array(x[part]))
                loss = classify(scores, mx.nd.array(labels[part])) + 2 * regress(amount, mx.nd.array(amounts[part]))
            loss.backward()
            trainer.step(16)
        for metric in (accuracy, error):
            metric.reset()
        scores, amount = net(mx.nd.array(x))
        accuracy.update([mx.nd.array(labels)], [scores])
        error.update([mx.nd.array(amounts)], [amount.reshape((-1,))])
        print(f"epoch {epoch}: accuracy {accuracy.get()[1]:.3f}, mean absolute error {error.get()[1]:.3f}")


if __name__ == "__main__":
    main()
