"""LocalKVStore: sums, updaters, copies, errors. Oracle: NumPy sums in the same order."""

import numpy as np
import pytest
import tritium as mx
from tritium.errors import FileError, MXNetError, ParameterError, ShapeError


def store(kind="local"):
    kv = mx.kv.create(kind)
    kv.init(3, mx.nd.ones((2, 3)))
    return kv


def pulled(kv, key, shape=(2, 3), ctx=None):
    out = mx.nd.zeros(shape, ctx=ctx)
    kv.pull(key, out=out)
    return out.asnumpy()


@pytest.mark.parametrize("kind", ["local", "device"])
def test_pull_returns_the_value_of_init_or_of_the_last_push(kind, ctx):
    kv = mx.kv.create(kind)
    kv.init("w", mx.nd.full((2, 3), 4, ctx=ctx))
    assert (pulled(kv, "w", ctx=ctx) == 4).all()
    kv.push("w", mx.nd.full((2, 3), 7, ctx=ctx))
    outs = [mx.nd.zeros((2, 3), ctx=ctx), mx.nd.zeros((2, 3))]
    kv.pull("w", out=outs)
    assert all((o.asnumpy() == 7).all() for o in outs)


def test_devices_are_summed_from_left_to_right(rng):
    parts = [rng.normal(size=(2, 3)).astype("f4") * 10.0**e for e in (0, 6, -3, 6)]
    kv = store()
    kv.push(3, [mx.nd.array(p, ctx=mx.cpu(i)) for i, p in enumerate(parts)])
    want = ((parts[0] + parts[1]) + parts[2]) + parts[3]
    assert np.array_equal(pulled(kv, 3), want)  # bits: the order is fixed


@pytest.mark.parametrize("copies", [2, 3, 4])
@pytest.mark.parametrize("size", [5, 262144, 300001, 800000])
def test_large_arrays_are_summed_from_left_to_right(rng, copies, size):
    """Sizes below, at and above the block size of a sum, and above the size of a store that works inline."""
    parts = [(rng.normal(size=size) * 10.0**e).astype("f4") for e in (0, 4, -3, 4)[:copies]]
    kv = mx.kv.create("device")
    kv.init("w", mx.nd.zeros(size))
    kv.push("w", [mx.nd.array(p, ctx=mx.cpu(i)) for i, p in enumerate(parts)])
    outs = [mx.nd.zeros(size, ctx=mx.cpu(i)) for i in range(copies)]
    kv.pull("w", outs)
    want = parts[0]
    for p in parts[1:]:
        want = want + p
    for out in outs:
        assert np.array_equal(out.asnumpy(), want)


def test_push_and_pull_take_lists_of_keys():
    kv = mx.kv.create()
    kv.init(["a", "b"], [mx.nd.zeros((2, 3))] * 2)
    kv.push(["a", "b"], [[mx.nd.ones((2, 3))] * 2, [mx.nd.ones((2, 3))]])
    out = [mx.nd.zeros((2, 3)), mx.nd.zeros((2, 3))]
    kv.pull(["a", "b"], out=out)
    assert [o.asnumpy()[0, 0] for o in out] == [2, 1]
    kv.push(["a", "a"], [mx.nd.ones((2, 3)), mx.nd.full((2, 3), 5)])  # equal keys in one call add up, as in MXNet
    assert pulled(kv, "a")[0, 0] == 6


def test_a_pushed_array_is_never_written_and_never_shared():
    kv = store()
    pushed = mx.nd.full((2, 3), 5)
    kv.push(3, pushed)
    pushed[:] = 9
    assert (pulled(kv, 3) == 5).all()
    kv.push(3, mx.nd.full((2, 3), 6))
    out = mx.nd.zeros((2, 3))
    kv.pull(3, out=out)
    out[:] = 8
    assert (pushed.asnumpy() == 9).all()
    assert (pulled(kv, 3) == 6).all()


@pytest.mark.parametrize("copies", [1, 3])
def test_an_updater_gets_key_sum_and_stored_value(copies):
    kv, seen = store(), []

    def update(key, grad, weight):
        seen.append(key)
        weight += grad * 10

    kv._set_updater(update)
    grads = [mx.nd.full((2, 3), 2, ctx=mx.cpu(i)) for i in range(copies)]
    kv.push(3, grads)
    assert (pulled(kv, 3) == 1 + 20 * copies).all()
    assert seen == [3]
    assert all((g.asnumpy() == 2).all() for g in grads)


def test_pushpull_and_broadcast():
    kv = store()
    out = mx.nd.zeros((2, 3))
    kv.pushpull(3, [mx.nd.ones((2, 3))] * 2, out=out)
    assert (out.asnumpy() == 2).all()
    both = [mx.nd.ones((2, 3)), mx.nd.full((2, 3), 3)]
    kv.pushpull(3, both)  # without out, into the pushed arrays
    assert all((b.asnumpy() == 4).all() for b in both)
    kv.broadcast(4, mx.nd.full((2, 3), 6), out=both)
    assert all((b.asnumpy() == 6).all() for b in both)


def test_priority_is_passed_to_the_engine(monkeypatch):
    kv, seen = store(), []
    engine = mx.kvstore.array_ops.engine.current()
    push = engine.push_sync

    def spy(*args, priority=0, **kwargs):
        seen.append(priority)
        return push(*args, priority=priority, **kwargs)

    monkeypatch.setattr(engine, "push_sync", spy)
    kv.push(3, mx.nd.ones((2, 3)), priority=-7)
    kv.pull(3, out=mx.nd.zeros((2, 3)), priority=-7)
    assert seen.count(-7) == 2


class CountingOptimizer:
    """The simplest argument of set_optimizer: its updater has states."""

    def create_updater(self):
        class Updater:
            n = 0

            def __call__(self, key, grad, weight):
                self.n += 1
                weight -= grad

            def get_states(self, dump_optimizer=False):
                return bytes([self.n])

            def set_states(self, data, source):
                self.n = data[0]

        self.updater = Updater()
        return self.updater


def test_optimizer_states_are_saved_and_loaded(tmp_path):
    kv, opt = store(), CountingOptimizer()
    kv.set_optimizer(opt)
    kv.push(3, mx.nd.ones((2, 3)))
    kv.push(3, mx.nd.ones((2, 3)))
    assert (pulled(kv, 3) == -1).all()
    kv.save_optimizer_states(tmp_path / "s")
    kv2, opt2 = store(), CountingOptimizer()
    kv2.set_optimizer(opt2)
    kv2.load_optimizer_states(tmp_path / "s")
    assert opt2.updater.n == 2
    assert [p.name for p in tmp_path.iterdir()] == ["s"]
    with pytest.raises(FileError, match="nothing-here: cannot be read"):
        kv2.load_optimizer_states(tmp_path / "nothing-here")


def test_a_local_store_has_one_worker():
    kv = store()
    kv.barrier()
    assert (kv.type, kv.rank, kv.num_workers) == ("local", 0, 1)
    assert mx.kv.create("device").type == "device"
    assert kv.is_capable("optimizer")


@pytest.mark.parametrize(
    "act, error, text",
    [
        (lambda kv: kv.push(4, mx.nd.ones((2, 3))), ParameterError, r"KVStore.push: no key 4\. Call init\(4, value\)"),
        (lambda kv: kv.pull("x", out=mx.nd.ones((2, 3))), ParameterError, "KVStore.pull: no key 'x'"),
        (lambda kv: kv.pull(3), ParameterError, "KVStore.pull: give the array to fill"),
        (lambda kv: kv.init(3, mx.nd.ones(2)), ParameterError, "KVStore.init: key 3 exists already"),
        (lambda kv: kv.init("a", mx.nd.ones(2)), ParameterError, "'a' is a str, earlier keys are int"),
        (lambda kv: kv.push(3, mx.nd.ones((2, 4))), ShapeError,
         r"KVStore.push: key 3 holds float32\[2,3\]@cpu\(0\), this is float32\[2,4\]@cpu\(0\)"),
        (lambda kv: kv.push(3, []), ParameterError, "KVStore.push: key 3: no arrays were given"),
        (lambda kv: kv.push(3, 5), ParameterError, "KVStore.push: key 3: int is not an NDArray"),
        (lambda kv: kv.push([3], mx.nd.ones((2, 3))), ParameterError, "1 keys, but a NDArray"),
        (lambda kv: kv.push(3.0, mx.nd.ones((2, 3))), ParameterError, "a key is an int or a str: 3.0 is a float"),
        (lambda kv: kv.row_sparse_pull(3), ParameterError, "KVStore.row_sparse_pull: give the array to fill and the rows"),
        (lambda kv: kv.row_sparse_pull(3, mx.nd.ones((2, 3)), row_ids=[]), ParameterError, "1 arrays to fill, 0 arrays of row"),
        (lambda kv: kv.set_gradient_compression({}), MXNetError, "store sends nothing over a network"),
        (lambda kv: kv.save_optimizer_states("x"), MXNetError, "save_optimizer_states: the store has no optimizer"),
        (lambda kv: kv.set_optimizer(3), ParameterError, r"KVStore.set_optimizer: 3 has no create_updater\(\)"),
        (lambda kv: kv.set_updater(3), ParameterError, "KVStore.set_updater: 3 is not a function"),
    ],
)
def test_invalid_calls_raise_an_error(act, error, text):
    with pytest.raises(error, match=text):
        act(store())


def test_row_sparse_pull_copies_the_rows(ctx):
    kv, value = mx.kv.create("local"), np.arange(12.0, dtype="f").reshape(4, 3)
    kv.init("w", mx.nd.array(value))
    outs = [mx.nd.ones((4, 3), ctx=ctx) for _ in range(2)]
    kv.row_sparse_pull("w", out=outs, row_ids=[mx.nd.array([2, 0, 2]), mx.nd.array([])])
    assert outs[0].asnumpy().tolist() == [value[0].tolist(), [0] * 3, value[2].tolist(), [0] * 3]
    assert (outs[1].asnumpy() == 0).all()
    kv.row_sparse_pull("w", out=outs[0], row_ids=mx.nd.array([4]))
    with pytest.raises(ShapeError, match="row indices from 4 to 4; the value has 4 rows"):
        outs[0].asnumpy()


def test_a_push_that_raises_changes_nothing():
    kv = store()
    kv.init(4, mx.nd.zeros(2))
    with pytest.raises(ShapeError):
        kv.push([3, 4], [mx.nd.full((2, 3), 8), mx.nd.ones(5)])
    assert (pulled(kv, 3) == 1).all()


def test_an_optimizer_takes_all_keys_of_a_push_in_one_update(monkeypatch):
    """Two contexts, three keys: one sum, one update, one copy. Oracle: a store that is pushed key by key."""
    from_lists, one_by_one = (mx.kv.create("local") for _ in range(2))
    names, start = ["a", "b", "c"], np.arange(4.0, dtype="f")
    for kv in (from_lists, one_by_one):
        kv.init(names, [mx.nd.array(start + i) for i in range(3)])
        kv.set_optimizer(mx.optimizer.SGD(momentum=0.9, learning_rate=0.1))
    grads = [[mx.nd.array(start * (i + 1), ctx=mx.cpu(k)) for k in range(2)] for i in range(3)]
    outs = [[[mx.nd.zeros(4, ctx=mx.cpu(k)) for k in range(2)] for _ in range(3)] for _ in range(2)]
    pushed = []
    real = mx.engine.current().push_sync
    monkeypatch.setattr(type(mx.engine.current()), "push_sync", lambda _, *a, **k: (pushed.append(k["name"]), real(*a, **k))[1])
    for step in range(2):
        pushed.clear()
        from_lists.push(names, grads)
        from_lists.pull(names, outs[0])
        if step:
            assert pushed == ["kvstore.add_up", "sgd_mom_update x 3", "kvstore.copy"]
        for i, n in enumerate(names):
            one_by_one.push(n, grads[i])
            one_by_one.pull(n, outs[1][i])
    for a, b in zip(outs[0], outs[1]):
        for x, y in zip(a, b):
            assert np.array_equal(x.asnumpy(), y.asnumpy()) and x.asnumpy().any()


def test_a_device_store_compresses_nothing():
    """With one array MXNet 1.9.1 rounds it to the threshold; with two, its process ends."""
    kv = mx.kv.create("device")
    with pytest.warns(UserWarning, match="a 'device' store sends nothing over a network, so gradients are not compressed"):
        kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    kv.init(0, mx.nd.zeros(3))
    kv.push(0, [mx.nd.array([0.25, 0.75, -2.0])] * 2)
    out = mx.nd.zeros(3)
    kv.pull(0, out)
    assert out.asnumpy().tolist() == [0.5, 1.5, -4.0]
