"""C functions compiled by the system's own compiler, kept in the cache folder, and called through ctypes.

Functions are requested first, and one call of the compiler then compiles all that are requested: when a graph is bound, or
when the first of them is needed. C files of their own, which are the same for all graphs, may be begun before they are
needed: one thread in the background compiles them. A library is stored under a hash of text, flags, compiler and processor. It
ends in a checksum; a damaged library counts as missing. Without a compiler, or after an error of it, there are no C functions: a
log line says so once, and NumPy computes the same. After a compiler hangs, this process does not call it again.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import logging
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ... import environment
from ...errors import ParameterError
from ...fork import in_forked_child, lock_free_in_child
from ..cache_dir import cache_dir, save
from .c_printer import CText, program

log = logging.getLogger(__name__)

#: NumPy's arithmetic to the bit: integers wrap, no product and sum becomes one, no sum is taken in another order.
FLAGS = ("-O3", "-shared", "-fPIC", "-w", "-fwrapv", "-fno-strict-aliasing", "-fno-math-errno", "-fno-trapping-math",
         "-ffp-contract=off")
QUICK = ("-O1",)  # for functions of few steps: a third of the time of -O3, and the same bits
_OF_MACHINE = {"x86_64": ("-march=native", "-mprefer-vector-width=512"), "aarch64": ("-mcpu=native",)}
SECONDS = 60.0  # a compiler may take
_CHECK = hashlib.sha256().digest_size

Call = Callable[[ctypes.Array, int, int], None]


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler: its command, the version that it reports, and the flags for this machine."""

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A function of a loaded library: `free` releases the interpreter lock while it runs, `short` holds it."""

    free: Call
    short: Call


_lock = lock_free_in_child()
_wanted: dict[str, tuple[CText, bool]] = {}  # with whether it is compiled quickly
_loaded: dict[str, Loaded | None] = {}  # None: it could not be compiled
_warned: set[str] = set()
_hung: set[tuple[str, ...]] = set()  # commands that did not end in time
_files_lock = lock_free_in_child()  # of the next three, which have the name of a file's first function
_files: dict[str, tuple[str, tuple[str, ...]]] = {}  # that are begun, and that no thread compiles yet: text and functions
_running: dict[str, threading.Event] = {}  # that a thread compiles: set at its end
_helper: list[threading.Thread] = []  # the thread in the background, while it has work


def mode() -> str:
    """Return $TRITIUM_CPU_CODE: "auto" (C where it pays), "c" (wherever it can be) or "numpy". Raises ParameterError."""
    return environment.CPU_CODE.get()


@functools.cache
def compiler() -> Compiler | None:
    """Return the compiler of $TRITIUM_CC, else the first of cc, gcc, clang and the package ziglang; None if none is installed.

    Looked up once.

    Raises: ParameterError where TRITIUM_CC is not a command.
    """
    given = environment.CC.is_set()
    commands = [environment.CC.get()] if given else [["cc"], ["gcc"], ["clang"]]
    if not given and importlib.util.find_spec("ziglang") is not None:
        commands.append([sys.executable, "-m", "ziglang", "cc"])  # the extra `compiler`
    for command in commands:
        if not command or shutil.which(command[0]) is None:
            continue
        try:
            said = _run([*command, "--version"])
        except (OSError, subprocess.SubprocessError):
            continue
        return Compiler(tuple(command), said.splitlines()[0] if said else "", (*FLAGS, *_OF_MACHINE.get(platform.machine(), ())))
    return None


def available() -> bool:
    """Return whether C functions can be compiled. If not, log the reason once."""
    found = compiler()
    if found is None:
        _warn_once("no C compiler was found (cc, gcc, clang): operators are computed with NumPy. Install one, name one in "
                   "TRITIUM_CC, or install the extra `compiler`: pip install tritium[compiler].")
    return found is not None and found.command not in _hung


def request(function: CText, *, quick: bool = False) -> None:
    """Request that function is compiled, together with all others that are requested. quick: with less optimization."""
    with _lock:
        if function.name not in _loaded:
            _wanted[function.name] = function, quick


def compile_wanted() -> int:
    """Compile all requested functions, or load them from the cache folder. Return their number."""
    with _lock:
        requests = [_wanted.pop(name) for name in sorted(_wanted)]
        for flags in ((), QUICK):
            functions = [f for f, quick in requests if quick == bool(flags)]
            if functions:
                _loaded.update(_load(program(functions), [f.name for f in functions], flags))
        return len(requests)


class _Notes(threading.local):
    """The functions that this thread asks for, while it notes them."""

    functions: list[CText] | None = None


_notes = _Notes()


@contextmanager
def noted() -> Iterator[list[CText]]:
    """List the compiled functions that this thread asks for inside the block."""
    before, _notes.functions = _notes.functions, []
    try:
        yield _notes.functions
    finally:
        _notes.functions = before


def function(f: CText, *, quick: bool = False) -> Loaded | None:
    """Return the compiled function; None if it could not be compiled. quick: as for `request`."""
    found = _function(f, quick)
    if found is not None and _notes.functions is not None:
        _notes.functions.append(f)
    return found


def _function(f: CText, quick: bool) -> Loaded | None:
    if f.name not in _loaded:
        request(f, quick=quick)
        compile_wanted()
    return _loaded[f.name]


def self_test() -> str:
    """Return the error of the compiler for a small program; "" if it works or none is installed."""
    try:
        found = compiler()
    except ParameterError as wrong:
        return str(wrong)
    if found is None:
        return ""
    with tempfile.TemporaryDirectory(prefix="tritium-c-") as scratch:
        try:
            ctypes.CDLL(str(_compile("int trial(int x) { return x; }\n", found, Path(scratch)))).trial(1)
        except (OSError, subprocess.SubprocessError) as failure:
            return _words(failure)
    return ""


# ---- libraries --------------------------------------------------------------------------------------------------------
def folder() -> Path:
    """Return the folder of the libraries."""
    return cache_dir() / "c"


def library_path(text: str, made_by: Compiler) -> Path:
    """Return the file of the library compiled from text."""
    made_of = "\0".join([text, *made_by.command, made_by.version, *made_by.flags, processor()])
    return folder() / f"{hashlib.sha256(made_of.encode()).hexdigest()[:32]}.so"


def usage() -> tuple[int, int]:
    """Return the number of libraries and their size in bytes."""
    sizes = [p.stat().st_size for p in folder().glob("*.so")]
    return len(sizes), sum(sizes)


def library(text: str, names: Sequence[str]) -> dict[str, Loaded] | None:
    """Return the functions of a C file of its own, which is the same for all graphs; None if it could not be compiled."""
    while names[0] not in _loaded:
        _compile_file(text, tuple(names))
    found = {n: f for n in names if (f := _loaded[n]) is not None}
    return found or None


def is_compiled(text: str, names: Sequence[str]) -> bool:
    """Return whether `library` would not have to compile."""
    made_by = compiler()
    return names[0] in _loaded or (made_by is not None and library_path(text, made_by).exists())


def begin(files: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Let a thread in the background compile C files that are not in the cache folder, the last one first: `library` will soon
    ask for them, for the first one at once. files: texts and names of functions."""
    made_by = compiler()
    if made_by is None or made_by.command in _hung:
        return
    missing = [(text, tuple(names)) for text, names in files
               if not is_compiled(text, names)]
    with _files_lock:
        _files.update({f[1][0]: f for f in missing if f[1][0] not in _running})
        if _files and not _helper:
            _helper.append(threading.Thread(target=_compile_files, name="tritium C compiler"))
            _helper[0].start()


def _compile_files() -> None:
    """Compile the files that are begun, the last one first, as long as the main thread lives."""
    while True:
        with _files_lock:
            if not _files or not threading.main_thread().is_alive():
                _helper.clear()
                return
            file = _files[next(reversed(_files))]
        _compile_file(*file)


def _compile_file(text: str, names: tuple[str, ...]) -> None:
    """Compile a file, or load it. While another thread does so, wait."""
    with _files_lock:
        _files.pop(names[0], None)
        if names[0] in _loaded:
            return
        busy, ended = _running.get(names[0]), threading.Event()
        if busy is None:
            _running[names[0]] = ended
    if busy is not None:
        busy.wait()
        return
    try:
        _loaded.update(_load(text, names))
    finally:
        with _files_lock:
            del _running[names[0]]
        ended.set()


@in_forked_child
def _forget_running() -> None:
    """Let a child compile what threads of its parent were compiling."""
    for made in (_files, _running, _helper):
        made.clear()


def _load(text: str, names: Sequence[str], flags: tuple[str, ...] = ()) -> dict[str, Loaded | None]:
    """Load functions from the library of a C file, compiled with these flags too if it is not in the cache folder."""
    nothing, usable, found = dict.fromkeys(names, None), available(), compiler()
    if found is None:
        return nothing
    found = replace(found, flags=(*found.flags, *flags))
    path = library_path(text, found)
    loaded = _open(path, names) if _intact(path) else None
    if loaded is not None or not usable:
        return loaded or nothing
    try:
        with tempfile.TemporaryDirectory(prefix="tritium-c-") as scratch:
            try:
                made = _compile(text, found, Path(scratch))
                at = path if save(path, made.read_bytes()) else made
            except (OSError, subprocess.SubprocessError):
                if not os.path.exists(scratch):  # the process exits, and with it go its temporary folders
                    return nothing
                raise
            return _open(at, names) or nothing  # a library that is open may lose its file
    except (OSError, subprocess.SubprocessError) as failure:
        if isinstance(failure, subprocess.TimeoutExpired):
            _hung.add(found.command)
        _warn_once(f"the C compiler failed ({shlex.join(found.command)}): {_words(failure)}. Operators are computed with "
              f"NumPy. Set TRITIUM_CC to another compiler, or TRITIUM_CPU_CODE=numpy.")
        return nothing


def _compile(text: str, by: Compiler, scratch: Path) -> Path:
    """Compile text in an empty folder. Return the library, checksum included."""
    source, made = scratch / "kernels.c", scratch / "kernels.so"
    source.write_text(text)
    _run([*by.command, *by.flags, "-o", str(made), str(source), "-lm"])
    code = made.read_bytes()
    made.write_bytes(code + hashlib.sha256(code).digest())  # what follows a library's own bytes is not looked at
    return made


def _run(command: list[str]) -> str:
    """Return the output of a command. Raises OSError, CalledProcessError, or TimeoutExpired after SECONDS: then the command and
    its children are killed."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          errors="replace", start_new_session=True) as process:
        try:
            said, wrong = process.communicate(timeout=SECONDS)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, said, wrong)
    return said


def _intact(path: Path) -> bool:
    """Return whether path is an undamaged library that this user or root owns."""
    try:
        if hasattr(os, "getuid") and path.stat().st_uid not in (os.getuid(), 0):
            return False
        data = path.read_bytes()
    except OSError:
        return False
    return len(data) > _CHECK and hashlib.sha256(data[:-_CHECK]).digest() == data[-_CHECK:]


def _open(path: Path, names: Iterable[str]) -> dict[str, Loaded | None] | None:
    try:
        libraries = ctypes.CDLL(str(path)), ctypes.PyDLL(str(path))
        made: dict[str, Loaded | None] = {}
        for name in names:
            calls = [getattr(library, name) for library in libraries]
            for call in calls:
                call.argtypes, call.restype = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64], None
            made[name] = Loaded(*calls)
    except (OSError, AttributeError):
        return None
    return made


@functools.cache
def processor() -> str:
    """Return the processor that -march=native compiles for: machines may share a folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return platform.machine() + "\n".join(dict.fromkeys(t for t in lines if t.startswith(("flags", "Features", "model name"))))


def _words(failure: Exception) -> str:
    return str(getattr(failure, "stderr", "") or failure).strip()[:500]


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        log.warning(text)
