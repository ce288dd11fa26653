"""Callbacks: their log lines and their files."""

import logging
import re

import numpy as np
import pytest
import tritium as mx
from tritium.errors import ParameterError
from tritium.train import callback
from tritium.train.checkpoint import BatchEndParam


def accuracy():
    m = mx.metric.create("acc")
    m.update([np.array([0, 1])], [np.array([[1.0, 0], [1, 0]])])
    return m


def messages(caplog, run):
    caplog.set_level(logging.INFO)
    caplog.clear()
    run()
    return [r.getMessage() for r in caplog.records]


def test_speedometer_measures_from_its_first_batch(caplog):
    ticks = iter([10.0, 12.0, 12.0, 13.0, 13.0])
    speed = callback.Speedometer(5, frequent=2, clock=lambda: next(ticks))
    metric = accuracy()
    got = messages(caplog, lambda: [speed(BatchEndParam(1, n, metric, None)) for n in range(5)])
    # 2 batches of 5 samples in 2 s, then in 1 s; the metric is reset after each line
    assert got == ["Epoch[1] Batch [0-2]\tSpeed: 5.00 samples/sec\taccuracy=0.500000",
                   "Epoch[1] Batch [2-4]\tSpeed: 10.00 samples/sec\taccuracy=nan"]
    assert metric.get_global()[1] == 0.5


def test_speedometer_without_a_metric_and_in_a_new_epoch(caplog):
    ticks = iter(float(i) for i in range(99))
    speed = callback.Speedometer(5, frequent=2, clock=lambda: next(ticks))
    got = messages(caplog, lambda: [speed(BatchEndParam(e, n, None, None)) for e in (0, 1) for n in range(3)])
    assert got == ["Iter[0] Batch [2]\tSpeed: 10.00 samples/sec", "Iter[1] Batch [2]\tSpeed: 10.00 samples/sec"]
    with pytest.raises(ParameterError, match="Speedometer: frequent=0 must be at least 1 batch"):
        callback.Speedometer(5, frequent=0)


def test_progress_bar_writes_a_plain_line_every_ten_seconds(capsys):
    ticks = iter([0.0, 0.0, 4.0, 11.0, 11.0, 12.0])
    bar = callback.ProgressBar(total=4, clock=lambda: next(ticks))
    metric = accuracy()
    for n in range(3):  # after 4 s, 11 s and 12 s
        bar(BatchEndParam(0, n, metric, None))
    assert capsys.readouterr().err == "Epoch 1:  50% 2/4 [00:11<00:11,  5.50s/batch, accuracy 0.5000]\n"


def test_fit_with_progress_prints_a_line_per_epoch(capsys):
    net = mx.sym.LinearRegressionOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="fc"), name="lr")
    data = mx.io.NDArrayIter(np.ones((4, 2)), np.ones((4, 1)), 2, label_name="lr_label")
    mx.mod.Module(net, label_names=["lr_label"]).fit(data, data, num_epoch=2, eval_metric="mse", progress=True)
    said = capsys.readouterr()
    assert said.err == ""
    lines = said.out.splitlines()
    number = r"\d+\.\d+"
    assert [bool(re.fullmatch(rf"Epoch {e}  mse {number}  validation mse {number}  [\d,.]+ batches/s  {number} s", line))
            for e, line in zip((1, 2), lines, strict=True)] == [True, True], lines


def test_callbacks_log_metrics(caplog):
    param = BatchEndParam(3, 4, accuracy(), None)
    assert messages(caplog, lambda: callback.LogValidationMetricsCallback()(param)) == ["Epoch[3] Validation-accuracy=0.500000"]
    log = callback.log_train_metric(2, auto_reset=True)
    assert messages(caplog, lambda: log(param)) == ["Iter[3] Batch[4] Train-accuracy=0.500000"]
    assert messages(caplog, lambda: log(param._replace(nbatch=5))) == []
    assert np.isnan(param.eval_metric.get()[1])


def test_do_checkpoint_writes_every_second_epoch(tmp_path):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    save = callback.do_checkpoint(str(tmp_path / "m"), period=2)
    for epoch in range(4):
        save(epoch, net, {"fc_weight": mx.nd.ones((2, 2))}, {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m-0002.params", "m-0004.params", "m-symbol.json"]


def test_module_checkpoint_writes_optimizer_states(tmp_path):
    m = mx.mod.Module(mx.sym.LinearRegressionOutput(
        mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="fc"), name="lr"), label_names=["lr_label"])
    data = mx.io.NDArrayIter(np.ones((4, 2)), np.ones((4, 1)), 2, label_name="lr_label")
    save = callback.module_checkpoint(m, str(tmp_path / "m"), save_optimizer_states=True)
    m.fit(data, num_epoch=1, eval_metric="mse", epoch_end_callback=save)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m-0001.params", "m-0001.states", "m-symbol.json"]


def test_speedometer_without_reset_covers_the_epoch(caplog):
    ticks = iter(float(i) for i in range(99))
    speed = callback.Speedometer(5, frequent=2, auto_reset=False, clock=lambda: next(ticks))
    metric = accuracy()
    got = messages(caplog, lambda: [speed(BatchEndParam(0, n, metric, None)) for n in range(5)])
    assert [m.split("\t")[0] for m in got] == ["Epoch[0] Batch [0-2]", "Epoch[0] Batch [0-4]"] and "accuracy=0.5" in got[1]
