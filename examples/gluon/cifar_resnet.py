"""A small residual network for images of 12 x 12, hybridized, with a learning rate that falls."""

import tritium as mx
from formula import classes_of, fill, noise
from tritium import autograd, gluon
from tritium.gluon.model_zoo import vision


def main():
    images = noise((32, 3, 12, 12))
    labels = classes_of(images, 3)
    net = vision.ResNetV1(vision.BasicBlockV1, [1, 1], [8, 8, 16], classes=3, thumbnail=True)
    net.initialize(mx.init.Xavier())
    net(mx.nd.array(images[:2]))
    fill(net, mx.nd.array)
    net.hybridize(static_alloc=True, static_shape=True)
    schedule = mx.lr_scheduler.FactorScheduler(step=4, factor=0.5, base_lr=0.1)
    trainer = gluon.Trainer(net.collect_params(), mx.optimizer.NAG(momentum=0.9, wd=1e-3, lr_scheduler=schedule))
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    for _ in range(3):
        losses = []
        for start in range(0, 32, 8):
            x, y = mx.nd.array(images[start:start + 8]), mx.nd.array(labels[start:start + 8])
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(8)
            losses.append(loss.mean().asscalar())
        print(*(f"{v:.3f}" for v in losses), f"learning rate {trainer.learning_rate:g}")
    print("at inference", *(f"{v:.3f}" for v in net(mx.nd.array(images[:2])).asnumpy().ravel()))


if __name__ == "__main__":
    main()
