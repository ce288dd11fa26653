"""MXNet's module `mx.gluon.parameter`: Parameter, Constant, ParameterDict."""

from ..errors import DeferredInitializationError as DeferredInitializationError
from .core.nested import _brief_print_list as _brief_print_list
from .core.nested import _indent as _indent
from .core.nested import shape_is_known as shape_is_known
from .core.parameter import Constant as Constant
from .core.parameter import Parameter as Parameter
from .core.parameter import tensor_types as tensor_types
from .core.parameter_dict import ParameterDict as ParameterDict
