"""Record a Trainer's states in the middle of a training, and how the training goes on. Run it with MXNet 1.9.1."""

import json
from pathlib import Path

HERE = Path(__file__).parent
STEPS = 3


def train(mx, file, steps, resume):
    """Train steps times with Adam and a scheduler, and return the weight and the learning rate after each.

    file: of the trainer's states; resume: the weight to begin with and continue the training of the file; None: a new one,
    whose states are written after STEPS steps.
    """
    net = mx.gluon.nn.Dense(1, in_units=2, use_bias=False)
    net.initialize(mx.init.One())
    scheduler = mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=0.1)
    trainer = mx.gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1, "lr_scheduler": scheduler})
    if resume is not None:
        net.weight.set_data(mx.nd.array(resume))
        trainer.load_states(file)
    found = []
    for i in range(steps):
        with mx.autograd.record():
            loss = net(mx.nd.array([[1.0, -3.0]])).square().sum()
        loss.backward()
        trainer.step(1)
        found.append([net.weight.data().asnumpy().tolist(), trainer.learning_rate])
        if resume is None and i == STEPS - 1:
            trainer.save_states(file)
    return found


if __name__ == "__main__":
    import mxnet

    answers = train(mxnet, str(HERE / "trainer.states"), 2 * STEPS, None)
    (HERE / "trainer_states.json").write_text(json.dumps(answers) + "\n")
