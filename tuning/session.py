"""A tuning run: prune the configurations of each task, compile or time the rest, and store every result as soon as it is known,
so that an interrupted run loses nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import OperatorError
from ..kernels.configs.key import Config
from ..kernels.configs.store import BETTER, Row, Store, TuningDevice, offline_device, pick, row_for, source_hash, spell
from ..kernels.gpu.compile import CompiledKernel, CompileJob
from .collect import Workload, WorkloadItem
from .gpu_candidates import compile_jobs, evaluate_build, jobs_of, uses_config
from .prune import Pruned, estimate, prune
from .runner import Runner
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


# ---- offline ----------------------------------------------------------------------------------------------------------
def run_offline(parts: Sequence[TaskRun], device: TuningDevice, store: Store, sm: int, until: float, workers: int | None,
                summary: Summary, listener: ProgressListener, clock: Callable[[], float] = time.monotonic) -> None:
    """Compile and check the configurations that remain: the first choice of every task, then every second choice, and so on.

    Equal kernels of several tasks are compiled once. When clock() reaches until, the compilers are stopped; the results so far
    are in the store.
    """
    try:
        _compile_offline(parts, device, store, sm, until, workers, summary, listener, clock)
    finally:
        summary.tasks_done = sum(not p.todo for p in parts)
        summary.finished = summary.tasks_done == len(parts)
        summary.choices = sum(pick(p.known.values(), estimated=True) is not None for p in parts)
    for part in parts:
        listener.result(part, _offline_result(part))


def _compile_offline(parts: Sequence[TaskRun], device: TuningDevice, store: Store, sm: int, until: float, workers: int | None,
                     summary: Summary, listener: ProgressListener, clock: Callable[[], float]) -> None:
    groups: dict[str, list[tuple[TaskRun, Config]]] = {}
    jobs: dict[str, CompileJob] = {}
    wanted: dict[tuple[int, str], list[str]] = {}
    deep = max((len(p.todo) for p in parts), default=0)
    todos = [(part, part.todo) for part in parts]
    for place in range(deep):
        if clock() >= until:
            return
        for part, todo in todos:
            if place < len(todo):
                config = todo[place]
                try:
                    needed = jobs_of(part.item.task, config, sm)
                except OperatorError as e:
                    summary.notes.append(f"{part.item.name}: {e}")
                    continue
                digests = [j.digest() for j in needed]
                wanted[part.number, spell(config)] = digests
                for digest, job in zip(digests, needed):
                    jobs.setdefault(digest, job)
                    groups.setdefault(digest, []).append((part, config))
    for template in dict.fromkeys(p.item.task.key.template for p in parts):
        part = next(p for p in parts if p.item.task.key.template == template and p.kept)
        if not uses_config(part.item.task, part.kept[-1], sm):
            summary.notes.append(f"{template}: its kernels do not use configurations yet; results are kept but not used")
    listener.begin(len(jobs), "kernels to compile")
    outcomes: dict[str, CompiledKernel | str] = {}
    seconds: list[float] = []
    names = list(jobs)
    done = 0
    for first in range(0, len(names), BATCH):
        left = until - clock()
        if left <= 0:
            break
        batch = names[first:first + BATCH]
        limit = SLOWEST if len(seconds) < 8 else max(PATIENCE, 3 * sorted(seconds)[len(seconds) // 2])
        for i, outcome in compile_jobs([jobs[d] for d in batch], timeout=limit, workers=workers, until=until):
            digest = batch[i]
            outcomes[digest] = outcome
            done += 1
            if isinstance(outcome, CompiledKernel):
                seconds.append(outcome.seconds)
            for part, config in groups[digest]:
                if all(d in outcomes for d in wanted[part.number, spell(config)]):
                    _keep_compiled(part, config, [outcomes[d] for d in wanted[part.number, spell(config)]], device, store,
                                   sm, summary, outcomes, wanted)
            listener.advance(done, _best_estimate(parts))


def _keep_compiled(part: TaskRun, config: Config, kernels: Sequence[CompiledKernel | str], device: TuningDevice, store: Store,
                   sm: int, summary: Summary, outcomes: dict[str, CompiledKernel | str],
                   wanted: dict[tuple[int, str], list[str]]) -> None:
    task, is_default = part.item.task, config == part.default
    values: dict[str, Any] = {"estimate_s": estimate(task, config, sm), "is_default": is_default}
    message = next((k for k in kernels if isinstance(k, str)), "")
    if message:
        status, values["note"] = "failed", message[:300]
        summary.failed += 1
    else:
        good = [k for k in kernels if isinstance(k, CompiledKernel)]
        like = [k for d in wanted.get((part.number, spell(part.default)), ())
                if isinstance(k := outcomes.get(d), CompiledKernel)]
        wrong, facts = evaluate_build(task, good, like)
        status = "rejected" if wrong and not is_default else "compiled"
        values |= {**facts, "note": wrong}
        summary.compiled += 1
        summary.rejected += status == "rejected"
    row = row_for(device, task.key, source_hash(task.key.template), config, status=status, **values)
    store.put([row])
    summary.rows += 1
    part.known[row.config] = row


def _best_estimate(parts: Sequence[TaskRun]) -> str:
    ready = sum(bool(p.known) for p in parts)
    return f"{ready} of {len(parts)} kernels have a choice"


def _offline_result(part: TaskRun) -> str:
    best = pick(part.known.values(), estimated=True)
    if best is None:
        return "nothing compiled yet"
    counts = Counter(r.status for r in part.known.values())
    return (f"{counts['compiled']} usable, {counts['rejected']} rejected, {counts['failed']} failed; "
            f"first choice {show(best.settings)}")


# ---- timed ------------------------------------------------------------------------------------------------------------
def run_timed(parts: Sequence[TaskRun], device: TuningDevice, store: Store, runner: Runner, until: float, summary: Summary,
              listener: ProgressListener, clock: Callable[[], float] = time.monotonic) -> None:
    """Time the configurations that remain, task by task; each task gets time in proportion to its share of a step.

    Results go to the store task by task. An interrupt, or clock() reaching until, keeps those of the current task, too.
    """
    budget = until - clock()
    until -= min(CHECKING, budget / 20)
    open_parts = [p for p in parts if p.todo]
    if open_parts:
        _save_rooflines(parts, device, store, runner, min(budget / 10, 30.0))
    listener.begin(sum(len(p.todo) for p in open_parts), "configurations")
    done = 0
    try:
        for place, part in enumerate(open_parts):
            left = until - clock()
            if left <= 0:
                break
            shares = sum(p.item.bound_s for p in open_parts[place:])
            slice_s = max(LEAST, left * part.item.bound_s / shares)
            listener.task(part, place + 1, len(open_parts))
            done += _time_part(part, device, store, runner, min(until, clock() + slice_s), until, summary, listener, clock, done)
    finally:
        _count_timed(parts, summary)


def _count_timed(parts: Sequence[TaskRun], summary: Summary) -> None:
    summary.tasks_done = sum(not p.todo for p in parts)
    summary.finished = summary.tasks_done == len(parts)
    totals = [(t[0] * p.item.count, t[1] * p.item.count) for p in parts if (t := default_and_best(p.known.values()))]
    if totals:
        summary.default_s, summary.tuned_s = (round(sum(column), 6) for column in zip(*totals))
    summary.improved = sum(t[1] < t[0] for t in totals)
    summary.choices = len(totals)


def _time_part(part: TaskRun, device: TuningDevice, store: Store, runner: Runner, until: float, end: float, summary: Summary,
               listener: ProgressListener, clock: Callable[[], float], done: int) -> int:
    """Time one task; return the number of new configurations begun. After until no round begins, after end no timing."""
    incumbent = pick(part.known.values())
    fresh = part.todo
    compared = [part.default, *([incumbent.settings] if incumbent and not incumbent.is_default else [])]
    configs = [*compared, *(c for c in fresh if c not in compared)]
    seen: dict[str, Candidate] = {}
    slowest = [10.0]
    begun: set[str] = set()

    def measure(config: Config) -> float:
        if clock() >= end:
            raise OutOfTime
        seconds = runner.seconds(part.number, part.item, config, max(10.0, 50 * slowest[0]))
        if config == part.default:
            slowest[0] = max(seconds, 0.01)
        return seconds

    def on_timing(candidate: Candidate) -> None:
        name = spell(candidate.config)
        seen[name] = candidate
        begun.add(name)
        best = min(seen.values(), key=lambda c: c.median)
        listener.advance(done + len(begun & {spell(c) for c in fresh}), f"{time_text(best.median)} {show(best.config)}")

    try:
        ranked = successive_halving(configs, measure, clock=clock, until=until, on_timing=on_timing)
        verdicts = _verify(part, ranked, runner, summary)
    except KeyboardInterrupt:
        _keep_timed(part, seen.values(), {}, device, store, summary)
        raise
    _keep_timed(part, [c for c in ranked if c.seconds or c.failed], verdicts, device, store, summary)
    listener.result(part, _timed_result(part))
    return len(begun & {spell(c) for c in fresh})


def _verify(part: TaskRun, ranked: Sequence[Candidate], runner: Runner, summary: Summary) -> dict[str, str]:
    """Compare the outputs of the fastest candidates with the default's, until one is right: {configuration: fault, or ""}."""
    default = next(c for c in ranked if c.config == part.default)
    verdicts: dict[str, str] = {}
    for candidate in ranked:
        if candidate.failed or candidate is default or not candidate.seconds or candidate.median > BETTER * default.median:
            break
        try:
            verdicts[spell(candidate.config)] = runner.differs(part.number, part.item, candidate.config, 120.0)
        except Failed as e:
            verdicts[spell(candidate.config)] = str(e)
        except OutOfTime:
            break
        if not verdicts[spell(candidate.config)]:
            break  # only the fastest right one will be used
    summary.verified += sum(not v for v in verdicts.values())
    summary.wrong += sum(bool(v) for v in verdicts.values())
    return verdicts


def _keep_timed(part: TaskRun, candidates: Any, verdicts: dict[str, str], device: TuningDevice, store: Store,
                summary: Summary) -> None:
    rows = []
    for c in candidates:
        name = spell(c.config)
        wrong = verdicts.get(name)
        status = "failed" if c.failed else "wrong" if wrong else "verified" if wrong == "" else "timed"
        summary.failed += bool(c.failed)
        summary.timed += bool(c.seconds) and name not in part.known
        rows.append(row_for(device, part.item.task.key, source_hash(part.item.task.key.template), c.config, status=status,
                            is_default=c.config == part.default, repeats=len(c.seconds), note=(c.failed or wrong or "")[:300],
                            median_s=c.median if c.seconds else None, spread_s=c.spread if c.seconds else None))
    summary.rows += store.put(rows)
    part.known |= {r.config: r for r in rows}


def _save_rooflines(parts: Sequence[TaskRun], device: TuningDevice, store: Store, runner: Runner, limit: float) -> None:
    try:
        store.save_rooflines(device.name, runner.rooflines(sorted({p.item.task.key.dtype for p in parts}), max(limit, 5.0)))
    except (Failed, OutOfTime):
        pass  # the report states that rooflines are missing


def default_and_best(rows: Any) -> tuple[float, float] | None:
    """Return (seconds of the default, seconds of the configuration that would be used); None if either was not timed."""
    rows = list(rows)
    best = pick(rows)
    default = next((r.median_s for r in rows if r.is_default and r.median_s is not None), None)
    return None if best is None or best.median_s is None or default is None else (default, best.median_s)


def _timed_result(part: TaskRun) -> str:
    times = default_and_best(part.known.values())
    best = pick(part.known.values())
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
