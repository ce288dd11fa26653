"""Random programs that nest bulks, raise exceptions of any kind, copy handles and switch engines.

Oracle: a loop without an engine, which keeps cells, poison and raised failures in plain lists.
"""

import contextlib
import copy
import dataclasses
import random

import pytest
from tritium.context import cpu, gpu
from tritium.engine import CheckedEngine, NaiveEngine, ThreadedEngine, current, set_current

CONTEXTS = [cpu(0), cpu(1), gpu(0)]
COPIES = [lambda x: x, copy.copy, copy.deepcopy, lambda x: copy.deepcopy([x])[0]]


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Bare(BaseException):
    """Not a subclass of Exception."""


class Mute(Exception):
    def __str__(self):
        raise ArithmeticError

    def __setattr__(self, name, value):
        raise ArithmeticError


ERRORS = [lambda i: ValueError(f"step {i}"), Frozen, Bare, Mute, lambda i: SystemExit(i), lambda i: OSError(2, "gone"),
          StopIteration, GeneratorExit, lambda i: KeyError("k"), lambda i: UnicodeDecodeError("ascii", b"x", 0, 1, "why")]


def random_program(seed, n=50, cells=6):
    """Return steps as data, for every engine and the oracle. A third of the failures raise one of two objects again."""
    r = random.Random(seed)
    steps, depth, prepared = [], 0, 0
    for i in range(n):
        kind = r.choices(["push", "prepare", "prepared", "wait", "wait all", "bulk", "end", "size", "switch", "raise in a bulk"],
                         [40, 3, 10, 6, 2, 8, 6, 2, 2, 2])[0]
        chosen = r.sample(range(cells), min(cells, r.randint(0, 4)))
        cut = r.randint(0, len(chosen))
        fails = r.randrange(2) if r.random() < 0.05 else f"{r.randrange(len(ERRORS))}" if r.random() < 0.1 else None
        how = r.choice(["sync", "sync", "inline", "async"])
        work = (i, chosen[:cut], chosen[cut:], fails)
        run = (r.randrange(len(CONTEXTS)), r.choice([0, 0, 0, 5, -5]), r.randrange(len(COPIES)))
        if kind == "push":
            steps.append((kind, how, work, run))
        elif kind == "prepare":
            steps.append((kind, work, run))
            prepared += 1
        elif kind == "prepared":
            if prepared:
                steps.append((kind, r.randrange(prepared), run))
        elif kind == "wait":
            steps.append((kind, r.randrange(cells), run))
        elif kind == "bulk":
            depth += 1
            steps.append((kind, r.randint(1, 6)))
        elif kind == "end":
            if depth:
                depth -= 1
                steps.append((kind,))
        elif kind == "size":
            steps.append((kind, r.choice([0, 2, 5])))
        elif kind == "switch":
            steps.append((kind, r.randrange(3)))
        else:
            steps.append((kind,))
    return cells, [*steps, *[("end",)] * depth, ("size", 0), ("wait all",), ("wait all",)]


def compute(cells, i, reads, writes):
    total = i + sum((k + 2) * cells[c] for k, c in enumerate(reads))
    for k, c in enumerate(writes):
        cells[c] = (cells[c] * 31 + total + k) % 1_000_003


def label(i, fails):
    return f"again {fails}" if isinstance(fails, int) else f"step {i}"


def oracle(program):
    """Return the final cells, and the result of each wait."""
    n, steps = program
    cells, poison, log, works, failures = list(range(1, n + 1)), [None] * n, [], [], []  # failures: [place, label, raised?]

    def work(i, reads, writes, fails):
        failure = min((poison[c] for c in reads if poison[c] is not None), default=None, key=lambda f: f[0])
        if failure is None and fails is not None:
            failure = [len(failures), label(i, fails), False]
            failures.append(failure)
        if failure is None:
            compute(cells, i, reads, writes)
        for c in writes:
            poison[c] = failure

    def wait_for_all():
        worst = min([f for f in failures if not f[2]] + [m for m in poison if m is not None], default=None, key=lambda f: f[0])
        poison[:] = [None] * n
        for f in failures:
            f[2] = True
        log.append("fine" if worst is None else worst[1])
        return worst is None

    for kind, *step in steps:
        if kind == "push":
            work(*step[1])
        elif kind == "prepare":
            works.append(step[0])
        elif kind == "prepared":
            work(*works[step[0]])
        elif kind == "wait":
            failure, poison[step[0]] = poison[step[0]], None
            if failure is not None:
                failure[2] = True
            log.append("fine" if failure is None else failure[1])
        elif kind == "wait all":
            wait_for_all()
        elif kind == "switch":
            while not wait_for_all():
                pass
    return cells, log


def run(program, engines, switching):
    """Return the same from engines. Only if switching does the program go from one to another."""
    n, steps = program
    cells, log, oprs, bulks = list(range(1, n + 1)), [], [], []
    shared = [ValueError("again"), Frozen(3)]
    names = {id(e): f"again {k}" for k, e in enumerate(shared)}
    kept = []  # no error's id is used twice
    before = set_current(engines[0])
    variables = [current().new_variable() for _ in cells]

    def body(i, reads, writes, fails):
        def fn(run, on_complete=None):
            if isinstance(fails, int):
                raise shared[fails]
            if fails is not None:
                error = ERRORS[int(fails)](i)
                kept.append(error)
                names[id(error)] = label(i, fails)
                raise error
            compute(cells, i, reads, writes)
            if on_complete is not None:
                on_complete()
        return fn

    def attempt(wait, *args):
        try:
            wait(*args)
        except BaseException as e:
            log.append(names[id(e)])
            return False
        log.append("fine")
        return True

    def lists(work, copies):
        return [[COPIES[copies](variables[c]) for c in part] for part in work[1:3]]

    for kind, *step in steps:
        if kind == "push":
            how, work, (ctx, priority, copies) = step
            push = current().push_async if how == "async" else current().push_sync
            push(body(*work), CONTEXTS[ctx], *lists(work, copies), priority=priority, prop="inline" if how == "inline" else None,
                 name=f"op{work[0]}")
        elif kind == "prepare":
            oprs.append(COPIES[step[1][2]](current().new_operator(body(*step[0]), *lists(step[0], step[1][2]),
                                                                  synchronous=step[0][0] % 2 == 0)))
        elif kind == "prepared":
            ctx, priority, copies = step[1]
            current().push(COPIES[copies](oprs[step[0]]), CONTEXTS[ctx], priority)
        elif kind == "wait":
            attempt(current().wait_for_var, COPIES[step[1][2]](variables[step[0]]))
        elif kind == "wait all":
            attempt(current().wait_for_all)
        elif kind == "bulk":
            bulks.append(current().bulk(step[0]))
            bulks[-1].__enter__()
        elif kind == "end":
            bulks.pop().__exit__(None, None, None)
        elif kind == "size":
            for engine in engines if not step[0] else [current()]:
                engine.set_bulk_size(step[0])
        elif kind == "switch" and switching:
            target = engines[(engines.index(current()) + 1 + step[0] % 2) % len(engines)]
            while not attempt(set_current, target):
                pass
        elif kind == "switch":
            while not attempt(current().wait_for_all):
                pass
        else:
            with contextlib.suppress(Frozen), current().bulk(2):
                raise Frozen(1)
    set_current(before)
    return cells, log


@pytest.fixture(scope="module")
def machines():
    engines = [NaiveEngine(), ThreadedEngine(1), ThreadedEngine(4), CheckedEngine()]
    yield engines
    for e in engines:
        e.stop()


def agree(seed, machines, **size):
    program = random_program(seed, **size)
    want = oracle(program)
    naive, one, four, checked = machines
    for engines in ([naive], [one], [four], [checked], [four, naive, one]):
        got = run(program, engines, switching=len(engines) > 1)
        assert got == want, f"seed {seed}, {[type(e).__name__ for e in engines]}"


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_every_engine_gives_the_results_of_a_plain_loop(start, machines):
    for seed in range(start, start + 50):
        agree(seed, machines)


@pytest.mark.nightly
@pytest.mark.parametrize("start", range(1000, 11_000, 1000))
def test_ten_thousand_programs(start, machines):
    for seed in range(start, start + 1000):
        agree(seed, machines, n=30 + start // 200, cells=3 + start // 2000)
