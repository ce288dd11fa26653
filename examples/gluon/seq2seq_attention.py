"""A sequence is translated into another, here its reverse: an encoder, a decoder with attention, beam search by small steps."""

import numpy as np
import tritium as mx
from formula import fill, noise
from tritium import autograd, gluon
from tritium.gluon import nn, rnn

WORDS, BEGIN, END, LENGTH, SIZE = 10, 10, 11, 5, 24


class Encoder(gluon.HybridBlock):
    """Outputs of a bidirectional GRU at every step, and the first state of the decoder."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embedding = nn.Embedding(WORDS, SIZE)
            self.gru = rnn.GRU(SIZE // 2, layout="NTC", bidirectional=True, input_size=SIZE)
            self.bridge = nn.Dense(SIZE, activation="tanh", in_units=SIZE)

    def hybrid_forward(self, F, words):
        memory = self.gru(self.embedding(words))
        return memory, self.bridge(F.mean(memory, axis=1))


class Decoder(gluon.HybridBlock):
    """One step: logits of the next word from the last one, the state, and the parts of the memory it attends to."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embedding = nn.Embedding(END + 1, SIZE)
            self.cell = rnn.GRUCell(SIZE, input_size=2 * SIZE)
            self.query = nn.Dense(SIZE, use_bias=False, in_units=SIZE)
            self.out = nn.Dense(END + 1, in_units=2 * SIZE)

    def hybrid_forward(self, F, word, state, memory):
        scores = F.batch_dot(memory, F.expand_dims(self.query(state), axis=2))
        weights = F.softmax(scores, axis=1)
        context = F.reshape(F.batch_dot(weights, memory, transpose_a=True), shape=(0, -1))
        output, (state,) = self.cell(F.concat(self.embedding(word), context, dim=1), [state])
        return self.out(F.concat(output, context, dim=1)), state


def train(encoder, decoder, epochs=10, count=64):
    """Teach them to reverse; print the losses."""
    source = (np.abs(noise((count, LENGTH), 1)) * 1e4).astype(int) % WORDS
    target = np.concatenate([source[:, ::-1], np.full((count, 1), END)], axis=1)
    given = np.concatenate([np.full((count, 1), BEGIN), target[:, :-1]], axis=1)
    params = encoder.collect_params()
    params.update(decoder.collect_params())
    trainer = gluon.Trainer(params, "adam", {"learning_rate": 0.015})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    for epoch in range(epochs):
        total = 0.0
        for start in range(0, count, 16):
            rows = slice(start, start + 16)
            words, now, wanted = (mx.nd.array(a[rows]) for a in (source, given, target))
            with autograd.record():
                memory, state = encoder(words)
                loss = 0
                for t in range(LENGTH + 1):
                    logits, state = decoder(now[:, t], state, memory)
                    loss = loss + loss_of(logits, wanted[:, t])
            loss.backward()
            trainer.step(16)
            total += loss.sum().asscalar()
        print(f"epoch {epoch}: loss {total / count / (LENGTH + 1):.4f}")
    return source


def beam_search(encoder, decoder, sentences, beam=4, longest=LENGTH + 2):
    """Return the best sequence of each sentence and its log probability. sentences: [count, LENGTH]."""
    count, vocabulary = len(sentences), END + 1
    memory, state = encoder(mx.nd.array(sentences))
    memory, state = memory.repeat(beam, axis=0), state.repeat(beam, axis=0)
    word = mx.nd.full((count * beam,), BEGIN)
    score = mx.nd.array([[0.0] + [-1e9] * (beam - 1)] * count)  # at first all beams of a sentence are equal
    first = mx.nd.arange(count).reshape((-1, 1)) * beam
    done = mx.nd.zeros((count, beam))
    stay = mx.nd.array([[-1e9] * END + [0.0]])  # what has ended goes on with END at no cost
    history = []
    for _ in range(longest):
        logits, state = decoder(word, state, memory)
        steps = mx.nd.where(done.reshape((-1,)), stay.broadcast_to((count * beam, vocabulary)), logits.log_softmax())
        total = (score.reshape((-1, 1)) + steps).reshape((count, -1))
        score, best = mx.nd.topk(total, axis=1, k=beam, ret_typ="both", dtype="int32")
        best = best.astype("float32")
        parent = (mx.nd.floor(best / vocabulary) + first).reshape((-1,))
        word = mx.nd.modulo(best, vocabulary * mx.nd.ones_like(best)).reshape((-1,))
        state = state.take(parent)
        done = (word == END).reshape((count, beam))
        history = [h.take(parent) for h in history] + [word]
        if done.min().asscalar() == 1:
            break
    sequences = mx.nd.stack(*history, axis=1).reshape((count, beam, -1)).asnumpy().astype(int)
    return [(sequence[0][sequence[0] != END].tolist(), s) for sequence, s in zip(sequences, score.asnumpy()[:, 0])]


def main():
    encoder, decoder = Encoder(), Decoder()
    for net in (encoder, decoder):
        net.initialize()
        fill(net, mx.nd.array)
        net.hybridize()
    source = train(encoder, decoder)
    for sentence, (found, score) in zip(source[:3], beam_search(encoder, decoder, source[:3])):
        print(sentence.tolist(), "->", found, f"log probability {score:.3f}")


if __name__ == "__main__":
    main()
