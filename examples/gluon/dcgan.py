"""A generator and a discriminator of convolutions train against each other."""

import tritium as mx
from formula import fill, noise
from tritium import autograd, gluon
from tritium.gluon import nn


def generator():
    """Return a network from [batch, 8, 1, 1] to images [batch, 1, 8, 8]."""
    net = nn.HybridSequential(prefix="generator_")
    with net.name_scope():
        net.add(nn.Conv2DTranspose(16, 2, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))
        net.add(nn.Conv2DTranspose(8, 4, 2, 1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))
        net.add(nn.Conv2DTranspose(1, 4, 2, 1, use_bias=False), nn.Activation("tanh"))
    return net


def discriminator():
    """Return a network from images to [batch, 1, 1, 1], positive for real ones."""
    net = nn.HybridSequential(prefix="discriminator_")
    with net.name_scope():
        net.add(nn.Conv2D(8, 4, 2, 1, use_bias=False), nn.LeakyReLU(0.2))
        net.add(nn.Conv2D(16, 4, 2, 1, use_bias=False), nn.BatchNorm(), nn.LeakyReLU(0.2))
        net.add(nn.Conv2D(1, 2, use_bias=False))
    return net


def main():
    batch = 8
    make, judge = generator(), discriminator()
    for net, shape in ((make, (1, 8, 1, 1)), (judge, (1, 1, 8, 8))):
        net.initialize(mx.init.Normal(0.02))
        net(mx.nd.zeros(shape))
        fill(net, mx.nd.array)
        net.hybridize()
    make_trainer = gluon.Trainer(make.collect_params(), "adam", {"learning_rate": 0.005, "beta1": 0.5})
    judge_trainer = gluon.Trainer(judge.collect_params(), "adam", {"learning_rate": 0.005, "beta1": 0.5})
    loss_of = gluon.loss.SigmoidBinaryCrossEntropyLoss()
    real_label, fake_label = mx.nd.ones((batch,)), mx.nd.zeros((batch,))
    for step in range(5):
        real = mx.nd.tanh(2 * mx.nd.array(noise((batch, 1, 1, 8), step)) + mx.nd.array(noise((1, 1, 8, 8), 50)))
        latent = mx.nd.array(noise((batch, 8, 1, 1), 100 + step))
        with autograd.record():
            fake = make(latent)
            judge_loss = (loss_of(judge(real).reshape((-1,)), real_label)
                          + loss_of(judge(fake.detach()).reshape((-1,)), fake_label))
        judge_loss.backward()
        judge_trainer.step(batch)
        with autograd.record():
            make_loss = loss_of(judge(make(latent)).reshape((-1,)), real_label)
        make_loss.backward()
        make_trainer.step(batch)
        print(f"step {step}: discriminator {judge_loss.mean().asscalar():.3f}, generator {make_loss.mean().asscalar():.3f}")


if __name__ == "__main__":
    main()
