"""Tuning: `tune(op, shapes)` and `use()`; and the parts of `tritium tune`: collect the kernels of a model or operator; prune,
compile, time and check their configurations; store the results."""

from ..kernels.configs.store import Store as Store
from ..kernels.configs.store import store_path as store_path
from .collect import TuningRequest as TuningRequest
from .collect import Workload as Workload
from .collect import WorkloadItem as WorkloadItem
from .collect import collect as collect
from .tune import Tuned as Tuned
from .tune import TunedKernel as TunedKernel
from .tune import tune as tune
from .use import use as use
