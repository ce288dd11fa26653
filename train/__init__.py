"""Training: Module, optimizers, metrics, initializers, schedules, callbacks, checkpoints."""

from . import callback, initializer, lr_scheduler, metric, model, module, monitor, optimizer
from . import optimizer_data as optimizer_data  # hands optimizers to kvstore
from .base_module import BaseModule
from .checkpoint import BatchEndParam
from .executor_group import ExecutorGroup
from .module import Module
from .monitor import Monitor

__all__ = [
    "BaseModule", "BatchEndParam", "ExecutorGroup", "Module", "Monitor", "callback", "initializer", "lr_scheduler",
    "metric", "model", "module", "monitor", "optimizer",
]
