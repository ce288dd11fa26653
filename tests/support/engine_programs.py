"""Random engine programs over integer cells, whose functions declare exactly the cells they use."""

import random
import threading
from queue import SimpleQueue

from tritium.context import cpu, gpu
from tritium.engine import Engine

CONTEXTS = [cpu(0), cpu(1), gpu(0)]
_MODULUS = (1 << 61) - 1


class Boom(ValueError):
    """The error that a function of a random program raises."""


class Foreign:
    """A thread outside the engine that completes asynchronous functions in order."""

    def __init__(self):
        self.queue = SimpleQueue()
        self.thread = threading.Thread(target=self._work)
        self.thread.start()

    def _work(self):
        while (job := self.queue.get()) is not None:
            job()

    def close(self):
        self.queue.put(None)
        self.thread.join()


def alone(engine):
    """engine without workers. One that has nothing to do might still hold the lock for a moment, and then what is inline is
    handed to a worker, and nothing is called now."""
    engine.stop()
    engine.start()
    return engine


def random_program(seed, n=40, cells=8):
    """A list of steps, each a tuple that starts with its kind. Data only, so that every engine gets the same."""
    r = random.Random(seed)
    alive, steps, prepared = list(range(cells)), [], 0
    depth = 0
    for i in range(n):
        chosen = r.sample(alive, min(len(alive), r.randint(0, 4)))
        cut = r.randint(0, len(chosen))
        reads, writes = chosen[:cut], chosen[cut:]
        kind = r.choices(["sync", "inline", "async", "prepare", "prepared", "fails", "async fails", "wait", "wait all",
                          "delete", "bulk", "end"], [30, 10, 12, 4, 12, 4, 2, 4, 1, 2, 3, 4])[0]
        ctx, priority = r.randrange(len(CONTEXTS)), r.choice([0, 0, 0, 0, 5, -5])
        if kind == "prepare":
            steps.append((kind, i, reads, writes))
            prepared += 1
        elif kind == "prepared":
            if prepared:
                steps.append((kind, r.randrange(prepared), ctx, priority))
        elif kind == "wait":
            steps.append((kind, r.choice(alive)))
        elif kind == "delete":
            if len(alive) > 3 and not prepared:
                steps.append((kind, alive.pop(r.randrange(len(alive)))))
        elif kind == "bulk":
            if not depth:
                steps.append((kind, r.randint(1, 6)))
                depth = 1
        elif kind == "end":
            if depth:
                steps.append((kind,))
                depth = 0
        elif kind == "wait all":
            steps.append((kind,))
        else:
            steps.append((kind, i, reads, writes, ctx, priority))
    return [cells, *steps]


def run_program(program, engine: Engine, foreign: Foreign):
    """The cells, deleted cells and errors that program leaves, in the order the pushing thread sees them."""
    cells = [i + 1 for i in range(program[0])]
    variables = [engine.new_variable() for _ in cells]
    holders = [0] * len(cells)  # -1 a writer, n readers: checked by every function
    log, deleted, operators, bulk = [], [], [], None

    def enter(reads, writes):
        for c in reads:
            assert holders[c] >= 0
            holders[c] += 1
        for c in writes:
            assert holders[c] == 0
            holders[c] = -1

    def leave(reads, writes):
        for c in reads:
            holders[c] -= 1
        for c in writes:
            holders[c] = 0

    def work(i, reads, writes):
        total = i + sum((k + 2) * cells[c] for k, c in enumerate(reads))
        for k, c in enumerate(writes):
            cells[c] = (cells[c] * 31 + total + k) % _MODULUS

    def sync(i, reads, writes, fails):
        def fn(run):
            if fails:
                raise Boom(f"step {i}")
            if not writes:
                return
            enter((), writes)
            work(i, reads, writes)
            leave((), writes)
        return fn

    def handed_on(i, reads, writes, fails):
        def fn(run, on_complete):
            enter((), writes)

            def finish():
                work(i, reads, writes)
                leave((), writes)
                on_complete(Boom(f"step {i}")) if fails else on_complete()
            foreign.queue.put(finish)
        return fn

    def attempt(wait):
        try:
            wait()
            log.append("fine")
        except Boom as e:
            log.append(str(e).split(" (pushed")[0])

    for step in program[1:]:
        kind = step[0]
        if kind in ("sync", "inline", "fails", "async", "async fails"):
            _, i, reads, writes, ctx, priority = step
            lists = [variables[c] for c in reads], [variables[c] for c in writes]
            if kind.startswith("async"):
                engine.push_async(handed_on(i, reads, writes, kind == "async fails"), CONTEXTS[ctx], *lists,
                                  priority=priority, name=f"op{i}")
            else:
                engine.push_sync(sync(i, reads, writes, kind == "fails"), CONTEXTS[ctx], *lists,
                                 prop="inline" if kind == "inline" else None, priority=priority, name=f"op{i}")
        elif kind == "prepare":
            _, i, reads, writes = step
            operators.append(engine.new_operator(handed_on(i, reads, writes, False), [variables[c] for c in reads],
                                                 [variables[c] for c in writes], name=f"op{i}"))
        elif kind == "prepared":
            engine.push(operators[step[1]], CONTEXTS[step[2]], step[3])
        elif kind == "wait":
            attempt(lambda c=step[1]: engine.wait_for_var(variables[c]))
        elif kind == "wait all":
            attempt(engine.wait_for_all)
        elif kind == "delete":
            engine.delete_variable(variables[step[1]], lambda c=step[1]: deleted.append((c, cells[c])))
        elif kind == "bulk":
            bulk = engine.bulk(step[1])
            bulk.__enter__()
        elif kind == "end":
            bulk.__exit__(None, None, None)
            bulk = None
    if bulk is not None:
        bulk.__exit__(None, None, None)
    attempt(engine.wait_for_all)
    attempt(engine.wait_for_all)
    return cells, sorted(deleted), log


