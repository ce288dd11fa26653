"""Training by the Estimator: metrics, validation after each epoch, early stopping, checkpoints, and a handler of one's own."""

import logging
import sys
import tempfile

import tritium as mx
from formula import classes_of, fill, noise
from tritium import gluon
from tritium.gluon import nn
from tritium.gluon.contrib import estimator as est


class Print(est.EpochEnd):
    """Prints the metrics after each epoch."""

    def __init__(self):
        self.epoch, self.priority = 0, 10

    def epoch_end(self, estimator, *args, **kwargs):
        values = [metric.get() for metric in estimator.train_metrics + estimator.val_metrics]
        print(f"epoch {self.epoch}:", ", ".join(f"{name} {value:.3f}" for name, value in values))
        self.epoch += 1


def main():
    x = noise((96, 6))
    y = classes_of(x, 3)
    data = gluon.data.ArrayDataset(x, y)
    training = gluon.data.DataLoader(data.take(64), batch_size=16)
    validation = gluon.data.DataLoader(data.sample(gluon.data.SequentialSampler(32, 64)), batch_size=16)
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Dense(24, activation="tanh", in_units=6), nn.Dense(3, in_units=24))
    net.initialize()
    fill(net, mx.nd.array)
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5, "momentum": 0.9})
    trainee = est.Estimator(net, gluon.loss.SoftmaxCrossEntropyLoss(), trainer=trainer, context=mx.cpu())
    trainee.logger.setLevel(logging.ERROR)  # its messages have times in them
    accuracy, loss = trainee.val_metrics
    with tempfile.TemporaryDirectory() as folder:
        stopping = est.EarlyStoppingHandler(accuracy, patience=3, mode="max")
        checkpoints = est.CheckpointHandler(folder, monitor=loss, save_best=True, mode="min", max_checkpoints=2)
        trainee.fit(training, validation, epochs=12, event_handlers=[Print(), stopping, checkpoints])
        print("stopped" if stopping.stop_training else "all epochs", f"best loss {checkpoints.best:.3f}")
        net.load_parameters(f"{folder}/model-best.params")
    trainee.evaluate(validation)
    print(f"again: {accuracy.get()[1]:.3f} {loss.get()[1]:.3f}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
