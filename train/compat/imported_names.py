"""Names that MXNet's modules hold only because they import them, such as `mxnet.gluon.block.np` or `mxnet.model.nd`.

Public code imports from there. The names are looked up when they are asked for, in a process where Tritium stands for MXNet.
"""

from __future__ import annotations

import collections
import importlib
import math
import sys
from types import ModuleType
from typing import Any

_PACKAGE = __name__.split(".", 1)[0]
_LIBRARY = frozenset(("collections", "copy", "ctypes", "functools", "gzip", "inspect", "itertools", "json", "logging", "math",
                      "multiprocessing", "os", "pickle", "platform", "re", "shutil", "struct", "sys", "tarfile", "tempfile",
                      "threading", "time", "traceback", "uuid", "warnings", "weakref", "zipfile"))
_RENAMED = {"np": "numpy", "_np": "numpy"}
_OF_LIBRARY: dict[str, Any] = {
    "OrderedDict": collections.OrderedDict, "defaultdict": collections.defaultdict, "namedtuple": collections.namedtuple,
    "sqrt": math.sqrt, "cos": math.cos, "pi": math.pi, "floor": math.floor}
#: MXNet's names, and where they are here: a path from the package.
_OF_MXNET = {
    **{name: name for name in ("autograd", "context", "cpu", "gpu", "current_context", "Context", "initializer", "io", "metric",
                               "ndarray", "nd", "symbol", "sym", "optimizer", "operator", "registry", "lr_scheduler")},
    "ag": "autograd", "ctx": "context", "opt": "optimizer", "kvs": "kvstore", "_mx_np": "np", "_mx_npx": "npx", "mx": "",
    "NDArray": "nd.NDArray", "Symbol": "sym.Symbol", "MXNetError": "base.MXNetError", "AttrScope": "AttrScope",
    "NameManager": "name.NameManager", "DataIter": "io.DataIter", "DataBatch": "io.DataBatch", "Uniform": "init.Uniform",
    "LogValidationMetricsCallback": "callback.LogValidationMetricsCallback", "recordio": "recordio", "base": "base",
    "DataParallelExecutorGroup": "executor_manager.DataParallelExecutorGroup", "array": "nd.array", "init": "init",
    "CSRNDArray": "nd.sparse.CSRNDArray", "Block": "gluon.Block", "HybridBlock": "gluon.HybridBlock",
    "split_and_load": "gluon.utils.split_and_load", "DataDesc": "io.DataDesc", "EvalMetric": "metric.EvalMetric",
    "CompositeEvalMetric": "metric.CompositeEvalMetric", "get_updater": "optimizer.get_updater",
    "_as_list": "base._as_list", "is_np_array": "util.is_np_array", "is_np_shape": "util.is_np_shape",
    "np_array": "util.np_array", "np_shape": "util.np_shape", "download": "gluon.utils.download",
    "check_sha1": "gluon.utils.check_sha1", "_get_repo_file_url": "gluon.utils._get_repo_file_url",
    **{name: f"base.{name}" for name in ("mx_real_t", "numeric_types", "string_types", "integer_types", "py_str", "c_str",
                                         "check_call")}}
#: Modules that import operators by name.
_OPERATORS = {"optimizer": "nd", "optimizer.optimizer": "nd", "optimizer.contrib": "nd", "symbol.symbol": "sym"}


def imported_name(module: str, name: str) -> Any:
    """Return what MXNet's module holds under name. Raises AttributeError if it is none of the names known here.

    module: without the package's name, "gluon.block".
    """
    if name in _LIBRARY or name in _RENAMED:
        return importlib.import_module(_RENAMED.get(name, name))
    if name in _OF_LIBRARY:
        return _OF_LIBRARY[name]
    found: Any = sys.modules[_PACKAGE]
    if name in _OF_MXNET:
        for part in _OF_MXNET[name].split(".") if _OF_MXNET[name] else ():
            found = getattr(found, part)
        return found
    operators = getattr(found, _OPERATORS[module], None) if module in _OPERATORS and not name.startswith("__") else None
    if operators is not None and hasattr(operators, name):
        return getattr(operators, name)
    raise AttributeError(f"module 'mxnet.{module}' has no attribute {name!r}")


def give_names(alias: str, module: ModuleType) -> None:
    """Let module, imported as mxnet.alias, find these names where it has no `__getattr__` of its own."""
    def find(name: str) -> Any:
        return imported_name(alias, name)

    module.__dict__.setdefault("__getattr__", find)
