"""Texts and HTML of objects: no public object is `<... object at 0x...>`, HTML is escaped and has no scripts."""

import numpy as np
import pytest
import tritium as mx
from tritium import gluon
from tritium.gluon import nn
from tritium.show import Shown, code, details, frame, one_line, table


def network():
    hidden = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="fc")
    return mx.sym.SoftmaxOutput(mx.sym.Activation(hidden, act_type="tanh", name="act"), name="softmax")


def module():
    m = mx.mod.Module(network())
    m.bind([("data", (2, 3))], [("softmax_label", (2,))])
    m.init_params()
    m.init_optimizer()
    return m


def rows():
    return mx.io.NDArrayIter(np.zeros((4, 3)), np.zeros(4), 2)


def dense():
    d = nn.Dense(3, in_units=2)
    d.initialize()
    return d


def samples():
    return gluon.data.ArrayDataset(np.zeros((4, 2)), np.zeros(4))


THINGS = {  # how to make one of each public class, and the beginning of what it says
    "executor": (lambda: network().simple_bind(mx.cpu(), data=(2, 3)), "Executor(outputs=['softmax_output'], context=cpu(0)"),
    "cached op": (lambda: mx.nd.CachedOp(network()), "CachedOp(name='softmax', inputs=['data', 'fc_weight'"),
    "module": (module, "Module(outputs=['softmax_output'], context=[cpu(0)], data={'data': (2, 3)}, labels=['softmax_label'], "
                       "parameters=2, optimizer='SGD')"),
    "bucketing module": (lambda: mx.mod.BucketingModule(lambda key: (network(), ("data",), ("label",)), default_bucket_key=3),
                         "BucketingModule(default_bucket_key=3, buckets=[], current=None)"),
    "sequential module": (mx.mod.SequentialModule, "SequentialModule(modules=[], bound=False)"),
    "feedforward": (lambda: mx.model.FeedForward(network(), num_epoch=1), "FeedForward(num_epoch=1"),
    "iterator": (rows, "NDArrayIter(rows=4, batch_size=2, data={'data': (2, 3)}, labels=['softmax_label'], shuffle=False)"),
    "resized": (lambda: mx.io.ResizeIter(rows(), 2), "ResizeIter(size=2"),
    "batch": (lambda: rows().next(), "DataBatch: data shapes: [(2, 3)] label shapes: [(2,)]"),
    "store": (lambda: mx.kv.create("local"), "LocalKVStore(type='local', keys=0)"),
    "optimizer": (mx.optimizer.Adam, "Adam(learning_rate=0.001, beta1=0.9, beta2=0.999"),
    "updater": (lambda: mx.optimizer.get_updater(mx.optimizer.SGD()), "Updater(optimizer='SGD', states=0)"),
    "schedule": (lambda: mx.lr_scheduler.FactorScheduler(2), "FactorScheduler(step=2, factor=1"),
    "metric": (mx.metric.Accuracy, "Accuracy(axis=1, name='accuracy')"),
    "metrics": (mx.metric.CompositeEvalMetric, "CompositeEvalMetric(metrics=[], name='composite')"),
    "initializer": (mx.init.Xavier, "Xavier(rnd_type='uniform'"),
    "initializers": (lambda: mx.init.Mixed([".*"], [mx.init.One()]), "Mixed("),
    "trainer": (lambda: gluon.Trainer(dense().collect_params(), "sgd"),
                "Trainer(optimizer='SGD', parameters=2, learning_rate=0.01)"),
    "dataset": (samples, "ArrayDataset(samples=4, arrays=2)"),
    "loader": (lambda: gluon.data.DataLoader(samples(), 2), "DataLoader(samples=4, num_workers=0"),
    "sampler": (lambda: gluon.data.RandomSampler(3), "RandomSampler(length=3)"),
    "monitor": (lambda: mx.mon.Monitor(1), "Monitor(interval=1, sort=False, monitor_all=False)"),
    "callback": (lambda: mx.callback.Speedometer(8), "Speedometer(batch_size=8, frequent=50, auto_reset=True)"),
    "attributes": (lambda: mx.AttrScope(ctx_group="a"), "AttrScope(__ctx_group__='a')"),
    "names": (mx.name.NameManager, "NameManager()"),
    "cell": (lambda: mx.rnn.LSTMCell(3), "LSTMCell(num_hidden=3, prefix='lstm_'"),
    "vocabulary": (mx.contrib.text.vocab.Vocabulary, "Vocabulary(tokens=1, unknown_token='<unk>')"),
    "profiled task": (lambda: mx.profiler.Task(mx.profiler.Domain("epoch"), "one"), "UserTask(domain='epoch', name='one')"),
    "engine": (mx.engine.current, "ThreadedEngine("),
    "augmenter": (lambda: mx.image.CenterCropAug((2, 2)), "CenterCropAug(size=(2, 2)"),
    "custom operator": (mx.operator.CustomOpProp, "CustomOpProp()"),
    "report": (lambda: network().simple_bind(mx.cpu(), data=(2, 3)).explain(), ""),
    "layers": (mx.profiler.layers, "No layer was recorded."),
    "array": (lambda: mx.nd.ones((2,)), "\n[1. 1.]\n<NDArray 2 @cpu(0)>"),
    "operator": (lambda: mx.kernels.op.get("exp"), "<op exp>"),
    "block": (dense, "Dense(2 -> 3, linear)"),
}


@pytest.mark.parametrize("name", THINGS)
def test_nothing_is_an_object_at_an_address(name):
    make, said = THINGS[name]
    made = make()
    assert " at 0x" not in repr(made) and repr(made).startswith(said), repr(made)
    html = made._repr_html_()
    assert " at 0x" not in html and "<script" not in html and html.count("<table") == html.count("</table>")


def test_a_variable_of_the_engine():
    assert repr(mx.engine.current().new_variable()) == "Var(version=0, free)"


def test_a_record_file(tmp_path):
    with mx.recordio.MXRecordIO(str(tmp_path / "a.rec"), "w") as records:
        assert repr(records).startswith("MXRecordIO(uri=") and repr(records).endswith("a.rec', flag='w')")


def test_facts_are_the_plain_arguments_that_an_object_keeps():
    class Base(Shown):
        def __init__(self, size, name="n", array=None, **more):
            self.size, self._name, self.array, self.other = size, name, array, 3

    class Derived(Base):
        def __init__(self, extra, **more):
            super().__init__(**more)
            self.extra = extra

    assert repr(Derived(1, size=(2, 3), array=np.zeros(3))) == "Derived(extra=1, size=(2, 3), name='n')"
    assert one_line("A", {"b": "x" * 100}) == f"A(b='{'x' * 68}…)"


def test_a_repr_does_not_raise_for_an_object_without_its_arguments():
    class Unready(Shown):
        def __init__(self, size):
            pass

        @property
        def size(self):
            raise ValueError("not yet")

    assert repr(Unready(1)) == "Unready()"


def test_html_is_escaped():
    html = frame(table(("<a>", "n"), [("<b>", 1), ("c", 2)]), details("<d>", code("<e> & f")))
    assert not any(f"<{x}>" in html for x in "abde") and "&lt;e&gt; &amp; f" in html
    assert '<td class="number">1</td>' in html and "<td >&lt;b&gt;</td>" in html


def test_an_operator_shows_its_formula_its_gradient_and_its_code():
    @mx.simple_op(name="shown_of_a_test")
    def shown(x: mx.Float, *, beta: mx.Scalar = 1.0) -> mx.Float:
        """x · sigmoid(beta · x) <escaped>.

        x: any shape.
        """
        return x * mx.lang.sigmoid(beta * x)

    html = shown._repr_html_()
    assert "shown_of_a_test(x, beta=1.0, *, out=None, name=None)" in html and "&lt;escaped&gt;" in html
    for part, holds in (("Declaration", "mx.lang.sigmoid(beta * x)"), ("Gradient", "# backward keeps x"), ("NumPy", "np.exp("),
                        ("Triton", "tl.exp(")):
        at = html.index(f"<summary>{part}</summary>")
        assert holds in html[at:html.index("</details>", at)], part
    layer = mx.kernels.op.get("Convolution")._repr_html_()
    assert "num_filter" in layer and "required" in layer


def test_a_symbol_is_drawn_without_its_weights():
    drawn = network()._repr_mimebundle_()
    assert drawn["text/plain"] == "<Symbol softmax>"
    assert "FullyConnected 4" in drawn["image/svg+xml"] and "fc_weight" not in drawn["image/svg+xml"]


def test_an_executor_shows_arrays_kernels_and_memory():
    html = network().simple_bind(mx.cpu(), data=(2, 3))._repr_html_()
    assert "fc_weight" in html and "why the next is another kernel" in html and "<svg" in html and "act (Activation)" in html


def test_a_block_shows_its_children():
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=2), nn.HybridSequential())
    net[1].add(nn.Dropout(0.5))
    html = net._repr_html_()
    assert "weight 3x2; bias 3" in html and "Dropout(p = 0.5, axes=())" in html
