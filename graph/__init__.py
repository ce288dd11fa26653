"""Graphs as values: Symbol, its passes (infer, gradient, fuse, plan), and the Executor that runs the result."""

from typing import Any

from .executor.executor import Executor as Executor
from .options import Options as Options
from .options import options as options
from .symbol import from_tape as from_tape
from .symbol import namespace as namespace
from .symbol.naming import AttrScope as AttrScope
from .symbol.naming import NameManager as NameManager
from .symbol.naming import Prefix as Prefix
from .symbol.symbol import Group as Group
from .symbol.symbol import Symbol as Symbol
from .symbol.symbol import Variable as Variable
from .symbol.symbol import fromjson as fromjson
from .symbol.symbol import load as load
from .symbol.symbol import load_json as load_json
from .symbol.symbol import var as var


def __getattr__(name: str) -> Any:
    """Operators as functions of symbols: `graph.Convolution(...)`."""
    return getattr(namespace, name)
