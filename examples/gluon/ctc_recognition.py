"""Unsegmented sequences are labelled: a bidirectional LSTM and CTC, on strips in which symbols have various widths."""

import numpy as np
import tritium as mx
from formula import fill, noise
from tritium import autograd, gluon
from tritium.gluon import nn, rnn

SYMBOLS, WIDTH, FEATURES = 4, 16, 5


def strips(count):
    """Return strips [count, WIDTH, FEATURES], their labels padded with -1, and the number of symbols of each."""
    shapes = noise((SYMBOLS, FEATURES), 3)
    draws = (np.abs(noise((count, 8), 4)) * 1e4).astype(int)
    x, labels, lengths = 0.1 * noise((count, WIDTH, FEATURES), 5), np.full((count, 4), -1.0, "float32"), []
    for i, row in enumerate(draws):
        at = 1
        for k in range(2 + row[7] % 3):
            symbol, width = row[k] % SYMBOLS, 2 + row[k + 3] % 2
            x[i, at:at + width] += shapes[symbol]
            labels[i, k] = symbol
            at += width + 1
        lengths.append(2 + row[7] % 3)
    return x.astype("float32"), labels, np.array(lengths, "float32")


class Recognizer(gluon.HybridBlock):
    """Logits of each symbol, and last of the blank, at every column."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.lstm = rnn.LSTM(12, layout="NTC", bidirectional=True, input_size=FEATURES)
            self.out = nn.Dense(SYMBOLS + 1, flatten=False, in_units=24)

    def hybrid_forward(self, F, x):
        return self.out(self.lstm(x))


def decode(logits):
    """Return the symbols of each strip: the most probable of each column, repeats merged, blanks dropped."""
    best = logits.argmax(axis=2)
    return [[int(c) for c, before in zip(row, [-1, *row[:-1]]) if c != before and c != SYMBOLS] for row in best]


def main():
    x, labels, lengths = strips(32)
    net = Recognizer()
    net.initialize()
    fill(net, mx.nd.array)
    net.hybridize()
    loss_of = gluon.loss.CTCLoss(layout="NTC", label_layout="NT")
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.03})
    for epoch in range(12):
        total = 0.0
        for start in range(0, 32, 8):
            rows = slice(start, start + 8)
            with autograd.record():
                logits = net(mx.nd.array(x[rows]))
                loss = loss_of(logits, mx.nd.array(labels[rows]), None, mx.nd.array(lengths[rows]))
            loss.backward()
            trainer.step(8)
            total += loss.sum().asscalar()
        if epoch % 2:
            print(f"epoch {epoch}: loss {total / 32:.3f}")
    found = decode(net(mx.nd.array(x)).asnumpy())
    right = sum(f == [int(s) for s in row if s >= 0] for f, row in zip(found, labels))
    print(f"{right} of 32 strips are right; the first is", found[0])


if __name__ == "__main__":
    main()
