"""One training step of a network (forward, backward, SGD with momentum on every parameter), timed.

    python perf/bench_train.py [--nets mlp,lenet,...] [--mxnet PYTHON] [--torch PYTHON] [--compile] [--jax PYTHON]

Prints JSON lines: seconds per step, median and spread over rounds, images per second, processor time per step and peak
memory. With --mxnet, --torch and --jax, those interpreters run the same networks, shapes and steps, in turn with ours, each in
a process of its own with as many threads, several times over; with --compile torch runs them compiled, too. Last lines give
the ratios, median and spread over the turns: of time, of processor time, which a loaded machine distorts least, and of peak
memory; and the ratio to the best of the peers. The derivative of the data is not asked for.
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
from networks import BATCH, NETS, SHAPES, classes

SECONDS = 1.0  # that a round takes, about


def symbolic_step(package, net, batch, device):
    """(step, wait): one training step through simple_bind and an updater, in a package with MXNet's names.

    The updater is given all parameters at once, as both packages' Module does.
    """
    mx = importlib.import_module(package)
    symbol, shape, (number, label) = NETS[net](mx), SHAPES[net], classes(net)
    ctx = mx.gpu() if device == "gpu" else mx.cpu()
    data = np.random.RandomState(0)
    learned = [n for n in symbol.list_arguments() if n not in ("data", "softmax_label")]
    wanted = {n: "write" if n in learned else "null" for n in symbol.list_arguments()}  # as Module asks
    executor = symbol.simple_bind(ctx, grad_req=wanted, data=(batch, *shape), softmax_label=(batch, *label))
    for name in learned:
        executor.arg_dict[name][:] = data.normal(0, 0.1, executor.arg_dict[name].shape).astype("float32")
    given = data.randint(0, number, (batch, *shape)) if label else data.normal(0, 1, (batch, *shape))
    executor.arg_dict["data"][:] = given.astype("float32")
    executor.arg_dict["softmax_label"][:] = data.randint(0, number, (batch, *label)).astype("float32")
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


def torch_step(net, batch, device, compiled=False):
    """The same networks and step in PyTorch, eager or compiled."""
    import torch
    from torch_networks import layers

    torch.manual_seed(0)
    if os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    where = "cuda" if device == "gpu" else "cpu"
    model = torch.nn.Sequential(*layers(net)).to(where)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, 0.9)
    number, label = classes(net)
    shape = (batch, *SHAPES[net])
    x = torch.randint(0, number, shape, device=where) if label else torch.randn(shape, device=where)
    y = torch.randint(0, number, (batch, *label), device=where).flatten()
    run = torch.compile(model) if compiled else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(run(x), y).backward()
        optimizer.step()

    return step, torch.cuda.synchronize if where == "cuda" else lambda: None


def jax_step(net, batch):
    """The same networks and step in JAX."""
    from jax_networks import step_of

    return step_of(net, batch)


def measure(a, package, net):
    """Time one package on one network, and print the line."""
    batch = a.batch or BATCH.get(net, 64)
    if package in ("torch", "torch.compile"):
        step, wait = torch_step(net, batch, a.device, package == "torch.compile")
    else:
        step, wait = jax_step(net, batch) if package == "jax" else symbolic_step(package, net, batch, a.device)
    (once,) = common.rounds_of(step, calls=1, rounds=1, finish=wait)
    steps = max(1, min(a.steps, int(SECONDS / once)))
    before = time.process_time()
    seconds = common.rounds_of(step, calls=steps, rounds=a.rounds, warmup=0, finish=wait)
    processor = (time.process_time() - before) / (steps * a.rounds)
    median, _ = common.median_and_spread(seconds)
    return common.emit("train_step", seconds, package=package, net=net, batch=batch, device=a.device,
                       images_per_s=round(batch / median, 1), processor_s=round(processor, 7),
                       peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, **common.machine())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default=",".join(NETS), help="which networks, separated by commas")
    parser.add_argument("--package", default="tritium", help="measured here: tritium, mxnet, torch, torch.compile or jax")
    parser.add_argument("--batch", type=int, default=0, help="samples; 0: 8 for resnet50, 64 for the others")
    parser.add_argument("--steps", type=int, default=20, help="steps in a round at most; one takes a second or two")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--mxnet", metavar="PYTHON", help="an interpreter that has MXNet")
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has PyTorch")
    parser.add_argument("--compile", action="store_true", help="measure torch.compile too")
    parser.add_argument("--jax", metavar="PYTHON", help="an interpreter that has JAX")
    parser.add_argument("--threads", type=int, default=2, help="of each process, with peers")
    parser.add_argument("--turns", type=int, default=3, help="how often each package gets its turn, with peers")
    a = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "TRITIUM_NUM_WORKERS") if a.mxnet or a.torch or a.jax else ():
        os.environ[name] = str(a.threads)
    wanted = (("mxnet", a.mxnet), ("torch", a.torch), ("torch.compile", a.torch if a.compile else None), ("jax", a.jax))
    peers = {package: python for package, python in wanted if python}
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
        taking = [package for package in peers if lines[a.package] and len(lines[package]) == len(lines[a.package])]
        for package in taking:
            common.ratio("train_step", lines[a.package], lines[package], package=a.package, net=net)
            for field in ("processor_s", "peak_rss_mb"):
                pairs = [b[field] / o[field] for o, b in zip(lines[a.package], lines[package])]
                common.say({"bench": "train_step", "package": a.package, "net": net, "peer": package,
                            "times_less": field, "ratio": round(common.median_and_spread(pairs)[0], 3)})
        if taking:
            median, best = (common.median_and_spread([line["median_s"] for line in lines[package]])[0] for package in (
                a.package, min(taking, key=lambda p: common.median_and_spread([line["median_s"] for line in lines[p]])[0])))
            common.say({"bench": "train_step", "package": a.package, "net": net, "times_as_fast_as": "the best peer",
                        "ratio": round(best / median, 3)})


if __name__ == "__main__":
    main()
