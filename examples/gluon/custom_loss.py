"""A loss of one's own: the focal loss, with a weight per item."""

import numpy as np
import tritium as mx
from formula import classes_of, fill, noise
from tritium import autograd, gluon
from tritium.gluon import nn
from tritium.gluon.loss import Loss, _apply_weighting


class FocalLoss(Loss):
    """- (1 - p)^gamma log p of the labelled class: items that are right already count less (arXiv:1708.02002)."""

    def __init__(self, gamma=2.0, axis=-1, weight=None, batch_axis=0, **kwargs):
        super().__init__(weight, batch_axis, **kwargs)
        self._gamma, self._axis = gamma, axis

    def hybrid_forward(self, F, pred, label, sample_weight=None):
        log_p = F.pick(F.log_softmax(pred, axis=self._axis), label, axis=self._axis, keepdims=True)
        loss = -((1 - F.exp(log_p)) ** self._gamma) * log_p
        return F.mean(_apply_weighting(F, loss, self._weight, sample_weight), axis=self._batch_axis, exclude=True)


def main():
    x = noise((48, 8))
    labels = classes_of(x, 3)
    weights = np.where(labels == 0, 2.0, 1.0).reshape(-1, 1)
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Dense(16), nn.ELU(), nn.Dense(3))
    net.initialize()
    net(mx.nd.array(x))
    fill(net, mx.nd.array, scale=1.4)
    loss_of = FocalLoss(gamma=1.5, weight=3)
    print(loss_of)
    for block in (net, loss_of):
        block.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adagrad", {"learning_rate": 0.1})
    for _ in range(6):
        with autograd.record():
            loss = loss_of(net(mx.nd.array(x)), mx.nd.array(labels), mx.nd.array(weights))
        loss.backward()
        trainer.step(48)
        print(f"{loss.mean().asscalar():.4f}")


if __name__ == "__main__":
    main()
