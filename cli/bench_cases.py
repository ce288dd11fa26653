"""The cases of `tritium bench`, for one package. Run as a program it imports that package and the standard library alone.

    python bench_cases.py tritium|mxnet|torch cpu|gpu SECONDS

Prints a line of JSON for each case: {"case", "seconds"}: the median of five rounds, each of SECONDS / 5 or one call.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time

import numpy as np

ROUNDS = 5
BATCH = 64

#: What the cases are, in the order of the table. The label is the row's; the name is a method of both classes below.
CASES = {
    "small_add": "a + b, 8 x 8",
    "chain": "tanh(x * 2 + 1) * x, 1 M elements",
    "product": "product of matrices, 1024 x 1024",
    "convolution": "3 x 3 convolution, 8 x 64 x 56 x 56",
    "mlp": "training step by autograd, MLP 784-512-10, batch 64",
    "lenet": "training step of a graph, LeNet, batch 64",
}


class Named:
    """The cases in MXNet's names. Each method returns a function of one call, and `wait` waits for it."""

    def __init__(self, package, device):
        self.mx = importlib.import_module(package)
        self.ctx = self.mx.gpu() if device == "gpu" else self.mx.cpu()
        self.random = np.random.RandomState(0)
        self.wait = self.mx.nd.waitall

    def array(self, *shape):
        return self.mx.nd.array(self.random.normal(0, 0.1, shape).astype("float32"), ctx=self.ctx)

    def small_add(self):
        a, b = self.array(8, 8), self.array(8, 8)
        return lambda: a + b

    def chain(self):
        x = self.array(1024, 1024)
        return lambda: self.mx.nd.tanh(x * 2 + 1) * x

    def product(self):
        a, b = self.array(1024, 1024), self.array(1024, 1024)
        return lambda: self.mx.nd.dot(a, b)

    def convolution(self):
        x, w = self.array(8, 64, 56, 56), self.array(64, 64, 3, 3)
        return lambda: self.mx.nd.Convolution(x, w, kernel=(3, 3), pad=(1, 1), num_filter=64, no_bias=True)

    def mlp(self):
        nd, autograd = self.mx.nd, self.mx.autograd
        x, y = self.array(BATCH, 784), nd.array(self.random.randint(0, 10, BATCH), ctx=self.ctx)
        weights = [self.array(*shape) for shape in ((512, 784), (512,), (10, 512), (10,))]
        for w in weights:
            w.attach_grad()

        def step():
            with autograd.record():
                hidden = nd.relu(nd.FullyConnected(x, weights[0], weights[1], num_hidden=512))
                out = nd.FullyConnected(hidden, weights[2], weights[3], num_hidden=10)
                loss = nd.softmax_cross_entropy(out, y)
            loss.backward()
            for w in weights:
                nd.sgd_update(w, w.grad, lr=0.001, out=w)

        return step

    def lenet(self):
        sym = self.mx.sym
        x = sym.Variable("data")
        for filters in (20, 50):
            x = sym.Activation(sym.Convolution(x, kernel=(5, 5), num_filter=filters), act_type="tanh")
            x = sym.Pooling(x, pool_type="max", kernel=(2, 2), stride=(2, 2))
        x = sym.Activation(sym.FullyConnected(sym.Flatten(x), num_hidden=500), act_type="tanh")
        net = sym.SoftmaxOutput(sym.FullyConnected(x, num_hidden=10), name="softmax")
        learned = [n for n in net.list_arguments() if n not in ("data", "softmax_label")]
        run = net.simple_bind(self.ctx, grad_req={n: "write" if n in learned else "null" for n in net.list_arguments()},
                              data=(BATCH, 1, 28, 28), softmax_label=(BATCH,))
        for name in ("data", *learned):
            run.arg_dict[name][:] = self.array(*run.arg_dict[name].shape)
        update = self.mx.optimizer.get_updater(self.mx.optimizer.create("sgd", learning_rate=0.05, momentum=0.9,
                                                                        rescale_grad=1 / BATCH))
        numbers = list(range(len(learned)))
        gradients, weights = ([arrays[n] for n in learned] for arrays in (run.grad_dict, run.arg_dict))

        def step():
            run.forward(is_train=True)
            run.backward()
            update(numbers, gradients, weights)

        return step


class Torch:
    """The same cases in PyTorch, eager."""

    def __init__(self, device):
        self.torch = importlib.import_module("torch")
        self.torch.manual_seed(0)
        self.device = "cuda" if device == "gpu" else "cpu"
        self.wait = self.torch.cuda.synchronize if device == "gpu" else lambda: None

    def array(self, *shape):
        return self.torch.randn(shape, device=self.device) * 0.1

    def small_add(self):
        a, b = self.array(8, 8), self.array(8, 8)
        return lambda: a + b

    def chain(self):
        x = self.array(1024, 1024)
        return lambda: self.torch.tanh(x * 2 + 1) * x

    def product(self):
        a, b = self.array(1024, 1024), self.array(1024, 1024)
        return lambda: a @ b

    def convolution(self):
        x, w = self.array(8, 64, 56, 56), self.array(64, 64, 3, 3)
        return lambda: self.torch.nn.functional.conv2d(x, w, padding=1)

    def train(self, layers, shape, momentum):
        nn = self.torch.nn
        net = nn.Sequential(*layers).to(self.device)
        update = self.torch.optim.SGD(net.parameters(), 0.001, momentum)
        x, y = self.array(*shape), self.torch.randint(0, 10, (BATCH,), device=self.device)

        def step():
            update.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(net(x), y).backward()
            update.step()

        return step

    def mlp(self):
        nn = self.torch.nn
        return self.train([nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10)], (BATCH, 784), 0.0)

    def lenet(self):
        nn = self.torch.nn
        return self.train([nn.Conv2d(1, 20, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.Tanh(), nn.MaxPool2d(2),
                           nn.Flatten(), nn.Linear(800, 500), nn.Tanh(), nn.Linear(500, 10)], (BATCH, 1, 28, 28), 0.9)


def seconds_of(call, wait, limit):
    """Return the median of the seconds of one call over the rounds, which take about `limit` seconds together."""
    for _ in range(3):
        call()
    wait()
    start = time.perf_counter()
    call()
    wait()
    calls = max(1, min(10000, int(limit / ROUNDS / max(time.perf_counter() - start, 1e-7))))
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        rounds.append((time.perf_counter() - start) / calls)
    return statistics.median(rounds)


def main(package, device, limit):
    cases = Torch(device) if package == "torch" else Named(package, device)
    for name in CASES:
        print(json.dumps({"case": name, "seconds": seconds_of(getattr(cases, name)(), cases.wait, limit)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
