"""Whole training steps on a GPU beside torch eager, and the time in which the GPU waits for the host. For gpu_suite.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bench_train
import common
import numpy as np
from gpu_machine import Machine
from tritium.graph.executor.compiled_program import kernels_of
from tritium.kernels.gpu.job import CompileJob

GAP = 0.03  # of a step that the GPU may be without work
NETS = (("lenet", 128), ("resnet20", 128), ("resnet50", 128))  # and the batch size


def steps(m: Machine, first: int = 0) -> None:
    """LeNet, ResNet-20 and ResNet-50, from the first-th on: a line each. ratio: torch's time over ours, at least 1."""
    for net, batch in m.turns("training", NETS, first):
        batch = 2 if m.smoke else batch
        try:
            if net == "resnet50":
                made = resnet50_step(batch, tiny=m.smoke), torch_resnet50_step(m.torch, batch, m.device, tiny=m.smoke)
            else:
                made = bench_train.symbolic_step("tritium", net, batch, "gpu"), \
                    bench_train.torch_step(net, batch, "cpu" if m.smoke else "gpu")
            _compare(m, net, batch, *made)
        except Exception as e:
            m.say(f"training step {net}", error=f"{type(e).__name__}: {e}"[:500])
            if m.smoke:
                raise
            m.check_alive()


def kernels(target: int) -> list[CompileJob]:
    """What the steps launch, for a compute capability times ten; the nets are bound, and nothing is run."""
    import tritium as mx

    jobs = []
    for net, batch in NETS:
        symbol = resnet50(mx) if net == "resnet50" else bench_train.NETS[net](mx)
        shape = (224, 224, 3) if net == "resnet50" else bench_train.SHAPES[net]
        executor = symbol.simple_bind(mx.gpu(), grad_req=_learned(symbol), data=(batch, *shape), softmax_label=(batch,))
        program = executor._compile(train=True, monitored=False)
        jobs += kernels_of((*program.forward, *program.backward), target)
    return jobs


def _learned(symbol: Any) -> dict[str, str]:
    """grad_req as Module asks: the derivatives of data and labels are not wanted."""
    return {n: "null" if n in ("data", "softmax_label") else "write" for n in symbol.list_arguments()}


Step = tuple[Callable[[], Any], Callable[[], Any]]


def _compare(m: Machine, net: str, batch: int, ours: Step, theirs: Step) -> None:
    calls, rounds = (1, 1) if m.smoke else (10, m.rounds)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):  # in turn, so that both meet the same clocks
        for found, (step, wait) in zip(times, (ours, theirs)):
            warmup = 1 if found or m.smoke else 3
            found += common.rounds_of(step, calls=calls, rounds=1, warmup=warmup, finish=wait)
    (median, spread), (other, _) = (common.median_and_spread(t) for t in times)
    line: dict[str, Any] = {"batch": batch, "median_s": median, "iqr_s": spread, "of_torch": round(other / median, 3)}
    if not m.smoke:
        try:
            idle = gap(m.torch, *ours)
        except Exception as e:  # a driver may forbid its trace; the times stay
            idle, line["no_gap"] = None, f"{type(e).__name__}: {e}"[:200]
        line |= {"images_per_s": round(batch / median, 1), "host_gap": idle, "asked": {"torch": 1.0, "gap": GAP}}
        line["met"] = other >= median and idle is not None and idle < GAP
    m.say(f"training step {net}", **line)


def gap(torch: Any, step: Callable[[], Any], wait: Callable[[], Any], count: int = 10) -> float | None:
    """The part of `count` steps in which no kernel and no copy ran, as the driver's own trace has it; None without a trace."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(count):
            step()
        wait()
    on_gpu = [e.time_range for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    spans = sorted((span.start, span.end) for span in on_gpu)
    if not spans:
        return None
    busy, end = 0.0, spans[0][0]
    for start, stop in spans:
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return round(1 - busy / (end - spans[0][0]), 4)


# ---- ResNet-50 (He et al. 2015, the first version), in bfloat16 with float32 master weights ---------------------------------
def _stages(tiny: bool) -> list[tuple[int, int]]:
    """(filters, units) of each stage."""
    return [(4, 1), (8, 1)] if tiny else [(64, 3), (128, 4), (256, 6), (512, 3)]


def resnet50(mx: Any, tiny: bool = False) -> Any:
    """The symbol: channels last, computed in bfloat16."""
    sym, first = mx.sym, 4 if tiny else 64

    def block(x: Any, filters: int, kernel: int, stride: int, name: str, relu: bool = True) -> Any:
        x = sym.Convolution(x, num_filter=filters, kernel=(kernel,) * 2, stride=(stride,) * 2, pad=(kernel // 2,) * 2,
                            no_bias=True, layout="NHWC", name=name)
        x = sym.BatchNorm(x, axis=3, fix_gamma=False, eps=1e-5, name=name + "_bn")
        return sym.Activation(x, act_type="relu") if relu else x

    x = block(sym.Cast(sym.Variable("data"), dtype="bfloat16"), first, 7, 2, "conv0")
    x = sym.Pooling(x, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max", layout="NHWC")
    for s, (filters, units) in enumerate(_stages(tiny)):
        for u in range(units):
            name, stride = f"s{s}u{u}", 2 if s and not u else 1
            y = block(x, filters, 1, 1, name + "a")
            y = block(block(y, filters, 3, stride, name + "b"), 4 * filters, 1, 1, name + "c", relu=False)
            x = sym.Activation(y + (block(x, 4 * filters, 1, stride, name + "d", relu=False) if not u else x), act_type="relu")
    x = sym.Flatten(sym.Pooling(x, global_pool=True, kernel=(7, 7), pool_type="avg", layout="NHWC"))
    x = sym.FullyConnected(x, num_hidden=10 if tiny else 1000, name="out")
    return sym.SoftmaxOutput(sym.Cast(x, dtype="float32"), name="softmax")


def resnet50_step(batch: int, *, tiny: bool = False) -> Step:
    """(step, wait) of Tritium."""
    import tritium as mx

    size, symbol = (32, resnet50(mx, tiny)) if tiny else (224, resnet50(mx))
    learned = [n for n in symbol.list_arguments() if n not in ("data", "softmax_label")]
    executor = symbol.simple_bind(mx.gpu(), grad_req=_learned(symbol), data=(batch, size, size, 3), softmax_label=(batch,))
    rng = np.random.default_rng(0)
    for name in learned:
        a = executor.arg_dict[name]
        a[:] = np.ones(a.shape) if name.endswith("gamma") else rng.normal(0, 0.05, a.shape)
    executor.arg_dict["data"][:] = rng.normal(size=(batch, size, size, 3))
    update = mx.optimizer.get_updater(mx.optimizer.create("sgd", learning_rate=0.01, momentum=0.9, rescale_grad=1 / batch,
                                                          multi_precision=True))

    numbers = list(range(len(learned)))
    gradients, weights = ([arrays[name] for name in learned] for arrays in (executor.grad_dict, executor.arg_dict))

    def step() -> None:
        executor.forward(is_train=True)
        executor.backward()
        update(numbers, gradients, weights)

    def wait() -> None:
        mx.nd.waitall()
        assert np.isfinite(executor.outputs[0].asnumpy()).all(), "ResNet-50's outputs are not finite"

    return step, wait


def torch_resnet50_step(torch: Any, batch: int, device: str, *, tiny: bool = False) -> Step:
    """The same network and step in torch, eager, in the layout that is its fastest."""
    nn = torch.nn

    def block(before: int, filters: int, kernel: int, stride: int, relu: bool = True) -> list[Any]:
        return [nn.Conv2d(before, filters, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(filters),
                *([nn.ReLU(inplace=True)] if relu else [])]

    class Unit(nn.Module):
        def __init__(self, before: int, filters: int, stride: int, aside: bool):
            super().__init__()
            self.main = nn.Sequential(*block(before, filters, 1, 1), *block(filters, filters, 3, stride),
                                      *block(filters, 4 * filters, 1, 1, relu=False))
            self.aside = nn.Sequential(*block(before, 4 * filters, 1, stride, relu=False)) if aside else nn.Identity()

        def forward(self, x: Any) -> Any:
            return (self.main(x) + self.aside(x)).relu_()

    first, size, classes = (4, 32, 10) if tiny else (64, 224, 1000)
    layers, before = [*block(3, first, 7, 2), nn.MaxPool2d(3, 2, 1)], first
    for s, (filters, units) in enumerate(_stages(tiny)):
        for u in range(units):
            layers.append(Unit(before, filters, 2 if s and not u else 1, not u))
            before = 4 * filters
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))
    model = model.to(device).to(torch.bfloat16).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9)
    x = torch.randn(batch, 3, size, size, device=device).to(torch.bfloat16).to(memory_format=torch.channels_last)
    y = torch.randint(0, classes, (batch,), device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(x).float(), y).backward()
        optimizer.step()

    return step, torch.cuda.synchronize if device == "cuda" else lambda: None
