"""Updates of many arrays in one push on the CPU: reused plans, the bits of C and NumPy, lifetimes of arrays."""

import gc
import json
import weakref
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.engine import ThreadedEngine, current, set_current
from tritium.kernels.cpu import c_compile, c_kernel
from tritium.train import optimizer
from tritium.train.optimizer import lr_scheduler, update
from tritium.train.optimizer.update import ParamUpdate, apply

needs_compiler = pytest.mark.skipif(c_compile.compiler() is None, reason="no C compiler here")
RUNS = json.loads((Path(__file__).parents[2] / "golden/optimizers/index.json").read_text())["runs"]
SIZES = [(3, 4), (5,), (1,), (70, 33), (600,)]


def arrays(seed=0, sizes=SIZES, dtype="float32"):
    rng = np.random.default_rng(seed)
    return [mx.nd.array(rng.normal(size=s), dtype=dtype) for s in sizes]


def optimizer_of(run):
    kwargs = dict(run["kwargs"])
    if "lr_scheduler" in kwargs:
        name, settings = kwargs["lr_scheduler"]
        kwargs["lr_scheduler"] = getattr(lr_scheduler, name)(**settings)
    kwargs.pop("param_idx2name", None)
    return optimizer.create(run["optimizer"], **kwargs)


def train(opt, dtype="float32", steps=4, sizes=SIZES):
    """Return the weights after a few steps. As in an executor, the arrays of the gradients are the same in each step."""
    updater, weights, grads = optimizer.get_updater(opt), arrays(0, sizes, dtype), arrays(1, sizes, dtype)
    for step in range(steps):
        for g, new in zip(grads, arrays(step + 2, sizes, dtype)):
            g[:] = new
        updater(list(range(len(weights))), grads, weights)
    return [w.asnumpy() for w in weights]


@pytest.fixture
def functions(monkeypatch):
    """The number of C functions that each plan bound, in order."""
    seen = []
    bind_plan, bind_in_c = update._UpdatePlan.bind, update.bind_in_c

    def counted_plan(plan, steps):
        seen.append(0)
        bind_plan(plan, steps)

    def counted_function(*args):
        bound = bind_in_c(*args)
        if seen:
            seen[-1] += bound is not None
        return bound

    monkeypatch.setattr(update._UpdatePlan, "bind", counted_plan)
    monkeypatch.setattr(update, "bind_in_c", counted_function)
    return seen


@needs_compiler
@pytest.mark.parametrize("name", [n for n in RUNS if n.endswith(("_all", "fp16_master"))])
def test_c_and_numpy_give_the_same_bits(name, monkeypatch, functions):
    """So results do not depend on a C compiler."""
    dtype, got = "float16" if name == "sgd_fp16_master" else "float32", []
    for mode in ("c", "numpy"):
        monkeypatch.setenv("TRITIUM_CPU_CODE", mode)
        np.random.seed(0)
        mx.random.seed(0)
        got.append(train(optimizer_of(RUNS[name]), dtype))
    assert all(np.array_equal(a, b) for a, b in zip(*got))
    in_c, in_numpy = sum(functions[:len(functions) // 2]), sum(functions[len(functions) // 2:])
    assert not in_numpy
    assert in_c == (0 if name.startswith(("lamb", "lars", "ftml")) else len(SIZES)), functions


@needs_compiler
def test_small_groups_are_computed_by_numpy(functions, cpu_code):
    cpu_code("auto")
    train(optimizer.SGD(momentum=0.9), sizes=SIZES[:3])
    train(optimizer.SGD(momentum=0.9), sizes=[(2,)] * 8)
    assert functions == [0, 8]


def test_updates_without_a_compiler_use_numpy(monkeypatch, functions):
    want = train(optimizer.SGD(momentum=0.9))
    monkeypatch.setattr(c_kernel.c_compile, "available", lambda: False)
    got = train(optimizer.SGD(momentum=0.9))
    assert functions[-1] == 0 and all(np.array_equal(a, b) for a, b in zip(want, got))


@pytest.mark.parametrize("mode", ["c", "numpy"])
def test_bits_do_not_depend_on_the_number_of_threads(mode, monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", mode)
    got = []
    before = current()
    for workers in (1, 3):
        on = ThreadedEngine(workers)
        set_current(on)
        try:
            got.append(train(optimizer.Adam(), sizes=[(300, 1000), (7,), (513,)]))
        finally:
            set_current(before)
            on.stop()
    assert all(np.array_equal(a, b) for a, b in zip(*got))


def test_a_plan_is_built_once_and_bound_at_its_second_use(monkeypatch):
    built, bound = [], []
    plan, bind = update._UpdatePlan, update._UpdatePlan.bind
    monkeypatch.setattr(update, "_UpdatePlan", lambda *a: built.append(1) or plan(*a))
    monkeypatch.setattr(plan, "bind", lambda self, steps: bound.append(1) or bind(self, steps))
    weights, grads = arrays(0), arrays(1)

    def step(ws=weights, gs=grads, op="sgd_update", **more):
        before = [w.asnumpy() for w in ws]
        apply([ParamUpdate(op, w, g, **more) for w, g in zip(ws, gs)])
        lr = np.float32(more["lr"])
        for w, b, g in zip(ws, before, gs):
            slope = np.sign(g.asnumpy()) if op == "signsgd_update" else np.clip(g.asnumpy(), -c, c) \
                if (c := more.get("clip_gradient", 0)) else g.asnumpy()
            assert_close(w, b - lr * slope)
        return len(built), len(bound)

    assert step(lr=0.5) == (1, 0)
    assert step(lr=0.5) == (1, 1)
    assert step(lr=0.25) == (1, 1)  # a new scalar uses the same plan
    assert step(lr=0.25, clip_gradient=0.5) == (2, 1)  # another formula needs a new plan
    assert step(lr=0.25, clip_gradient=0.5) == (2, 2)
    assert step(lr=0.25, clip_gradient=0.5, op="signsgd_update") == (3, 2)
    assert step(lr=0.5) == (4, 2)
    other = arrays(3)
    assert step(other, lr=0.5) == (5, 2)  # and so do other arrays
    assert step(other[:3], grads[:3], lr=0.5) == (6, 2)
    assert step([w.reshape((-1,)) for w in other], [g.reshape((-1,)) for g in grads], lr=0.5) == (7, 2)


def test_executors_that_share_weights_have_different_plans(functions):
    weights = arrays(0)
    for _ in range(3):
        for grads in (first := arrays(1), second := arrays(2)):
            apply([ParamUpdate("sgd_update", w, g, lr=0.5) for w, g in zip(weights, grads)])
    del first, second
    grads = [arrays(1), arrays(2)]
    functions.clear()
    for k in (0, 1, 0, 1, 0, 1):
        apply([ParamUpdate("sgd_update", w, g, lr=0.5) for w, g in zip(weights, grads[k])])
    assert len(functions) == 2


def test_a_plan_is_freed_with_its_gradients_and_keeps_no_weight_alive():
    mx.nd.waitall()
    gc.collect()
    before = len(update._plans)
    weights, grads = arrays(0), arrays(1)
    for _ in range(3):
        apply([ParamUpdate("sgd_update", w, g, lr=0.5) for w, g in zip(weights, grads)])
    mx.nd.waitall()
    assert len(update._plans) == before + 1
    seen = weakref.ref(weights[0].chunk)
    del weights
    gc.collect()
    assert seen() is None
    del grads
    gc.collect()
    assert len(update._plans) == before


def test_a_weight_that_is_updated_twice_gets_both_updates():
    weight, slopes = mx.nd.ones((8,)), [mx.nd.full((8,), v) for v in (1.0, 2.0)]
    for _ in range(4):
        apply([ParamUpdate("sgd_update", weight, g, lr=0.25) for g in slopes])
    assert weight.asnumpy().tolist() == [1 - 4 * 0.75] * 8


def test_a_poisoned_gradient_poisons_its_weight():
    weight, slope = mx.nd.ones((3,)), mx.nd.ones((3,))

    def fail(run):
        raise ValueError("no gradient")

    current().push_sync(fail, mx.cpu(), (), (slope.chunk.var,), name="slope")
    for _ in range(2):
        apply([ParamUpdate("sgd_update", weight, slope, lr=0.25)])
    for array in (weight, slope):
        with pytest.raises(ValueError, match="slope: no gradient"):
            array.asnumpy()
