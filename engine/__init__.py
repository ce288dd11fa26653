"""The dependency engine: runs functions in an order that respects what they read and mutate. Also memory, random numbers, GPU.

`tritium.engine` is MXNet's `mx.engine` too: `bulk(size)`, `set_bulk_size(size)`.
"""

from . import fork_and_exit as fork_and_exit
from . import profiler as profiler
from .base import Engine as Engine
from .base import Opr as Opr
from .checked import CheckedEngine as CheckedEngine
from .current_engine import bulk as bulk
from .current_engine import current as current
from .current_engine import set_bulk_size as set_bulk_size
from .current_engine import set_current as set_current
from .deps import Var as Var
from .gpu import cuda as cuda
from .gpu.cuda import num_gpus as num_gpus
from .memory import resource as resource
from .memory import storage as storage
from .naive import NaiveEngine as NaiveEngine
from .run_context import RunContext as RunContext
from .threaded import ThreadedEngine as ThreadedEngine
