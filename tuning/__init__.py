"""Tuning: which kernels a model or operator runs, and the runs that compile, time and check their configurations.

What is tried, and what is best, is decided in `kernels/tune_*.py`; here it is done.
"""

from ..kernels.configs.store import Store as Store
from ..kernels.configs.store import store_path as store_path
from .collect import Item as Item
from .collect import Request as Request
from .collect import Work as Work
from .collect import collect as collect
from .use import use as use
