"""A variational autoencoder. Its noise is an input, so that every step can be repeated."""

import tritium as mx
from formula import fill, noise
from tritium import autograd, gluon
from tritium.gluon import nn


class VAE(gluon.HybridBlock):
    """Encoder to a mean and a log-variance, a sample, decoder; returns the loss of each item."""

    def __init__(self, pixels, hidden, latent, **kwargs):
        super().__init__(**kwargs)
        self.latent = latent
        with self.name_scope():
            self.encoder = nn.HybridSequential(prefix="encoder_")
            with self.encoder.name_scope():
                self.encoder.add(nn.Dense(hidden, activation="relu"), nn.Dense(2 * latent))
            self.decoder = nn.HybridSequential(prefix="decoder_")
            with self.decoder.name_scope():
                self.decoder.add(nn.Dense(hidden, activation="relu"), nn.Dense(pixels))
            self.reconstruction = gluon.loss.SigmoidBCELoss()

    def hybrid_forward(self, F, x, noise):
        mean, log_variance = F.split(self.encoder(x), num_outputs=2, axis=1)
        sample = mean + F.exp(0.5 * log_variance) * noise
        divergence = 0.5 * F.mean(F.exp(log_variance) + mean * mean - 1 - log_variance, axis=1)
        return self.reconstruction(self.decoder(sample), x) + 0.1 * divergence


def main():
    pixels, latent, batch = 36, 4, 16
    images = (noise((64, pixels), 1) + noise((4, pixels), 2)[[i % 4 for i in range(64)]] > 0).astype("float32")
    net = VAE(pixels, 24, latent)
    net.initialize(mx.init.Xavier())
    net(mx.nd.array(images[:1]), mx.nd.zeros((1, latent)))
    fill(net, mx.nd.array, scale=1.2)
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    for epoch in range(5):
        total = 0.0
        for start in range(0, 64, batch):
            with autograd.record():
                loss = net(mx.nd.array(images[start:start + batch]), mx.nd.array(noise((batch, latent), 10 * epoch + start)))
            loss.backward()
            trainer.step(batch)
            total += loss.sum().asscalar()
        print(f"epoch {epoch}: {total / 64:.4f}")


if __name__ == "__main__":
    main()
