"""Tuning: which kernels a model or operator runs, and the runs that compile, time and check their configurations.

What is tried, and what is best, is decided in `kernels/tune_*.py`; here it is done.
"""

from ..kernels.configs.store import Store as Store
from ..kernels.configs.store import store_path as store_path
from .collect import TuningRequest as TuningRequest
from .collect import Workload as Workload
from .collect import WorkloadItem as WorkloadItem
from .collect import collect as collect
from .use import use as use
