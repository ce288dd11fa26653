"""LogMetricsCallback, with a stand-in for the package mxboard."""

import sys
from types import SimpleNamespace

import pytest
import tritium as mx
from tritium.errors import MissingLibraryError


def test_values_are_written(monkeypatch):
    written = []
    writer = SimpleNamespace(add_scalar=lambda name, value, global_step: written.append((name, value, global_step)))
    monkeypatch.setitem(sys.modules, "mxboard", SimpleNamespace(SummaryWriter=lambda folder: writer))
    metric = mx.metric.Accuracy()
    metric.update([mx.nd.array([1])], [mx.nd.array([[0, 1]])])
    for prefix in (None, "train"):
        callback = mx.contrib.tensorboard.LogMetricsCallback("logs", prefix)
        callback(mx.model.BatchEndParam(3, 0, metric, None))
        callback(mx.model.BatchEndParam(3, 0, None, None))
    assert written == [("accuracy", 1.0, 3), ("train-accuracy", 1.0, 3)]


def test_the_package_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, "mxboard", None)
    with pytest.raises(MissingLibraryError, match="the package mxboard is not installed"):
        mx.contrib.tensorboard.LogMetricsCallback("logs")
