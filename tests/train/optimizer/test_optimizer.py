"""Optimizers. Oracle: the weights of MXNet 1.9.1 after steps 0, 4 and 9 of ten (golden)."""

import json
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from tritium.errors import FileError, MXNetError, ParameterError, ShapeError
from tritium.train import optimizer
from tritium.train.optimizer import lr_scheduler

HERE = Path(__file__).parents[2] / "golden/optimizers"
RUNS = json.loads((HERE / "index.json").read_text())["runs"]
DATA = np.load(HERE / "optimizers.npz")


def optimizer_of(run):
    kwargs = dict(run["kwargs"])
    if "lr_scheduler" in kwargs:
        name, settings = kwargs["lr_scheduler"]
        kwargs["lr_scheduler"] = getattr(lr_scheduler, name)(**settings)
    if "param_idx2name" in kwargs:
        kwargs["param_idx2name"] = {int(k): v for k, v in kwargs["param_idx2name"].items()}
    return optimizer.create(run["optimizer"], **kwargs)


def runs():
    """All runs on the CPU and the interpreted GPU; on the GPU, runs that vary one setting are nightly."""
    for name in RUNS:
        yield pytest.param(name, "cpu")
        nightly = [pytest.mark.nightly] if name.endswith(("_clip", "_rescale", "_wd")) else []
        yield pytest.param(name, "gpu", marks=nightly)


@pytest.mark.parametrize("name, ctx", list(runs()), indirect=["ctx"])
def test_weights_equal_those_of_mxnet(name, ctx):
    opt = optimizer_of(RUNS[name])
    half = name == "sgd_fp16_master"
    updater, dtype = optimizer.get_updater(opt), "float16" if half else "float32"
    weights = [mx.nd.array(DATA[f"w0.{i}"], ctx=ctx, dtype=dtype) for i in range(1 if half else 2)]
    compared = 0
    for step in range(10):
        if f"{name}.lr" in DATA.files:
            assert opt.learning_rate == pytest.approx(DATA[f"{name}.lr"][step], rel=1e-6)
        for i, w in enumerate(weights):
            updater(i, mx.nd.array(DATA[f"grad.{i}.{step}"], ctx=ctx, dtype=dtype), w)
            key = f"{name}.w.{i}.{step}"
            if key in DATA.files:
                compared += 1
                tolerance = 1e-3 if half else 1e-5
                np.testing.assert_allclose(w.asnumpy(), DATA[key], rtol=tolerance, atol=tolerance)  # as MXNet rounds
    assert compared == 3 * len(weights)
    assert opt.num_update == RUNS[name].get("num_update", 10)


@pytest.mark.parametrize("name", [n for n in RUNS if n.endswith(("_all", "fp16_master"))])
def test_updates_in_one_push_have_the_bits_of_single_updates(name, ctx):
    """One task for all parameters, or one task each. Nadam advances its schedule at each parameter."""
    dtype = "float16" if name == "sgd_fp16_master" else "float32"
    sizes = [(3, 4), (5,), (1,), (70, 33)]
    random = np.random.default_rng(0)
    start = [random.normal(size=s).astype(dtype) for s in sizes]
    slopes = [[random.normal(size=s).astype(dtype) for s in sizes] for _ in range(3)]
    got = []
    for together in (True, False):
        updater = optimizer.get_updater(optimizer_of(RUNS[name]))
        weights = [mx.nd.array(w, ctx=ctx, dtype=dtype) for w in start]
        for step in slopes:
            grads = [mx.nd.array(g, ctx=ctx, dtype=dtype) for g in step]
            if together:
                updater(list(range(len(sizes))), grads, weights)
            else:
                for i, (g, w) in enumerate(zip(grads, weights)):
                    updater(i, g, w)
        got.append([w.asnumpy() for w in weights])
    for a, b in zip(*got):
        assert np.array_equal(a, b)


def test_an_update_of_many_parameters_is_one_push_per_context(monkeypatch):
    pushed = []
    engine = mx.engine.current()
    real = engine.push_sync
    updater = optimizer.get_updater(optimizer.SGD(momentum=0.9))
    where = [mx.cpu(0), mx.cpu(1), mx.cpu(0)]
    weights = [mx.nd.ones((3,), ctx=c) for c in where]
    grads = [mx.nd.ones((3,), ctx=c) for c in where]
    updater([0, 1, 2], grads, weights)
    monkeypatch.setattr(type(engine), "push_sync", lambda self, *a, **k: (pushed.append(k["name"]), real(*a, **k))[1])
    updater([0, 1, 2], grads, weights)
    assert pushed == ["sgd_mom_update x 2", "sgd_mom_update"]
    updater.optimizer.aggregate_num = 1
    updater([0, 1, 2], grads, weights)
    assert len(pushed) == 5


@pytest.mark.parametrize("strategy, factors", [("linear", [1.25, 1.5, 1.75, 2.0]), ("sqrt", [1.5, 1.7071, 1.866, 2.0]),
                                               ("power2", [1.0625, 1.25, 1.5625, 2.0])])
def test_lbsgd_warms_up(strategy, factors):
    opt = optimizer.LBSGD(learning_rate=1.0, warmup_strategy=strategy, warmup_epochs=1, updates_per_epoch=4, batch_scale=2)
    assert [opt._warmup_factor(n) for n in (1, 2, 3, 4)] == pytest.approx(factors, abs=1e-4)
    updater, w = opt.create_updater(), mx.nd.zeros((2,))
    updater(0, mx.nd.ones((2,)), w)
    assert w.asnumpy().tolist() == [0, 0]  # LBSGD waits for the second gradient
    updater(0, 3 * mx.nd.ones((2,)), w)
    np.testing.assert_allclose(w.asnumpy(), -2 * factors[1], rtol=1e-4)  # a number for all elements


def test_lbsgd_takes_the_rate_before_it_counts_an_update():
    opt = optimizer.LBSGD(lr_scheduler=lr_scheduler.MultiFactorScheduler([1], 0.5, base_lr=1.0), warmup_epochs=0)
    w = mx.nd.zeros(1)
    for want in (-1, -2, -2.5):  # a rate of 1 for two updates
        opt.update(0, w, mx.nd.ones(1), None)
        assert w.asscalar() == want


@pytest.mark.parametrize("momentum", [0, 0.5])
def test_states_of_lbsgd_in_half_precision(momentum):
    opt = optimizer.LBSGD(momentum=momentum, multi_precision=True, learning_rate=1e-4)
    w = mx.nd.ones(2, dtype="float16")
    own = opt.create_state(0, w)  # MXNet's order differs between the two
    master, mom = opt.create_state_multi_precision(0, w)
    assert master.dtype == own[1].dtype == np.float32 and (mom is own[0] is None if momentum == 0 else mom.shape == own[0].shape)
    for _ in range(8):
        opt.update(0, w, mx.nd.ones(2, dtype="float16"), own)
    np.testing.assert_allclose(own[1].asnumpy(), optimizer_oracle(momentum, 8), rtol=1e-6)
    np.testing.assert_array_equal(w.asnumpy(), own[1].asnumpy().astype("float16"))


def optimizer_oracle(momentum, steps):
    """A weight that begins at 1, by SGD with the rate 1e-4 and gradients of 1."""
    w, m = 1.0, 0.0
    for _ in range(steps):
        m = momentum * m - 1e-4
        w += m
    return [w, w]


def test_adadelta_of_half_precision_weights_without_a_master_copy():
    """Oracle: its formula in float64, to the steps of float16."""
    adadelta, w, mean, steps = mx.optimizer.AdaDelta(rho=0.5, epsilon=0.01), mx.nd.array([1, -2, 3], dtype="float16"), 0.0, 0.0
    states, want, g = adadelta.create_state(0, w), w.asnumpy().astype(np.float64), np.array([0.5, 1.0, -0.25])
    for _ in range(3):
        adadelta.update(0, w, mx.nd.array(g, dtype="float16"), states)
        mean = 0.5 * mean + 0.5 * g * g
        step = np.sqrt(steps + 0.01) / np.sqrt(mean + 0.01) * g
        steps = 0.5 * steps + 0.5 * step * step
        want -= step
    assert [s.dtype for s in (w, *states)] == [np.float16] * 3
    np.testing.assert_allclose(w.asnumpy(), want, rtol=0, atol=3 * 2**-10)  # three steps, each rounded by half of 2**-9


def test_dcasgd_compensates_stale_gradients():
    updater, w = optimizer.DCASGD(learning_rate=0.5, momentum=0.5, lamda=2.0).create_updater(), mx.nd.array([1.0])
    mom, want, before = 0.0, 1.0, 1.0
    for g in (0.5, -1.0, 2.0):
        updater(0, mx.nd.array([g]), w)
        mom = 0.5 * mom - 0.5 * (g + 2.0 * g * g * (want - before))
        before, want = want, want + mom
        assert w.asscalar() == pytest.approx(want, rel=1e-5)


def test_the_noise_of_sgld_has_the_variance_of_the_learning_rate():
    mx.random.seed(3)
    updater, w = optimizer.SGLD(learning_rate=0.25).create_updater(), mx.nd.zeros((200, 100))
    updater(0, 2 * mx.nd.ones((200, 100)), w)
    assert w.asnumpy().mean() == pytest.approx(-0.25, abs=0.02) and w.asnumpy().std() == pytest.approx(0.5, abs=0.02)


def test_weight_decay_is_for_weights_and_gammas_only():
    opt = optimizer.SGD(wd=0.1, param_idx2name={0: "a_weight", 1: "a_bias", 2: "b_gamma", 3: "b_beta", 4: "w"})
    assert [opt._get_wd(i) for i in range(5)] == [0.1, 0, 0.1, 0, 0]
    assert opt._get_wd("a_bias") == 0  # in a KVStore the keys are names
    opt.set_wd_mult({"w": 3.0})
    assert opt._get_wd(4) == pytest.approx(0.3)


def test_variables_have_multipliers():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), bias=mx.sym.Variable("b_bias", lr_mult=2, wd_mult=0.5),
                                num_hidden=2, name="fc")
    opt = optimizer.SGD(learning_rate=0.1, wd=0.1, param_idx2name={0: "fc_weight", 1: "b_bias"}, sym=net)
    assert [opt._get_lr(i) for i in (0, 1)] == pytest.approx([0.1, 0.2])
    assert [opt._get_wd(i) for i in (0, 1)] == pytest.approx([0.1, 0.05])


def test_a_learning_rate_replaces_base_lr_and_no_more():
    for name, settings in (("sgd", {"learning_rate": 0.001}), ("adam", {})):  # Adam has a rate of its own
        opt = optimizer.create(name, lr_scheduler=lr_scheduler.PolyScheduler(10, base_lr=0.4, pwr=1, warmup_steps=2), **settings)
        assert opt.lr_scheduler.base_lr == 0.001
        assert [opt.lr_scheduler(i) for i in (1, 6, 10)] == pytest.approx([0.2, 0.2, 0])  # computed from 0.4, as in MXNet
        opt = optimizer.create(name, lr_scheduler=lr_scheduler.FactorScheduler(1, 0.5, base_lr=0.4), **settings)
        assert [opt.lr_scheduler(i) for i in (1, 2)] == [0.001, 0.0005]
    opt = optimizer.SGD(learning_rate=0.1, lr_scheduler=lr_scheduler.PolyScheduler(10))
    with pytest.raises(ParameterError, match="the learning rate is set by PolyScheduler"):
        opt.set_learning_rate(1.0)


def run(updater, steps, seed=0):
    rng = np.random.default_rng(seed)
    weights = {3: mx.nd.ones((2, 3)), "b": mx.nd.ones(4)}
    grads = [{k: rng.normal(size=w.shape) for k, w in weights.items()} for _ in range(8)]
    for step in steps:
        if step == "reload":
            updater = reloaded(updater)
            continue
        for k, w in weights.items():
            updater(k, mx.nd.array(grads[step][k]), w)
    return [w.asnumpy() for w in weights.values()]


def reloaded(updater):
    again = optimizer.create(type(updater.optimizer).__name__, learning_rate=0.05).create_updater()
    again.set_states(updater.get_states(dump_optimizer=True))
    return again


@pytest.mark.parametrize("name, settings", [("sgd", {"momentum": 0.9}), ("adam", {}), ("sgd", {})])
def test_training_from_saved_states_has_the_bits_of_training_without_a_break(name, settings):
    uninterrupted = run(optimizer.create(name, learning_rate=0.05, **settings).create_updater(), range(8))
    reloaded_twice = run(optimizer.create(name, learning_rate=0.05, **settings).create_updater(),
                 [0, 1, 2, 3, "reload", 4, "reload", 5, 6, 7])
    for a, b in zip(uninterrupted, reloaded_twice):
        assert np.array_equal(a, b)


def test_half_precision_weights_have_a_master_copy_or_a_warning():
    w = mx.nd.ones(1000, dtype="float16")
    updater = optimizer.SGD(learning_rate=1e-4, multi_precision=True).create_updater()
    for _ in range(20):
        updater(0, mx.nd.ones(1000, dtype="float16"), w)
    assert w.asnumpy()[0] == np.float16(1 - 20e-4)
    updater = optimizer.SGD(learning_rate=1e-4).create_updater()
    with pytest.warns(UserWarning, match="SGD: small updates of float16 weights are lost in rounding"):
        updater(0, mx.nd.ones(1000, dtype="float16"), w)


def test_a_users_optimizer_is_created_by_name():
    @optimizer.register
    class Halver(optimizer.Optimizer):
        def update(self, index, weight, grad, state):
            weight[:] = weight / 2

    w = mx.nd.ones(3)
    optimizer.create("halver").create_updater()(0, w, w)
    assert w.asnumpy().tolist() == [0.5] * 3


@pytest.mark.parametrize("name, settings, text", [
    ("sdg", {}, "optimizer.create: no optimizer is called 'sdg'. Did you mean 'sgd'"),
    ("sgd", {"lrr": 1}, "optimizer.create: 'sgd' does not take these settings: .*'lrr'"),
    ("sgd", {"param_idx2name": [1]}, r"SGD: param_idx2name must map indices to names, not \[1\]"),
])
def test_a_wrong_name_or_setting_is_refused(name, settings, text):
    with pytest.raises(ParameterError, match=text):
        optimizer.create(name, **settings)


def test_states_of_another_optimizer_are_refused():
    with pytest.raises(MXNetError, match="the states are of optimizer 'adam', this is 'sgd'"):
        optimizer.SGD(momentum=0.9).create_updater().set_states(optimizer.Adam().create_updater().get_states())


def test_states_of_another_shape_are_refused_at_the_first_update():
    saved, updater = (optimizer.SGD(momentum=0.9).create_updater() for _ in range(2))
    saved(0, mx.nd.ones(3), mx.nd.ones(3))
    updater.set_states(saved.get_states())
    with pytest.raises(ShapeError, match=r"the saved state of 0 does not fit its weight \(5,\)"):
        updater(0, mx.nd.ones(5), mx.nd.ones(5))


def test_a_damaged_pickle_of_states_is_refused():
    with pytest.raises(FileError, match="byte 2: this is not an optimizer-state file of MXNet"):
        optimizer.SGD(momentum=0.9).create_updater().set_states(b"\x80\x04rest of it")


@pytest.mark.parametrize("name, settings, lazy", [
    ("sgd", {"momentum": 0.9, "wd": 0.01}, True), ("adam", {"wd": 0.01}, True), ("ftrl", {}, True), ("adagrad", {}, True),
    ("sgd", {"momentum": 0.9, "wd": 0.01, "lazy_update": False}, False), ("nag", {"momentum": 0.9}, False), ("lars", {}, False),
])
def test_row_sparse_gradients_update_their_rows(name, settings, lazy, rng):
    """Lazy: a row is only updated by steps with a gradient for it. Otherwise the dense gradient is the oracle."""
    shape, steps = (6, 3), [[1, 3], [0, 1], [], [3, 5]]
    make = lambda: mx.optimizer.get_updater(mx.optimizer.create(name, learning_rate=0.1, **settings))
    sparse, oracle = make(), make()
    weight, whole = mx.nd.ones(shape), mx.nd.ones(shape)
    for rows in steps:
        values = rng.normal(size=(len(rows), 3)).astype("f")
        gradient = mx.nd.sparse.row_sparse_array((values, rows), shape=shape) if rows else mx.nd.sparse.zeros("row_sparse", shape)
        before = whole.asnumpy()
        states = [s.asnumpy() for s in _arrays_of(oracle.states.get(0))]
        sparse(0, gradient, weight)
        oracle(0, gradient.tostype("default"), whole)
        if lazy:  # restore the other rows
            for array, old in zip([whole, *_arrays_of(oracle.states[0])], [before, *(states or [np.zeros(shape, "f")] * 9)]):
                others = [r for r in range(6) if r not in rows]
                array[others] = mx.nd.array(old[others])
    np.testing.assert_array_equal(weight.asnumpy(), whole.asnumpy())


@pytest.mark.parametrize("method", ["update", "update_multi_precision"])
@pytest.mark.parametrize("name, settings", [("sgd", {}), ("sgd", {"momentum": 0.5, "wd": 0.1}), ("adam", {}), ("nadam", {})])
def test_a_row_sparse_weight_is_updated_as_a_dense_one(name, settings, method):
    """By an optimizer that is called directly. Row 0 has no gradient, so a lazy update leaves it; row 3 is not stored."""
    values = np.array([[1, 2], [3, 4], [5, 6], [0, 0]], "f")
    gradient = mx.nd.sparse.row_sparse_array(([[1.0, 2.0], [4.0, 5.0]], [1, 3]), shape=(4, 2))
    results = []
    for stype in ("row_sparse", "default"):
        made, weight = mx.optimizer.create(name, learning_rate=0.1, **settings), mx.nd.array(values).tostype(stype)
        state = made.create_state(0, weight)
        for _ in range(2):
            getattr(made, method)(0, weight, gradient, state)
        assert weight.stype == stype
        results.append([weight.asnumpy(), *[a.asnumpy() for a in _arrays_of(state)]])
    for sparse, dense in zip(*results):
        np.testing.assert_array_equal(sparse, dense)
    assert (results[0][0][[1, 3]] != values[[1, 3]]).all()
    if made.lazy_update:
        np.testing.assert_array_equal(results[0][0][[0, 2]], values[[0, 2]])


def _arrays_of(state):
    return [] if state is None else [a for s in state for a in _arrays_of(s)] if isinstance(state, tuple) else [state]


def test_rates_and_counts_of_several_parameters():
    sgd = mx.optimizer.SGD(learning_rate=0.5, wd=0.25, param_idx2name={0: "a_weight", 1: "b_weight"})
    sgd.set_lr_mult({"b_weight": 2})
    assert sgd._get_lrs([0, 1]) == [0.5, 1.0] and sgd._get_wds([0, 1]) == [0.25, 0.25]
    sgd._update_count([0, 1])
    sgd._update_count(1)
    assert sgd._index_update_count == {0: 1, 1: 2} and sgd.num_update == 2


def test_set_lr_scale_says_what_to_use():
    with pytest.raises(DeprecationWarning, match="Use set_lr_mult instead"):
        mx.optimizer.SGD().set_lr_scale({})
