"""Graphs as values: Symbol, its passes (infer, gradient, fuse, plan), and the Executor that runs the result."""

from typing import Any

from . import namespace as namespace
from . import recorded as recorded
from .executor import Executor as Executor
from .naming import AttrScope as AttrScope
from .naming import NameManager as NameManager
from .naming import Prefix as Prefix
from .options import Options as Options
from .options import options as options
from .symbol import Group as Group
from .symbol import Symbol as Symbol
from .symbol import Variable as Variable
from .symbol import fromjson as fromjson
from .symbol import load as load
from .symbol import load_json as load_json
from .symbol import var as var


def __getattr__(name: str) -> Any:
    """Operators as functions of symbols: `graph.Convolution(...)`."""
    return getattr(namespace, name)
