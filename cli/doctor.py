"""`tritium doctor`: installed packages, usable contexts and the reasons why others are not, caches, and a short self-test."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
import threadpoolctl
from rich.console import Console

from ..context import GPU_MODE, Context, missing_gpu
from ..engine import num_gpus
from ..environment import VARIABLES, facts, unknown
from ..errors import ContextError, FileError, ParameterError
from ..kernels.cache_dir import cache_dir
from ..kernels.configs.gpu_device import gpu_device
from ..kernels.configs.store import Store, cpu_device, installed, store_path
from ..kernels.cpu.c_compile import compiler, processor, self_test
from ..kernels.cpu.c_compile import folder as c_folder
from ..kernels.kernel import HostRun
from ..kernels.ops.linalg.gemm import gemm
from ..ndarray import zeros
from ..tuning.tasks import cache_bytes
from ..version import __version__
from .doctor_environment import show_environment
from .group import Command
from .selftest import CHECKS, SECONDS

SIDE = 512  # of the matrices whose product is timed: a few milliseconds
OLDER_CORES = {"Nehalem", "Sandybridge", "Haswell", "Zen", "Bulldozer", "Excavator", "Steamroller", "Piledriver", "Barcelona"}
STARTUP = 60.0  # seconds that a test process may take beyond its ten: importing torch alone can take several


@dataclass(frozen=True)
class Tested:
    """A package, its purpose, and the versions Tritium was tested with: from low to below high. extra: its group in pip."""

    name: str
    purpose: str
    low: str
    high: str
    extra: str = ""


# tests/test_tested_versions.py fails if an installed version lies outside. `make test` runs with the newest NumPy that Triton's
# interpreter accepts, `make newest` with the newest of all, `make newest-gpu` with the newest Triton and PyTorch.
TESTED = (
    Tested("numpy", "CPU kernels", "1.26", "2.6"),
    Tested("ml_dtypes", "bfloat16", "0.4", "0.7"),
    Tested("threadpoolctl", "threads of BLAS", "3.5", "4"),
    Tested("click", "command line", "8.1", "9"),
    Tested("rich", "command line", "13", "16"),
    Tested("tqdm", "progress bars", "4.66", "5"),
    Tested("triton", "GPU kernels", "3.6", "3.9", "gpu"),
    Tested("torch", "GPU memory", "2.10", "2.15", "gpu"),
    Tested("ray", "several machines", "2.50", "3", "dist"),
    Tested("cryptography", "several machines", "47", "51", "dist"),
    Tested("simplejpeg", "images", "1.8", "2", "image"),
    Tested("opencv-python-headless", "images", "4.10", "5.1", "image"),
    Tested("fsspec", "remote files", "2024.2", "2027", "cloud"),
    Tested("pyarrow", "text tables", "14", "27", "rows"),
)
PYTHON = Tested("Python", "", "3.11", "3.14")


@dataclass
class Report:
    """All findings; the closing line of JSON."""

    tritium: str
    python: str
    machine: dict[str, Any]
    packages: list[dict[str, str]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    contexts: list[dict[str, Any]] = field(default_factory=list)
    caches: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    healthy: bool = True


@click.command(cls=Command, examples=["doctor", "doctor --no-test --json", "doctor --env"])
@click.option("--test/--no-test", default=True, help=f"Run the self-test: about {SECONDS:.0f} seconds per context, each in a "
                                                     f"process of its own.")
@click.option("--env", is_flag=True, help="Show only the environment variables that are read, with their values.")
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")
def doctor(test: bool, env: bool, as_json: bool) -> None:
    """Show installed packages and usable devices, with the reasons why others are not, and test the usable ones.

    Nothing is changed. The exit status is 1 if something is broken.
    """
    if env:
        sys.exit(show_environment(as_json))
    console = Console(highlight=False)
    report = Report(__version__, platform.python_version(), machine())
    versions(report)
    report.environment = {n: v for n, v in sorted(os.environ.items()) if n.startswith(("TRITIUM_", "MXNET_"))}
    report.problems += [f["error"] for f in map(facts, VARIABLES.values()) if f["error"]]
    report.advice += unknown().values()
    contexts(report)
    caches(report)
    failure = self_test()
    if failure:
        report.advice.append(f"The C compiler fails, so NumPy computes, several times slower: {failure}")
    elif not report.machine["compiler"]:
        report.advice.append("There is no C compiler, so NumPy computes, several times slower. Install gcc or clang, or one in a "
                             "package: pip install 'tritium[compiler]'")
    advise_on_blas(report, processor())
    show_facts(console, report)
    if test:
        for c in report.contexts:
            if c["exists"]:
                line(console, f"Testing {c['context']} ...")
                c["test"] = run_test(c["context"])
                show_test(console, report, c)
    report.healthy = not report.problems
    show_end(console, report)
    if as_json:
        click.echo(json.dumps(asdict(report)))
    if not report.healthy:
        sys.exit(1)


# ---- facts ------------------------------------------------------------------------------------------------------------
def machine() -> dict[str, Any]:
    """Return facts about the system, the CPU, its BLAS and the C compiler."""
    try:
        cc = compiler()
    except ParameterError:  # an advice says so
        cc = None
    libraries = [p for p in threadpoolctl.threadpool_info() if p.get("user_api") == "blas"]
    blas = [f"{p.get('internal_api')} {p.get('version')} for {p.get('architecture') or 'an unknown core'}" for p in libraries]
    return {"system": f"{platform.system()} {platform.machine()}", "cpu": cpu_device().name,
            "l2_bytes": cache_bytes(), "blas": sorted(set(blas)),
            "compiler": f"{shlex.join(cc.command)}: {cc.version}" if cc else "",
            "cores_of_blas": sorted({p.get("architecture") or "" for p in libraries}), "gflops": product_speeds()}


def product_speeds() -> dict[str, float]:
    """Return GFLOP/s of a product of two float32 matrices in one thread, by BLAS and by the kernel that operators use.

    The latter is missing where TRITIUM_CC or TRITIUM_CPU_CODE is wrong.
    """
    a = np.full((SIDE, SIDE), 0.5, np.float32)
    out, speeds = np.empty_like(a), {}
    products: dict[str, Callable[[], object]] = {"blas": lambda: np.matmul(a, a, out=out)}
    with contextlib.suppress(ParameterError):
        ours = gemm(a, a, out)
        products["tritium"] = lambda: ours(HostRun())
    with threadpoolctl.threadpool_limits(1, "blas"):
        for name, product in products.items():
            seconds = []
            for _ in range(5):
                start = time.perf_counter()
                product()
                seconds.append(time.perf_counter() - start)
            speeds[name] = round(2 * SIDE ** 3 / min(seconds) / 1e9, 1)
    return speeds


def advise_on_blas(report: Report, features: str) -> None:
    """Advise where OpenBLAS chose kernels of an older processor. features: of the processor, as Linux names them."""
    chosen = report.machine["cores_of_blas"]
    if "avx512f" in features.split() and chosen and set(chosen) <= OLDER_CORES:
        report.advice.append(
            f"OpenBLAS takes its kernels for {', '.join(chosen)}, but the processor has AVX-512. With OPENBLAS_CORETYPE=SkylakeX "
            f"in the environment, its products may be faster (1.6 times in float64 on a Zen 5)."
            + (" Products in float32 are computed in C." if report.machine["compiler"] else ""))


def versions(report: Report) -> None:
    """Report the packages that Tritium can use, with versions, and compare these with the tested ones."""
    for t in (PYTHON, *TESTED):
        version = report.python if t is PYTHON else installed(t.name)
        state = compare(version, t)
        report.packages.append({"name": t.name, "version": version, "tested": f"{t.low} to below {t.high}", "state": state,
                                "purpose": t.purpose, "extra": t.extra})
        if state == "missing" and not t.extra:
            report.problems.append(f"{t.name} is missing, and nothing works without it. Install Tritium again.")
        elif state in ("older", "newer"):
            report.advice.append(f"{t.name} {version} is {state} than the tested versions: {t.low} to below {t.high}. "
                                 f"If something goes wrong, try a version in between.")


def compare(version: str, t: Tested) -> str:
    """Return "tested", "older", "newer" or "missing"."""
    if not version:
        return "missing"
    if numbers(version) < numbers(t.low):
        return "older"
    return "newer" if numbers(version) >= numbers(t.high) else "tested"


def numbers(version: str) -> tuple[int, ...]:
    """Return (3, 6, 0) for "3.6.0+cpu": the parts before the first that does not begin with a digit."""
    parts = []
    for part in version.split("+")[0].split("."):
        digits = re.match(r"\d+", part)
        if digits is None:
            break
        parts.append(int(digits[0]))
    return tuple(parts)


def contexts(report: Report) -> None:
    """Report cpu(0) and every GPU, or the reason why gpu(0) does not exist."""
    n = num_gpus()
    for ctx in (Context("cpu", 0), *(Context("gpu", i) for i in range(max(1, n)))):
        entry: dict[str, Any] = {"context": str(ctx), "exists": True, "what": report.machine["cpu"]}
        try:
            if ctx.is_gpu and ctx.device_id >= n:
                raise missing_gpu(ctx.device_id, n)
            if ctx.is_gpu:
                device = gpu_device(ctx.device_id)
                entry["what"] = f"{device.name}, {device.driver}" if device else "Triton's interpreter: for tests, slow"
            zeros((1,), ctx=ctx).wait_to_read()
        except ContextError as e:
            entry |= {"exists": False, "what": "", "why": str(e).removeprefix(f"{ctx}: ")}
        except Exception as e:
            entry |= {"exists": False, "what": "", "why": f"{type(e).__name__}: {e}"}
            report.problems.append(f"{ctx} cannot be used: {type(e).__name__}: {e}")
        report.contexts.append(entry)
    if GPU_MODE == "cuda" and n and gpu_device() is None:
        report.advice.append("The driver does not say what the GPU is called, so tuning results cannot be kept for it.")


def caches(report: Report) -> None:
    """Report the folders and files that Tritium writes, and their sizes."""
    folder = cache_dir()
    report.caches.append(folder_entry("kernel source", folder, "*.py"))
    report.caches.append(folder_entry("compiled kernels", folder / "artefacts", "*/*.cubin"))
    report.caches.append(folder_entry("C libraries", c_folder(), "*.so"))
    path = store_path()
    entry: dict[str, Any] = {"name": "tuning results", "path": str(path), "items": 0, "bytes": 0}
    if path.exists():
        entry["bytes"] = sum(p.stat().st_size for p in path.parent.glob(path.name + "*"))
        try:
            with Store(path, read_only=True) as store:
                entry["items"] = len(store.rows())
        except FileError as e:
            report.problems.append(str(e))
    report.caches.append(entry)
    if not writable(folder):
        report.advice.append(f"{folder} cannot be written: kernels are compiled anew in every process. "
                             f"Set TRITIUM_CACHE_DIR to a folder that can.")


def folder_entry(name: str, folder: Path, pattern: str) -> dict[str, Any]:
    """Return the number of files in folder that match, and the sum of their bytes."""
    sizes = []
    with contextlib.suppress(OSError):
        for p in folder.glob(pattern):
            with contextlib.suppress(OSError):
                sizes.append(p.stat().st_size)
    return {"name": name, "path": str(folder), "items": len(sizes), "bytes": sum(sizes)}


def writable(folder: Path) -> bool:
    """Return True if files can be created in folder, or in the first folder above it that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK)


# ---- the self-test ----------------------------------------------------------------------------------------------------
def run_test(context: str) -> dict[str, Any]:
    """Run the checks on a context in a child. Return {"checks": [...], "error": the reason why it ended early, or ""}."""
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen([sys.executable, "-W", "ignore", "-m", f"{__package__}.selftest", context],
                                 stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
        error = ""
        try:
            out = child.communicate(timeout=SECONDS + STARTUP)[0]
        except subprocess.TimeoutExpired:
            error = f"no end after {SECONDS + STARTUP:.0f} s"
            out = ""
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        if error:
            out = child.communicate()[0]
        elif child.returncode:
            errors.seek(0)
            text = errors.read().decode(errors="replace").strip()
            error = f"the process ended ({child.returncode}): {text.splitlines()[-1] if text else 'without a message'}"
    return {"checks": [json.loads(text) for text in out.splitlines() if text.startswith("{")], "error": error}


# ---- output -----------------------------------------------------------------------------------------------------------
def line(console: Console, text: str, style: str = "") -> None:
    """Print one line, not cut."""
    console.print(text, soft_wrap=True, markup=False, style=style or None)


def show_facts(console: Console, r: Report) -> None:
    """Print all but the self-test."""
    line(console, f"Tritium {r.tritium}, Python {r.python}, {r.machine['system']}")
    line(console, f"CPU: {r.machine['cpu']}, second-level cache {size_text(r.machine['l2_bytes'])}, "
                  f"BLAS: {', '.join(r.machine['blas']) or 'unknown'}")
    speeds = r.machine["gflops"]
    ours = f"{speeds['tritium']:.0f} GFLOP/s, " if "tritium" in speeds else ""
    line(console, f"Product of {SIDE} x {SIDE} in float32, one thread: {ours}by BLAS {speeds['blas']:.0f} GFLOP/s")
    line(console, f"C compiler: {r.machine['compiler'] or 'none, so NumPy computes'}")
    line(console, "\nInstalled", "bold")
    for p in r.packages:
        version, tail = p["version"] or "-", ""
        if p["state"] == "missing":
            tail = f'   not installed: pip install "tritium[{p["extra"]}]"' if p["extra"] else "   MISSING"
        elif p["state"] != "tested":
            tail = f"   {p['state']} than tested ({p['tested']})"
        style = "" if p["state"] == "tested" else "yellow" if p["version"] else "dim"
        line(console, f"  {p['name']:<24}{version:<14}{p['purpose']:<18}{tail}".rstrip(), style)
    line(console, "\nContexts", "bold")
    for c in r.contexts:
        line(console, f"  {c['context']:<8}{c['what'] if c['exists'] else 'no: ' + c['why']}", "" if c["exists"] else "dim")
    line(console, "\nCaches", "bold")
    for c in r.caches:
        line(console, f"  {c['name']:<18}{c['items']:>7,}  {size_text(c['bytes']):>10}  {c['path']}")
    if r.environment:
        line(console, "\nEnvironment", "bold")
        for n, v in r.environment.items():
            line(console, f"  {n}={v}")
    line(console, "")


def show_test(console: Console, r: Report, c: dict[str, Any]) -> None:
    """Print the result of one context's test, and add to the problems."""
    test = c["test"]
    failed = [t for t in test["checks"] if t["wrong"]]
    for t in failed:
        r.problems.append(f"{c['context']}: {t['check']}: {t['wrong']}")
    if test["error"]:
        r.problems.append(f"{c['context']}: the self-test ended early: {test['error']}")
    done, seconds = len(test["checks"]), sum(t["seconds"] for t in test["checks"])
    late = "" if done == len(CHECKS) or test["error"] else f"; the time was up before the other {len(CHECKS) - done}"
    line(console, f"  {done - len(failed)} of {done} checks right in {seconds:.1f} s: "
                  f"{', '.join(t['check'] + (' WRONG' if t['wrong'] else '') for t in test['checks'])}{late}",
         "red" if failed or test["error"] else "")


def show_end(console: Console, r: Report) -> None:
    """Print advice, problems, and the verdict."""
    for text in r.advice:
        line(console, f"Note: {text}", "yellow")
    for text in r.problems:
        line(console, f"Problem: {text}", "red")
    if r.healthy:
        line(console, "Everything that is installed works." if any("test" in c for c in r.contexts) else "Nothing was tested.")


def size_text(n: float) -> str:
    """Return text such as 1.5 MiB."""
    for unit in ("bytes", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "bytes" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} GiB"
