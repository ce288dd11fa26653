"""Load the text of a Triton kernel as a function, compiled or interpreted.

With TRITIUM_GPU=interpret every kernel runs in Triton's interpreter on host memory. A process is either interpreted or compiled,
never both, because Triton decides it when its own library is imported.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import linecache
import os
import sys
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np

from ...context import GPU_MODE
from ...errors import ContextError, OperatorError
from ..cache_dir import cache_dir, save

#: True if kernels run in Triton's interpreter.
INTERPRET = GPU_MODE == "interpret"
if INTERPRET:
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it on import

#: The start of every generated file; kernels see no other names.
HEADER = "import triton\nimport triton.language as tl\n\n\n"

_lock = threading.RLock()
_loaded: dict[tuple[str, str], Any] = {}


def write_source(source: str, name: str) -> Path | None:
    """Write source to a content-addressed file; return its path, or None if the cache folder cannot be written.

    The file is replaced atomically if it is missing or was changed.
    """
    path = cache_dir() / f"{name}_{hashlib.sha256(source.encode()).hexdigest()[:24]}.py"
    try:
        same = path.read_text() == source
    except (OSError, ValueError):
        same = False
    return path if same or save(path, source) else None


def load(source: str, name: str) -> Any:
    """Return the jit function called name that source defines. The same source gives the same function.

    source: Python text; HEADER is put before it unless it imports triton itself.
    Raises: ContextError if triton is missing, or was imported interpreted in a compiled process; OperatorError if source does
        not define the name.
    """
    key = (source, name)
    with _lock:
        if key not in _loaded:
            _loaded[key] = _define(source, name)
        return _loaded[key]


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
        raise OperatorError(f"load: the source does not define {name!r}: {source[:80]!r}.") from None


def check_triton() -> None:
    """Raise ContextError unless triton is installed, and interpreted exactly if this process is. Imports triton.

    If an interpreted process imported triton before Tritium, and so compiled, triton is imported once more. Kernels are texts, so
    they do not care.
    """
    if importlib.util.find_spec("triton") is None:
        raise ContextError('load: triton is not installed. Install it with pip install "tritium[gpu]", or use cpu(0).')
    if INTERPRET and not _is_interpreted():
        _import_again()
    if INTERPRET:
        _patch_interpreter()
    elif _is_interpreted():
        raise ContextError(f"load: triton was imported interpreted, but TRITIUM_GPU={GPU_MODE} needs it compiled. Unset "
                           f"TRITON_INTERPRET; TRITIUM_GPU=interpret interprets all kernels.")


def _is_interpreted() -> bool:
    """Return whether Triton's own library is interpreted. Imports triton."""
    import triton.language as tl

    return type(tl.cdiv).__name__ == "InterpretedFunction"


def _import_again() -> None:
    """Forget Triton's modules but those in C, so that the next import reads TRITON_INTERPRET."""
    with _lock:
        for name in [n for n in sys.modules if n.partition(".")[0] == "triton" and not n.startswith("triton._C")]:
            del sys.modules[name]
        importlib.import_module("triton.language")
        vars(sys.modules["triton"])["_C"] = sys.modules["triton._C"]


def _patch_interpreter() -> None:
    """Fix two faults of the interpreter before Triton 3.9.

    A loop may run up to a scalar: the interpreter holds it as an array of shape [1], which newer NumPy refuses to convert.
    A bool scalar stays bool when it becomes a block: it got the dtype of the compared values, and then `&` failed.
    """
    from triton.runtime import interpreter

    original = interpreter._patch_lang_tensor
    if getattr(original, "patched", False):
        return

    def patch(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(np.asarray(self.handle.data).item()))

    splat = interpreter.InterpreterBuilder.create_splat

    def create_splat(self: Any, *args: Any) -> Any:
        block = splat(self, *args)
        if any(isinstance(x, interpreter.TensorHandle) and x.data.dtype == np.bool_ for x in args):
            block.data = block.data.astype(np.bool_)
        return block

    patch.patched = True
    interpreter._patch_lang_tensor = patch
    interpreter.InterpreterBuilder.create_splat = create_splat
