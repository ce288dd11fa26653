"""Tritium: the architecture of Apache MXNet, built anew in Python. `import tritium as mx` speaks MXNet 1.x names.

This file is the face: it brings the names together, and holds one table of the module names MXNet scripts import.
"""

from __future__ import annotations

import importlib
from typing import Any

from . import context as context
from . import engine as engine
from . import graph as graph
from . import io as io
from . import kernels as kernels
from . import kvstore as kvstore
from . import lang as lang
from . import ndarray as ndarray
from . import train as train
from .context import Context as Context
from .context import cpu as cpu
from .context import cpu_pinned as cpu_pinned
from .context import current_context as current_context
from .context import gpu as gpu
from .engine import num_gpus as num_gpus
from .errors import MXNetError as MXNetError
from .errors import NoSuchNameError
from .graph import fuse_tape
from .graph.executor.cached_op import CachedOp as _CachedOp
from .graph.symbol import from_tape
from .graph.symbol.naming import AttrScope as AttrScope
from .graph.symbol.symbol import Symbol as Symbol
from .io.image import planes
from .kernels import Array as Array
from .kernels import Axes as Axes
from .kernels import Float as Float
from .kernels import Ints as Ints
from .kernels import Range as Range
from .kernels import Scalar as Scalar
from .kernels import indexed as indexed
from .kernels import reduction as reduction
from .kernels import scan as scan
from .kernels import simple_op as simple_op
from .kernels.declare import check_op
from .kernels.declare.composite import composite as composite
from .kernels.op import use_signature, use_tuner
from .kvstore.server import optimizer_codec
from .ndarray import NDArray as NDArray
from .ndarray.autograd import program
from .ndarray.core.array_core import ArrayCore
from .ndarray.dispatch import invoke
from .ndarray.functions import namespace
from .train.compat import absent
from .train.compat.install import add_aliases as _add_aliases
from .train.compat.install import install_as_mxnet as install_as_mxnet
from .train.compat.util import is_np_array as is_np_array
from .train.compat.util import is_np_shape as is_np_shape
from .train.compat.util import np_array as np_array
from .train.compat.util import np_shape as np_shape
from .train.compat.util import set_np_shape as set_np_shape
from .train.compat.util import use_np as use_np
from .train.compat.util import use_np_array as use_np_array
from .train.compat.util import use_np_shape as use_np_shape
from .train.optimizer import serialize
from .version import __version__ as __version__

#: The public names: `dir(mx)`. __init__.pyi gives their types.
_PUBLIC = [
    "Array", "AttrScope", "Axes", "Context", "Float", "Ints", "MXNetError", "NDArray", "Range", "Scalar", "Symbol",
    "__tritium_version__", "__version__", "attribute", "autograd", "base", "callback", "composite", "config", "context",
    "contrib", "cpu", "cpu_pinned", "current_context", "engine", "error", "errors", "executor", "executor_manager", "gluon",
    "image", "img", "indexed", "init", "initializer", "install_as_mxnet", "io", "is_np_array", "is_np_shape", "kv",
    "kvstore", "lang", "libinfo", "library", "log", "lr_scheduler", "metric", "misc", "mod", "model", "module", "mon",
    "monitor", "name", "nd", "ndarray", "np", "np_array", "np_shape", "npx", "num_gpus", "numpy", "numpy_extension", "onnx",
    "operator", "optimizer", "profiler", "random", "recordio", "reduction", "registry", "rnd", "rnn", "rtc", "runtime",
    "scan", "set_np_shape", "simple_op", "storage", "sym", "symbol", "test_utils", "tuning", "use_np", "use_np_array",
    "use_np_shape", "util", "visualization", "viz",
]

#: Tritium's version also where `install_as_mxnet` has set __version__ to MXNet's.
__tritium_version__ = __version__

#: Packages that are imported at their first use, so that importing Tritium is fast.
_LATER = ("contrib", "gluon", "tuning")


def _tuning() -> Any:
    return importlib.import_module(".tuning", __name__)


def __dir__() -> list[str]:
    return [*_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return importlib.import_module(f".{name}", __name__)
    if name == "onnx":
        return importlib.import_module(".contrib.onnx", __name__)
    why = absent.reason(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}") if why is None else NoSuchNameError(why)


def load_ipython_extension(ipython: Any) -> None:
    """Add `%%simple_op` and `%tritium_profile` to a notebook; `%load_ext tritium` calls it."""
    ipython.register_magics(importlib.import_module(".magics", __name__).TritiumMagics)


def connect() -> None:
    """Hand lower floors the few functions and the class that they use and that only higher floors can define."""
    engine.current_engine.connect()
    use_signature(namespace.signature)
    ArrayCore.array_class = NDArray
    check_op.use_gpu(invoke.run_on_gpu)
    use_tuner(lambda *given, **options: _tuning().tune(*given, **options))
    ndarray.autograd.get_symbol = from_tape.get_symbol
    ndarray.imdecode = planes.imdecode
    ndarray.CachedOp = _CachedOp  # MXNet's place for it
    program.fuse_steps = fuse_tape.fuse_steps
    optimizer_codec.install(to_spec=serialize.to_spec, from_spec=serialize.from_spec, join_states=serialize.join_states,
                            split_states=serialize.split_states)


connect()

#: MXNet's module names, and where what they name lives. `mx.optimizer` and `from tritium.optimizer import SGD` both work.
_ALIASES = {
    "nd": "ndarray", "autograd": "ndarray.autograd", "random": "ndarray.functions.random", "rnd": "ndarray.functions.random",
    "operator": "ndarray.custom", "ndarray.ndarray": "train.compat.ndarray_names", "ndarray.random": "ndarray.functions.random",
    **{f"ndarray.{n}": f"ndarray.{n}" for n in ("op", "contrib", "linalg", "sparse", "image", "_internal")},
    "sym": "graph.symbol.namespace", "symbol": "graph.symbol.namespace", "symbol.symbol": "graph.symbol.symbol",
    **{f"symbol.{n}": f"graph.symbol.namespace.{n}" for n in ("op", "contrib", "linalg", "sparse", "image", "_internal")},
    "symbol.random": "graph.symbol.random", "ndarray.utils": "train.compat.ndarray_names",
    "io.io": "io", "io.utils": "io", "name": "graph.symbol.naming", "attribute": "graph.symbol.naming",
    "viz": "graph.show.viz", "visualization": "graph.show.viz", "executor": "graph.executor.executor",
    "kv": "kvstore", "kvstore.kvstore": "kvstore.create", "recordio": "io.records.recordio", "image": "io.image",
    "img": "io.image", "image.image": "io.image", "image.detection": "io.image",
    "mod": "train.module", "module": "train.module", "module.base_module": "train.module.base_module",
    "module.module": "train.module.module", "module.bucketing_module": "train.module.bucketing_module",
    "module.sequential_module": "train.module.sequential_module", "module.python_module": "train.module.python_module",
    "module.executor_group": "train.compat.executor_manager",
    "optimizer": "train.optimizer", "optimizer.optimizer": "train.optimizer",
    "optimizer.contrib": "train.optimizer", "lr_scheduler": "train.optimizer.lr_scheduler",
    "initializer": "train.initializer", "init": "train.initializer", "metric": "train.metric", "callback": "train.callback",
    "monitor": "train.monitor", "mon": "train.monitor",
    "rnn": "train.rnn", "rnn.rnn_cell": "train.rnn", "rnn.rnn": "train.rnn", "rnn.io": "train.rnn.sentences",
    "model": "train.compat.model", "base": "train.compat.base", "test_utils": "train.compat.test_utils",
    "config": "kernels.configs.settings",
    "util": "train.compat.util", "runtime": "train.compat.runtime", "executor_manager": "train.compat.executor_manager",
    "misc": "train.compat.misc", "log": "train.compat.log", "registry": "train.compat.registry",
    "libinfo": "train.compat.libinfo", "error": "train.compat.error", "rtc": "train.compat.rtc",
    "library": "train.compat.library", "symbol_doc": "train.compat.operator_docs", "ndarray_doc": "train.compat.operator_docs",
    "kvstore.kvstore_server": "train.compat.kvstore_server",
    "np": "train.compat.numpy_interface", "numpy": "train.compat.numpy_interface",
    "npx": "train.compat.numpy_extension", "numpy_extension": "train.compat.numpy_extension",
    "storage": "engine.memory.storage", "profiler": "engine.profiler",
}
_add_aliases(_ALIASES)
absent.explain_absent_modules()
for _name, _value in (("num_gpus", num_gpus), ("gpu_memory_info", globals()["util"].gpu_memory_info)):
    setattr(context, _name, _value)  # what MXNet's mx.context also has, and lives on higher floors here
