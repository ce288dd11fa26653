"""`mx.lang`: the functions for the bodies of operators. On traced values they add to the trace, on numbers they compute, and on
an NDArray or Symbol they call the operator of the same name. `mx.lang.__all__` lists them."""

from .kernels.ir.lang import *  # noqa: F403
from .kernels.ir.lang import __all__ as __all__
