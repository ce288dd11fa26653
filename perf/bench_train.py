"""One training step of a symbolic network (forward, backward, SGD with momentum on every parameter), timed.

    python perf/bench_train.py [--nets mlp,lenet] [--mxnet PYTHON] [--torch PYTHON]

Prints JSON lines: seconds per step, median and spread over rounds, images per second. With --mxnet and --torch, those
interpreters run the same networks, shapes and steps, in turn with ours, each in a process of its own, several times
over; a last line gives the ratio, median and spread over the turns.
The same code drives Tritium and MXNet (--package mxnet): such lines differ in the package alone.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import sys

import common
import numpy as np

CLASSES = 10


def mlp(mx):
    """784 - 512 - 256 - 10, rectified."""
    x = mx.sym.Flatten(mx.sym.Variable("data"))
    for i, hidden in enumerate((512, 256)):
        x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=hidden, name=f"fc{i}"), act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=CLASSES, name="out"), name="softmax")


def lenet(mx):
    """LeNet for 28 × 28: 20 and 50 filters of 5 × 5, 500 hidden."""
    x = mx.sym.Variable("data")
    for i, filters in enumerate((20, 50)):
        x = mx.sym.Convolution(x, kernel=(5, 5), num_filter=filters, name=f"conv{i}")
        x = mx.sym.Activation(x, act_type="tanh")
        x = mx.sym.Pooling(x, pool_type="max", kernel=(2, 2), stride=(2, 2))
    x = mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=500, name="fc0")
    x = mx.sym.Activation(x, act_type="tanh")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=CLASSES, name="out"), name="softmax")


NETS = {"mlp": mlp, "lenet": lenet}
SHAPE = (1, 28, 28)


def symbolic_step(package, net, batch, device):
    """(step, wait): one training step through simple_bind and an updater, in a package with MXNet's names."""
    mx = importlib.import_module(package)
    symbol = NETS[net](mx)
    ctx = mx.gpu() if device == "gpu" else mx.cpu()
    executor = symbol.simple_bind(ctx, grad_req="write", data=(batch, *SHAPE), softmax_label=(batch,))
    data = np.random.RandomState(0)
    learned = [n for n in symbol.list_arguments() if n not in ("data", "softmax_label")]
    for name in learned:
        executor.arg_dict[name][:] = data.normal(0, 0.1, executor.arg_dict[name].shape).astype("float32")
    executor.arg_dict["data"][:] = data.normal(0, 1, (batch, *SHAPE)).astype("float32")
    executor.arg_dict["softmax_label"][:] = data.randint(0, CLASSES, batch).astype("float32")
    update = mx.optimizer.get_updater(
        mx.optimizer.create("sgd", learning_rate=0.05, momentum=0.9, rescale_grad=1.0 / batch))

    def step():
        executor.forward(is_train=True)
        executor.backward()
        for i, name in enumerate(learned):
            update(i, executor.grad_dict[name], executor.arg_dict[name])

    def wait():
        mx.nd.waitall()
        probabilities = executor.outputs[0].asnumpy()
        assert np.allclose(probabilities.sum(1), 1, atol=1e-3), "the outputs are no probabilities"

    return step, wait


def torch_step(net, batch, device):
    """The same networks and step in PyTorch, eager."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    if net == "mlp":
        layers = [nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, CLASSES)]
    else:
        layers = [nn.Conv2d(1, 20, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.Tanh(), nn.MaxPool2d(2),
                  nn.Flatten(), nn.Linear(800, 500), nn.Tanh(), nn.Linear(500, CLASSES)]
    where = "cuda" if device == "gpu" else "cpu"
    model = nn.Sequential(*layers).to(where)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, 0.9)
    x = torch.randn(batch, *SHAPE, device=where)
    y = torch.randint(0, CLASSES, (batch,), device=where)

    def step():
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step, torch.cuda.synchronize if where == "cuda" else lambda: None


def measure(a, package, net):
    """Time one package on one network, and print the line."""
    make = torch_step if package == "torch" else lambda *rest: symbolic_step(package, *rest)
    step, wait = make(net, a.batch, a.device)
    seconds = common.rounds_of(step, calls=a.steps, rounds=a.rounds, finish=wait)
    median, _ = common.median_and_spread(seconds)
    return common.emit("train_step", seconds, package=package, net=net, batch=a.batch, device=a.device,
                       images_per_s=round(a.batch / median, 1),
                       peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, **common.machine())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default="mlp,lenet", help="which networks, separated by commas")
    parser.add_argument("--package", default="tritium", help="tritium, mxnet or torch: what this interpreter measures")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20, help="steps in a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--mxnet", metavar="PYTHON", help="an interpreter that has MXNet")
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has PyTorch")
    parser.add_argument("--turns", type=int, default=3, help="how often each package gets its turn, with peers")
    a = parser.parse_args()
    peers = {package: python for package, python in (("mxnet", a.mxnet), ("torch", a.torch)) if python}
    for net in a.nets.split(","):
        if not peers:
            measure(a, a.package, net)
            continue
        lines = {package: [] for package in (a.package, *peers)}
        for _ in range(a.turns):
            for package, python in {a.package: sys.executable, **peers}.items():
                lines[package] += common.run_peer(python, __file__, "--nets", net, "--package", package, "--batch",
                                                  str(a.batch), "--steps", str(a.steps), "--rounds", str(a.rounds),
                                                  "--device", a.device)
        for package in peers:
            if lines[a.package] and lines[package]:
                common.ratio("train_step", lines[a.package], lines[package], package=a.package, net=net)


if __name__ == "__main__":
    main()
