"""`tritium tune`: find and store the best block sizes for the kernels of a model or operator."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import click
from rich.console import Console

from ..context import GPU_MODE, missing_gpu
from ..engine import num_gpus
from ..errors import nearest
from ..kernels.configs.gpu_device import LIMITS, gpu_device
from ..kernels.configs.store import Store, TuningDevice, cpu_device, installed, offline_device, source_hash, store_path
from ..kernels.op import registered
from ..progress import Progress
from ..tuning.collect import SHAPE_HELP, TuningRequest, Workload, collect
from ..tuning.prune import bound_s
from ..tuning.report import write_report
from ..tuning.runner import Runner
from ..tuning.session import ProgressListener, Summary, TaskRun, TuningRun, plan, show, summarise, time_text
from .group import INTERRUPTED, Command
from .parameters import named_shape

NOTHING = 1  # exit status where no kernel of the request has anything to tune
_REASONS = {"waves": "idle or uneven multiprocessors"}  # names of reasons -> words


def duration(value: str) -> float:
    """Return seconds from the user's spelling: 90s, 10m, 1h, 1m30s."""
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", value.strip())
    if match is None or not any(match.groups()):
        raise click.BadParameter(f"{value!r} is not a time. Give 90s, 10m, or 1h.")
    return sum(float(n or 0) * unit for n, unit in zip(match.groups(), (3600, 60, 1)))


def capability(value: str) -> int:
    """Return a compute capability, times ten, from its spelling: sm_90."""
    match = re.fullmatch(r"sm_(\d+)a?", value.strip().lower())
    if match is None or int(match[1]) not in LIMITS:
        raise click.BadParameter(f"{value!r} is not a known target. Give {', '.join(f'sm_{t}' for t in LIMITS)}.")
    return int(match[1])


def assigned(value: str) -> tuple[str, str]:
    """Return a parameter's name and value from their spelling: axis=1."""
    name, equals, text = value.partition("=")
    if not name.isidentifier() or not equals:
        raise click.BadParameter(f"{value!r} is not a name and a value. Write axis=1.")
    return name, text


@click.command(cls=Command, context_settings={"show_default": True},
               examples=["tune --model resnet-symbol.json --shape data=32,3,224,224 --budget 30m",
                         "tune --op dot --shapes 1024x1024x1024 --dry-run",
                         "tune --model resnet-symbol.json --shape data=32,3,224,224 --offline sm_90", "tune --resume"])
@click.option("--model", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A symbol: X-symbol.json.")
@click.option("--shape", "shapes", type=named_shape, multiple=True, metavar="NAME=N,N,...",
              help="Shape of an input of the model: data=32,3,224,224. Once per input.")
@click.option("--op", "op", help="An operator instead of a model: dot, Convolution, softmax, or one of your own (--import).")
@click.option("--shapes", "op_shapes", metavar="SHAPE,...", help=f"Its shapes. {SHAPE_HELP}.")
@click.option("--param", "params", type=assigned, multiple=True, metavar="NAME=VALUE",
              help="A parameter of the operator: axis=1. Once per parameter.")
@click.option("--dtype", default="float32", help="Of the model's or operator's inputs.")
@click.option("--inference", is_flag=True, help="Tune a forward pass only; otherwise a training step.")
@click.option("--device", type=click.Choice(["cpu", "gpu"]), default="cpu", help="Device on which kernels are timed.")
@click.option("--offline", type=capability, metavar="sm_80|sm_90|sm_100",
              help="Compile for this target, check and prune, without a GPU. Nothing is timed.")
@click.option("--budget", type=duration, default="10m", metavar="TIME",
              help="Stop after this time: 90s, 10m, 1h.")
@click.option("--jobs", type=click.IntRange(1), show_default="one per core", help="Concurrent compilers.")
@click.option("--resume", is_flag=True, help="Continue the run that was interrupted or ran out of time.")
@click.option("--again", is_flag=True, help="Time configurations again that the store has. Otherwise only new ones are tried.")
@click.option("--dry-run", is_flag=True, help="Show the space and what is pruned, with reasons. Compile and time nothing.")
@click.option("--explain", nargs=2, metavar="OP SHAPE", help="Show the results for an operator, and the configuration in use.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.html",
              help="At the end write a report: a roofline, and the kernels that lose most.")
@click.option("--export", "export_to", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write all results as JSON lines.")
@click.option("--import", "imports", multiple=True, metavar="MODULE|FILE",
              help="Import a module, or run a Python file, that declares operators: my_ops, my_ops.py. "
                   "Any other file: read results that --export wrote.")
@click.option("--store", "store_file", type=click.Path(dir_okay=False, path_type=Path), show_default=False,
              help="The results' file. Default: $TRITIUM_TUNE_STORE, or tune.sqlite in Tritium's cache folder.")
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")
def tune(**options: Any) -> None:
    """Find and store the best block sizes of kernels.

    A model's kernels are those of its bound graph; those that cost most are tuned first. Results are stored at once, so Ctrl-C
    loses nothing. They are used only if TRITIUM_TUNED=1 is set or tritium.tuning.use() is called.
    """
    console, began = Console(highlight=False), time.monotonic()
    with Store(options["store_file"] or store_path()) as store:
        _tune(console, store, began, **options)


def _tune(console: Console, store: Store, began: float, *, imports: Sequence[str], export_to: Path | None,
          explain: tuple[str, str] | None, resume: bool, model: Path | None, op: str | None, as_json: bool,
          **options: Any) -> None:
    results = [Path(name) for name in imports if not name.endswith(".py") and Path(name).is_file()]
    options["imports"] = [name for name in imports if Path(name) not in results]
    for path in results:
        say(console, f"Imported {store.load(path):,} results from {path}.")
    if explain:
        target = "gpu" if options["offline"] else options["device"]
        request = TuningRequest(cases=[explain], dtype=options["dtype"], target=target, imports=options["imports"],
                                params=dict(options["params"]))
        _explain(console, store, request, options["offline"])
    elif model or op or resume:
        summary = _run(console, store, began, resume=resume, model=model, op=op, **options)
        if as_json:
            click.echo(json.dumps(dataclasses.asdict(summary)))
        if summary.interrupted:
            sys.exit(INTERRUPTED)
        if not summary.tasks:
            sys.exit(NOTHING)
    elif options["imports"]:
        raise click.UsageError(f"--import {options['imports'][0]} is not a file of results, so it names operators to tune: "
                               f"give --op NAME --shapes 512x512, too.")
    elif not (results or export_to):
        raise click.UsageError("nothing to tune. Give --model X-symbol.json --shape data=32,3,224,224, or --op dot --shapes "
                               "1024x1024x1024, or --resume.")
    if export_to:
        say(console, f"Exported {store.export(export_to):,} results to {export_to}.")


def _request(model: Path | None, op: str | None, options: dict[str, Any]) -> TuningRequest:
    target = "gpu" if options["offline"] or options["device"] == "gpu" else "cpu"
    if model and op:
        raise click.UsageError("--model and --op exclude each other.")
    if options["params"] and not op:
        raise click.UsageError("--param is a parameter of --op, and no operator is named.")
    imports = [str(Path(name).absolute()) if name.endswith(".py") else name for name in options["imports"]]
    if op:
        if not options["op_shapes"]:
            raise click.UsageError(f"--op needs --shapes. Write {SHAPE_HELP}.")
        cases = [(op, s.strip()) for s in options["op_shapes"].split(",") if s.strip()]
        return TuningRequest(cases=cases, dtype=options["dtype"], target=target, train=not options["inference"],
                             imports=imports, params=dict(options["params"]))
    if not options["shapes"]:
        raise click.UsageError("--model needs the shapes of its inputs: --shape data=32,3,224,224")
    return TuningRequest(model=str(Path(str(model)).absolute()), shapes=dict(options["shapes"]), dtype=options["dtype"],
                         target=target, train=not options["inference"], imports=imports)


def _device(request: TuningRequest, offline: int | None) -> TuningDevice:
    """Return the device that results are stored for. Raises ClickException if it cannot be used."""
    if offline:
        if not installed("triton"):
            raise click.ClickException('--offline compiles with triton, which is not installed: pip install "tritium[gpu]".')
        return offline_device(offline)
    if request.target == "cpu":
        return cpu_device()
    if GPU_MODE == "interpret":
        raise click.ClickException("--device gpu: kernels are interpreted here (TRITIUM_GPU=interpret), and their times mean "
                                   "nothing. Use --offline sm_90 to compile, check and prune without a GPU.")
    device = gpu_device()
    if device is None:
        raise click.ClickException(f"{missing_gpu(0, num_gpus())} Or compile, check and prune without one: --offline sm_90.")
    return device


def _run(console: Console, store: Store, began: float, *, resume: bool, model: Path | None, op: str | None, **options: Any
         ) -> Summary:
    """Tune. began: the start of the command, from which its budget counts; it includes collecting and stopping compilers."""
    until = began + options["budget"]
    offline, again = options["offline"], options["again"]
    if resume and not (model or op):
        left = store.unfinished()
        if left is None:
            raise click.ClickException(f"--resume: {store.path} holds no unfinished run. Give --model or --op.")
        request, offline, again = TuningRequest.from_json(left["request"]), left["offline"], False
    else:
        request = _request(model, op, options)
    device = _device(request, offline)
    sm = offline or (int(device.cc.replace(".", "")) if device.cc else 90)
    if request.cases and not request.imports and request.cases[0][0] not in registered():
        raise click.ClickException(f"{request.cases[0][0]}: no such operator.{nearest(request.cases[0][0], registered())} "
                                   f"If a module of yours declares it, name the module: --import my_ops.")
    work = collect(request, sm)
    mode = "dry run" if options["dry_run"] else "offline" if offline else "timed"
    parts = plan(work, device, store, sm, again)
    summary = summarise(parts, Summary(mode, device.name, str(store.path)), work.kernels)
    title = (request.model and Path(request.model).name) or ", ".join(f"{n} {s}" for n, s in request.cases)
    if not parts:
        summary.finished, summary.seconds = True, round(time.monotonic() - began, 1)
        say(console, f"Nothing to tune on {device.name}.")
        _say_why(console, work)
        return summary
    say(console, f"{title}: {work.kernels} kernels a step, {len(parts)} of them distinct and tunable "
                 f"({work.share:.0%} of its estimated time). Device: {device.name}.")
    by = ", ".join(f"{n:,} {_REASONS.get(reason, reason)}" for reason, n in summary.pruned_by.items())
    say(console, f"{summary.configurations:,} configurations; pruned before compiling: {summary.pruned:,} "
                 f"({summary.pruned_share:.0%}){': ' + by if by else ''}. Known already: {summary.known:,}.")
    if request.cases:
        _say_why(console, work)
    if options["dry_run"]:
        _show_space(console, parts)
        return summary
    number = store.begin({"request": dataclasses.asdict(request), "offline": offline})
    display = TuningDisplay(options["budget"], began)
    run = TuningRun(parts, device, store, summary, display)
    with display:
        try:
            if offline:
                run.compile(sm, until, options["jobs"])
            else:
                with Runner(request, until=until) as runner:
                    run.time(runner, until)
        except KeyboardInterrupt:
            summary.interrupted = True
    if summary.finished:
        store.finish(number)
    summary.seconds = round(time.monotonic() - began, 1)
    _close(console, summary)
    if options["report"]:
        n = write_report(options["report"], parts, device, store.rooflines(device.name),
                         f"tritium tune {title} ({request.dtype})")
        say(console, f"Report: {options['report']}" + ("" if n else ". Nothing was measured, as it says") + ".")
    return summary


def _say_why(console: Console, work: Workload) -> None:
    """Say of the calls that have nothing to tune what the reason is, each reason once."""
    for why, names in work.by_reason().items():
        more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
        say(console, f"{', '.join(names[:3])}{more}: nothing to tune: {why}.")


def say(console: Console, text: str) -> None:
    """Print one line, not cut or coloured: above the bar in a terminal; when piped, complete even if an interrupt comes."""
    if console.is_terminal:
        console.print(text, soft_wrap=True, markup=False)
    else:
        click.echo(text)


def _close(console: Console, s: Summary) -> None:
    usual = s.store == str(store_path())
    again = "tritium tune --resume" + ("" if usual else f" --store {s.store}")
    if s.interrupted:
        say(console, f"Interrupted; the results so far are stored. Continue with: {again}")
    if s.mode == "offline":
        say(console, f"Compiled {s.compiled:,}: {s.compiled - s.rejected:,} usable, {s.rejected:,} rejected; "
                     f"{s.failed:,} failed. Nothing was timed: the order among them is the model's estimate.")
    else:
        say(console, f"Timed {s.timed:,} configurations in {s.seconds:.0f} s; {s.failed:,} failed, "
                     f"{s.wrong:,} gave wrong results. {s.improved} of {s.tasks} kernels have better blocks than the default.")
        if s.default_s and s.tuned_s:
            say(console, f"These kernels take {time_text(s.default_s)} a step with default blocks, {time_text(s.tuned_s)} tuned "
                         f"({s.default_s / s.tuned_s:.2f} x).")
    for note in s.notes[:5]:
        say(console, f"Note: {note}")
    if not s.finished and not s.interrupted:
        say(console, f"The time ran out: {s.choices} of {s.tasks} kernels have a choice, {s.tasks_done} were tried in full. "
                     f"Continue with: {again}")
    where = "" if usual else f"TRITIUM_TUNE_STORE={s.store} "
    say(console, f"Results: {s.store}. To use them: {where}TRITIUM_TUNED={'estimate' if s.mode == 'offline' else '1'}")


def _reasons(part: TaskRun) -> str:
    return ", ".join(f"{_REASONS.get(r, r)} {n}" for r, n in Counter(q.reason for q in part.pruned).most_common())


def _show_space(console: Console, parts: list[TaskRun]) -> None:
    say(console, "share  runs  kept/space  kernel, costliest first")
    for p in parts:
        k = p.item.task.key
        reasons = _reasons(p)
        kept = f"{len(p.kept)}/{len(p.kept) + len(p.pruned)}"
        say(console, f"{p.item.share:5.1%} {p.item.count:5}  {kept:>10}  {p.item.name}: {k.template} {k.dtype} {k.bucket}"
                     f"{'; pruned: ' + reasons if reasons else ''}")
    examples = {q.reason: (p, q) for p in reversed(parts) for q in reversed(p.pruned)}
    for reason, (p, q) in sorted(examples.items()):
        say(console, f"{_REASONS.get(reason, reason)}, for example {p.item.name} {show(q.config)}: {q.why}")


def _explain(console: Console, store: Store, request: TuningRequest, offline: int | None) -> None:
    device = _device(request, offline)
    sm = offline or (int(device.cc.replace(".", "")) if device.cc else 90)
    work = collect(request, sm)
    parts = plan(work, device, store, sm)
    _say_why(console, work)
    for p in parts:
        k, task = p.item.task.key, p.item.task
        say(console, f"{p.item.name}: {k.template}, {k.dtype}, layout {k.layout or '-'}, aligned to {k.align} bytes, {k.bucket}")
        say(console, f"  {task.flops:.3g} operations, {task.nbytes:,} bytes at least"
                     + (f"; not below {time_text(bound_s(task.flops, task.nbytes, k.dtype, sm))} by published limits"
                        if request.target == "gpu" else ""))
        reasons = _reasons(p)
        why = f" (pruned: {reasons})" if reasons else ""
        say(console, f"  space {len(p.kept) + len(p.pruned)}, {len(p.kept)} kept{why}")
        for row in sorted(p.known.values(), key=lambda r: (r.median_s or r.estimate_s or 1e9))[:8]:
            measured = f"{time_text(row.median_s)} +- {time_text(row.spread_s or 0)}, {row.repeats} rounds" if row.median_s else \
                f"not timed, the model expects {time_text(row.estimate_s or 0)}"
            resources = f", {row.registers} registers, {row.shared} bytes shared" if row.registers is not None else ""
            say(console, f"  {'default ' if row.is_default else ''}{show(row.settings)}: {row.status}, {measured}{resources}"
                         + (f" ({row.note})" if row.note else ""))
        best = store.best(device, k, source_hash(k.template), estimates=bool(offline))
        if best is None:
            say(console, f"  used: the default, {show(p.default)}: nothing similar was tuned")
        else:
            row, distance = best
            source = "tuned for these sizes" if distance == 0 else f"tuned for {row.bucket}, {distance:.2f} doublings away"
            say(console, f"  used with TRITIUM_TUNED={'estimate' if offline else '1'}: {show(row.settings)}, {source}")


class TuningDisplay(ProgressListener):
    """Shows progress: the time left and the best time so far, and a line per kernel. file, clock: as of Progress."""

    def __init__(self, budget: float, began: float, file: TextIO | None = None, clock: Callable[[], float] = time.monotonic):
        self.began, self.budget, self.file, self.clock = began, budget, file, clock
        self.bar: Progress | None = None
        self.total, self.place = 0, ""

    def __enter__(self) -> TuningDisplay:
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def begin(self, total: int, unit: str) -> None:
        self.total = total
        click.echo(f"{total:,} {unit}, at most {clock_text(self.budget)}.")
        self.bar = Progress(total, unit, file=self.file, clock=self.clock)

    def task(self, part: TaskRun, place: int, of: int) -> None:
        self.place = f"{place}/{of} "
        if self.bar is not None:
            self.bar.title = f"{place}/{of} {part.item.name[:32]}"

    def advance(self, done: int, best: str) -> None:
        if self.bar is not None:
            left = clock_text(self.left(done, self.clock()))
            self.bar.reach(done, note=lambda: f"{left} left, " + (f"best {best}" if "of" not in best else best))

    def left(self, done: int, now: float) -> float:
        """Return the seconds until all is done at the pace so far, or the budget ends."""
        spent = now - self.began
        pace = spent / done * (self.total - done) if done else self.budget
        return max(0.0, min(pace, self.budget - spent))

    def result(self, part: TaskRun, text: str) -> None:
        line = f"{self.place}{part.item.name} ({part.item.share:.1%}): {text}"
        (self.bar.say if self.bar is not None else click.echo)(line)


def clock_text(seconds: float) -> str:
    """Return text such as 4:05 or 1:02:03."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02}:{s:02}" if hours else f"{m}:{s:02}"
