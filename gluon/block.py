"""MXNet's module `mx.gluon.block`: Block, HybridBlock, SymbolBlock."""

from ..errors import DeferredInitializationError as DeferredInitializationError
from .core.block import Block as Block
from .core.hooks import HookHandle as HookHandle
from .core.hybrid_block import HybridBlock as HybridBlock
from .core.nested import _brief_print_list as _brief_print_list
from .core.nested import _flatten as _flatten
from .core.nested import _indent as _indent
from .core.nested import _regroup as _regroup
from .core.parameter import Parameter as Parameter
from .core.parameter_dict import ParameterDict as ParameterDict
from .core.scope import _BlockScope as _BlockScope
from .core.symbol_block import SymbolBlock as SymbolBlock
from .core.symbol_block import _common_prefix as _common_prefix
