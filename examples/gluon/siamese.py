"""One network applied to several inputs: items of one class come near each other, by pairs and by triplets."""

import tritium as mx
from formula import fill, noise
from tritium import autograd, gluon
from tritium.gluon import nn


def embedding():
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Dense(24, activation="tanh"), nn.Dense(6), nn.HybridLambda(lambda F, x: F.L2Normalization(x)))
    net.initialize(mx.init.Xavier())
    net(mx.nd.zeros((1, 10)))
    fill(net, mx.nd.array, scale=1.2)
    net.hybridize()
    return net


def items(kind, seed):
    """Return 16 items of each of the classes in kind, a list of numbers."""
    return mx.nd.array(noise((3, 10), 1)[kind] + 0.7 * noise((len(kind), 10), seed))


def main():
    first, other = [i % 3 for i in range(16)], [(i + 1) % 3 for i in range(16)]
    net = embedding()
    trainer = gluon.Trainer(net.collect_params(), "rmsprop", {"learning_rate": 0.005})
    pair_loss = gluon.loss.CosineEmbeddingLoss(margin=0.2)
    same = mx.nd.array([1 if i % 2 == 0 else -1 for i in range(16)])
    for step in range(4):
        second = [f if i % 2 == 0 else o for i, (f, o) in enumerate(zip(first, other))]
        with autograd.record():
            loss = pair_loss(net(items(first, 2 + step)), net(items(second, 20 + step)), same)
        loss.backward()
        trainer.step(16)
        print(f"pairs, step {step}: {loss.mean().asscalar():.4f}")
    triplet_loss = gluon.loss.TripletLoss(margin=0.5)
    for step in range(4):
        with autograd.record():
            loss = triplet_loss(net(items(first, 40 + step)), net(items(first, 60 + step)), net(items(other, 80 + step)))
        loss.backward()
        trainer.step(16)
        print(f"triplets, step {step}: {loss.mean().asscalar():.4f}")


if __name__ == "__main__":
    main()
