"""Module: training, scoring, predicting, checkpoints. Oracle: the same network written in NumPy."""

import logging
import threading

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import FileError, MXNetError, ParameterError, ShapeError
from tritium.train.module.base_module import MAX_BATCHES_IN_FLIGHT

X = np.random.default_rng(0).normal(size=(25, 5)).astype("f4")
Y = X[:, :3].argmax(axis=1).astype("f4")


def network(batch_norm=False):
    x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="fc1")
    if batch_norm:
        x = mx.sym.BatchNorm(x, name="bn")
    x = mx.sym.Activation(x, act_type="tanh", name="act")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=3, name="fc2"), name="softmax")


def values(seed=1):
    rng = np.random.default_rng(seed)
    shapes = {"fc1_weight": (8, 5), "fc1_bias": (8,), "fc2_weight": (3, 8), "fc2_bias": (3,)}
    return {k: mx.nd.array(rng.normal(size=s) * 0.5) for k, s in shapes.items()}


def batches(size=10, **kwargs):
    return mx.io.NDArrayIter(X, Y, size, **kwargs)


def ready(context=None, batch=10, optimizer=None, **bind):
    m = mx.mod.Module(network(), context=context)
    it = batches(batch)
    m.bind(it.provide_data, it.provide_label, **bind)
    m.init_params(arg_params=values(), aux_params={})
    if optimizer:
        m.init_optimizer(**optimizer)
    return m


def by_hand(params, x, y):
    """Probabilities and gradients of the network, in float64."""
    w1, b1, w2, b2 = (params[k].astype("f8") for k in ("fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"))
    h = np.tanh(x @ w1.T + b1)
    z = h @ w2.T + b2
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    dz = p - np.eye(3)[y.astype(int)]
    dh = dz @ w2 * (1 - h * h)
    return p, {"fc1_weight": dh.T @ x, "fc1_bias": dh.sum(0), "fc2_weight": dz.T @ h, "fc2_bias": dz.sum(0)}


def numpy_params(m):
    return {k: v.asnumpy() for k, v in m.get_params()[0].items()}


CONTEXTS = {"one": lambda: mx.cpu(), "two": lambda: [mx.cpu(0), mx.cpu(1)], "three": lambda: [mx.cpu(i) for i in range(3)]}
SGD = {"optimizer": "sgd", "optimizer_params": {"learning_rate": 0.3, "momentum": 0.9}}


# several contexts need a store to share gradients
@pytest.mark.parametrize("contexts, kvstore", [("one", None), *((c, k) for c in CONTEXTS for k in ("local", "device", "object"))])
def test_steps_of_sgd_give_the_weights_computed_in_numpy(contexts, kvstore):
    store = mx.kv.create("local") if kvstore == "object" else kvstore
    m = ready(CONTEXTS[contexts](), optimizer={"kvstore": store, **SGD})
    params, mom = {k: v.asnumpy().astype("f8") for k, v in values().items()}, dict.fromkeys(values(), 0)
    for batch in batches(last_batch_handle="discard"):
        x, y = batch.data[0].asnumpy(), batch.label[0].asnumpy()
        p, grads = by_hand(params, x, y)
        m.forward_backward(batch)
        assert_close(m.get_outputs()[0], p)
        m.update()
        for k, g in grads.items():
            mom[k] = 0.9 * mom[k] - 0.3 / 10 * g
            params[k] = params[k] + mom[k]
    for k, v in numpy_params(m).items():
        assert_close(v, params[k], scale=0.1)  # 0.1: closer than the table: few roundings


def test_a_batch_is_split_as_in_mxnet():
    from tritium.train.module.executor_group import split_batch

    def sizes(n, work):
        return [s.stop - s.start for s in split_batch(n, work)]

    assert sizes(10, [1, 1, 1]) == [3, 3, 4]
    assert sizes(7, [1, 1]) == [4, 3]
    assert sizes(8, [1, 2]) == [3, 5]
    assert sizes(5, [1, 1, 1, 1]) == [1, 1, 1, 2]
    with pytest.raises(ShapeError, match="a batch of 1 cannot be split over 2 contexts"):
        split_batch(1, [1, 1])


def test_outputs_and_input_gradients_per_context():
    m = ready(CONTEXTS["two"](), inputs_need_grad=True)
    m.forward_backward(next(batches()))
    assert [o.shape for o in m.get_outputs()] == [(10, 3)]
    assert [o.shape for o in m.get_outputs(merge_multi_context=False)[0]] == [(5, 3), (5, 3)]
    one = ready(inputs_need_grad=True)
    one.forward_backward(next(batches()))
    # closer than the table
    np.testing.assert_allclose(m.get_input_grads()[0].asnumpy(), one.get_input_grads()[0].asnumpy(), atol=1e-6)


def fitted(seed=5, epochs=30, **kwargs):
    mx.random.seed(seed)
    m = mx.mod.Module(network(batch_norm=True), context=kwargs.pop("context", None))
    m.fit(batches(5), num_epoch=epochs, initializer=mx.init.Xavier(),
          optimizer_params={"learning_rate": 0.3 if "optimizer" not in kwargs else 0.01}, **kwargs)
    return m


@pytest.mark.parametrize("kvstore", [None, "object"])
def test_fit_learns_and_a_seed_gives_the_same_bits(kvstore):
    def trained():
        return fitted(kvstore=mx.kv.create("local") if kvstore else None)

    m = trained()
    assert dict(m.score(batches(5), "acc"))["accuracy"] >= 0.8  # batch statistics of 5 samples are noisy; MXNet gives 0.8 too
    again = trained()
    for a, b in zip(numpy_params(m).values(), numpy_params(again).values()):
        assert np.array_equal(a, b)


def test_fit_calls_callbacks_and_logs_metrics(caplog):
    caplog.set_level(logging.INFO)
    seen = []
    m = mx.mod.Module(network())
    m.fit(batches(), eval_data=batches(), begin_epoch=1, num_epoch=3, eval_metric=["acc", "ce"],
          batch_end_callback=[lambda p: seen.append(("batch", p.epoch, p.nbatch, len(p.eval_metric.get()[0])))],
          epoch_end_callback=lambda e, s, a, x: seen.append(("epoch", e, sorted(a), sorted(x))),
          eval_batch_end_callback=lambda p: seen.append(("eval", p.epoch, p.nbatch)),
          eval_end_callback=lambda p: seen.append(("evalend", p.epoch, p.nbatch)))
    names = sorted(values())
    one = [*[("batch", 1, i, 2) for i in range(3)], ("epoch", 1, names, []), *[("eval", 1, i) for i in range(3)],
           ("evalend", 1, 3)]
    assert seen[:8] == one
    assert [s[1] for s in seen[8:]] == [2] * 8
    text = caplog.text
    for part in ("Epoch[1] Train-accuracy=", "Epoch[1] Train-cross-entropy=", "Epoch[1] Time cost=",
                 "Epoch[2] Validation-accuracy="):
        assert part in text


def test_a_nan_gives_one_warning_with_its_batch():
    bad = X.copy()
    bad[13] = np.nan
    m = mx.mod.Module(network())
    with pytest.warns(RuntimeWarning) as caught:
        m.fit(mx.io.NDArrayIter(bad, Y, 5), num_epoch=2, eval_metric="ce")
    text = [str(w.message) for w in caught if "NaN" in str(w.message)]
    assert len(text) == 1
    assert text[0].startswith("fit: the loss became NaN: epoch 0, batch 2:")


def test_score_counts_every_sample_once():
    m = ready()
    p, _ = by_hand({k: v.asnumpy() for k, v in values().items()}, X, Y)
    got = dict(m.score(batches(), ["acc", "ce"]))  # 25 samples in batches of 10: the last has 5 of padding
    assert got["accuracy"] == pytest.approx((p.argmax(1) == Y).mean())
    assert got["cross-entropy"] == pytest.approx(-np.log(p[np.arange(25), Y.astype(int)]).mean(), rel=1e-5)
    assert dict(m.score(batches(), "acc", num_batch=1))["accuracy"] == pytest.approx((p.argmax(1) == Y)[:10].mean())


def test_predict_concatenates_batches_and_drops_padding():
    m = ready()
    p, _ = by_hand({k: v.asnumpy() for k, v in values().items()}, X, Y)
    assert_close(m.predict(batches()), p)
    assert [[o.shape for o in outs] for outs in m.predict(batches(), merge_batches=False)] == [[(10, 3)], [(10, 3)], [(5, 3)]]
    assert isinstance(m.predict(batches(), always_output_list=True), list)
    assert_close(m.predict(X), p)  # 25 at once: another shape, no label
    assert [(o[0].shape, n, b.pad) for o, n, b in m.iter_predict(batches())] == [
        ((10, 3), 0, 0), ((10, 3), 1, 0), ((5, 3), 2, 5)]


def test_batches_of_changing_shape_share_parameters():
    m = ready(optimizer=SGD)
    full = next(batches())
    m.forward_backward(full)
    m.update()
    before = numpy_params(m)
    m.forward(mx.io.DataBatch([mx.nd.array(X[:6])], None), is_train=False)
    assert m.get_outputs()[0].shape == (6, 3)
    assert m.data_shapes[0].shape == (6, 5) and m.label_shapes[0].shape == (6,)
    assert m.output_shapes == [("softmax_output", (6, 3))]
    assert_close(m.get_outputs()[0], by_hand(before, X[:6], Y[:6])[0])
    m.forward_backward(mx.io.DataBatch([mx.nd.array(X[:6])], [mx.nd.array(Y[:6])]))
    m.update()
    m.forward(full, is_train=False)
    assert_close(m.get_outputs()[0], by_hand(numpy_params(m), X[:10], Y[:10])[0])


def test_fixed_parameters_stay():
    m = mx.mod.Module(network(), fixed_param_names=["fc1_weight"])
    m.fit(batches(), num_epoch=1, arg_params=values(), aux_params={}, optimizer_params={"learning_rate": 0.5})
    got = numpy_params(m)
    assert np.array_equal(got["fc1_weight"], values()["fc1_weight"].asnumpy())
    assert not np.array_equal(got["fc2_weight"], values()["fc2_weight"].asnumpy())


def test_gradients_add_up_with_grad_req_add():
    m, twice = ready(grad_req="write"), ready(grad_req="add")
    batch = next(batches())
    m.forward_backward(batch)
    for _ in range(2):
        twice.forward_backward(batch)
    one, two = (x._exec_group.execs[0].grad_dict["fc1_weight"].asnumpy() for x in (m, twice))
    assert_close(two, 2 * one, scale=0.1)  # 0.1: closer than the table: few roundings


@pytest.mark.parametrize("kvstore", [None, "object"])
def test_training_from_a_checkpoint_has_the_bits_of_training_without_a_break(tmp_path, kvstore):
    def store():
        return mx.kv.create("local") if kvstore else None

    prefix = str(tmp_path / "m")
    m = fitted(epochs=2, kvstore=store(), optimizer="adam")
    m.save_checkpoint(prefix, 2, save_optimizer_states=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m-0002.params", "m-0002.states", "m-symbol.json"]
    again = mx.mod.Module.load(prefix, 2, load_optimizer_states=True)
    again.fit(batches(5), begin_epoch=2, num_epoch=4, optimizer="adam", kvstore=store(),
              optimizer_params={"learning_rate": 0.01})
    m.fit(batches(5), begin_epoch=2, num_epoch=4)
    for (k, a), b in zip(numpy_params(m).items(), numpy_params(again).values()):
        assert np.array_equal(a, b), k
    for a, b in zip(m.get_params()[1].values(), again.get_params()[1].values()):
        assert np.array_equal(a.asnumpy(), b.asnumpy())


def test_a_loaded_module_predicts_without_labels(tmp_path):
    m = fitted(epochs=1)
    m.save_checkpoint(str(tmp_path / "m"), 1)
    again = mx.mod.Module.load(str(tmp_path / "m"), 1, label_names=None)
    again.bind([("data", (25, 5))], for_training=False)
    np.testing.assert_array_equal(again.predict(X).asnumpy(), m.predict(X).asnumpy())


def test_results_of_get_params_do_not_change_later():
    m = ready(optimizer=SGD)
    before = m.get_params()[0]["fc1_bias"]
    kept = before.asnumpy()
    m.forward_backward(next(batches()))
    m.update()
    assert not np.array_equal(m.get_params()[0]["fc1_bias"].asnumpy(), kept)
    assert np.array_equal(before.asnumpy(), kept)


def test_parameters_are_saved_and_loaded_and_backward_takes_head_gradients(tmp_path):
    m = ready()
    m.save_params(str(tmp_path / "p"))
    other = mx.mod.Module(network())
    other.bind([("data", (10, 5))], [("softmax_label", (10,))])
    other.load_params(str(tmp_path / "p"))
    assert np.array_equal(numpy_params(other)["fc2_weight"], values()["fc2_weight"].asnumpy())
    square = mx.mod.Module(mx.sym.square(mx.sym.Variable("data")), label_names=None)
    square.bind([("data", (2, 2))], inputs_need_grad=True)
    square.init_params()
    square.forward(mx.io.DataBatch([mx.nd.array([[1.0, 2], [3, 4]])]))
    square.backward([mx.nd.full((2, 2), 10.0)])
    assert square.get_input_grads()[0].asnumpy().tolist() == [[20, 40], [60, 80]]


def test_a_monitor_sees_the_outputs(caplog):
    caplog.set_level(logging.INFO)
    m = mx.mod.Module(network())
    m.fit(batches(), num_epoch=1, monitor=mx.monitor.Monitor(2, pattern=".*weight|softmax_output"))
    lines = [r.getMessage() for r in caplog.records if "Batch:" in r.getMessage()]
    assert len(lines) == 6  # batches 0 and 2, three arrays each
    assert "softmax_output" in lines[0]
    watch = mx.monitor.Monitor(1, stat_func=lambda x: mx.nd.norm(x) / 2, pattern="data")
    m.install_monitor(watch)
    watch.tic()
    caplog.clear()
    m._exec_group.execs[0].arg_dict["data"][:] = 0
    watch.toc_print()
    assert [r.getMessage() for r in caplog.records] == ["Batch:       1 data                           0.0\t"]


def test_a_monitor_sees_inner_outputs_of_its_batches_only():
    m = mx.mod.Module(network())
    m.bind(batches().provide_data, batches().provide_label)
    m.init_params(mx.init.Xavier())
    watch = mx.monitor.Monitor(2, stat_func=lambda x: x.shape, pattern=".*output")
    m.install_monitor(watch)
    m.forward(next(iter(batches())), is_train=True)
    plain = m.get_outputs()[0].asnumpy()
    seen = []
    for _ in range(3):
        watch.tic()
        m.forward(next(iter(batches())), is_train=True)
        seen.append([name for _, name, _ in watch.toc()])
    inner = [n for n in m.symbol.get_internals().list_outputs() if n.endswith("output")]
    assert len(inner) > 1 and seen == [inner, [], inner]
    np.testing.assert_allclose(m.get_outputs()[0].asnumpy(), plain, rtol=1e-6)  # closer than the table


class Restarting:
    """A data source with a new iterator for each `iter`, such as a class with a generator for __iter__."""

    def __init__(self):
        self.provide_data, self.provide_label = batches().provide_data, batches().provide_label

    def __iter__(self):
        yield from batches()

    def reset(self):
        pass


def test_fit_uses_every_batch_once_from_any_iterable():
    seen = []
    mx.mod.Module(network()).fit(Restarting(), num_epoch=2, batch_end_callback=lambda p: seen.append(p.nbatch))
    assert seen == list(range(len(list(batches())))) * 2


def bound():
    return ready()


@pytest.mark.parametrize(
    "act, error, text",
    [
        (lambda: mx.mod.Module(network(), data_names=["dat"]), ParameterError,
         "Module: data_names: the symbol has no argument 'dat'. Did you mean 'data'"),
        (lambda: mx.mod.Module(network()).init_params(), MXNetError, "Module.init_params: the module has no arrays yet"),
        (lambda: mx.mod.Module(network()).forward(None), MXNetError, "Module.forward: the module has no arrays yet"),
        (lambda: bound().update(), MXNetError, "Module.update: the module has no optimizer yet"),
        (lambda: bound().get_input_grads(), MXNetError, "bound with inputs_need_grad=False"),
        (lambda: bound().fit(batches()), ParameterError, "fit: num_epoch is missing"),
        (lambda: bound().init_optimizer(optimizer=3), ParameterError, "3 is neither a name nor an Optimizer"),
        (lambda: bound().set_params({"fc1_weight": mx.nd.zeros((8, 5))}, {}), ParameterError,
         "Module: parameter 'fc1_bias' is missing"),
        (lambda: bound().set_params({"fc9_weight": mx.nd.zeros(2)}, {}, allow_missing=True), ParameterError,
         "the network has no parameter 'fc9_weight'"),
        (lambda: bound().init_params(arg_params={**values(), "fc1_bias": mx.nd.zeros(9)}, aux_params={}, force_init=True),
         ShapeError, r"'fc1_bias' has shape \(9,\), the network needs \(8,\)"),
        (lambda: mx.mod.Module(network()).bind([("data", (2, 5)), ("more", (2,))]), ParameterError,
         r"the data shapes are of \['data', 'more'\], data_names are \['data'\]"),
        (lambda: mx.mod.Module(network()).bind([("data", (2, 5))], [("softmax_label", (3,))]), ShapeError,
         "the inputs disagree on the batch size: data 2, softmax_label 3"),
        (lambda: bound().forward(mx.io.DataBatch([mx.nd.zeros((2, 5))] * 2)), ParameterError,
         "the batch has 2 arrays for 1 inputs: data"),
        (lambda: bound().predict(3), ParameterError, "predict: int is neither an array nor a DataIter"),
        (lambda: mx.mod.Module(network(), context=[mx.cpu()], work_load_list=[1, 2]), ParameterError,
         "work_load_list has 2 entries for 1 contexts"),
    ],
)
def test_errors(act, error, text):
    with pytest.raises(error, match=text):
        act()


def test_a_label_that_the_network_does_not_have_gives_a_warning():
    with pytest.warns(UserWarning, match="Module: label_names: the symbol has no argument 'lab'"):
        mx.mod.Module(network(), label_names=["lab"])


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileError, match=r"load_checkpoint: .*nope-symbol.json: cannot be read"):
        mx.mod.Module.load(str(tmp_path / "nope"), 1)
    m = ready(optimizer=SGD)
    with pytest.raises(FileError, match=r"Module.load_optimizer_states: .*nope: cannot be read"):
        m.load_optimizer_states(str(tmp_path / "nope"))


def test_all_engines_and_numbers_of_threads_give_the_same_bits():
    from tritium import engine

    before, results = engine.current(), []
    try:
        for one in (engine.NaiveEngine(), engine.ThreadedEngine(1), engine.ThreadedEngine(4)):
            engine.current().wait_for_all()
            engine.set_current(one)
            m = fitted(epochs=2, context=[mx.cpu(0), mx.cpu(1)])
            results.append([v.asnumpy() for d in m.get_params() for v in d.values()])
            one.wait_for_all()
    finally:
        engine.set_current(before)
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other))


def test_the_interpreted_gpu_gives_the_weights_of_the_cpu(ctx):
    m = fitted(epochs=2, context=ctx, kvstore=mx.kv.create("device"))
    want = fitted(epochs=2)
    for a, b in zip(numpy_params(m).values(), numpy_params(want).values()):
        assert_close(a, b, scale=100)  # 100: long chains, rounded in another order


def test_parameters_are_initialized_in_order_of_names():
    seen = []

    class Recorder(mx.init.Initializer):
        def __call__(self, desc, arr):
            seen.append(str(desc))

    m = mx.mod.Module(network(batch_norm=True))
    m.bind([("data", (2, 5))], [("softmax_label", (2,))])
    m.init_params(Recorder())
    assert seen == ["bn_beta", "bn_gamma", "fc1_bias", "fc1_weight", "fc2_bias", "fc2_weight", "bn_moving_mean", "bn_moving_var"]


def test_states_are_neither_data_nor_parameters():
    net = mx.sym.broadcast_add(mx.sym.Variable("data"), mx.sym.Variable("memory", shape=(1, 2)))
    m = mx.mod.Module(net, label_names=None, state_names=["memory"])
    m.bind([("data", (3, 2))], for_training=False)
    m.init_params()
    m.set_states(value=5)
    m.forward(mx.io.DataBatch([mx.nd.ones((3, 2))]))
    assert m.get_params()[0] == {}
    assert (m.get_outputs()[0].asnumpy() == 6).all()
    m.set_states([mx.nd.array([[1, 2]])])
    assert m.get_states()[0].asnumpy().tolist() == [[1, 2]]


def test_a_module_shares_parameters_and_optimizer_with_another():
    first = ready(optimizer=SGD)
    second = mx.mod.Module(network())
    second.bind([("data", (4, 5))], [("softmax_label", (4,))], shared_module=first)
    second.borrow_optimizer(first)
    second.forward_backward(mx.io.DataBatch([mx.nd.array(X[:4])], [mx.nd.array(Y[:4])]))
    second.update()
    assert_close(second.get_outputs()[0], by_hand(numpy_params(first), X[:4], Y[:4])[0])


def test_binding_again_keeps_the_parameters():
    m = ready(optimizer=SGD)
    m.forward_backward(next(batches()))
    m.update()
    before = numpy_params(m)
    m.bind([("data", (2, 5))], [("softmax_label", (2,))], force_rebind=True)
    for k, v in numpy_params(m).items():
        assert np.array_equal(v, before[k])
    m.forward(mx.io.DataBatch([mx.nd.array(X[:2])], [mx.nd.array(Y[:2])]), is_train=False)
    assert_close(m.get_outputs()[0], by_hand(before, X[:2], Y[:2])[0])


def test_a_layout_puts_the_batch_on_another_axis():
    net = mx.sym.square(mx.sym.Variable("data"), attr={"__layout__": "TN"})
    m = mx.mod.Module(net, label_names=None, context=[mx.cpu(0), mx.cpu(1)])
    m.bind([mx.io.DataDesc("data", (3, 4), layout="TN")], for_training=False)
    m.init_params()
    x = np.arange(12, dtype="f4").reshape(3, 4)
    m.forward(mx.io.DataBatch([mx.nd.array(x)]))
    parts = [o.asnumpy() for o in m.get_outputs(merge_multi_context=False)[0]]
    assert [p.shape for p in parts] == [(3, 2), (3, 2)]
    assert np.array_equal(np.concatenate(parts, axis=1), x * x)
    assert np.array_equal(m.get_outputs()[0].asnumpy(), x * x)


def test_ignored_parameters_give_a_warning(tmp_path):
    m = ready()
    with pytest.warns(UserWarning, match="Module.init_params: the parameters already have values"):
        m.init_params(arg_params=values(2), aux_params={})
    mx.model.save_checkpoint(str(tmp_path / "m"), 0, network(), {**values(), "left_over": mx.nd.ones(2)}, {})
    loaded = mx.mod.Module.load(str(tmp_path / "m"), 0)
    loaded.bind([("data", (2, 5))], [("softmax_label", (2,))])
    assert sorted(loaded.get_params()[0]) == sorted(values())


def test_fit_waits_when_too_many_batches_are_in_flight(monkeypatch):
    """The data of the first batch are held back. fit may push MAX_BATCHES_IN_FLIGHT more batches, and then has to wait."""
    released, pushed = threading.Event(), []

    class Batches(mx.io.NDArrayIter):
        def next(self):
            batch = super().next()
            if not pushed:
                mx.engine.current().push_sync(lambda run: released.wait(60), mx.cpu(), [], [batch.data[0].chunk.var])
            pushed.append(released.is_set())
            return batch

    wait = mx.engine.current().wait_for_var
    monkeypatch.setattr(mx.engine.current(), "wait_for_var", lambda var: (released.set(), wait(var)))
    data = Batches(np.zeros((12, 3), np.float32), np.zeros(12, np.float32), batch_size=2)
    module = mx.mod.Module(mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2), name="softmax"))
    module.fit(data, num_epoch=1)
    first = MAX_BATCHES_IN_FLIGHT + 1
    assert pushed[:first] == [False] * first and all(pushed[first:])

def test_some_outputs_of_a_group():
    data = mx.sym.Variable("data")
    net = mx.mod.Module(mx.sym.Group([data * n for n in (1, 2, 3)]), label_names=None, context=[mx.cpu(0), mx.cpu(1)])
    net.bind([("data", (4, 1))], for_training=False)
    net.init_params()
    net.forward(mx.io.DataBatch([mx.nd.ones((4, 1))]))
    assert [o.asnumpy().ravel().tolist() for o in net._exec_group.get_outputs(begin=1, end=2)] == [[2, 2, 2, 2]]
    assert [len(parts) for parts in net._exec_group.get_outputs(merge_multi_context=False, begin=1)] == [2, 2]


def test_a_module_without_states_has_none():
    module = mx.mod.BaseModule()
    module.binded = module.params_initialized = True
    assert module.get_states(merge_multi_context=False) == []
    module.set_states(value=0)
    with pytest.raises(MXNetError, match="set_states: it has no states"):
        module.set_states(states=[[mx.nd.ones(1)]])
