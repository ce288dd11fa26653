"""`import tritium as mx` for editors and type checkers: the public names, as __init__.py holds them at run time.

tests/test_types.py compares the names with `dir(mx)`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from . import context as context
from . import contrib as contrib
from . import engine as engine
from . import errors as errors
from . import gluon as gluon
from . import io as io
from . import kvstore as kv
from . import kvstore as kvstore
from . import lang as lang
from . import ndarray as nd
from . import ndarray as ndarray
from . import tuning as tuning
from .context import Context as Context
from .context import cpu as cpu
from .context import cpu_pinned as cpu_pinned
from .context import current_context as current_context
from .contrib import onnx as onnx
from .engine import num_gpus as num_gpus
from .engine import profiler as profiler
from .engine.memory import storage as storage
from .errors import MXNetError as MXNetError
from .graph.executor import executor as executor
from .graph.show import viz as visualization
from .graph.show import viz as viz
from .graph.symbol import namespace as sym
from .graph.symbol import namespace as symbol
from .graph.symbol import naming as attribute
from .graph.symbol import naming as name
from .graph.symbol.naming import AttrScope as AttrScope
from .graph.symbol.symbol import Symbol as Symbol
from .io import image as image
from .io import image as img
from .io.records import recordio as recordio
from .kernels.configs import settings as config
from .kernels.op import Op
from .kernels.params import Range as Range
from .ndarray import NDArray as NDArray
from .ndarray import autograd as autograd
from .ndarray import custom as operator
from .ndarray.functions import random as random
from .ndarray.functions import random as rnd
from .train import callback as callback
from .train import initializer as init
from .train import initializer as initializer
from .train import metric as metric
from .train import module as mod
from .train import module as module
from .train import monitor as mon
from .train import monitor as monitor
from .train import optimizer as optimizer
from .train import rnn as rnn
from .train.compat import base as base
from .train.compat import error as error
from .train.compat import executor_manager as executor_manager
from .train.compat import libinfo as libinfo
from .train.compat import library as library
from .train.compat import log as log
from .train.compat import misc as misc
from .train.compat import model as model
from .train.compat import numpy_extension as npx
from .train.compat import numpy_extension as numpy_extension
from .train.compat import numpy_interface as np
from .train.compat import numpy_interface as numpy
from .train.compat import registry as registry
from .train.compat import rtc as rtc
from .train.compat import runtime as runtime
from .train.compat import test_utils as test_utils
from .train.compat import util as util
from .train.compat.install import install_as_mxnet as install_as_mxnet
from .train.compat.util import is_np_array as is_np_array
from .train.compat.util import is_np_shape as is_np_shape
from .train.compat.util import np_array as np_array
from .train.compat.util import np_shape as np_shape
from .train.compat.util import set_np_shape as set_np_shape
from .train.compat.util import use_np as use_np
from .train.compat.util import use_np_array as use_np_array
from .train.compat.util import use_np_shape as use_np_shape
from .train.optimizer import lr_scheduler as lr_scheduler
from .version import __version__ as __version__

__all__ = [
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

__tritium_version__: str
Float = Any
Array = Any
Scalar = float
Ints = int | Sequence[int]
Axes = int | Sequence[int] | None

_P = ParamSpec("_P")
_T = TypeVar("_T", NDArray, Symbol)

class _Declared(Op, Generic[_P]):
    """An operator that a user declared. Of arrays it gives an array, of symbols a symbol."""

    def __call__(self, x: _T, /, *arrays: _P.args, **parameters: _P.kwargs) -> _T: ...
    def gradient(self, body: Callable[..., Any]) -> Callable[..., Any]: ...
    def cpu(self, body: Callable[..., Any]) -> Callable[..., Any]: ...
    def gpu(self, body: Callable[..., Any]) -> Callable[..., Any]: ...
    def check(self, *inputs: Any, **parameters: Any) -> None: ...
    def tune(self, *shapes: Any, **options: Any) -> Any: ...
    def cpu_source(self, *shapes: Any, **options: Any) -> str: ...
    def gpu_source(self, *shapes: Any, **options: Any) -> str: ...
    def gradient_source(self, *shapes: Any, **options: Any) -> str: ...

class _Folded(_Declared[...]):
    """A reduction or a scan. Its parameters are those of the body, and axis, keepdims and the like."""

@overload
def simple_op(body: Callable[Concatenate[Any, _P], Any], /) -> _Declared[_P]: ...
@overload
def simple_op(body: None = None, **options: Any) -> Callable[[Callable[Concatenate[Any, _P], Any]], _Declared[_P]]: ...
@overload
def reduction(body: Callable[..., Any], /, *, combine: Any, **options: Any) -> _Folded: ...
@overload
def reduction(body: None = None, *, combine: Any, **options: Any) -> Callable[[Callable[..., Any]], _Folded]: ...
@overload
def scan(body: Callable[..., Any], /, *, combine: Any, **options: Any) -> _Folded: ...
@overload
def scan(body: None = None, *, combine: Any, **options: Any) -> Callable[[Callable[..., Any]], _Folded]: ...
@overload
def indexed(name: Callable[Concatenate[Any, Any, _P], Any], /) -> _Declared[_P]: ...
@overload
def indexed(name: str = "", **options: Any) -> Callable[[Callable[Concatenate[Any, Any, _P], Any]], _Declared[_P]]: ...
@overload
def composite(name: Callable[Concatenate[Any, _P], Any], /) -> _Declared[_P]: ...
@overload
def composite(name: str, *, replace: bool = False, **options: Any) -> Callable[
    [Callable[Concatenate[Any, _P], Any]], _Declared[_P]]: ...

