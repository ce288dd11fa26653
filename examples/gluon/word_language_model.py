"""A language model of words: an embedding, two layers of LSTM, truncated backpropagation through time, clipped gradients."""

import math

import numpy as np
import tritium as mx
from formula import fill
from tritium import autograd, gluon
from tritium.gluon import nn, rnn

TEXT = """the river runs down to the sea and the sea goes up to the sky . the rain falls from the sky on the hill , and
down the hill runs the river . who follows the river comes to the sea , and who looks from the hill sees the
river and the sea and the sky ."""
STEPS, BATCH = 6, 4


class WordModel(gluon.Block):
    """Logits of the next word at every step."""

    def __init__(self, words, size, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embedding = nn.Embedding(words, size)
            self.lstm = rnn.LSTM(size, num_layers=2, dropout=0.0, input_size=size)
            self.decoder = nn.Dense(words, flatten=False, in_units=size)

    def forward(self, inputs, states):
        output, states = self.lstm(self.embedding(inputs), states)
        return self.decoder(output), states

    def begin_state(self, *args, **kwargs):
        return self.lstm.begin_state(*args, **kwargs)


def batches(ids):
    """Yield inputs and targets [STEPS, BATCH]; each column is a stretch of the text that goes on in the next batch."""
    columns = ids[:len(ids) // BATCH * BATCH].reshape(BATCH, -1).T
    for start in range(0, len(columns) - 1, STEPS):
        target = columns[start + 1:start + 1 + STEPS]
        yield mx.nd.array(columns[start:start + len(target)]), mx.nd.array(target)


def main():
    words = TEXT.split()
    vocabulary = sorted(set(words))
    ids = np.array([vocabulary.index(word) for word in words])
    model = WordModel(len(vocabulary), 16)
    model.initialize()
    fill(model, mx.nd.array, scale=0.6)
    trainer = gluon.Trainer(model.collect_params(), "adam", {"learning_rate": 0.04})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    for epoch in range(12):
        states, total, count = model.begin_state(batch_size=BATCH), 0.0, 0
        for inputs, targets in batches(ids):
            states = [state.detach() for state in states]
            with autograd.record():
                logits, states = model(inputs, states)
                loss = loss_of(logits.reshape((-1, len(vocabulary))), targets.reshape((-1,)))
            loss.backward()
            gluon.utils.clip_global_norm([p.grad() for p in model.collect_params().values()], 0.5 * BATCH * STEPS)
            trainer.step(loss.size)
            total, count = total + loss.sum().asscalar(), count + loss.size
        if epoch % 2:
            print(f"epoch {epoch}: perplexity {math.exp(total / count):.3f}")
    states, word, said = model.begin_state(batch_size=1), "the", []
    for _ in range(6):
        logits, states = model(mx.nd.array([[vocabulary.index(word)]]), states)
        word = vocabulary[int(logits.argmax(axis=-1).asscalar())]
        said.append(word)
    print("the", *said)


if __name__ == "__main__":
    main()
