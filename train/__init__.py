"""Training: Module, optimizers, metrics, initializers, schedules, callbacks, checkpoints."""

from . import callback, initializer, metric, monitor, optimizer
from .checkpoint import BatchEndParam
from .compat import model
from .module.base_module import BaseModule
from .module.executor_group import ExecutorGroup
from .module.module import Module
from .monitor import Monitor
from .optimizer import lr_scheduler
from .optimizer import serialize as serialize  # hands optimizers to kvstore

__all__ = [
    "BaseModule", "BatchEndParam", "ExecutorGroup", "Module", "Monitor", "callback", "initializer", "lr_scheduler",
    "metric", "model", "monitor", "optimizer",
]
