"""Updates of many arrays in one launch on a GPU: the same bits as one by one, the number of launches, the cached tables."""

import numpy as np
import pytest
import tritium as mx
from tritium.engine.gpu import cuda, transfer
from tritium.kernels.gpu import body as gpu_body
from tritium.kernels.ops.optimizer import triton_multi
from tritium.train.optimizer import multi_tensor
from tritium.train.optimizer.update import ParamUpdate, apply

pytestmark = pytest.mark.skipif(not mx.num_gpus(), reason="no GPU, not even an interpreted one")
SIZES = [(3, 4), (5,), (1,), (70, 33), (0,)]
STATES = {"sgd_update": (0, {"lr": 0.1}), "sgd_mom_update": (1, {"lr": 0.1, "momentum": 0.9}),
          "adam_update": (2, {"lr": 0.1}), "rmsprop_update": (1, {"lr": 0.1}), "ftml_update": (3, {"lr": 0.1, "t": 1})}


def arrays(rng, n, dtype="float32", sizes=SIZES):
    return [[mx.nd.array(np.abs(rng.normal(size=s)), mx.gpu(0), dtype) for s in sizes] for _ in range(n)]


def updates_of(rule, made, masters=()):
    n, settings = STATES[rule]
    for i, (weight, grad, *states) in enumerate(zip(*made)):
        update = ParamUpdate(rule, masters[i] if masters else weight, grad, states[:n], wd=0.01 * i, **settings)
        yield update.with_master_weight(weight) if masters else update


@pytest.fixture
def launched(monkeypatch):
    """Names of the kernels that updates launch, in order."""
    seen = []

    def counting(module, launch):
        def counted(fn, *args, **more):
            seen.append(fn.name)
            launch(fn, *args, **more)

        monkeypatch.setattr(module, "launch", counted)

    counting(gpu_body, gpu_body.launch)
    counting(triton_multi, triton_multi.launch)
    return seen


def values(made):
    return [a.asnumpy() for group in made for a in group]


@pytest.mark.parametrize("rule", STATES)
def test_updates_in_one_launch_have_the_bits_of_updates_one_by_one(rule, launched):
    both = []
    for together in (True, False):
        made = arrays(np.random.default_rng(0), 2 + STATES[rule][0])
        for _ in range(3):
            steps = list(updates_of(rule, made))
            for group in [steps] if together else [[s] for s in steps]:
                apply(group)
        both.append(values(made))
        if together:
            assert launched == [f"k_{rule}_many"] * 3
    assert all(np.array_equal(a, b) for a, b in zip(*both))


def test_each_operator_and_dtype_is_one_launch(launched):
    rng = np.random.default_rng(0)
    halves, masters = arrays(rng, 3, "float16"), arrays(rng, 1)[0]
    apply([*updates_of("sgd_update", arrays(rng, 2)), *updates_of("adam_update", arrays(rng, 4)),
           *updates_of("sgd_update", halves), *updates_of("sgd_update", halves[:2][::-1] and arrays(rng, 2, "float16"), masters)])
    mx.nd.waitall()
    assert len(launched) == 4, launched
    assert launched.count("k_sgd_update_many") == 2 and launched.count("k__mixed_sgd_update_many") == 1


@pytest.mark.parametrize("kvstore", ["local", "device", None])
def test_a_module_updates_its_parameters_in_one_launch_per_step(kvstore, launched):
    net = mx.sym.FullyConnected(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="a"), num_hidden=4, name="b")
    batches = mx.io.NDArrayIter(np.ones((6, 8), "float32"), np.zeros(6, "float32"), 2)
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"), context=mx.gpu(0))
    module.bind(batches.provide_data, batches.provide_label)
    module.init_params()
    module.init_optimizer(kvstore=kvstore, optimizer="sgd", optimizer_params={"momentum": 0.9})
    launched.clear()
    for batch in batches:
        module.forward_backward(batch)
        module.update()
    mx.nd.waitall()
    assert [name for name in launched if "update" in name] == ["k_sgd_mom_update_many"] * 3


def test_an_operator_that_needs_a_norm_is_launched_for_each_array(launched):
    made = arrays(np.random.default_rng(0), 3, sizes=[(8,), (9,)])
    apply([ParamUpdate("_lars_update", w, g, (m,), flat=True, lr=0.1, momentum=0.9, eta=0.1, epsilon=1e-8)
           for w, g, m in zip(*made)])
    mx.nd.waitall()
    assert launched and not any(name.endswith("_many") for name in launched)


def test_arrays_that_share_memory_are_updated_in_order(launched):
    """A weight that is updated twice gets both updates."""
    weight, grads = mx.nd.ones((8,), mx.gpu(0)), [mx.nd.full((8,), v, mx.gpu(0)) for v in (1.0, 2.0)]
    apply([ParamUpdate("sgd_update", weight, g, lr=0.25) for g in grads])
    assert weight.asnumpy().tolist() == [0.25] * 8
    assert launched == ["k_sgd_update"] * 2


def test_arrays_not_aligned_to_16_bytes_are_updated_alone(launched):
    whole = [mx.nd.arange(0, 64, ctx=mx.gpu(0)) for _ in range(6)]
    mx.nd.waitall()
    launched.clear()
    pairs = [(whole[0], whole[1]), (whole[2], whole[3]), (whole[4][1:9], whole[5][1:9])]
    apply([ParamUpdate("sgd_update", w, g, lr=1.0) for w, g in pairs])
    assert all((w.asnumpy() == 0).all() for w, _ in pairs)
    assert sorted(launched) == ["k_sgd_update", "k_sgd_update_many"]


def test_tables_are_built_once_and_only_new_scalars_are_copied(monkeypatch):
    made, copies = arrays(np.random.default_rng(0), 2), []
    multi_tensor._cache.clear()
    real = transfer.from_host
    monkeypatch.setattr(transfer, "from_host", lambda t, v: (copies.append(v.dtype.name), real(t, v))[1])
    for lr in (0.1, 0.1, 0.2):
        apply([ParamUpdate("sgd_update", w, g, lr=lr) for w, g in zip(*made)])
        mx.nd.waitall()
    assert len(multi_tensor._cache) == 1
    assert copies == ["int64", "int64", "int64", "float64", "float64"]


def test_a_captured_launch_uses_the_scalars_set_last():
    made = arrays(np.random.default_rng(0), 2, sizes=[(5,), (64,)])
    before = [w.asnumpy() for w in made[0]]
    steps = list(updates_of("sgd_update", made))
    multi_tensor._cache.clear()
    apply([ParamUpdate("sgd_update", w, g, lr=0.0) for w, g in zip(*made)])
    mx.nd.waitall()
    (tables,) = multi_tensor._cache.values()
    graph = cuda.Graph(0, "update")
    graph.capture(lambda: tables.launch(None))
    for lr in (0.5, 0.25):
        tables.set_scalars([(lr, 0.0, 1.0)] * len(steps))
        graph.replay()
    for w, g, old in zip(*made, before):
        np.testing.assert_allclose(w.asnumpy(), old - 0.75 * g.asnumpy(), rtol=1e-6)  # closer than the table


def test_the_cache_of_tables_is_bounded(monkeypatch):
    monkeypatch.setattr(multi_tensor._cache, "maxsize", 2)
    multi_tensor._cache.clear()
    made = [arrays(np.random.default_rng(seed), 2, sizes=[(4,), (8,)]) for seed in range(4)]  # at addresses of their own
    for each in made:
        apply(list(updates_of("sgd_update", each)))
    mx.nd.waitall()
    assert len(multi_tensor._cache) == 2
