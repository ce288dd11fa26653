"""`mx.contrib.tensorboard`: metrics in TensorBoard, by the package mxboard."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import MissingLibraryError


class LogMetricsCallback:
    """A callback that writes the values of the metric to a folder of TensorBoard, by epochs.

    logging_dir:  the folder.
    prefix:       stands before the name of each metric, with a hyphen.
    Raises: MissingLibraryError if mxboard is not installed.
    """

    def __init__(self, logging_dir: str, prefix: str | None = None):
        self.prefix = prefix
        try:
            writer: Any = importlib.import_module("mxboard").SummaryWriter
        except ImportError:
            raise MissingLibraryError("LogMetricsCallback: the package mxboard is not installed. Install it with pip install "
                                      "mxboard, or use mx.callback.Speedometer, which writes to the log.") from None
        self.summary_writer = writer(logging_dir)

    def __call__(self, param: Any) -> None:
        if param.eval_metric is None:
            return
        for name, value in param.eval_metric.get_name_value():
            label = name if self.prefix is None else f"{self.prefix}-{name}"
            self.summary_writer.add_scalar(label, value, global_step=param.epoch)
