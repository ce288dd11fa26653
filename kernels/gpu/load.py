"""From the text of a Triton kernel to a function: compiled or interpreted.

With TRITIUM_GPU=interpret every kernel runs in Triton's interpreter on host memory. A process is either interpreted
or compiled, never both, because Triton decides when its own library is imported.
"""

from __future__ import annotations

import hashlib
import importlib.util
import linecache
import os
import sys
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np

from ...atomic_file import write_atomic
from ...context import GPU_MODE
from ...errors import ContextError, FileError, OperatorError
from ..cache_dir import cache_dir

#: Whether kernels run in Triton's interpreter.
INTERPRET = GPU_MODE == "interpret"
if INTERPRET:
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton's own library is decorated, so before anyone imports it

#: Every generated file starts with this; kernels see nothing else.
HEADER = "import triton\nimport triton.language as tl\n\n\n"

_lock = threading.RLock()
_loaded: dict[tuple[str, str], Any] = {}


def write_source(source: str, name: str) -> Path | None:
    """The content-addressed file that holds source; None where the cache folder cannot be written.

    The file appears whole or not at all, and a file that was changed since is replaced.
    """
    path = cache_dir() / f"{name}_{hashlib.sha256(source.encode()).hexdigest()[:24]}.py"
    try:
        if path.exists() and path.read_text() == source:
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, source, sync=False)
    except (OSError, FileError):
        return None
    return path


def load(source: str, name: str) -> Any:
    """The jit function called name that source defines. The same source gives the same function.

    source: Python text; HEADER is put before it unless it imports triton itself.
    Raises: ContextError when triton is missing or was imported compiled in an interpreted process;
        OperatorError when source defines no such name.
    """
    key = (source, name)
    with _lock:
        found = _loaded.get(key)
        if found is None:
            found = _loaded[key] = _define(source, name)
    return found


def _define(source: str, name: str) -> Any:
    check_triton()
    if not source.startswith("import triton"):
        source = HEADER + source
    path = write_source(source, name)
    digest = hashlib.sha256(source.encode()).hexdigest()[:24]
    filename = str(path) if path else f"<tritium {name} {digest}>"
    if path is None:  # mtime None: linecache.checkcache leaves the entry alone
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    module = types.ModuleType(f"tritium_kernel_{name}_{digest}")
    module.__file__ = filename
    sys.modules[module.__name__] = module  # inspect finds the text of a function through its module
    exec(compile(source, filename, "exec"), module.__dict__)
    try:
        return getattr(module, name)
    except AttributeError:
        raise OperatorError(f"load: the source defines no {name!r}: {source[:80]!r}.") from None


def check_triton() -> None:
    """Raise ContextError unless triton is here, and interpreted exactly if this process is. Imports triton."""
    if importlib.util.find_spec("triton") is None:
        raise ContextError('load: triton is not installed. Install it with pip install "tritium[gpu]", or use cpu(0).')
    import triton.language as tl

    interpreted = type(tl.cdiv).__name__ == "InterpretedFunction"
    if interpreted != INTERPRET:
        was, want = ("interpreted", "compiled") if interpreted else ("compiled", "interpreted")
        raise ContextError(
            f"load: triton was imported {was}, but TRITIUM_GPU={GPU_MODE} needs it {want}. "
            f"Import tritium before triton, and leave TRITON_INTERPRET alone."
        )
    if INTERPRET:
        _mend_interpreter()


def _mend_interpreter() -> None:
    """Let loops run up to a scalar: the interpreter holds scalars as arrays [1], which newer NumPy turns into no int.

    And keep a scalar that is true or false so when it becomes a block: it would get the dtype of what was compared, and the
    block has no `&` with another. Triton 3.9 needs no mending.
    """
    from triton.runtime import interpreter

    original = interpreter._patch_lang_tensor
    if getattr(original, "mended", False):
        return

    def patch(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(np.asarray(self.handle.data).item()))

    spread = interpreter.InterpreterBuilder.create_splat

    def create_splat(self: Any, *given: Any) -> Any:
        made = spread(self, *given)
        if any(isinstance(x, interpreter.TensorHandle) and x.data.dtype == np.bool_ for x in given):
            made.data = made.data.astype(np.bool_)
        return made

    patch.mended = True  # type: ignore[attr-defined]
    interpreter._patch_lang_tensor = patch
    interpreter.InterpreterBuilder.create_splat = create_splat
