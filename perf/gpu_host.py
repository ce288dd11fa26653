"""What the host costs a GPU: eager operators, copies to and from it, and training through Module.fit. For gpu_suite.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bench_train
import common
import numpy as np
from gpu_machine import Machine
from torch_networks import layers


def host(m: Machine, first: int = 0) -> None:
    """A line per case from the first-th on. ratio: torch's time over ours, at least 1."""
    for case in m.turns("host", (_calls, _backward, _copies, _fit), first):
        try:
            case(m)
        except Exception as e:
            m.say(case.__name__.strip("_"), error=f"{type(e).__name__}: {e}"[:500])
            if m.smoke:
                raise
            m.check_alive()


def _beside(m: Machine, name: str, ours: Callable[[], Any], theirs: Callable[[], Any], calls: int, wait: Callable[[], Any],
            **fields: Any) -> None:
    """Time both in turn. calls: of one round."""
    calls, rounds = (2, 1) if m.smoke else (calls, m.rounds)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        times[0].extend(common.rounds_of(ours, calls=calls, rounds=1, warmup=3, finish=wait))
        times[1].extend(common.rounds_of(theirs, calls=calls, rounds=1, warmup=3, finish=lambda: _synchronize(m)))
    (median, spread), (other, _) = (common.median_and_spread(t) for t in times)
    line: dict[str, Any] = {"median_s": median, "iqr_s": spread, "of_torch": round(other / median, 3), **fields}
    if not m.smoke:
        line |= {"asked": {"torch": 1.0}, "met": other >= median}
    m.say(name, **line)


def _synchronize(m: Machine) -> None:
    if not m.smoke:
        m.torch.cuda.synchronize()


def _calls(m: Machine) -> None:
    """Small operators one by one: the host's time for a call, as the GPU does next to nothing."""
    import tritium as mx

    a, b = (mx.nd.array(np.random.rand(100, 10), ctx=mx.gpu()) for _ in range(2))
    s, t = m.randn(100, 10), m.randn(100, 10)
    for name, ours, theirs in (("eager add", lambda: a + b, lambda: s + t), ("eager exp", lambda: mx.nd.exp(a), lambda: s.exp()),
                               ("eager dot", lambda: mx.nd.dot(a, b, transpose_b=True), lambda: s @ t.T),
                               ("eager sum", lambda: mx.nd.sum(a, axis=1), lambda: s.sum(1))):
        _beside(m, name, ours, theirs, 500, mx.nd.waitall)


def _backward(m: Machine) -> None:
    """A recorded chain of ten small operators with its derivative."""
    import tritium as mx

    w = mx.nd.array(np.random.rand(64, 64), ctx=mx.gpu())
    w.attach_grad()
    v = m.randn(64, 64).requires_grad_()

    def ours() -> None:
        with mx.autograd.record():
            y = w
            for _ in range(5):
                y = mx.nd.tanh(y) * w
        y.backward()

    def theirs() -> None:
        y = v
        for _ in range(5):
            y = y.tanh() * v
        v.grad = None
        y.backward(m.torch.ones_like(y))

    _beside(m, "eager chain of 10, with backward", ours, theirs, 50, mx.nd.waitall)


def _copies(m: Machine) -> None:
    """256 MB from NumPy to the GPU and back."""
    import tritium as mx

    values = np.random.default_rng(0).random(m.size(1 << 26) if not m.smoke else 1000, dtype="float32")
    array, tensor = mx.nd.array(values, ctx=mx.gpu()), m.torch.from_numpy(values).to(m.device)
    _beside(m, "host to GPU", lambda: mx.nd.array(values, ctx=mx.gpu()).wait_to_read(),
            lambda: (m.torch.from_numpy(values).to(m.device), _synchronize(m)), 2, mx.nd.waitall, byte=values.nbytes)
    _beside(m, "GPU to host", array.asnumpy, lambda: tensor.cpu().numpy(), 2, mx.nd.waitall, byte=values.nbytes)


def _fit(m: Machine) -> None:
    """LeNet by Module.fit, its batches from NDArrayIter, beside the same loop in torch: seconds a batch."""
    import tritium as mx

    batch, batches = (2, 2) if m.smoke else (128, 50)
    shape, (number, _) = bench_train.SHAPES["lenet"], bench_train.classes("lenet")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(batch * batches, *shape)).astype("float32")
    y = rng.integers(number, size=batch * batches).astype("float32")
    it = mx.io.NDArrayIter(x, y, batch_size=batch)
    module = mx.mod.Module(bench_train.NETS["lenet"](mx), context=mx.gpu())

    def ours() -> None:
        it.reset()
        module.fit(it, num_epoch=1, optimizer_params={"learning_rate": 0.05, "momentum": 0.9}, eval_metric="acc",
                   initializer=mx.init.Xavier())

    model = m.torch.nn.Sequential(*layers("lenet")).to(m.device)
    optimizer = m.torch.optim.SGD(model.parameters(), 0.05, 0.9)

    def theirs() -> None:
        right = 0
        for i in range(0, len(x), batch):
            data = m.torch.from_numpy(x[i:i + batch]).to(m.device)
            label = m.torch.from_numpy(y[i:i + batch]).to(m.device).long()
            optimizer.zero_grad(set_to_none=True)
            out = model(data)
            m.torch.nn.functional.cross_entropy(out, label).backward()
            optimizer.step()
            right += int((out.argmax(1) == label).sum())

    _beside(m, f"epoch of Module.fit, LeNet, {batches} batches", ours, theirs, 1, mx.nd.waitall, batch=batch)
