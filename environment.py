"""The environment variables that Tritium reads: one table, through which every reader reads.

`VARIABLES` is the whole list, which `tritium doctor --env` and the documentation print. An empty value means: not set.
"""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from .errors import ParameterError, nearest

T = TypeVar("T")


@dataclass(frozen=True)
class Variable(Generic[T]):
    """An environment variable.

    name:     of the variable.
    parse:    from its text to its value. Raises ValueError, with a reason or without, for a text that is no value.
    wanted:   the values, in words that follow "is not".
    default:  the value where the variable is not set.
    unset:    that default, in words.
    meaning:  one sentence.
    subject:  the heading under which the table shows it.
    choices:  all values, where they are few; in small letters if their case does not matter.
    instead:  the variable that is read where this one is not set.
    """

    name: str
    parse: Callable[[str], T]
    wanted: str
    default: T
    unset: str
    meaning: str
    subject: str
    choices: tuple[str, ...] = ()
    instead: Variable[T] | None = None

    def get(self) -> T:
        """Return the value, or the default. Raises ParameterError for a text that is no value."""
        text = os.environ.get(self.name)
        if not text:
            return self.default if self.instead is None else self.instead.get()
        try:
            return self.parse(text)
        except ValueError as e:
            reason = f": {e}" if str(e) else ""
            near = nearest(text, self.choices)
            raise ParameterError(f"{self.name}: {text!r} is not {self.wanted}{reason}.{near} Change it, or unset it.") from None

    def is_set(self) -> bool:
        """Return True if the variable is set and not empty."""
        return bool(os.environ.get(self.name))

    def __repr__(self) -> str:
        return f"{self.name}={os.environ.get(self.name, '')}"


#: Every variable, by name, in the order of declaration.
VARIABLES: dict[str, Variable[Any]] = {}


def _declare(variable: Variable[T]) -> Variable[T]:
    VARIABLES[variable.name] = variable
    return variable


_ON, _OFF = ("1", "true", "on", "yes"), ("0", "false", "off", "no")


def _flag_of(text: str) -> bool:
    word = text.lower()
    if word not in (*_ON, *_OFF):
        raise ValueError
    return word in _ON


def _flag(name: str, default: bool, meaning: str, subject: str) -> Variable[bool]:
    return _declare(Variable(name, _flag_of, "0 or 1", default, "1" if default else "0", meaning, subject, ("0", "1")))


def _choice(name: str, choices: tuple[str, ...], default: str, meaning: str, subject: str, *, exact: bool = False,
            instead: Variable[str] | None = None) -> Variable[str]:
    def parse(text: str) -> str:
        word = text if exact else text.lower()
        if word not in choices:
            raise ValueError
        return word

    return _declare(Variable(name, parse, f"one of {', '.join(choices)}", default, default or "none", meaning, subject, choices,
                             instead))


def _integer(name: str, least: int, default: T, unset: str, meaning: str, subject: str,
             instead: Variable[int | T] | None = None) -> Variable[int | T]:
    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) < least:
            raise ValueError
        return int(text)

    return _declare(Variable[int | T](name, parse, f"an integer of at least {least}", default, unset, meaning, subject,
                                      instead=instead))


def _seconds(name: str, least: float, default: float, meaning: str, subject: str) -> Variable[float]:
    def parse(text: str) -> float:
        try:
            seconds = float(text)
        except ValueError:
            raise ValueError from None
        if not least <= seconds <= 1e6:
            raise ValueError
        return seconds

    return _declare(Variable(name, parse, f"a number of seconds from {least:g} to 1000000", default, f"{default:g}", meaning,
                             subject))


def _text(name: str, wanted: str, unset: str, meaning: str, subject: str, default: str = "") -> Variable[str]:
    return _declare(Variable(name, str, wanted, default, unset, meaning, subject))


# ---- devices and threads ----------------------------------------------------------------------------------------------
_DEVICES = "Devices and threads"
GPU = _choice(
    "TRITIUM_GPU", ("cuda", "interpret", "off"), "cuda",
    "What `gpu(0)` is: a CUDA device, Triton's interpreter on host memory, or nothing. Read when Tritium is imported.",
    _DEVICES)
GPU_CONTEXTS = _choice(
    "TRITIUM_GPU_CONTEXTS", ("cpu",), "",
    "`cpu` makes every `gpu(i)` a `cpu(i)`. Set by `tritium run --device`; read when Tritium is imported.",
    _DEVICES)
GPU_SYNC = _flag(
    "TRITIUM_GPU_SYNC", False,
    "Wait after each GPU kernel, so that an error names the kernel that failed. Slow; read when Tritium is imported.",
    _DEVICES)
LIBCUDA = _text(
    "TRITIUM_LIBCUDA", "a library", "libcuda.so.1",
    "The CUDA driver's library, as a path or a name.",
    _DEVICES, "libcuda.so.1")
_ENGINES = ("ThreadedEngine", "ThreadedEnginePooled", "ThreadedEnginePerDevice", "NaiveEngine", "CheckedEngine")
MXNET_ENGINE_TYPE = _choice(
    "MXNET_ENGINE_TYPE", _ENGINES, "ThreadedEngine",
    "MXNet's name of `TRITIUM_ENGINE_TYPE`, which is read first.",
    _DEVICES, exact=True)
ENGINE_TYPE = _choice(
    "TRITIUM_ENGINE_TYPE", _ENGINES, "ThreadedEngine",
    "The engine that arrays use: `NaiveEngine` runs each function at its push, `CheckedEngine` checks the memory that "
    "functions access.",
    _DEVICES, exact=True, instead=MXNET_ENGINE_TYPE)
_WORKERS = min(4, os.cpu_count() or 1)
MXNET_CPU_WORKER_NTHREADS = _integer(
    "MXNET_CPU_WORKER_NTHREADS", 1, _WORKERS, "the cores, at most 4",
    "MXNet's name of `TRITIUM_NUM_WORKERS`, which is read first.",
    _DEVICES)
NUM_WORKERS = _integer(
    "TRITIUM_NUM_WORKERS", 1, _WORKERS, "the cores, at most 4",
    "Worker threads of each CPU context, which also share long kernels.",
    _DEVICES, MXNET_CPU_WORKER_NTHREADS)
BLAS_THREADS = _integer(
    "TRITIUM_BLAS_THREADS", 1, 1, "1",
    "Threads of one call of NumPy's BLAS. Another number may change the last bits of products.",
    _DEVICES)
EXIT_TIMEOUT = _integer(
    "TRITIUM_EXIT_TIMEOUT", 1, 10, "10",
    "Seconds that the end of a process, and a fork, wait for tasks in flight.",
    _DEVICES)
POOL_LIMIT_MB = _integer(
    "TRITIUM_POOL_LIMIT_MB", 0, None, "1024, or an eighth of the memory if that is less",
    "Mebibytes of freed host memory that are kept for new arrays.",
    _DEVICES)

# ---- kernels ----------------------------------------------------------------------------------------------------------
_KERNELS = "Kernels and their caches"
CPU_CODE = _choice(
    "TRITIUM_CPU_CODE", ("auto", "c", "numpy"), "auto",
    "How the CPU computes: C where it pays, C wherever it can be, or NumPy alone.",
    _KERNELS)
CC = _declare(Variable[list[str]](
    "TRITIUM_CC", shlex.split, "a command", [], "the first of cc, gcc, clang, and the package ziglang",
    "The C compiler and its options, as in `gcc -m64`.",
    _KERNELS))
CACHE_DIR = _text(
    "TRITIUM_CACHE_DIR", "a folder", "~/.cache/tritium/kernels",
    "The folder of generated and compiled kernels. What is in it is executed: nobody else may write there.",
    _KERNELS)
FLOAT32_MATMUL = _choice(
    "TRITIUM_FLOAT32_MATMUL", ("ieee", "tf32", "tf32x3"), "ieee",
    "How a GPU multiplies float32 matrices: exactly rounded products, TF32 (10 bits), or three TF32 products (about 21 "
    "bits). `mx.config.float32_matmul` changes it.",
    _KERNELS)
TUNED = _declare(Variable[Literal["", "1", "estimate"]](
    "TRITIUM_TUNED", lambda text: "estimate" if text.lower() == "estimate" else "1" if _flag_of(text) else "",
    "one of 0, 1, estimate", "", "0",
    "Use the block sizes that `tritium tune` stored; `estimate`: also those for a GPU that were compiled and ranked but "
    "never timed.",
    _KERNELS, ("0", "1", "estimate")))
TUNE_STORE = _text(
    "TRITIUM_TUNE_STORE", "a file", "tune.sqlite in TRITIUM_CACHE_DIR, or in ~/.cache/tritium",
    "The file of tuning results.",
    _KERNELS)

# ---- graphs -----------------------------------------------------------------------------------------------------------
_GRAPHS = "Graphs"
FUSION = _flag(
    "TRITIUM_FUSION", True,
    "Fuse operators into common kernels.",
    _GRAPHS)
MEMORY_PLAN = _flag(
    "TRITIUM_MEMORY_PLAN", True,
    "Let the inner arrays of a graph share memory.",
    _GRAPHS)
RECOMPUTE = _flag(
    "TRITIUM_RECOMPUTE", True,
    "Compute cheap values again in backward instead of keeping them.",
    _GRAPHS)
CAPTURE = _flag(
    "TRITIUM_CAPTURE", True,
    "Record the launches of a pass once, and replay them (CUDA graphs).",
    _GRAPHS)
LAYOUT = _flag(
    "TRITIUM_LAYOUT", True,
    "Put channels last around convolutions.",
    _GRAPHS)
BACKWARD_DO_MIRROR = _flag(
    "MXNET_BACKWARD_DO_MIRROR", False,
    "Compute again all values that are not costly, which saves memory.",
    _GRAPHS)
BULK_TRAIN = _integer(
    "MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN", 0, 15, "15",
    "Steps of a graph per task of the engine in training; 0: the whole pass.",
    _GRAPHS)

# ---- training and files -----------------------------------------------------------------------------------------------
_TRAINING = "Training and files"
UPDATE_ON_KVSTORE = _flag(
    "MXNET_UPDATE_ON_KVSTORE", True,
    "Let the store run the optimizer, where it can.",
    _TRAINING)
OPTIMIZER_AGGREGATION_SIZE = _integer(
    "MXNET_OPTIMIZER_AGGREGATION_SIZE", 0, 0, "0",
    "Parameters that one update changes; 0: all. Read when Tritium is imported.",
    _TRAINING)
HOME = _text(
    "MXNET_HOME", "a folder", "~/.mxnet",
    "The folder of data sets and of the networks' parameters.",
    _TRAINING)
GLUON_REPO = _text(
    "MXNET_GLUON_REPO", "an address", "MXNet's server",
    "The address of MXNet's files, for programs that ask for it. Tritium downloads nothing.",
    _TRAINING, "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/")

# ---- several processes ------------------------------------------------------------------------------------------------
_JOBS = "Several processes"


def _rank_of(text: str) -> int | str:
    if text != "new" and not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValueError
    return text if text == "new" else int(text)


KV_JOB = _text(
    "TRITIUM_KV_JOB", "a file", "no job: a `dist_sync` store starts one",
    "The job file, with the keys of the job. Set by `tritium launch`.",
    _JOBS)
KV_RANK = _declare(Variable[int | str | None](
    "TRITIUM_KV_RANK", _rank_of, "an integer of at least 0, or new", None, "the next free one",
    "The worker's rank; `new` adds a worker. Set by `tritium launch`.",
    _JOBS))
KV_LAUNCHED = _flag(
    "TRITIUM_KV_LAUNCHED", False,
    "`tritium launch` runs this worker, and reports how it ended. Set by it.",
    _JOBS)
KV_INTERFACE = _text(
    "TRITIUM_KV_INTERFACE", "an address", "none: this machine only; on a cluster the machine's address in it",
    "The address on which coordinator and servers listen.",
    _JOBS)
KV_TIMEOUT = _seconds(
    "TRITIUM_KV_TIMEOUT", 0, 600,
    "Seconds after which a request to a store fails.",
    _JOBS)
KV_LOST_AFTER = _seconds(
    "TRITIUM_KV_LOST_AFTER", 0.1, 10,
    "Seconds without a response of a machine or a network after which its processes are declared dead.",
    _JOBS)
KV_BACK_WITHIN = _seconds(
    "TRITIUM_KV_BACK_WITHIN", 0, 10,
    "Seconds that workers and servers have to come back to a restarted coordinator.",
    _JOBS)
KV_SNAPSHOT_ROUNDS = _integer(
    "TRITIUM_KV_SNAPSHOT_ROUNDS", 0, 10, "10",
    "Rounds of a key between two snapshots; 0: none, and the death of a server ends the job.",
    _JOBS)
KV_SNAPSHOT_DIR = _text(
    "TRITIUM_KV_SNAPSHOT_DIR", "a folder", "a temporary folder",
    "The folder of the servers' snapshots on a cluster, which all machines see.",
    _JOBS)
KV_MAX_STALENESS = _integer(
    "TRITIUM_KV_MAX_STALENESS", 0, None, "no limit",
    "`dist_async`: pushes of a key that a worker may be ahead of the slowest.",
    _JOBS)
KV_OPTIMIZERS = _text(
    "TRITIUM_KV_OPTIMIZERS", "modules", "none",
    "Modules, separated by commas, that a server imports because they register optimizers.",
    _JOBS)
KV_RETAIN_BYTES = _integer(
    "TRITIUM_KV_RETAIN_BYTES", 0, 256 << 20, "268435456",
    "Bytes of pushes that a worker keeps per server until they are durable.",
    _JOBS)
KV_SHARED = _flag(
    "TRITIUM_KV_SHARED", True,
    "Use shared memory between processes of one machine.",
    _JOBS)
KV_INSECURE = _flag(
    "TRITIUM_KV_INSECURE", False,
    "Accept a Ray cluster without a token, on which anybody who reaches it may run code.",
    _JOBS)
KVSTORE_BIGARRAY_BOUND = _integer(
    "MXNET_KVSTORE_BIGARRAY_BOUND", 1, 1000000, "1000000",
    "Elements from which an array is divided between the servers.",
    _JOBS)


# ---- showing them -----------------------------------------------------------------------------------------------------
def facts(variable: Variable[Any]) -> dict[str, str]:
    """Return name, wanted, default, value (the text that is set), error (empty if there is none), meaning and subject."""
    error = ""
    try:
        if variable.is_set():
            variable.get()
    except ParameterError as e:
        error = str(e)
    return {"name": variable.name, "wanted": variable.wanted, "default": variable.unset,
            "value": os.environ.get(variable.name, ""), "error": error, "meaning": variable.meaning, "subject": variable.subject}


def values(prefix: str) -> dict[str, str]:
    """Return the texts of the variables with that prefix that are set, for a process on another machine."""
    return {name: os.environ[name] for name, variable in VARIABLES.items() if name.startswith(prefix) and variable.is_set()}


def unknown() -> dict[str, str]:
    """Return {name: advice} for every variable set that begins with TRITIUM_ and that nothing reads."""
    names = [n for n in sorted(os.environ) if n.startswith("TRITIUM_") and n not in VARIABLES]
    near = {n: difflib.get_close_matches(n, VARIABLES, 1, 0.8) for n in names}  # all have the first word in common
    return {n: f"{n} is set, and nothing reads it.{f' Did you mean {near[n][0]}?' if near[n] else ''}" for n in names}
