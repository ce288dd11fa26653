"""Tritium: the architecture of Apache MXNet, built anew in Python. `import tritium as mx` speaks MXNet 1.x names.

This file is the face: it brings the names together, and holds one table of the module names MXNet scripts import.
"""

from __future__ import annotations

import importlib
import sys

from . import context as context
from . import engine as engine
from . import graph as graph
from . import io as io
from . import kernels as kernels
from . import kvstore as kvstore
from . import ndarray as ndarray
from . import train as train
from .context import Context as Context
from .context import cpu as cpu
from .context import cpu_pinned as cpu_pinned
from .context import current_context as current_context
from .context import gpu as gpu
from .engine import num_gpus as num_gpus
from .errors import MXNetError as MXNetError
from .graph.naming import AttrScope as AttrScope
from .graph.symbol import Symbol as Symbol
from .kernels import Array as Array
from .kernels import Axes as Axes
from .kernels import Float as Float
from .kernels import Ints as Ints
from .kernels import Scalar as Scalar
from .kernels import reduction as reduction
from .kernels import simple_op as simple_op
from .ndarray import NDArray as NDArray
from .train.install import install_as_mxnet as install_as_mxnet
from .version import __version__ as __version__

#: MXNet's module names, and where what they name lives. `mx.optimizer` and `from tritium.optimizer import SGD` both work.
_ALIASES = {
    "nd": "ndarray",
    "sym": "graph.namespace",
    "symbol": "graph.namespace",
    "autograd": "ndarray.autograd",
    "random": "ndarray.random",
    "rnd": "ndarray.random",
    "kv": "kvstore",
    "recordio": "io.recordio",
    "image": "io.image",
    "mod": "train.modules",
    "module": "train.modules",
    "model": "train.model",
    "optimizer": "train.optimizer",
    "lr_scheduler": "train.lr_scheduler",
    "initializer": "train.initializer",
    "init": "train.initializer",
    "metric": "train.metric",
    "callback": "train.callback",
    "monitor": "train.monitor",
    "mon": "train.monitor",
    "name": "graph.naming",
    "attribute": "graph.naming",
    "viz": "graph.viz",
    "visualization": "graph.viz",
    "base": "train.base",
    "rnn": "train.rnn",
    "test_utils": "train.test_utils",
    "util": "train.util",
    "runtime": "train.runtime",
    "executor_manager": "train.executor_manager",
    "executor": "graph.executor",
    "misc": "train.misc",
    "log": "train.log",
    "storage": "engine.storage",
    "profiler": "engine.profiler",
    "lang": "kernels.lang",
    "operator": "ndarray.user_ops",
    # files of MXNet's own packages that scripts import from
    "module.base_module": "train.base_module",
    "module.module": "train.module",
    "module.bucketing_module": "train.bucketing_module",
    "module.sequential_module": "train.sequential_module",
    "module.python_module": "train.python_module",
    "module.executor_group": "train.executor_manager",
    "rnn.rnn_cell": "train.rnn",
    "rnn.rnn": "train.rnn",
    "rnn.io": "train.rnn_io",
    "optimizer.optimizer": "train.optimizer",
    "symbol.symbol": "graph.symbol",
}
for _name, _target in _ALIASES.items():
    _module = sys.modules[f"{__name__}.{_name}"] = importlib.import_module(f".{_target}", __name__)
    _above, _, _last = f"{__name__}.{_name}".rpartition(".")
    if _above == __name__ or not hasattr(sys.modules[_above], _last):
        setattr(sys.modules[_above], _last, _module)
for _name, _value in (("num_gpus", num_gpus), ("gpu_memory_info", globals()["util"].gpu_memory_info)):
    setattr(context, _name, _value)  # what MXNet's mx.context also has, and lives on higher floors here
