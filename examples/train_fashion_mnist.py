"""Train LeNet on Fashion-MNIST, 60,000 photographs of clothes of 28 x 28 pixels, from idx files or .rec files.

    python -m tritium.examples.train_fashion_mnist FOLDER           # train-images-idx3-ubyte.gz and the three others
    python -m tritium.examples.train_fashion_mnist FOLDER --records # train.rec and test.rec, made by `tritium im2rec`

Debian's package dataset-fashion-mnist has the data in /usr/share/datasets/fashion-mnist (MIT licence).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import click
import tritium as mx


def lenet(classes: int = 10) -> Any:
    """Return a network: two blocks of convolution, ReLU and max pooling, and a hidden layer of 128.

    Input: [batch, 1, 28, 28], pixels 0 to 1.
    """
    x = 2 * mx.sym.Variable("data") - 1
    for i, filters in enumerate((16, 32), 1):
        x = mx.sym.Convolution(x, num_filter=filters, kernel=(5, 5), name=f"conv{i}")
        x = mx.sym.Pooling(mx.sym.relu(x), pool_type="max", kernel=(2, 2), stride=(2, 2), name=f"pool{i}")
    x = mx.sym.relu(mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=128, name="fc1"))
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=classes, name="fc2"), name="softmax")


def idx_iterators(folder: Path, batch_size: int) -> tuple[Any, Any]:
    """Return MNISTIters over the training and test images."""
    return tuple(mx.io.MNISTIter(image=folder / f"{name}-images-idx3-ubyte.gz", label=folder / f"{name}-labels-idx1-ubyte.gz",
                                 batch_size=batch_size, shuffle=name == "train", seed=0) for name in ("train", "t10k"))


def record_iterators(folder: Path, batch_size: int) -> tuple[Any, Any]:
    """Return ImageRecordIters over the gray images of train.rec and test.rec."""
    return tuple(mx.io.ImageRecordIter(path_imgrec=folder / f"{name}.rec", data_shape=(1, 28, 28), batch_size=batch_size,
                                       shuffle=name == "train", seed=0, scale=1 / 256) for name in ("train", "test"))


def train(iterators: tuple[Any, Any], epochs: int = 3) -> float:
    """Train, and return the accuracy on the test images."""
    training, test = iterators
    mx.random.seed(0)
    module = mx.mod.Module(lenet())
    module.fit(training, num_epoch=epochs, initializer=mx.init.Xavier(), eval_metric="acc", optimizer="adam",
               optimizer_params={"learning_rate": 0.002},
               batch_end_callback=mx.callback.Speedometer(training.batch_size, 200))
    return dict(module.score(test, "acc"))["accuracy"]


@click.command(help=(__doc__ or "").split("\n")[0])
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--records", is_flag=True, help="Read train.rec and test.rec.")
@click.option("--epochs", type=click.IntRange(1), default=3, show_default=True)
@click.option("--batch-size", type=click.IntRange(1), default=64, show_default=True)
def main(folder: Path, records: bool, epochs: int, batch_size: int) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    accuracy = train((record_iterators if records else idx_iterators)(folder, batch_size), epochs)
    click.echo(f"accuracy on the test images: {accuracy:.4f}")


if __name__ == "__main__":
    main()
