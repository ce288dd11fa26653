"""Operators: declared once, traced, differentiated, printed for each target. Knows nothing of queues or memory."""

from . import lang as lang
from . import op as op
from . import ops as ops
from .fused import fused_op as fused_op
from .op import Expression as Expression
from .op import Gradient as Gradient
from .op import Op as Op
from .op import Req as Req
from .op import Spec as Spec
from .op import compiled as compiled
from .op import compiled_static as compiled_static
from .op import get as get
from .op import register as register
from .op import registered as registered
from .simple_op import Array as Array
from .simple_op import Axes as Axes
from .simple_op import Float as Float
from .simple_op import Ints as Ints
from .simple_op import Scalar as Scalar
from .simple_op import reduction as reduction
from .simple_op import simple_op as simple_op
