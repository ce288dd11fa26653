"""Store: the compiled and timed configurations, one row each, in SQLite. The best one is found by a query, so a new
configuration adds a row and changes no other.

The key of a row holds everything that a time depends on: device (its name, never its serial number), compute capability, driver,
compiler, a hash of the kernel's source, template, dtype, layout, alignment, bucket, configuration.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, get_args, get_type_hints

from ... import environment
from ...atomic_file import open_regular, write_atomic
from ...errors import FileError, ParameterError
from .key import Config, Key, distance, parse_bucket

#: The states of a configuration. "compiled": never timed. "timed", "verified": its output was compared with the
#: default's. "pruned" ones are not stored: pruning is free.
STATUSES = ("compiled", "timed", "verified", "rejected", "wrong", "failed")
FAR = 2.0  # doublings up to which the nearest bucket's configuration is used
BETTER = 0.98  # a configuration takes the default's place if it takes at most this share of its time
LONGEST_LINE = 1 << 16  # characters of a line of an exported file


@dataclass(frozen=True)
class TuningDevice:
    """The device that times were measured on, or compiled for.

    name:      "NVIDIA H200", "AMD EPYC, 2 cores". cc: "9.0"; "" on a CPU. driver: "" offline and on a CPU.
    compiler:  "triton 3.6.0", "numpy 2.3.5".
    """

    name: str
    cc: str
    driver: str
    compiler: str


@dataclass(frozen=True)
class Row:
    """One configuration of one key. Times in seconds, None where nothing was timed; estimate is the model's."""

    device: str
    cc: str
    driver: str
    compiler: str
    source: str
    template: str
    dtype: str
    layout: str
    align: int
    bucket: str
    config: str
    status: str = "timed"
    is_default: bool = False
    median_s: float | None = None
    spread_s: float | None = None
    repeats: int = 0
    estimate_s: float | None = None
    registers: int | None = None
    shared: int | None = None
    spills: int | None = None
    occupancy: float | None = None
    note: str = ""
    at: str = ""

    @property
    def settings(self) -> Config:
        return json.loads(self.config)


KEY = ("device", "cc", "driver", "compiler", "source", "template", "dtype", "layout", "align", "bucket", "config")
_NAMES = [f.name for f in fields(Row)]
_TYPES = {n: get_args(hint) or (hint,) for n, hint in get_type_hints(Row).items()}  # column -> the types it may have


def spell(config: Mapping[str, int]) -> str:
    """Return a configuration as text. Names are sorted, so that equal configurations have equal texts."""
    return json.dumps(dict(sorted(config.items())), separators=(",", ":"))


def row_for(device: TuningDevice, key: Key, source: str, config: Mapping[str, int], **values: Any) -> Row:
    """Return a Row with the present time."""
    return Row(device.name, device.cc, device.driver, device.compiler, source, key.template, key.dtype, key.layout,
               key.align, key.bucket, spell(config), at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **values)


def store_path() -> Path:
    """Return $TRITIUM_TUNE_STORE, else tune.sqlite in $TRITIUM_CACHE_DIR or ~/.cache/tritium."""
    given = environment.TUNE_STORE.get()
    if given:
        return Path(given)
    cache_dir = environment.CACHE_DIR.get()
    return (Path(cache_dir) if cache_dir else Path.home() / ".cache" / "tritium") / "tune.sqlite"


class Store:
    """The store file. Several processes may write it at once (write-ahead log; a writer waits up to ten seconds for another).

    Raises FileError when path is not such a store or cannot be opened.
    """

    def __init__(self, path: Path | str | None = None, *, read_only: bool = False):
        self.path = Path(path) if path is not None else store_path()
        self._db: Any = None
        try:
            if read_only:
                self._db = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True, timeout=10,
                                           check_same_thread=False)
            else:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._db = sqlite3.connect(self.path, timeout=10, isolation_level=None, check_same_thread=False)
                self._create()
            self._db.execute("PRAGMA busy_timeout = 10000")
            self._db.execute("SELECT 1 FROM configurations LIMIT 1")
        except (sqlite3.Error, OSError) as e:
            if self._db is not None:
                self._db.close()
            raise FileError(f"{self.path}: not a store of tuning results: {e}. Give another with TRITIUM_TUNE_STORE, "
                            f"or delete it.") from e

    def _create(self) -> None:
        columns = ", ".join(f'"{n}"' for n in _NAMES)
        self._db.execute("PRAGMA busy_timeout = 10000")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        keys = ", ".join(KEY)
        self._db.execute(f"CREATE TABLE IF NOT EXISTS configurations ({columns}, PRIMARY KEY ({keys})) WITHOUT ROWID")
        self._db.execute("CREATE TABLE IF NOT EXISTS runs (arguments TEXT, started TEXT, ended INTEGER DEFAULT 0)")
        self._db.execute("CREATE TABLE IF NOT EXISTS roofs (device TEXT, name TEXT, value REAL, at TEXT, "
                         "PRIMARY KEY (device, name))")

    def close(self) -> None:
        """Close the file. The store cannot be used any more."""
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---- rows -----------------------------------------------------------------------------------------------------
    def put(self, rows: Iterable[Row]) -> int:
        """Write rows, return their number. A row replaces the one with its key, unless only the old one has a measured time."""
        marks = ", ".join("?" * len(_NAMES))
        put = [f"{n} = CASE WHEN excluded.median_s IS NULL AND median_s IS NOT NULL THEN {n} ELSE excluded.{n} END"
               for n in _NAMES if n not in KEY]
        sql = (f"INSERT INTO configurations VALUES ({marks}) ON CONFLICT ({', '.join(KEY)}) DO UPDATE SET {', '.join(put)}")
        values = [tuple(getattr(r, n) for n in _NAMES) for r in rows]
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.executemany(sql, values)
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
        return len(values)

    def rows(self, **where: Any) -> list[Row]:
        """Return the rows whose columns have these values."""
        assert set(where) <= set(_NAMES), where
        sql = "SELECT * FROM configurations" + (" WHERE " + " AND ".join(f"{n} = ?" for n in where) if where else "")
        found: list[list[Any]] = [list(r) for r in self._db.execute(sql, tuple(where.values()))]
        flag = _NAMES.index("is_default")
        for values in found:
            values[flag] = bool(values[flag])
        return [Row(*values) for values in found]

    def of(self, device: TuningDevice, key: Key, source: str) -> list[Row]:
        """Return the rows of all configurations of key on device."""
        return self.rows(**asdict_device(device), source=source, template=key.template, dtype=key.dtype,
                         layout=key.layout, align=key.align, bucket=key.bucket)

    def best(self, device: TuningDevice, key: Key, source: str, *, estimates: bool = False) -> tuple[Row, float] | None:
        """Return the best configuration for key and the number of doublings between key and the tuned size; None if no
        tuned size is near.

        Only timed rows count, without those that failed a check. estimates: where no row was timed, return the compiled
        one that the model ranks first.
        """
        near: dict[str, list[Row]] = {}
        for r in self.rows(**asdict_device(device), source=source, template=key.template, dtype=key.dtype,
                           layout=key.layout):
            if r.align <= key.align and r.status in ("timed", "verified", "compiled"):
                near.setdefault(r.bucket, []).append(r)
        for estimated in (False, True) if estimates else (False,):
            found = [(far, best) for bucket, rows in near.items()
                     if (far := distance(parse_bucket(bucket), parse_bucket(key.bucket))) <= FAR
                     and (best := pick(rows, estimated)) is not None]
            if found:
                far, row = min(found, key=lambda f: (f[0], f[1].align != key.align, f[1].config))
                return row, far
        return None

    # ---- exchange ---------------------------------------------------------------------------------------------------
    def export(self, path: Path | str) -> int:
        """Write every row as a line of JSON, sorted. Return the number of rows."""
        rows = sorted(self.rows(), key=lambda r: tuple(getattr(r, n) for n in KEY))
        write_atomic(path, "".join(json.dumps(asdict(r)) + "\n" for r in rows))
        return len(rows)

    def load(self, path: Path | str) -> int:
        """Import the rows of an exported file, all or none. Return their number. Raises FileError that names a wrong line."""
        return self.put(list(read_rows(path)))

    # ---- runs and rooflines -------------------------------------------------------------------------------------------
    def begin(self, arguments: Mapping[str, object]) -> int:
        """Record that a run with these arguments has begun. Return its number."""
        cursor = self._db.execute("INSERT INTO runs (arguments, started) VALUES (?, datetime('now'))", (json.dumps(arguments),))
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def finish(self, number: int) -> None:
        """Record that the run is complete, so that it is not resumed."""
        self._db.execute("UPDATE runs SET ended = 1 WHERE rowid = ?", (number,))

    def unfinished(self) -> dict[str, Any] | None:
        """Return the arguments of the newest run; None if it is complete, or without any run."""
        found = self._db.execute("SELECT arguments, ended FROM runs ORDER BY rowid DESC LIMIT 1").fetchone()
        return json.loads(found[0]) if found and not found[1] else None

    def rooflines(self, device: str) -> dict[str, float]:
        """Return the measured limits of a device by name: "bytes_per_s", and "flops" for each dtype."""
        return dict(self._db.execute("SELECT name, value FROM roofs WHERE device = ?", (device,)))

    def save_rooflines(self, device: str, values: Mapping[str, float]) -> None:
        """Store measured limits. A limit is replaced only by a higher one."""
        self._db.executemany("INSERT INTO roofs VALUES (?, ?, ?, datetime('now')) ON CONFLICT DO UPDATE SET "
                             "value = excluded.value, at = excluded.at WHERE excluded.value > value",
                             [(device, n, v) for n, v in values.items()])


def asdict_device(d: TuningDevice) -> dict[str, str]:
    """Return the columns that name a device."""
    return {"device": d.name, "cc": d.cc, "driver": d.driver, "compiler": d.compiler}


FEWEST = 3  # rounds in which a configuration must have been timed to replace the default


def pick(rows: Iterable[Row], estimated: bool = False) -> Row | None:
    """Return the best row of one bucket. The default wins unless another is clearly faster and was timed in about as many
    rounds, at least FEWEST: a single time means nothing on a busy machine.

    estimated: compare the model's times instead of measured ones.
    """
    rows = [r for r in rows if r.status not in ("rejected", "wrong", "failed")]
    seconds: Callable[[Row], float | None] = (lambda r: r.estimate_s) if estimated else (lambda r: r.median_s)
    timed = [(s, r) for r in rows if (s := seconds(r)) is not None and math.isfinite(s)]
    if not estimated:
        rounds = max((r.repeats for _, r in timed if r.is_default), default=0)
        timed = [(s, r) for s, r in timed if r.is_default or r.repeats >= max(FEWEST, rounds / 2)]
    if not timed:
        return None
    best_s, best = min(timed, key=lambda t: (t[0], t[1].config))
    default = [(s, r) for s, r in timed if r.is_default]
    if default and best_s > BETTER * default[0][0]:
        return default[0][1]
    return best


def read_rows(path: Path | str) -> Iterator[Row]:
    """Yield the rows of an exported file. Each line is checked: names, types, status, configuration."""
    with open(path, encoding="utf-8", errors="replace", opener=open_regular) as f:
        for number, line in enumerate(iter(lambda: f.readline(LONGEST_LINE), ""), 1):
            if line.strip():
                try:
                    yield _checked(json.loads(line))
                except (ValueError, TypeError, RecursionError) as e:
                    raise FileError(f"{path}: line {number} is not a tuning result: {e}. Nothing was imported; "
                                    f"the file must be one that `tritium tune --export` wrote.") from e


def _checked(given: Any) -> Row:
    if not isinstance(given, dict) or set(given) != set(_NAMES):
        raise ValueError("its names are not those of a result")
    for n, v in given.items():
        if type(v) not in _TYPES[n] and not (float in _TYPES[n] and type(v) is int):
            raise ValueError(f"{n} is {v!r}, not {_TYPES[n][0].__name__}")
    config = json.loads(given["config"])
    if not isinstance(config, dict) or not all(isinstance(n, str) and type(v) is int for n, v in config.items()):
        raise ValueError(f"config {given['config'][:80]!r} does not map names to integers")
    if given["status"] not in STATUSES:
        raise ValueError(f"status {given['status']!r} is not one of {', '.join(STATUSES)}")
    return Row(**{**given, "config": spell(config)})


# ---- this machine ---------------------------------------------------------------------------------------------------
def cpu_device() -> TuningDevice:
    """Return this machine's CPU."""
    return TuningDevice(f"{_cpu_name()}, {os.cpu_count()} cores", "", "", f"numpy {installed('numpy')}")


def offline_device(target: int) -> TuningDevice:
    """Return a GPU that only the compiler targets, such as sm_90; none needs to be installed."""
    return TuningDevice(f"sm_{target}", f"{target // 10}.{target % 10}", "", f"triton {installed('triton')}")


def installed(name: str) -> str:
    """Return the version of a package; "" if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@cache
def source_hash(template: str) -> str:
    """Return a hash of the files whose text decides how fast a template's kernels are.

    Raises: FileError where a file is missing, ParameterError for a template without files: without its text, results of an
            older kernel would be taken for results of this one.
    """
    names = SOURCES.get(template)
    if not names:
        raise ParameterError(f"source_hash: no source files are listed for the template {template!r}. Add them to SOURCES in "
                             f"kernels/configs/store.py.")
    digest = hashlib.sha256()
    for name in names:
        path = Path(__file__).parents[1] / name
        try:
            digest.update(path.read_bytes())
        except OSError as e:
            raise FileError(f"{path}: a source of {template!r} cannot be read: {e.strerror}. Its text identifies tuned "
                            f"results: install the package with its .py files, or set TRITIUM_TUNED=0.") from e
    return digest.hexdigest()[:16]


SOURCES: dict[str, tuple[str, ...]] = {
    "cpu tile": ("cpu/numpy_printer.py", "ir/primitives.py"),
    "cpu conv forward": ("ops/nn/convolution_cpu.py",),
    "cpu conv backward": ("ops/nn/convolution_cpu.py",),
    "cpu gemm": ("ops/linalg/gemm.py",),
    "gpu gemm": ("ops/linalg/triton_gemm.py", "ops/linalg/triton_gemm_kernels.py"),
    "gpu conv forward": ("ops/nn/triton_conv_nhwc.py",),
    "gpu conv data": ("ops/nn/triton_conv_nhwc.py",),
    "gpu conv weight": ("ops/nn/triton_conv_nhwc.py",),
    "gpu attention forward": ("ops/nn/triton_attention.py",),
    "gpu attention query": ("ops/nn/triton_attention.py",),
    "gpu attention key": ("ops/nn/triton_attention.py",),
    "gpu flat": ("gpu/elementwise.py", "gpu/body.py"),
    "gpu fold": ("gpu/reduction.py", "gpu/body.py"),
    "gpu row": ("gpu/row.py", "gpu/body.py"),
}


def lookup_for(path: Path | str | None = None, *, device: TuningDevice | None = None,
               estimates: bool = False) -> Callable[[Key], Config | None] | None:
    """Return a function from keys to the best configs in the store, for this CPU and for device (a GPU).

    estimates: where the GPU itself was not tuned, also what was compiled for its capability and ranked by the model.
    Returns: None if there is no store: then everything stays at its default.
    """
    path = Path(path) if path is not None else store_path()
    if not path.exists():
        return None
    store, cpu = Store(path, read_only=True), cpu_device()

    def lookup(key: Key) -> Config | None:
        on = cpu if key.template.startswith("cpu") else device
        if on is None:
            return None
        source = source_hash(key.template)
        found = store.best(on, key, source)
        if found is None and estimates and on.cc:
            found = store.best(offline_device(int(on.cc.replace(".", ""))), key, source, estimates=True)
        return found[0].settings if found else None

    return lookup
