"""Estimator and its handlers: what they call and when, checkpoints, early stopping, messages.

tests/examples/test_gluon.py compares a training run with MXNet's.
"""

import logging

import numpy as np
import pytest
import tritium as mx
from tritium import gluon
from tritium.errors import BlockError, DTypeError, FileError, ParameterError
from tritium.gluon.contrib import estimator as est

X = np.sin(np.arange(40 * 4) * 0.37).astype("float32").reshape(40, 4)
Y = (X.sum(axis=1) > 0).astype("float32")


def loader(rows=24, batch_size=8):
    return gluon.data.DataLoader(gluon.data.ArrayDataset(X[:rows], Y[:rows]), batch_size=batch_size)


def make(**given):
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(8, activation="tanh"), gluon.nn.Dense(2))
    net.initialize()
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.3})
    made = est.Estimator(net, gluon.loss.SoftmaxCrossEntropyLoss(), trainer=trainer, context=mx.cpu(), **given)
    made.lines = []
    made.logger.handlers = [logging.Handler()]
    made.logger.handlers[0].emit = lambda record: made.lines.append(record.getMessage())
    return made


class Recorder(est.TrainBegin, est.TrainEnd, est.EpochBegin, est.EpochEnd, est.BatchBegin, est.BatchEnd):
    """Notes the events."""

    def __init__(self, stop=None):
        self.events, self.stop = [], stop

    def train_begin(self, estimator, *args, **kwargs):
        self.events.append("train")

    def train_end(self, estimator, *args, **kwargs):
        self.events.append("end")

    def epoch_begin(self, estimator, *args, **kwargs):
        self.events.append("epoch")

    def epoch_end(self, estimator, *args, **kwargs):
        self.events.append("epoch end")
        return self.stop == "epoch"

    def batch_begin(self, estimator, *args, **kwargs):
        assert len(kwargs["batch"]) == 2
        self.events.append("batch")

    def batch_end(self, estimator, *args, **kwargs):
        assert {len(kwargs[k]) for k in ("pred", "label", "loss")} == {1}
        self.events.append("batch end")
        return self.stop == "batch"


BATCH = ["batch", "batch end"]


@pytest.mark.parametrize("stop, given, events", [
    (None, {"epochs": 2}, ["train", *["epoch", *BATCH * 3, "epoch end"] * 2, "end"]),
    (None, {"batches": 4}, ["train", "epoch", *BATCH * 3, "epoch end", "epoch", *BATCH, "epoch end", "end"]),
    ("batch", {"epochs": 1}, ["train", "epoch", *BATCH, "epoch end", "end"]),
    ("epoch", {"epochs": 9}, ["train", "epoch", *BATCH * 3, "epoch end", "end"])])
def test_events_come_in_order_and_can_stop_training(stop, given, events):
    recorder = Recorder(stop)
    make().fit(loader(), event_handlers=recorder, **given)
    assert recorder.events == events


def test_training_learns_and_validates():
    made = make()
    made.fit(loader(), loader(40), epochs=15)
    (accuracy, loss), (val_accuracy, val_loss) = made.train_metrics, made.val_metrics
    assert [m.name for m in (accuracy, loss, val_accuracy, val_loss)] == [
        "training accuracy", "training softmaxcrossentropyloss", "validation accuracy", "validation softmaxcrossentropyloss"]
    assert accuracy.get()[1] > 0.9 and val_accuracy.get()[1] > 0.9 and loss.get()[1] < 0.5
    assert made.lines.count("Validation Begin") == 15 and made.lines[1] == "Train for 15 epochs."


def test_handlers_run_by_priority():
    order = []

    class Named(est.BatchEnd):
        def __init__(self, name, priority):
            self.name, self.priority = name, priority

        def batch_end(self, estimator, *args, **kwargs):
            order.append((self.name, estimator.train_metrics[1].num_inst, estimator.trainer.optimizer.num_update))

    make().fit(loader(), batches=1, event_handlers=[Named("late", 5), Named("first", -3000), Named("between", -1500)])
    assert order == [("first", 0, 0), ("between", 0, 1), ("late", 8, 1)]  # around the update and the metrics


def test_validation_by_batches_uses_val_net_and_val_loss():
    made = make(val_loss=gluon.loss.SoftmaxCrossEntropyLoss(weight=3.0))
    calls = []
    handler = est.ValidationHandler(loader(8), lambda **given: calls.append(given), epoch_period=None, batch_period=2)
    made.fit(loader(), epochs=2, event_handlers=handler)
    assert len(calls) == 3 and calls[0]["batch_axis"] == 0
    made.val_net = lambda x: mx.nd.zeros((len(x), 2))
    made.evaluate(loader(8))
    assert made.val_metrics[1].get()[1] == pytest.approx(3 * np.log(2), rel=1e-5)


@pytest.mark.parametrize("period, files", [
    ({"epoch_period": 1}, ["epoch1batch6", "epoch2batch9"]),
    ({"epoch_period": None, "batch_period": 4}, ["epoch1batch3", "epoch2batch7"])])
def test_checkpoints_are_kept_and_resumed(tmp_path, period, files):
    made = make()
    made.fit(loader(), epochs=3, event_handlers=est.CheckpointHandler(str(tmp_path), max_checkpoints=2, **period))
    wanted = {f"model-{f}.{end}" for f in files for end in ("params", "states")} | {"model-symbol.json"}
    assert {p.name for p in tmp_path.iterdir()} == wanted
    again = make()
    kind = "epochs" if "batch_period" not in period else "batches"
    handler = est.CheckpointHandler(str(tmp_path), resume_from_checkpoint=True, verbose=1, **{"epoch_period": None, **period})
    recorder = Recorder()
    again.fit(loader(), event_handlers=[handler, recorder], **{kind: 5 if kind == "epochs" else 12})
    assert recorder.events.count("batch") == (6 if kind == "epochs" else 4)
    loaded = mx.nd.load(str(tmp_path / f"model-{files[-1]}.params"))
    assert set(loaded) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    with pytest.raises(ParameterError, match="fit was asked for 2"):
        make().fit(loader(), event_handlers=est.CheckpointHandler(str(tmp_path), resume_from_checkpoint=True, **{
            "epoch_period": None, **period}), **{kind: 2})


def test_resuming_needs_the_states(tmp_path):
    make().fit(loader(), epochs=1, event_handlers=est.CheckpointHandler(str(tmp_path)))
    (tmp_path / "model-epoch0batch3.states").unlink()
    with pytest.raises(FileError, match=r"has no model-epoch0batch3\.states beside it"):
        make().fit(loader(), epochs=4, event_handlers=est.CheckpointHandler(str(tmp_path), resume_from_checkpoint=True))


def test_the_best_model_is_saved(tmp_path):
    made = make()
    values = iter([0.5, 0.7, 0.6])
    monitor = made.val_metrics[0]
    monitor.get = lambda: ("validation accuracy", next(values))
    handler = est.CheckpointHandler(str(tmp_path), monitor=monitor, save_best=True, mode="max", verbose=1)
    made.fit(loader(), epochs=3, event_handlers=handler)
    assert handler.best == 0.7 and (tmp_path / "model-best.params").exists()
    assert [line.partition("accuracy ")[2].partition(",")[0] for line in made.lines if "improve" in line] == [
        "improved from -inf to 0.50000", "improved from 0.50000 to 0.70000", "did not improve from 0.70000"]


@pytest.mark.parametrize("mode, given, epochs", [("max", [0.5, 0.6, 0.6, 0.6], 4), ("min", [0.5, 0.6, 0.4, 0.41, 0.42], 5)])
def test_training_stops_when_nothing_improves(mode, given, epochs):
    made = make()
    values = iter(given)
    monitor = made.train_metrics[0]
    monitor.get = lambda: ("training accuracy", next(values, given[-1]))
    stopper, recorder = est.EarlyStoppingHandler(monitor, patience=2, mode=mode), Recorder()
    made.fit(loader(), epochs=9, event_handlers=[stopper, recorder, est.LoggingHandler()])
    assert recorder.events.count("epoch") == epochs and stopper.stopped_epoch == epochs - 1


def test_auto_mode_goes_by_the_name():
    made = make()
    with pytest.warns(UserWarning, match="a larger training accuracy counts as better"):
        assert est.EarlyStoppingHandler(made.train_metrics[0]).monitor_op is np.greater
    with pytest.warns(UserWarning, match="a smaller training softmaxcrossentropyloss counts as better"):
        assert est.EarlyStoppingHandler(made.train_metrics[1], min_delta=0.1).monitor_op is np.less


def test_a_batch_processor_computes_batches():
    class Negated(est.BatchProcessor):
        def _get_data_and_label(self, batch, ctx, batch_axis=0):
            data, label = super()._get_data_and_label(batch, ctx, batch_axis)
            return [-x for x in data], label

    made = make(batch_processor=Negated())
    made.fit(loader(), epochs=20)
    data = mx.nd.array(-X[:24])
    assert (made.net(data).asnumpy().argmax(axis=1) == Y[:24]).mean() > 0.9


@pytest.mark.parametrize("call, error, message", [
    (lambda: est.Estimator(gluon.nn.Dense(2), "softmax"), DTypeError, "loss 'softmax' is not a gluon.loss.Loss"),
    (lambda: make(train_metrics=["acc"]), DTypeError, "'acc' is not a metric"),
    (lambda: make(batch_processor=3), DTypeError, "batch_processor 3 has no fit_batch"),
    (lambda: make().fit(X, epochs=1), DTypeError, "Estimator.fit: the data is a ndarray"),
    (lambda: make().fit(loader()), ParameterError, "epochs=None, batches=None. Give one of the two"),
    (lambda: make().fit(gluon.data.DataLoader(X[:3], 4, last_batch="discard"), batches=2), BlockError, "has no batches"),
    (lambda: make().fit(loader(), epochs=1, event_handlers=[3]), DTypeError, "3 is not an event handler"),
    (lambda: make().fit(loader(), epochs=1, event_handlers=est.MetricHandler(mx.metric.MSE())), ParameterError,
     "MetricHandler: .* is not one of the estimator's metrics"),
    (lambda: est.LoggingHandler("day"), ParameterError, "log_interval='day' must be 'epoch' or a number"),
    (lambda: est.EarlyStoppingHandler("loss"), DTypeError, "EarlyStoppingHandler: monitor='loss' is not a metric"),
    (lambda: est.EarlyStoppingHandler(mx.metric.CompositeEvalMetric()), ParameterError, "Give one of its metrics"),
])
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_defaults_are_warned_of():
    net = gluon.nn.Dense(2)
    with pytest.warns(UserWarning, match="no trainer is given"):
        made = est.Estimator(net, gluon.loss.L2Loss(), context=mx.cpu())
    assert [m.name for m in made.train_metrics] == ["training l2loss"] and made.trainer.learning_rate == 0.001
    with pytest.warns(UserWarning, match="initializer is not used"):
        est.Estimator(net, gluon.loss.L2Loss(), initializer=mx.init.One(), trainer=made.trainer, context=mx.cpu())
