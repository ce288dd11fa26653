"""A language model of letters in some Shakespeare: an LSTM with buckets for lines of similar length.

    python -m tritium.examples.lstm_language_model
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tritium as mx

TEXT = Path(__file__).with_name("shakespeare.txt")
BUCKETS = [40, 48, 56]


def lines() -> list[str]:
    """Return the lines of the text."""
    return [line for line in TEXT.read_text(encoding="utf-8").splitlines() if line]


def train_language_model(epochs: int = 12, hidden: int = 64, batch_size: int = 8, seed: int = 0,
                         ctx: mx.Context | None = None) -> list[float]:
    """Return the perplexity per letter after each epoch. Uniform guessing has the number of letters, about 55."""
    np.random.seed(seed)
    mx.random.seed(seed)
    encoded, vocabulary = mx.rnn.encode_sentences(lines(), invalid_label=0, start_label=1)
    data = mx.rnn.BucketSentenceIter(encoded, batch_size, BUCKETS, invalid_label=0)
    letters = max(vocabulary.values()) + 1
    cells = mx.rnn.SequentialRNNCell()
    cells.add(mx.rnn.LSTMCell(hidden, prefix="lstm_l0_"))

    def network(length):
        text, following = mx.sym.Variable("data"), mx.sym.Variable("softmax_label")
        embedded = mx.sym.Embedding(text, input_dim=letters, output_dim=24, name="embed")
        outputs, _ = cells.unroll(length, embedded, merge_outputs=True)
        scores = mx.sym.FullyConnected(mx.sym.Reshape(outputs, shape=(-1, hidden)), num_hidden=letters, name="pred")
        loss = mx.sym.SoftmaxOutput(scores, mx.sym.Reshape(following, shape=(-1,)), use_ignore=True, ignore_label=0,
                                    normalization="valid", name="softmax")
        return loss, ("data",), ("softmax_label",)

    module = mx.mod.BucketingModule(network, default_bucket_key=data.default_bucket_key, context=ctx or mx.current_context())
    perplexities: list[float] = []
    metric = mx.metric.Perplexity(ignore_label=0)
    module.fit(data, eval_metric=metric, num_epoch=epochs, optimizer="adam", initializer=mx.init.Xavier(),
               optimizer_params={"learning_rate": 0.01, "rescale_grad": 1.0},
               epoch_end_callback=lambda *_: perplexities.append(metric.get_global()[1]))
    return perplexities


def main() -> None:
    for epoch, perplexity in enumerate(train_language_model()):
        print(f"epoch {epoch:2}  perplexity per letter {perplexity:.2f}")


if __name__ == "__main__":
    main()
