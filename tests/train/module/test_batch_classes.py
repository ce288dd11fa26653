"""Batches of a user's class: missing attributes other than `data` count as None.

Oracle: the same arrays in a DataBatch, whose attributes are None by default; and NumPy.
"""

from collections import namedtuple

import numpy as np
import pytest
import tritium as mx
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import assert_close
from tritium.errors import ParameterError

OPTIONAL = ("label", "pad", "index", "bucket_key", "provide_data", "provide_label")
OnlyData = namedtuple("OnlyData", ["data"])
DataAndLabel = namedtuple("DataAndLabel", ["data", "label"])
WEIGHTS = {"fc_weight": np.linspace(-1, 1, 15).reshape(3, 5), "fc_bias": np.linspace(0, 1, 3)}


def layer(x):
    return mx.sym.FullyConnected(x, num_hidden=3, name="fc")


def network(length=None):
    """A softmax over 3 classes from 5 features; with a length, from their sum over that many steps."""
    x = mx.sym.Variable("data")
    return mx.sym.SoftmaxOutput(layer(x if length is None else mx.sym.sum(x, axis=1)), name="softmax")


def chain(*, last=None):
    """A chain of a layer and the loss, which is a Module or `last`."""
    modules = mx.mod.SequentialModule().add(mx.mod.Module(layer(mx.sym.Variable("data")), label_names=None))
    last = last or mx.mod.Module(mx.sym.SoftmaxOutput(mx.sym.Variable("data"), name="softmax"))
    return modules.add(last, take_labels=True, auto_wiring=True)


def slope(scores, labels):
    return scores * 0.1 if labels is None else scores * 0.1 - labels.reshape((-1, 1))


def bucketing():
    return mx.mod.BucketingModule(lambda n: (network(n), ("data",), ("softmax_label",)), default_bucket_key=4)


KINDS = {
    "Module": lambda: mx.mod.Module(network()),
    "two contexts": lambda: mx.mod.Module(network(), context=[mx.cpu(0), mx.cpu(1)]),
    "BucketingModule": bucketing,
    "SequentialModule": chain,
    "buckets in a chain": lambda: mx.mod.SequentialModule().add(bucketing(), take_labels=True),
    "PythonLossModule": lambda: chain(last=mx.mod.PythonLossModule(grad_func=slope)),
}


class Squares(mx.metric.EvalMetric):
    """The sum of the squares of outputs and labels."""

    def __init__(self):
        super().__init__("squares")

    def update(self, labels, preds):
        for a in (*labels, *preds):
            self.sum_metric += float((a.asnumpy().astype("f8") ** 2).sum())
            self.num_inst += 1


class Batches:
    """A data source with a list of batches."""

    def __init__(self, batches, data, label):
        self.batches, self.provide_data, self.provide_label = batches, data, label

    def __iter__(self):
        return iter(self.batches)

    def reset(self):
        pass


def named_tuple(fields):
    return namedtuple("Named", fields)(**fields)


def slots(fields):
    made = type("Slots", (), {"__slots__": tuple(fields)})()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def properties(fields):
    """An object whose attributes are read-only properties."""
    return type("Properties", (), {name: property(lambda self, value=value: value) for name, value in fields.items()})()


def plain(fields):
    return type("Plain", (), dict(fields))()


def parts(rng, size, length, pad):
    """All attributes of a batch."""
    shape = (size, 5) if length is None else (size, length, 5)
    data, label = rng.normal(size=shape).astype("f"), rng.integers(0, 3, size).astype("f")
    return {"data": [mx.nd.array(data)], "label": [mx.nd.array(label)], "pad": pad, "index": np.arange(size),
            "bucket_key": length, "provide_data": [mx.io.DataDesc("data", shape)],
            "provide_label": [mx.io.DataDesc("softmax_label", (size,))]}


def everything(kind, batches, data, label):
    """The results of a module for batches, as NumPy arrays: outputs, score, predictions and trained parameters."""
    module = KINDS[kind]()
    module.bind(data, label)
    module.init_params(arg_params={k: mx.nd.array(v) for k, v in WEIGHTS.items()}, aux_params={})
    module.init_optimizer(optimizer_params={"learning_rate": 0.5})
    found, source = [], Batches(batches, data, label)
    for batch in batches:
        module.prepare(batch)
        module.forward_backward(batch)
        module.update()
        found += module.get_outputs()
        module.forward(batch, is_train=False)
        found += module.get_outputs()
    found += [a for outputs, _, _ in module.iter_predict(source) for a in outputs]
    found.append(module.predict(source))
    found += [mx.nd.array([value]) for _, value in module.score(source, Squares())]
    module.fit(source, source, eval_metric=Squares(), num_epoch=2, optimizer_params={"learning_rate": 0.1})
    return [a.asnumpy() for a in (*found, *module.get_params()[0].values())]


@settings(max_examples=60)
@given(data=st.data())
def test_missing_attributes_of_a_batch_count_as_none(data):
    """All kinds of modules, and batches of random classes without random attributes."""
    kind = data.draw(st.sampled_from(list(KINDS)))
    of_class = data.draw(st.sampled_from([named_tuple, slots, properties, plain]))
    buckets = "ucket" in kind
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    mine, oracle = [], []
    for number in range(data.draw(st.integers(1, 3))):
        length = (4 if number == 0 else data.draw(st.sampled_from([2, 3, 4]))) if buckets else None
        whole = parts(rng, 4 if number == 0 else data.draw(st.sampled_from([2, 4])), length, data.draw(st.integers(0, 1)))
        if number == 0:
            shapes = whole["provide_data"], whole["provide_label"]
        missing = data.draw(st.sets(st.sampled_from(OPTIONAL)))
        if buckets:
            missing -= {"bucket_key"} if length != 4 else set()
        given = {name: value for name, value in whole.items() if name not in missing}
        mine.append(of_class(given))
        # the oracle has its shapes, so that none are inferred
        oracle.append(mx.io.DataBatch(**{**given, **{name: whole[name] for name in ("provide_data", "provide_label")}}))
    got, want = everything(kind, mine, *shapes), everything(kind, oracle, *shapes)
    assert len(got) == len(want)
    for a, b in zip(got, want):
        np.testing.assert_array_equal(a, b)


def softmax(x):
    e = np.exp(x @ WEIGHTS["fc_weight"].T + WEIGHTS["fc_bias"])
    return e / e.sum(1, keepdims=True)


def bound(label=True, **settings):
    module = mx.mod.Module(network(), **settings)
    module.bind([("data", (4, 5))], [("softmax_label", (4,))] if label else None, for_training=label)
    module.init_params(arg_params={k: mx.nd.array(v) for k, v in WEIGHTS.items()}, aux_params={})
    return module


@pytest.mark.parametrize("label", [True, False], ids=["bound with labels", "bound without"])
@pytest.mark.parametrize("size", [4, 3], ids=["as bound", "of another size"])
def test_forward_of_a_batch_with_data_only(rng, label, size):
    """As in MXNet's prediction scripts."""
    x = rng.normal(size=(size, 5))
    module = bound(label)
    module.forward(OnlyData([mx.nd.array(x)]))
    np.testing.assert_allclose(module.get_outputs()[0].asnumpy(), softmax(x), rtol=1e-5)  # closer than the table for small values


def test_labels_are_ignored_by_a_module_without_labels(rng):
    """The batch has another size than the module."""
    x = rng.normal(size=(3, 5))
    module = bound(label=False)
    module.forward(DataAndLabel([mx.nd.array(x)], [mx.nd.zeros((3,))]))
    assert_close(module.get_outputs()[0], softmax(x), scale=0.1)  # 0.1: closer than the table: few roundings


def test_score_and_predict_without_pad(rng):
    """The source has no attribute pad."""
    x, y = rng.normal(size=(8, 5)), rng.integers(0, 3, 8).astype("f")
    source = Batches([DataAndLabel([mx.nd.array(x[k:k + 4])], [mx.nd.array(y[k:k + 4])]) for k in (0, 4)],
                     [("data", (4, 5))], [("softmax_label", (4,))])
    module = bound()
    assert dict(module.score(source, "acc")) == {"accuracy": np.mean(softmax(x).argmax(1) == y)}
    assert_close(module.predict(source), softmax(x), scale=0.1)  # 0.1: closer than the table: few roundings
    module.fit(source, source, num_epoch=1)


def test_feed_forward_on_batches_of_a_users_class(rng):
    x, y = rng.normal(size=(8, 5)), rng.integers(0, 3, 8).astype("f")
    source = Batches([DataAndLabel([mx.nd.array(x[k:k + 4])], [mx.nd.array(y[k:k + 4])]) for k in (0, 4)],
                     [mx.io.DataDesc("data", (4, 5))], [mx.io.DataDesc("softmax_label", (4,))])
    model = mx.model.FeedForward(network(), arg_params={k: mx.nd.array(v) for k, v in WEIGHTS.items()}, aux_params={},
                                 num_epoch=1)
    probabilities, data, label = model.predict(source, return_data=True)
    assert_close(probabilities, softmax(x), scale=0.1)  # 0.1: closer than the table: few roundings
    np.testing.assert_array_equal(data, x.astype("f"))
    np.testing.assert_array_equal(label, y)
    assert model.score(source) == np.mean(softmax(x).argmax(1) == y)
    source.batches = [OnlyData(b.data) for b in source.batches]
    assert_close(model.predict(source), softmax(x), scale=0.1)  # 0.1: closer than the table: few roundings


def test_iterators_wrap_a_users_iterator(rng):
    """ResizeIter and PrefetchingIter return the arrays of the inner batches."""
    x = rng.normal(size=(3, 4, 5)).astype("f")

    class Inner(mx.io.DataIter):
        provide_data, provide_label = [mx.io.DataDesc("data", (4, 5))], []

        def reset(self):
            self.left = [OnlyData([mx.nd.array(a)]) for a in x]

        def next(self):
            if not self.left:
                raise StopIteration
            return self.left.pop(0)

    for around in (lambda it: mx.io.ResizeIter(it, 3), mx.io.PrefetchingIter):
        inner = Inner(4)
        inner.reset()
        outer = around(inner)
        for a in x:
            assert outer.iter_next()
            np.testing.assert_array_equal(outer.getdata()[0].asnumpy(), a)
            assert not outer.getlabel() and outer.getpad() is None and outer.getindex() is None
        assert not outer.iter_next()


def test_a_batch_without_data_is_refused():
    with pytest.raises(ParameterError, match=r"^Module: a batch of class Empty has no attribute `data`\. Give a DataBatch"):
        bound().forward(type("Empty", (), {})())
