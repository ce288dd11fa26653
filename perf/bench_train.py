"""One training step of a symbolic network (forward, backward, SGD with momentum on every parameter), timed.

    python perf/bench_train.py [--nets mlp,lenet,resnet20,tiny_deep,chain] [--mxnet PYTHON] [--torch PYTHON]

Prints JSON lines: seconds per step, median and spread over rounds, images per second, processor time per step and peak
memory. With --mxnet and --torch, those interpreters run the same networks, shapes and steps, in turn with ours, each in
a process of its own with as many threads, several times over; last lines give the ratios, median and spread over the
turns: of time, of processor time, which a loaded machine distorts least, and of peak memory.
The same code drives Tritium and MXNet (--package mxnet): such lines differ in the package alone.
"""

from __future__ import annotations

import argparse
import importlib
import os
import resource
import sys
import time

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


def resnet20(mx):
    """The CIFAR ResNet with pre-activation: three stages of three units, 16, 32 and 64 filters."""
    def convolution(x, filters, kernel, stride, pad, name):
        return mx.sym.Convolution(x, num_filter=filters, kernel=kernel, stride=stride, pad=pad, no_bias=True, name=name)

    def rectified(x, name):
        return mx.sym.Activation(mx.sym.BatchNorm(x, fix_gamma=False, eps=2e-5, name=name), act_type="relu")

    x = convolution(mx.sym.Variable("data"), 16, (3, 3), (1, 1), (1, 1), "conv0")
    for stage, filters in enumerate((16, 32, 64)):
        for unit in range(3):
            name, stride = f"s{stage}u{unit}", (2, 2) if stage and not unit else (1, 1)
            a = rectified(x, name + "_bn1")
            y = convolution(a, filters, (3, 3), stride, (1, 1), name + "_conv1")
            y = convolution(rectified(y, name + "_bn2"), filters, (3, 3), (1, 1), (1, 1), name + "_conv2")
            x = y + (convolution(a, filters, (1, 1), stride, (0, 0), name + "_sc") if stage and not unit else x)
    x = mx.sym.Pooling(rectified(x, "bn1"), global_pool=True, kernel=(7, 7), pool_type="avg")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=CLASSES, name="out"), name="softmax")


def tiny_deep(mx):
    """x · 1.01 + 0.01, tanh, a hundred times over, on 32 numbers a sample."""
    x = mx.sym.FullyConnected(mx.sym.Flatten(mx.sym.Variable("data")), num_hidden=32, name="fc0")
    for _ in range(100):
        x = mx.sym.Activation(x * 1.01 + 0.01, act_type="tanh")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=CLASSES, name="out"), name="softmax")


def chain(mx):
    """200 elementwise operators in a row, on 32 numbers a sample: x · 1.001, + 0.001, in turn."""
    x = mx.sym.FullyConnected(mx.sym.Flatten(mx.sym.Variable("data")), num_hidden=32, name="fc0")
    for _ in range(100):
        x = x * 1.001 + 0.001
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=CLASSES, name="out"), name="softmax")


NETS = {"mlp": mlp, "lenet": lenet, "resnet20": resnet20, "tiny_deep": tiny_deep, "chain": chain}
SHAPES = {"mlp": (1, 28, 28), "lenet": (1, 28, 28), "resnet20": (3, 32, 32), "tiny_deep": (1, 8, 8), "chain": (1, 8, 8)}


def symbolic_step(package, net, batch, device):
    """(step, wait): one training step through simple_bind and an updater, in a package with MXNet's names.

    The updater is given all parameters at once, as both packages' Module does.
    """
    mx = importlib.import_module(package)
    symbol, shape = NETS[net](mx), SHAPES[net]
    ctx = mx.gpu() if device == "gpu" else mx.cpu()
    data = np.random.RandomState(0)
    learned = [n for n in symbol.list_arguments() if n not in ("data", "softmax_label")]
    wanted = {n: "write" if n in learned else "null" for n in symbol.list_arguments()}  # as Module asks
    executor = symbol.simple_bind(ctx, grad_req=wanted, data=(batch, *shape), softmax_label=(batch,))
    for name in learned:
        executor.arg_dict[name][:] = data.normal(0, 0.1, executor.arg_dict[name].shape).astype("float32")
    executor.arg_dict["data"][:] = data.normal(0, 1, (batch, *shape)).astype("float32")
    executor.arg_dict["softmax_label"][:] = data.randint(0, CLASSES, batch).astype("float32")
    update = mx.optimizer.get_updater(
        mx.optimizer.create("sgd", learning_rate=0.05, momentum=0.9, rescale_grad=1.0 / batch))

    numbers = list(range(len(learned)))
    gradients, weights = ([arrays[name] for name in learned] for arrays in (executor.grad_dict, executor.arg_dict))

    def step():
        executor.forward(is_train=True)
        executor.backward()
        update(numbers, gradients, weights)

    def wait():
        mx.nd.waitall()
        probabilities = executor.outputs[0].asnumpy()
        assert np.allclose(probabilities.sum(1), 1, atol=1e-3), "the outputs are no probabilities"

    return step, wait


def torch_layers(net, nn):
    """The same networks as PyTorch's layers."""
    if net == "mlp":
        return [nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, CLASSES)]
    if net == "lenet":
        return [nn.Conv2d(1, 20, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.Tanh(), nn.MaxPool2d(2),
                nn.Flatten(), nn.Linear(800, 500), nn.Tanh(), nn.Linear(500, CLASSES)]

    class Unit(nn.Module):
        def __init__(self, before, filters, stride):
            super().__init__()
            self.first = nn.Sequential(nn.BatchNorm2d(before), nn.ReLU(inplace=True))
            self.rest = nn.Sequential(nn.Conv2d(before, filters, 3, stride, 1, bias=False), nn.BatchNorm2d(filters),
                                      nn.ReLU(inplace=True), nn.Conv2d(filters, filters, 3, 1, 1, bias=False))
            self.aside = nn.Conv2d(before, filters, 1, stride, bias=False) if stride > 1 else None

        def forward(self, x):
            a = self.first(x)
            return self.rest(a) + (x if self.aside is None else self.aside(a))

    class Repeated(nn.Module):
        def forward(self, x):
            for _ in range(100):
                x = x * 1.001 + 0.001 if net == "chain" else (x * 1.01 + 0.01).tanh()
            return x

    if net != "resnet20":
        return [nn.Flatten(), nn.Linear(64, 32), Repeated(), nn.Linear(32, CLASSES)]
    units = [Unit(b, f, s) for b, f, s in ((16, 16, 1), (16, 16, 1), (16, 16, 1), (16, 32, 2), (32, 32, 1), (32, 32, 1),
                                           (32, 64, 2), (64, 64, 1), (64, 64, 1))]
    return [nn.Conv2d(3, 16, 3, 1, 1, bias=False), *units, nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(64, CLASSES)]


def torch_step(net, batch, device):
    """The same networks and step in PyTorch, eager."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    if os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    layers = torch_layers(net, nn)
    where = "cuda" if device == "gpu" else "cpu"
    model = nn.Sequential(*layers).to(where)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, 0.9)
    x = torch.randn(batch, *SHAPES[net], device=where)
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
    common.rounds_of(step, calls=1, rounds=1, finish=wait)
    before = time.process_time()
    seconds = common.rounds_of(step, calls=a.steps, rounds=a.rounds, warmup=0, finish=wait)
    processor = (time.process_time() - before) / (a.steps * a.rounds)
    median, _ = common.median_and_spread(seconds)
    return common.emit("train_step", seconds, package=package, net=net, batch=a.batch, device=a.device,
                       images_per_s=round(a.batch / median, 1), processor_s=round(processor, 7),
                       peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, **common.machine())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default=",".join(NETS), help="which networks, separated by commas")
    parser.add_argument("--package", default="tritium", help="the package to measure here: tritium, mxnet or torch")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20, help="steps in a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--mxnet", metavar="PYTHON", help="an interpreter that has MXNet")
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has PyTorch")
    parser.add_argument("--threads", type=int, default=2, help="of each process, with peers")
    parser.add_argument("--turns", type=int, default=3, help="how often each package gets its turn, with peers")
    a = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "TRITIUM_NUM_WORKERS") if a.mxnet or a.torch else ():
        os.environ[name] = str(a.threads)
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
                for field in ("processor_s", "peak_rss_mb"):
                    pairs = [b[field] / o[field] for o, b in zip(lines[a.package], lines[package])]
                    common.say({"bench": "train_step", "package": a.package, "net": net, "peer": package,
                                "times_less": field, "ratio": round(common.median_and_spread(pairs)[0], 3)})


if __name__ == "__main__":
    main()
