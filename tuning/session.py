"""A tuning run: prune the configurations of each task, compile or time the rest, and store every result as soon as it is known,
so that an interrupted run loses nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Protocol

from ..errors import OperatorError
from ..kernels.configs.key import Config
from ..kernels.configs.store import BETTER, Row, Store, TuningDevice, offline_device, pick, row_for, source_hash, spell
from ..kernels.gpu.compile import CompiledKernel, CompileJob, build
from .collect import Workload, WorkloadItem
from .gpu_candidates import evaluate_build, jobs_of, uses_config
from .prune import Pruned, estimate, prune
from .search import Candidate, Failed, OutOfTime, successive_halving
from .tasks import space

LEAST = 1.0  # seconds that each task gets
SLOWEST = 60.0  # time limit of the first compilations; later ones get three times the median, and at least PATIENCE
PATIENCE = 15.0
BATCH = 96  # kernels per compiling process
CHECKING = 10.0  # seconds at the end of a timed run, at most, that are kept for checking the best results


@dataclass
class TaskRun:
    """One task of a run.

    number: of the item in its workload. known: the store's rows, by configuration. todo: the kept configurations without a row.
    """

    number: int
    item: WorkloadItem
    kept: list[Config]
    pruned: list[Pruned]
    known: dict[str, Row] = field(default_factory=dict)

    @property
    def default(self) -> Config:
        return dict(self.item.task.default)

    @property
    def todo(self) -> list[Config]:
        return [c for c in self.kept if spell(c) not in self.known]


@dataclass
class Summary:
    """The result of a run; its fields are those of the last line of JSON."""

    mode: str
    device: str
    store: str
    kernels: int = 0
    tasks: int = 0
    configurations: int = 0
    pruned: int = 0
    pruned_share: float = 0.0
    pruned_by: dict[str, int] = field(default_factory=dict)
    known: int = 0
    compiled: int = 0
    rejected: int = 0
    failed: int = 0
    timed: int = 0
    verified: int = 0
    wrong: int = 0
    improved: int = 0
    default_s: float | None = None
    tuned_s: float | None = None
    choices: int = 0
    tasks_done: int = 0
    finished: bool = False
    interrupted: bool = False
    seconds: float = 0.0
    rows: int = 0
    notes: list[str] = field(default_factory=list)


class Timer(Protocol):
    """Times and checks configurations, in a child (runner.py) or in this process (tune.py). All raise Failed and OutOfTime."""

    def seconds(self, number: int, item: WorkloadItem, config: Config, limit: float) -> float: ...
    def differs(self, number: int, item: WorkloadItem, config: Config, limit: float) -> str: ...
    def rooflines(self, dtypes: list[str], limit: float = 60.0) -> dict[str, float]: ...


class ProgressListener:
    """Receives the progress of a run. Subclasses override the methods they need."""

    def begin(self, total: int, unit: str) -> None:
        """The run will do `total` units of work: "configurations" or "kernels to compile"."""

    def task(self, part: TaskRun, place: int, of: int) -> None:
        """A task begins."""

    def advance(self, done: int, best: str) -> None:
        """`done` units are done; best: a description of the best result so far."""

    def result(self, part: TaskRun, text: str) -> None:
        """A task is done."""


def plan(work: Workload, device: TuningDevice, store: Store | None, sm: int, again: bool = False) -> list[TaskRun]:
    """Return every task with its pruned space and its known rows. again: ignore the known rows.

    Configurations that an offline run for the same capability rejected are not tried on a GPU.
    """
    parts = []
    for number, item in enumerate(work.items):
        kept, pruned = prune(item.task, space(item.task), sm)
        if store is not None and device.driver:
            rejected = {r.config: r for r in store.of(offline_device(sm), item.task.key, source_hash(item.task.key.template))
                   if r.status in ("rejected", "failed")}
            pruned += [Pruned(c, "compiled", rejected[spell(c)].note) for c in kept[1:] if spell(c) in rejected]
            kept = [kept[0], *(c for c in kept[1:] if spell(c) not in rejected)]
        known = {} if store is None or again else {
            r.config: r for r in store.of(device, item.task.key, source_hash(item.task.key.template))}
        parts.append(TaskRun(number, item, kept, pruned, known))
    return parts


def summarise(parts: Sequence[TaskRun], summary: Summary, kernels: int) -> Summary:
    """Fill in the fields that are known before the run."""
    summary.kernels, summary.tasks = kernels, len(parts)
    summary.configurations = sum(len(p.kept) + len(p.pruned) for p in parts)
    summary.pruned = sum(len(p.pruned) for p in parts)
    summary.pruned_share = round(summary.pruned / max(1, summary.configurations), 4)
    summary.pruned_by = dict(Counter(q.reason for p in parts for q in p.pruned).most_common())
    summary.known = sum(len(p.kept) - len(p.todo) for p in parts)
    return summary


class TuningRun:
    """Runs tasks and stores their results. listener: receives the progress; clock: gives seconds, as those of `until`."""

    def __init__(self, parts: Sequence[TaskRun], device: TuningDevice, store: Store, summary: Summary,
                 listener: ProgressListener, clock: Callable[[], float] = time.monotonic):
        self.parts, self.device, self.store, self.clock = parts, device, store, clock
        self.summary, self.listener = summary, listener

    def _row(self, part: TaskRun, config: Config, **values: Any) -> Row:
        key = part.item.task.key
        return row_for(self.device, key, source_hash(key.template), config, is_default=config == part.default, **values)

    def _keep(self, part: TaskRun, rows: Sequence[Row]) -> None:
        self.summary.rows += self.store.put(rows)
        part.known |= {r.config: r for r in rows}

    def _count(self, choices: int) -> None:
        self.summary.tasks_done = sum(not p.todo for p in self.parts)
        self.summary.finished = self.summary.tasks_done == len(self.parts)
        self.summary.choices = choices

    # ---- offline ------------------------------------------------------------------------------------------------------
    def compile(self, sm: int, until: float, workers: int | None) -> None:
        """Compile and check the configurations that remain: the first choice of every task, then every second choice, and so on.

        Equal kernels of several tasks are compiled once. When clock() reaches until, the compilers are stopped; the results so
        far are in the store.
        """
        try:
            self._compile(sm, until, workers)
        finally:
            self._count(sum(pick(p.known.values(), estimated=True) is not None for p in self.parts))
        for part in self.parts:
            self.listener.result(part, _offline_result(part))

    def _compile(self, sm: int, until: float, workers: int | None) -> None:
        groups: dict[str, list[tuple[TaskRun, Config]]] = {}
        jobs: dict[str, CompileJob] = {}
        wanted: dict[tuple[int, str], list[str]] = {}  # the kernels of a task and configuration
        for choices in zip_longest(*(p.todo for p in self.parts)):
            if self.clock() >= until:
                return
            for part, config in zip(self.parts, choices):
                if config is not None:
                    try:
                        needed = {j.digest(): j for j in jobs_of(part.item.task, config, sm)}
                    except OperatorError as e:
                        self.summary.notes.append(f"{part.item.name}: {e}")
                        continue
                    wanted[part.number, spell(config)] = list(needed)
                    jobs |= needed
                    for digest in needed:
                        groups.setdefault(digest, []).append((part, config))
        for template in dict.fromkeys(p.item.task.key.template for p in self.parts):
            part = next(p for p in self.parts if p.item.task.key.template == template and p.kept)
            if not uses_config(part.item.task, part.kept[-1], sm):
                self.summary.notes.append(f"{template}: its kernels do not use configurations yet; results are kept but not used")
        self.listener.begin(len(jobs), "kernels to compile")
        outcomes: dict[str, CompiledKernel | str] = {}
        seconds: list[float] = []
        names = list(jobs)
        for first in range(0, len(names), BATCH):
            if self.clock() >= until:
                break
            batch = names[first:first + BATCH]
            limit = SLOWEST if len(seconds) < 8 else max(PATIENCE, 3 * sorted(seconds)[len(seconds) // 2])
            for i, outcome in build([jobs[d] for d in batch], timeout=limit, workers=workers, until=until):
                outcomes[batch[i]] = outcome if isinstance(outcome, CompiledKernel) else str(outcome)
                if isinstance(outcome, CompiledKernel):
                    seconds.append(outcome.seconds)
                for part, config in groups[batch[i]]:
                    built = [outcomes.get(d) for d in wanted[part.number, spell(config)]]
                    if None not in built:
                        default = [outcomes.get(d) for d in wanted.get((part.number, spell(part.default)), ())]
                        self._keep_compiled(part, config, sm, built, default)
                ready = sum(bool(p.known) for p in self.parts)
                self.listener.advance(len(outcomes), f"{ready} of {len(self.parts)} kernels have a choice")

    def _keep_compiled(self, part: TaskRun, config: Config, sm: int, built: Sequence[CompiledKernel | str | None],
                       default: Sequence[CompiledKernel | str | None]) -> None:
        """Store the build of a configuration: its kernels, or the compiler's messages. default: those of the default."""
        facts: dict[str, Any] = {}
        note = next((k for k in built if isinstance(k, str)), "")[:300]
        if note:
            status = "failed"
            self.summary.failed += 1
        else:
            good, like = ([k for k in some if isinstance(k, CompiledKernel)] for some in (built, default))
            note, facts = evaluate_build(part.item.task, good, like)
            status = "rejected" if note and config != part.default else "compiled"
            self.summary.compiled += 1
            self.summary.rejected += status == "rejected"
        expected = estimate(part.item.task, config, sm)
        self._keep(part, [self._row(part, config, estimate_s=expected, status=status, note=note, **facts)])

    # ---- timed --------------------------------------------------------------------------------------------------------
    def time(self, runner: Timer, until: float) -> None:
        """Time the configurations that remain, task by task; each task gets time in proportion to its share of a step.

        Results go to the store task by task. An interrupt, or clock() reaching until, keeps those of the current task, too.
        """
        budget = until - self.clock()
        until -= min(CHECKING, budget / 20)
        open_parts = [p for p in self.parts if p.todo]
        if open_parts:
            dtypes = sorted({p.item.task.key.dtype for p in self.parts})
            with suppress(Failed, OutOfTime):  # the report states that rooflines are missing
                limits = runner.rooflines(dtypes, max(min(budget / 10, 30.0), 5.0))
                self.store.save_rooflines(self.device.name, limits)
        self.listener.begin(sum(len(p.todo) for p in open_parts), "configurations")
        done = 0
        try:
            for place, part in enumerate(open_parts):
                left = until - self.clock()
                if left <= 0:
                    break
                shares = sum(p.item.bound_s for p in open_parts[place:])
                slice_s = max(LEAST, left * part.item.bound_s / shares)
                self.listener.task(part, place + 1, len(open_parts))
                done += self._time_part(part, runner, min(until, self.clock() + slice_s), until, done)
        finally:
            totals = [(t[0] * p.item.count, t[1] * p.item.count) for p in self.parts
                      if (t := default_and_best(p.known.values()))]
            if totals:
                self.summary.default_s, self.summary.tuned_s = (round(sum(column), 6) for column in zip(*totals))
            self.summary.improved = sum(t[1] < t[0] for t in totals)
            self._count(len(totals))

    def _time_part(self, part: TaskRun, runner: Timer, until: float, end: float, done: int) -> int:
        """Time one task; return the number of new configurations begun. After until no round begins, after end no timing."""
        incumbent = pick(part.known.values())
        fresh = part.todo
        compared = [part.default, *([incumbent.settings] if incumbent and not incumbent.is_default else [])]
        configs = [*compared, *(c for c in fresh if c not in compared)]
        seen: dict[str, Candidate] = {}
        slowest = 10.0

        def measure(config: Config) -> float:
            nonlocal slowest
            if self.clock() >= end:
                raise OutOfTime
            seconds = runner.seconds(part.number, part.item, config, max(10.0, 50 * slowest))
            if config == part.default:
                slowest = max(seconds, 0.01)
            return seconds

        def begun() -> int:
            return len(seen.keys() & {spell(c) for c in fresh})

        def on_timing(candidate: Candidate) -> None:
            seen[spell(candidate.config)] = candidate
            best = min(seen.values(), key=lambda c: c.median)
            self.listener.advance(done + begun(), f"{time_text(best.median)} {show(best.config)}")

        try:
            ranked = successive_halving(configs, measure, clock=self.clock, until=until, on_timing=on_timing)
            verdicts = self._verify(part, ranked, runner)
        except KeyboardInterrupt:
            self._keep_timed(part, seen.values(), {})
            raise
        self._keep_timed(part, [c for c in ranked if c.seconds or c.failed], verdicts)
        self.listener.result(part, _timed_result(part))
        return begun()

    def _verify(self, part: TaskRun, ranked: Sequence[Candidate], runner: Timer) -> dict[str, str]:
        """Compare the outputs of the fastest candidates with the default's, until one is right: {configuration: fault, or ""}."""
        default = next(c for c in ranked if c.config == part.default)
        verdicts: dict[str, str] = {}
        for candidate in ranked:
            if candidate.failed or candidate is default or not candidate.seconds or candidate.median > BETTER * default.median:
                break
            try:
                fault = runner.differs(part.number, part.item, candidate.config, 120.0)
            except Failed as e:
                fault = str(e)
            except OutOfTime:
                break
            verdicts[spell(candidate.config)] = fault
            if not fault:
                break  # only the fastest right one will be used
        self.summary.verified += sum(not v for v in verdicts.values())
        self.summary.wrong += sum(bool(v) for v in verdicts.values())
        return verdicts

    def _keep_timed(self, part: TaskRun, candidates: Iterable[Candidate], verdicts: dict[str, str]) -> None:
        rows = []
        for c in candidates:
            name = spell(c.config)
            wrong = verdicts.get(name)
            status = "failed" if c.failed else "wrong" if wrong else "verified" if wrong == "" else "timed"
            self.summary.failed += bool(c.failed)
            self.summary.timed += bool(c.seconds) and name not in part.known
            rows.append(self._row(part, c.config, status=status, repeats=len(c.seconds), note=(c.failed or wrong or "")[:300],
                                  median_s=c.median if c.seconds else None, spread_s=c.spread if c.seconds else None))
        self._keep(part, rows)


def _offline_result(part: TaskRun) -> str:
    best = pick(part.known.values(), estimated=True)
    if best is None:
        return "nothing compiled yet"
    counts = Counter(r.status for r in part.known.values())
    return (f"{counts['compiled']} usable, {counts['rejected']} rejected, {counts['failed']} failed; "
            f"first choice {show(best.settings)}")


def default_and_best(rows: Iterable[Row]) -> tuple[float, float] | None:
    """Return (seconds of the default, seconds of the configuration that would be used); None if either was not timed."""
    rows = list(rows)
    best = pick(rows)
    default = next((r.median_s for r in rows if r.is_default and r.median_s is not None), None)
    return None if best is None or best.median_s is None or default is None else (default, best.median_s)


def _timed_result(part: TaskRun) -> str:
    times, best = default_and_best(part.known.values()), pick(part.known.values())
    if times is None or best is None:
        return "not timed"
    default, tuned = times
    if best.is_default:
        return f"{time_text(default)}: the default is best"
    return f"{time_text(default)} -> {time_text(tuned)} ({default / tuned:.2f} x) {show(best.settings)}"


def time_text(seconds: float) -> str:
    """Seconds as text: 12.3 ms, 45.6 µs ..."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def show(config: Config) -> str:
    """A configuration as text: BM=64 BN=128 ..., powers of two from 4096 up as 2^n, threads=all for 0."""
    def number(n: str, v: int) -> str:
        if n == "threads" and not v:
            return "all"
        return f"2^{v.bit_length() - 1}" if v >= 4096 and v & (v - 1) == 0 else str(v)

    return " ".join(f"{n.removeprefix('num_')}={number(n, v)}" for n, v in config.items())
