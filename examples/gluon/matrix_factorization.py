"""Ratings as products of a vector per user and a vector per item, with row-sparse gradients."""

import numpy as np
import tritium as mx
from formula import fill, noise
from tritium import autograd, gluon
from tritium.gluon import nn


class Factors(gluon.HybridBlock):
    """The rating of (user, item): the product of their vectors, and a bias per item."""

    def __init__(self, users, items, size, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.user = nn.Embedding(users, size, sparse_grad=True)
            self.item = nn.Embedding(items, size, sparse_grad=True)
            self.bias = nn.Embedding(items, 1)

    def hybrid_forward(self, F, user, item):
        return F.sum(self.user(user) * self.item(item), axis=1) + F.reshape(self.bias(item), shape=(-1,))


def main():
    users, items, size, count = 20, 15, 4, 120
    user = np.arange(count) * 7 % users
    item = np.arange(count) * 11 % items
    truth = noise((users, size), 1)[user] * noise((items, size), 2)[item]
    rating = truth.sum(axis=1)
    net = Factors(users, items, size)
    net.initialize()
    fill(net, mx.nd.array)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.8})
    loss_of = gluon.loss.L2Loss()
    for _ in range(4):
        total = 0.0
        for start in range(0, count, 30):
            part = slice(start, start + 30)
            with autograd.record():
                loss = loss_of(net(mx.nd.array(user[part]), mx.nd.array(item[part])), mx.nd.array(rating[part]))
            loss.backward()
            trainer.step(30)
            total += loss.sum().asscalar()
        print(f"{total / count:.4f}")
    print("gradient of the users:", net.user.weight.grad().stype)


if __name__ == "__main__":
    main()
