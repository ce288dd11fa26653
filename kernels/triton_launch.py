"""From the text of a Triton kernel to a function, and from a function to a launch: compiled or interpreted.

With TRITIUM_GPU=interpret every kernel runs in Triton's interpreter on host memory. A process is either interpreted
or compiled, never both, because Triton decides when its own library is imported.
"""

from __future__ import annotations

import hashlib
import importlib.util
import linecache
import math
import os
import sys
import tempfile
import threading
import types
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..context import GPU_MODE
from ..errors import ContextError, OperatorError, ParameterError, ShapeError

#: Whether kernels run in Triton's interpreter.
INTERPRET = GPU_MODE == "interpret"
if INTERPRET:
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton's own library is decorated, so before anyone imports it

#: Every generated file starts with this; kernels see nothing else.
HEADER = "import triton\nimport triton.language as tl\n\n\n"

MAX_PROGRAMS = 2**31 - 1  # above it, Triton's own launcher starts nothing and says nothing
_INT32 = range(-(2**31), 2**31)
_lock = threading.RLock()  # the interpreter keeps its grid position in one global
_loaded: dict[tuple[str, str], Any] = {}


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n, and at least 1."""
    return 1 << max(0, n - 1).bit_length()


@dataclass(frozen=True)
class Flavour:
    """What a kernel's text is printed for.

    interpreted:  for the interpreter, whose cost is per program and hardly per element.
    largest:      elements one interpreted program may take.
    """

    interpreted: bool
    largest: int = 1 << 16

    def block(self, n: int, compiled: int = 1024) -> int:
        """Elements one program should take of n: `compiled` on a GPU; a power of two, at least 16."""
        return max(16, min(next_power_of_2(n), self.largest)) if self.interpreted else compiled


#: The flavour of this process.
HERE = Flavour(INTERPRET)


def block_for(n: int, compiled: int = 1024) -> int:
    """Elements one program should take of n, in this process."""
    return HERE.block(n, compiled)


def cache_dir() -> Path:
    """Where generated kernel files are kept: $TRITIUM_CACHE_DIR, else ~/.cache/tritium/kernels."""
    given = os.environ.get("TRITIUM_CACHE_DIR")
    return Path(given) if given else Path.home() / ".cache" / "tritium" / "kernels"


def write_source(source: str, name: str) -> Path | None:
    """The content-addressed file that holds source; None where the cache folder cannot be written.

    The file appears whole or not at all, and a file that was changed since is replaced.
    """
    path = cache_dir() / f"{name}_{hashlib.sha256(source.encode()).hexdigest()[:24]}.py"
    try:
        if path.exists() and path.read_text() == source:
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=path.stem, suffix=".tmp", dir=path.parent)
        with os.fdopen(handle, "w") as f:
            f.write(source)
        os.replace(temporary, path)
    except OSError:
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
    """Raise ContextError unless triton is here, and interpreted exactly if this process is."""
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

    Triton 3.9 needs no mending.
    """
    from triton.runtime import interpreter

    original = interpreter._patch_lang_tensor
    if getattr(original, "mended", False):
        return

    def patch(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(np.asarray(self.handle.data).item()))

    patch.mended = True  # type: ignore[attr-defined]
    interpreter._patch_lang_tensor = patch


def launch(
    fn: Any, grid: Sequence[int], *args: Any, num_warps: int = 4, stream: Any = None, **constexprs: Any
) -> None:
    """Run fn once per point of grid.

    args:    tensors, ints, floats, in the order of fn's parameters. An int must fit int32 unless its parameter is
             annotated tl.int64.
    stream:  what the engine runs on, entered around the launch if it has `enter()`; else it is the current one already.
    A grid with a zero in it runs nothing. Raises ShapeError for too many programs, ParameterError for an int that
    does not fit.
    """
    programs = math.prod(grid)
    if programs == 0:
        return
    if programs > MAX_PROGRAMS or min(grid) < 0:
        raise ShapeError(
            f"{name_of(fn)}: a grid of {' x '.join(map(str, grid))} is {programs} programs, the limit is "
            f"{MAX_PROGRAMS}. Use larger blocks."
        )
    _check_ints(fn, args)
    if INTERPRET:
        with _lock, np.errstate(all="ignore"):
            fn[tuple(grid)](*map(_host_value, args, _annotations(fn)), **constexprs)
    else:
        with stream.enter() if hasattr(stream, "enter") else nullcontext():
            fn[tuple(grid)](*args, num_warps=num_warps, **constexprs)


def name_of(fn: Any) -> str:
    """The name a jit function was defined with."""
    return getattr(fn, "__name__", None) or getattr(getattr(fn, "fn", None), "__name__", "kernel")


def _annotations(fn: Any) -> list[str]:
    """Per parameter, the name of the type it is annotated with, or "" ."""
    known = fn.fn.__annotations__
    return [getattr(a, "name", str(a).removeprefix("tl.")) for a in (known.get(p, "") for p in fn.arg_names)]


def _check_ints(fn: Any, args: Sequence[Any]) -> None:
    for i, a in enumerate(args):
        if type(a) is int and a not in _INT32 and _annotations(fn)[i] not in ("int64", "i64"):
            raise ParameterError(
                f"{name_of(fn)}: {fn.arg_names[i]}={a} does not fit int32. Annotate the parameter tl.int64."
            )


_TL_NAMES = {"bool": "int1"}
_WIDE = {"int64": np.int64, "fp64": np.float64, "float64": np.float64}


def _host_value(a: Any, annotation: str) -> Any:
    """What the interpreter takes for an argument: numbers with the width they are annotated with, and for an array a
    pointer to its memory. Given a tensor, the interpreter would copy the tensor's whole storage after each launch, and
    with it what another worker wrote there meanwhile."""
    if hasattr(a, "data_ptr"):
        address, dtype = a.data_ptr(), str(a.dtype).removeprefix("torch.")
    elif isinstance(a, np.ndarray):
        address, dtype = a.ctypes.data, a.dtype.name
    elif annotation in _WIDE and isinstance(a, (int, float)):
        return _scalar(np.array([a], _WIDE[annotation]), "int64" if annotation == "int64" else "float64")
    elif type(a) is float:
        return _scalar(np.array([a], np.float32), "float32")
    else:
        return a
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    ty = tl.pointer_type(getattr(tl, _TL_NAMES.get(dtype, dtype)))
    return tl.tensor(TensorHandle(np.array([address], dtype=np.uint64), ty), ty)


def _scalar(value: np.ndarray, dtype: str) -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    ty = getattr(tl, dtype)
    return tl.tensor(TensorHandle(value, ty), ty)
