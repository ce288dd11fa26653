"""Trainer: MXNet's numbers for each optimizer, stores, stale gradients, states and row-sparse parameters."""

import json
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from golden.gluon_core import cases, record_states
from golden.gluon_core.record_states import STEPS
from tritium import gluon
from tritium.gluon import Trainer, nn

KNOWN = json.loads((Path(__file__).parents[1] / "golden" / "gluon_core" / "trainer.json").read_text())


def dense(**given):
    net = nn.Dense(1, in_units=3, **given)
    net.initialize(mx.init.One())
    return net


def backward(net, rows=2):
    with mx.autograd.record():
        y = net(mx.nd.ones((rows, 3))).sum()
    y.backward()


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("name", cases.OPTIMIZERS)
def test_three_steps_are_mxnets(name, hybridize):
    found = cases.train(mx, name, hybridize)
    for key, want in KNOWN[name].items():
        np.testing.assert_allclose(found[key], want, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("kvstore", "on_store"), [("device", None), ("local", True), ("local", False), (None, None)])
def test_several_contexts(kvstore, on_store, monkeypatch):
    made = Trainer.__init__
    monkeypatch.setattr(Trainer, "__init__", lambda self, params, name, settings: made(self, params, name, settings, kvstore,
                                                                                     update_on_kvstore=on_store))
    found = cases.train(mx, "sgd", True, [mx.cpu(0), mx.cpu(1)])
    if kvstore is not None:  # without a store, gradients are not summed
        for key, want in KNOWN["two contexts"].items():
            np.testing.assert_allclose(found[key], want, rtol=2e-4, atol=2e-5)


def test_rates_and_multipliers():
    net = dense()
    net.bias.lr_mult, net.bias.wd_mult = 0.1, 0.0
    trainer = Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5, "wd": 0.1, "rescale_grad": 2.0, "clip_gradient": 0.2})
    backward(net)
    trainer.step(2)
    np.testing.assert_allclose(net.weight.data().asnumpy(), [[0.85] * 3])
    np.testing.assert_allclose(net.bias.data().asnumpy(), [-0.01])
    trainer.set_learning_rate(0.25)
    assert trainer.learning_rate == 0.25 == trainer.optimizer.lr
    scheduled = Trainer(net.collect_params(), "sgd", {"lr_scheduler": mx.lr_scheduler.FactorScheduler(2, 0.5)})
    with pytest.raises(ValueError, match="the learning rate is set by FactorScheduler"):
        scheduled.set_learning_rate(0.1)


def test_reduction_and_update_apart():
    net = dense()
    trainer = Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
    backward(net)
    trainer.allreduce_grads()
    gluon.utils.clip_global_norm([p.grad() for p in net.collect_params().values()], 1.0)
    trainer.update(1)
    np.testing.assert_allclose(net.weight.data().asnumpy(), [[0.5] * 3], rtol=1e-5)
    on_store = Trainer(dense().collect_params(), "sgd", kvstore=mx.kv.create("local"), update_on_kvstore=True)
    for call in (on_store.allreduce_grads, lambda: on_store.update(1)):
        with pytest.raises(AssertionError, match="when parameters are updated on kvstore is not supported"):
            call()


def test_stale_gradients():
    net = nn.HybridSequential(prefix="n_")
    with net.name_scope():
        net.add(dense(), dense())
    trainer = Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
    backward(net[0])
    with pytest.raises(RuntimeError, match=r"Gradient of Parameter `\w+` on context cpu\(0\) has not been updated by backward"):
        trainer.step(1)
    with pytest.raises(UserWarning):  # what scripts for MXNet catch
        trainer.step(1)
    trainer.step(1, ignore_stale_grad=True)
    assert net[0].weight.data().asnumpy().tolist() == [[-1] * 3] and net[1].weight.data().asnumpy().tolist() == [[1] * 3]
    trainer.step(1, ignore_stale_grad=True)  # nothing is fresh
    assert net[0].weight.data().asnumpy().tolist() == [[-1] * 3]


def test_rate_of_a_scheduler_cannot_be_set():
    trainer = Trainer(dense().collect_params(), "sgd", {"lr_scheduler": mx.lr_scheduler.FactorScheduler(1)})
    with pytest.raises(UserWarning, match="the learning rate is set by FactorScheduler"):
        trainer.set_learning_rate(0.1)


def test_unknown_settings_of_an_optimizer():
    with pytest.raises(TypeError, match=r"does not take these settings: .*'lerning_rate'"):  # MXNet's class
        Trainer(dense().collect_params(), "sgd", {"lerning_rate": 1})


def test_an_optimizers_own_rescale_grad_is_kept():
    net = dense()
    trainer = Trainer(net.collect_params(), mx.optimizer.SGD(learning_rate=1.0, rescale_grad=0.25))
    backward(net)
    trainer.step(2)
    assert net.weight.data().asnumpy().tolist() == [[0.75] * 3]  # MXNet 1.9.1: 1 - 2 * 0.25 / 2


def test_parameters_that_moved_to_more_contexts_are_noticed():
    net = dense()
    trainer = Trainer(net.collect_params(), "sgd")
    net.reset_ctx([mx.cpu(0), mx.cpu(1)])
    with pytest.raises(ValueError, match=r"is on \[cpu\(0\), cpu\(1\)\] now, and the Trainer was made for \[cpu\(0\)\]"):
        trainer.step(1, ignore_stale_grad=True)
    net.reset_ctx(mx.cpu(1))
    with mx.autograd.record():
        y = net(mx.nd.ones((2, 3), ctx=mx.cpu(1))).sum()
    y.backward()
    trainer.step(2)
    np.testing.assert_allclose(net.weight.data().asnumpy(), [[0.99] * 3], rtol=1e-6)


def test_set_data_reaches_a_store_that_updates():
    net = dense()
    trainer = Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore="local", update_on_kvstore=True)
    trainer._contexts *= 2  # so that a store is made
    for value in (1, 5):
        net.weight.set_data(mx.nd.ones((1, 3)) * value)
        backward(net)
        trainer.step(2)
        np.testing.assert_allclose(net.weight.data().asnumpy(), [[value - 0.1] * 3], rtol=1e-6)
        assert trainer._kvstore is not None and trainer._update_on_kvstore


@pytest.mark.parametrize("kvstore", [None, mx.kv.create("local")], ids=["own", "store"])
def test_states(tmp_path, kvstore):
    file, weights = str(tmp_path / "states"), []
    for resumes in (False, True):
        net = dense()
        settings = {"learning_rate": 0.1, "momentum": 0.9}
        store = None if kvstore is None else mx.kv.create("local")
        trainer = Trainer(net.collect_params(), "sgd", settings, kvstore=store)
        for k in range(2):
            backward(net)
            trainer.step(2)
            if k == 0:
                trainer.save_states(file)
                if resumes:
                    store = None if kvstore is None else mx.kv.create("local")
                    trainer = Trainer(net.collect_params(), "sgd", settings, kvstore=store)
                    trainer.load_states(file)
                    assert trainer._optimizer.param_dict[0] is trainer._params[0]
        weights.append(net.weight.data().asnumpy().tolist())
    assert weights[0] == weights[1]
    with pytest.raises(ValueError, match=r"Trainer.load_states: .*missing: cannot be read"):
        Trainer(dense().collect_params(), "sgd").load_states(str(tmp_path / "missing"))


@pytest.mark.parametrize("kvstore", [None, "local"])
@pytest.mark.parametrize(("name", "want"), [("sgd", [-1, -1, 1.2, 1, 1, -1]), ("adagrad", [0.9, 0.9, 0.8125, 1, 1, 0.9])])
def test_row_sparse_gradients_change_their_rows_only(name, want, kvstore):
    net = nn.Embedding(6, 2, sparse_grad=True)  # figures of MXNet 1.9.1
    net.initialize(mx.init.One())
    settings = {"sgd": {"learning_rate": 1.0, "momentum": 0.9}, "adagrad": {"learning_rate": 0.1}}[name]
    trainer = Trainer(net.collect_params(), name, settings, kvstore=kvstore)
    for ids in ([0, 2], [2, 2], [5, 1]):
        with mx.autograd.record():
            y = (net(mx.nd.array(ids)) ** 2).sum()
        y.backward()
        assert net.weight.grad().stype == "row_sparse"
        trainer.step(1)
    np.testing.assert_allclose(net.weight.data().asnumpy()[:, 0], want, rtol=1e-3)


def test_row_sparse_weights_are_kept_in_a_store():
    class Words(gluon.Block):
        def __init__(self):
            super().__init__()
            self.weight = self.params.get("weight", shape=(6, 2), stype="row_sparse", grad_stype="row_sparse", init="ones")

        def forward(self, ids):
            return mx.nd.Embedding(ids, self.weight.row_sparse_data(ids), input_dim=6, output_dim=2)

    net = Words()
    net.initialize()
    trainer = Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore="local")
    for ids in ([0, 2], [2, 2], [5, 1]):
        with mx.autograd.record():
            y = (net(mx.nd.array(ids)) ** 2).sum()
        y.backward()
        trainer.step(1)
    np.testing.assert_allclose(net.weight._reduce().asnumpy()[:, 0], [0.8, 0.8, 0.48, 1, 1, 0.8], rtol=1e-6)
    with pytest.raises(RuntimeError, match="Failed to set the trainer for Parameter"):
        Trainer(net.collect_params(), "sgd")
    net.weight._set_trainer(None)
    with pytest.raises(ValueError, match="row-sparse parameters are kept in a store"):
        Trainer(net.collect_params(), "sgd", kvstore=None).save_states("states")
    net.weight._set_trainer(None)
    with pytest.raises(ValueError, match="Cannot set update_on_kvstore=False when sparse weights are present"):
        Trainer(net.collect_params(), "sgd", update_on_kvstore=False).save_states("states")


def test_a_users_store_is_called_key_by_key():
    calls = []

    class Counting(mx.kv.KVStoreBase):
        def broadcast(self, key, value, out, priority=0):
            calls.append(("broadcast", key))

        def pushpull(self, key, value, out=None, priority=0):
            calls.append(("pushpull", key, priority))

    mx.kv.KVStoreBase.register(Counting)
    net = dense()
    trainer = Trainer(net.collect_params(), "sgd", kvstore=Counting(), update_on_kvstore=False)
    backward(net)
    trainer.step(1)
    assert calls == [("broadcast", 0), ("broadcast", 1), ("pushpull", 0, 0), ("pushpull", 1, -1)]


def test_wrong_arguments():
    net = dense()
    with pytest.raises(ValueError, match="First argument must be a list or dict of Parameters, got <class 'int'>"):
        Trainer(3, "sgd")
    with pytest.raises(ValueError, match="got list of <class 'int'>"):
        Trainer([1], "sgd")
    with pytest.raises(AssertionError, match="optimizer_params must be None if optimizer is an instance of Optimizer"):
        Trainer(net.collect_params(), mx.optimizer.SGD(), {"wd": 1})
    other = nn.Dense(1, in_units=1)
    other.initialize(ctx=mx.cpu(1))
    with pytest.raises(AssertionError, match="All Parameters must be initialized on the same set of contexts"):
        Trainer([net.weight, other.weight], "sgd")


@pytest.mark.parametrize("writer", ["MXNet", "Tritium"])
def test_states_of_a_training_with_a_scheduler(writer, tmp_path):
    folder = Path(__file__).parents[1] / "golden" / "gluon_core"
    want = json.loads((folder / "trainer_states.json").read_text())
    file = str(folder / "trainer.states") if writer == "MXNet" else str(tmp_path / "states")
    if writer != "MXNet":
        assert_close_pairs(record_states.train(mx, file, 2 * STEPS, None), want)
    assert_close_pairs(record_states.train(mx, file, STEPS, want[STEPS - 1][0]), want[STEPS:])


def assert_close_pairs(found, want):
    for (weight, rate), (known_weight, known_rate) in zip(found, want, strict=True):
        np.testing.assert_allclose(weight, known_weight, rtol=1e-5)
        assert rate == pytest.approx(known_rate)


def test_a_scheduler_goes_back_with_the_states(tmp_path):
    net, file = dense(), str(tmp_path / "states")
    schedulers = [mx.lr_scheduler.FactorScheduler(1, 0.5), mx.lr_scheduler.MultiFactorScheduler([2, 3], 0.5)]
    for scheduler in schedulers:
        trainer = Trainer(net.collect_params(), "sgd", {"learning_rate": 0.8, "lr_scheduler": scheduler})
        rates = []
        for _ in range(2):
            for k in range(4):
                backward(net)
                trainer.step(2)
                rates.append(trainer.learning_rate)
                if k == 0 and len(rates) == 1:
                    trainer.save_states(file)
            trainer.load_states(file)
        assert rates[1:4] == rates[4:7]  # as in MXNet, which keeps the whole scheduler in the file
