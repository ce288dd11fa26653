"""Optimizers as data: an optimizer made from a spec updates like the original; other objects are refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tritium as mx
from tritium.errors import MXNetError, ParameterError
from tritium.train.optimizer.base import registry
from tritium.train.optimizer.serialize import from_spec, to_spec

SCHEDULES = [mx.lr_scheduler.FactorScheduler(2, 0.5), mx.lr_scheduler.MultiFactorScheduler([2, 3], 0.1),
             mx.lr_scheduler.PolyScheduler(9), mx.lr_scheduler.CosineScheduler(9, warmup_steps=2)]


def updated(optimizer):
    updater, w = optimizer.create_updater(), mx.nd.array(np.linspace(-1, 1, 12).reshape(3, 4))
    for step in range(4):
        mx.random.seed(step)
        updater("w_weight", mx.nd.array(np.cos(np.arange(12) + step).reshape(3, 4)), w)
    return w.asnumpy()


@pytest.mark.parametrize("name", sorted(set(registry.names())))
def test_every_optimizer_comes_back_from_its_spec(name):
    if registry.find(name).__module__.split(".")[0] != "tritium":
        pytest.skip("registered by another test")
    wd = 0.0 if name == "groupadagrad" else 0.01  # which it refuses
    optimizer = mx.optimizer.create(name, learning_rate=0.03, wd=wd, rescale_grad=0.5, param_idx2name={0: "w_weight"})
    optimizer.set_lr_mult({"w_weight": 0.7})
    again = from_spec(json.loads(json.dumps(to_spec(optimizer))))
    assert type(again) is type(optimizer)
    np.testing.assert_array_equal(updated(again), updated(optimizer))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: type(s).__name__)
def test_every_scheduler_comes_back_from_its_spec(schedule):
    optimizer = mx.optimizer.SGD(learning_rate=0.5, lr_scheduler=schedule)
    again = from_spec(json.loads(json.dumps(to_spec(optimizer))))
    np.testing.assert_array_equal(updated(again), updated(optimizer))


class Unregistered(mx.optimizer.SGD):
    pass


class MySchedule(mx.lr_scheduler.LRScheduler):
    pass


@pytest.mark.parametrize("optimizer, text", [
    (Unregistered, r"Unregistered is not a registered optimizer.*TRITIUM_KV_OPTIMIZERS"),
    (lambda: mx.optimizer.SGD(momentum=[1]), r"SGD\.momentum is a list. Only numbers and strings can be sent"),
    (lambda: mx.optimizer.SGD(lr_scheduler=MySchedule()), "the scheduler MySchedule is not one of CosineScheduler"),
])
def test_an_optimizer_that_servers_cannot_create_is_refused(optimizer, text):
    with pytest.raises(MXNetError, match=text):
        to_spec(optimizer())


@pytest.mark.parametrize("change, error, text", [
    ({"name": "os.system"}, ParameterError, "no optimizer is called 'os.system'"),
    ({"settings": {"__class__": 3}}, MXNetError, "sgd has no setting '__class__'"),
    ({"settings": {"momentum": {"a": 1}}}, MXNetError, "has no setting 'momentum'"),
    ({"scheduler": {"name": "Popen", "fields": {}}}, MXNetError, "no scheduler is called 'Popen'"),
])
def test_a_forged_spec_is_refused(change, error, text):
    with pytest.raises(error, match=text):
        from_spec({**to_spec(mx.optimizer.SGD()), **change})
