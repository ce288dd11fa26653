"""Batches are uploaded to GPUs, and outputs read by metrics, beside the steps. Oracle: the same without that, to the bit.

torch is a stand-in whose streams run in the worst order allowed.
"""

import threading

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from support.lagging_devices import all_slow, slow_device, slow_kind, wait_until_called
from support.lagging_devices import devices as devices
from tritium.context import GPU_MODE
from tritium.engine.gpu import cuda
from tritium.train.module.feed import Feed

pytestmark = pytest.mark.skipif(GPU_MODE != "interpret", reason="replaces the interpreted GPU")

BATCH, WIDTH = 6, 5
X = np.random.default_rng(0).normal(size=(5 * BATCH - 2, WIDTH)).astype("f4")
Y = X[:, :3].argmax(axis=1).astype("f4")
ORDERS = {"all": all_slow, "copy": slow_kind("copy"), "compute": slow_kind("compute"), "gpu(1)": slow_device(1)}


@pytest.fixture(autouse=True)
def compile_nothing_ahead(monkeypatch):
    monkeypatch.setattr("tritium.graph.executor.compiled_program.compile_ahead", lambda segments: 0)


def network():
    h = mx.sym.Activation(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="fc1"), act_type="tanh")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(h, num_hidden=3, name="fc2"), name="softmax")


def weights():
    rng = np.random.default_rng(1)
    shapes = {"fc1_weight": (8, WIDTH), "fc1_bias": (8,), "fc2_weight": (3, 8), "fc2_bias": (3,)}
    return {k: mx.nd.array(rng.normal(size=s) * 0.5) for k, s in shapes.items()}


def ready(context):
    module = mx.mod.Module(network(), context=context)
    module.bind([("data", (BATCH, WIDTH))], [("softmax_label", (BATCH,))])
    module.init_params(arg_params=weights(), aux_params={})
    module.init_optimizer(optimizer_params={"learning_rate": 0.5, "momentum": 0.9})
    return module


def batch(i):
    rows = slice(i * BATCH, (i + 1) * BATCH)
    return mx.io.DataBatch([mx.nd.array(X[rows])], [mx.nd.array(Y[rows])])


def trained(context):
    """Everything that training, scores and predictions give."""
    module, seen = ready(context), []
    data = mx.io.NDArrayIter(X, Y, BATCH)
    module.fit(data, data, eval_metric=["acc", "ce"], num_epoch=1,
               batch_end_callback=lambda p: seen.append(p.eval_metric.get()[1]))
    return [*module.get_params()[0].values(), module.predict(data), mx.nd.array(seen),
            mx.nd.array([v for _, v in module.score(data, "ce")])]


@pytest.mark.parametrize("slow, number", [("all", 1), ("compute", 1), ("copy", 2), ("gpu(1)", 2)])
def test_training_gives_the_same_bits(slow, number, devices, monkeypatch):
    places = [mx.gpu(i) for i in range(number)]
    on_the_host = trained([mx.cpu(p.device_id) for p in places])
    devices(ORDERS[slow])
    found = [a.asnumpy() for a in trained(places)]
    monkeypatch.setattr(Feed, "takes", lambda *given: False)
    monkeypatch.setattr(Feed, "outputs", lambda feed: feed._executor.outputs)
    monkeypatch.setattr(mx.mod.Module, "prepare", lambda *given: None)
    for a, b, c in zip(found, trained(places), on_the_host, strict=True):
        assert np.array_equal(a, b.asnumpy())
        assert_close(a, c.asnumpy())


def test_a_batch_is_on_the_device_while_the_step_before_computes(devices):
    devices(slow_kind("compute"))
    module, first, second = ready(mx.gpu(0)), batch(0), batch(1)
    module.forward_backward(first)
    module.update()
    wait_until_called(module._exec_group.param_arrays[-1][0], mx.gpu(1))
    compute = cuda.stream(0)
    before = compute.ended + len(compute.queue)
    module.prepare(second)
    feed, = module._exec_group._feeds
    for name, values in (("data", second.data), ("softmax_label", second.label)):
        uploaded = feed._uploaded[name]
        wait_until_called(uploaded, mx.gpu(1))
        uploaded.chunk.var.pending_events.writer[1].synchronize()
        assert np.array_equal(uploaded.device_array().array, values[0].asnumpy())
        assert np.array_equal(module._exec_group.execs[0].arg_dict[name].device_array().array, getattr(
            first, "data" if name == "data" else "label")[0].asnumpy())
    assert compute.ended + len(compute.queue) == before  # nobody gave the compute stream anything to do
    assert sum(callable(what) for what in compute.queue) > 5  # the kernels of the first step, of which none was waited for
    module.forward(second)
    want = ready(mx.cpu(0))
    want.forward_backward(first)
    want.update()
    want.forward(second)
    assert_close(module.get_outputs()[0].asnumpy(), want.get_outputs()[0].asnumpy())


def test_fit_and_score_upload_a_batch_before_they_wait_for_the_one_before(devices, monkeypatch):
    """Neither for its end, nor for its metric in a callback."""
    devices(all_slow)
    seen, fences = [], {}
    upload, made, wait = Feed.upload, mx.mod.Module._fences, mx.engine.current().wait_for_var

    def uploading(feed, name, *rest):
        if name == "data":
            seen.append(("upload", sum(what == "upload" for what, _ in seen)))
        upload(feed, name, *rest)

    def fencing(module):
        vars = made(module)
        fences.update(dict.fromkeys(vars, len(fences)))
        return vars

    def waiting(var, **how):
        if var in fences:
            seen.append(("wait", fences[var]))
        wait(var, **how)

    monkeypatch.setattr(Feed, "upload", uploading)
    monkeypatch.setattr(mx.mod.Module, "_fences", fencing)
    monkeypatch.setattr(mx.engine.current(), "wait_for_var", waiting)
    module, data = ready(mx.gpu(0)), mx.io.NDArrayIter(X, Y, BATCH)
    module.fit(data, num_epoch=1, batch_end_callback=lambda p: (seen.append(("callback", p.nbatch)), p.eval_metric.get()))
    assert [n for what, n in seen if what == "upload"] == list(range(5))
    assert any(what == "wait" for what, _ in seen)
    for what, n in seen:
        assert n == 4 or what == "upload" or seen.index(("upload", n + 1)) < seen.index((what, n))
    seen.clear()
    module.score(data, "acc", num_batch=3, batch_end_callback=lambda p: seen.append(("callback", p.nbatch)))
    assert seen == [("upload", 0), ("upload", 1), ("callback", 0), ("upload", 2), ("callback", 1), ("callback", 2)]


class Held(mx.metric.EvalMetric):
    """Counts once it may."""

    def __init__(self):
        super().__init__("held")
        self.gate, self.held = threading.Event(), []

    def count_pair(self, label, pred):
        self.held.append(self.gate.wait(60))
        self.add(float(pred.sum(dtype="f8")), 1)


def test_a_step_is_enqueued_while_the_metric_of_the_one_before_is_computed(devices):
    devices(lambda stream: False)
    module, metric, first = ready(mx.gpu(0)), Held(), batch(0)
    module.forward(first, is_train=False)
    want = module.get_outputs()[0].asnumpy().sum(dtype="f8")
    module.update_metric(metric, first.label)
    module.forward(batch(1), is_train=False)
    wait_until_called(module.get_outputs()[0], mx.gpu(1))
    assert not metric.gate.is_set()
    metric.gate.set()
    assert metric.get()[1] == want and metric.held == [True]


def test_outputs_are_copied_once_and_no_more_than_two_steps_ahead(devices):
    devices(all_slow)
    module = ready(mx.gpu(0))
    feed, = module._exec_group._feeds
    kept = []
    for i in range(5):
        module.forward(batch(i % 4), is_train=False)
        kept.append(feed.outputs()[0])
        assert feed.outputs()[0] is kept[-1]  # for another metric
    assert [kept[i] is kept[i - 2] for i in range(2, 5)] == [True] * 3 and kept[0] is not kept[1]
    assert sorted(feed._uploaded) == ["data", "softmax_label"]


def test_a_step_is_enqueued_while_nobody_waits_for_the_end_of_the_one_before(devices):
    devices(all_slow)
    module = ready(mx.gpu(0))
    for a in module.get_params()[0].values():
        a.wait_to_read()
    compute = cuda.stream(0)
    begun = compute.ended
    for i in range(3):
        module.forward(batch(i), is_train=False)
        module._fences()
    wait_until_called(module.get_outputs()[0], mx.gpu(1))
    assert compute.ended == begun and sum(callable(what) for what in compute.queue) >= 3 * 3


@pytest.mark.parametrize("change", ["another batch", "written", "other shapes"])
def test_forward_uploads_what_was_not_prepared(change, devices):
    devices(slow_kind("copy"))
    module, first = ready(mx.gpu(0)), batch(0)
    module.prepare(first)
    if change == "another batch":
        first = batch(1)
    elif change == "written":
        first.data[0][:] = 2
    else:
        module.forward(mx.io.DataBatch([mx.nd.ones((2, WIDTH))], [mx.nd.ones((2,))]))
    module.forward(first, is_train=False)
    want = ready(mx.cpu(0))
    want.forward(first, is_train=False)
    assert_close(module.get_outputs()[0].asnumpy(), want.get_outputs()[0].asnumpy())
    module.prepare(mx.io.DataBatch([mx.nd.ones((3, WIDTH))]))  # left to forward
    with pytest.raises(mx.errors.ShapeError, match="'softmax_label' has shape"):
        module.forward(mx.io.DataBatch([mx.nd.ones((BATCH, WIDTH))], [mx.nd.ones((4,))]))


def test_nothing_is_copied_on_the_host(monkeypatch):
    module, first = ready(mx.cpu(0)), batch(0)
    module.forward(first)
    with monkeypatch.context() as patch:
        patch.setattr(mx.engine.current(), "push_sync", lambda *given, **how: pytest.fail("something is pushed"))
        module.prepare(first)
    assert module._exec_group._feeds == []
    read, metric = [], mx.metric.Accuracy()
    monkeypatch.setattr(metric, "update", lambda labels, preds: read.extend(preds))
    module.update_metric(metric, first.label)
    assert read[0] is module.get_outputs()[0]


def test_modules_of_modules_prepare_the_batch_where_its_data_go(devices):
    devices(lambda stream: False)
    bucketing = mx.mod.BucketingModule(lambda key: (network(), ["data"], ["softmax_label"]), default_bucket_key=0,
                                       context=mx.gpu(0))
    features = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=WIDTH, name="before")
    chain = mx.mod.SequentialModule().add(mx.mod.Module(features, label_names=None, context=mx.gpu(0))).add(
        mx.mod.Module(network(), context=mx.gpu(0)), take_labels=True, auto_wiring=True)
    for module in (bucketing, chain):
        module.bind([("data", (BATCH, WIDTH))], [("softmax_label", (BATCH,))])
        module.init_params()
        module.prepare(batch(0))
    assert sorted(bucketing._buckets[0]._exec_group._feeds[0]._uploaded) == ["data", "softmax_label"]
    assert sorted(chain._modules[0]._exec_group._feeds[0]._uploaded) == ["data"]
