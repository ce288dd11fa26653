"""ParamSync: the choice of a store and of the place where the optimizer runs, and the weights that each choice gives."""

import numpy as np
import pytest
import tritium as mx
from tritium.errors import MXNetError, ParameterError
from tritium.train.kvstore_sync import DeviceUpdate, StoreUpdate, SummedUpdate, choose_sync, create_kvstore

SMALL = {"w": mx.nd.ones(2)}
LARGE = {"w": mx.nd.ones((1 << 24) + 1)}


@pytest.mark.parametrize("kvstore, devices, params, kind, on_store", [
    ("local", 1, SMALL, None, False), (None, 2, SMALL, None, False), ("local", 2, SMALL, "local", True),
    ("local", 2, LARGE, "local", False), ("device", 2, LARGE, "device", True),
])
def test_a_store_is_created_for_several_devices(kvstore, devices, params, kind, on_store):
    store, update_on_kvstore = create_kvstore(kvstore, devices, params)
    assert (store and store.type, update_on_kvstore) == (kind, on_store)


def test_an_existing_store_is_used_and_the_environment_keeps_the_optimizer_out_of_it(monkeypatch):
    store = mx.kv.create("local")
    assert create_kvstore(store, 1, SMALL) == (store, True)
    monkeypatch.setenv("MXNET_UPDATE_ON_KVSTORE", "0")
    assert create_kvstore(store, 1, SMALL) == (store, False)


def test_any_other_object_is_refused():
    with pytest.raises(ParameterError, match="kvstore: 3 is neither a KVStore, nor the name of a type, nor None"):
        create_kvstore(3, 1, SMALL)


@pytest.mark.parametrize("kvstore, on_store, kind, devices", [
    (None, False, DeviceUpdate, 1), ("local", False, SummedUpdate, 2), ("device", False, SummedUpdate, 2),
    ("local", True, StoreUpdate, 2), ("device", True, StoreUpdate, 2),
])
def test_every_choice_gives_the_weights_of_sgd_and_skips_parameters_without_gradients(kvstore, on_store, kind, devices, tmp_path):
    start = {"a": np.full(3, 1.0, "f4"), "b": np.full(2, 5.0, "f4")}
    weights = [[mx.nd.array(v, mx.cpu(k)) for k in range(devices)] for v in start.values()]
    store = mx.kv.create(kvstore) if kvstore else None
    optimizer = mx.optimizer.SGD(learning_rate=0.5, momentum=0.5)
    sync = choose_sync(store, on_store, optimizer, list(start), weights, {n: mx.nd.array(v) for n, v in start.items()})
    assert type(sync) is kind
    expected, momentum = start["a"], 0.0
    for step in range(3):
        grads = [[mx.nd.full(3, step + k + 1.0, mx.cpu(k)) for k in range(devices)], [None] * devices]
        momentum = 0.5 * momentum - 0.5 * sum(step + k + 1.0 for k in range(devices))
        expected = expected + momentum
        sync.push_pull(grads, weights)
        for w in weights[0]:
            np.testing.assert_array_equal(w.asnumpy(), expected)
    assert all((w.asnumpy() == 5).all() for w in weights[1])
    path = str(tmp_path / "s.states")
    sync.save_optimizer_states(path)
    sync.load_optimizer_states(path)


def test_a_missing_file_of_states_is_named(tmp_path):
    sync = DeviceUpdate(mx.optimizer.SGD().create_updater())
    with pytest.raises(MXNetError, match=r"Module.load_optimizer_states: .*nope: cannot be read"):
        sync.load_optimizer_states(str(tmp_path / "nope"))
