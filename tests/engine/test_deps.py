"""deps: model check without threads. Oracle: the whole history of pushes, searched for conflicts."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tritium.engine.deps import Task, Var, add, done
from tritium.engine.failure import Failure


def task(const, mutable, seq=0):
    return Task(lambda run: None, tuple(const), tuple(mutable), None, 0, seq, f"t{seq}", None, False, False)


class Bookkeeping(RuleBasedStateMachine):
    """Tasks are added and finished in any order that `add` and `done` allow."""

    @initialize(n=st.integers(1, 5))
    def vars(self, n):
        self.vars = [Var() for _ in range(n)]
        self.history = []  # (task, reads, writes), in the order added
        self.running, self.finished = [], set()
        self.poisoned = {}  # cell -> failure, as in a serial run

    def conflicts(self, i):
        """Tasks added before task i that it must not overtake and that are not finished."""
        _, reads, writes = self.history[i]
        return [t for t, r, w in self.history[:i]
                if id(t) not in self.finished and (w & (reads | writes) or writes & r)]

    @rule(data=st.data())
    def push(self, data):
        cells = data.draw(st.lists(st.integers(0, len(self.vars) - 1), unique=True))
        cut = data.draw(st.integers(0, len(cells)))
        reads, writes = set(cells[:cut]), set(cells[cut:])
        t = task([self.vars[c] for c in cells[:cut]], [self.vars[c] for c in cells[cut:]], len(self.history))
        self.history.append((t, reads, writes))
        ready = add(t)
        assert ready == (not self.conflicts(len(self.history) - 1))
        if ready:
            self.running.append(t)

    @rule(data=st.data(), fails=st.booleans())
    def finish(self, data, fails):
        if not self.running:
            return
        t = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        if fails and t.failure is None:
            t.failure = Failure(ValueError(), t.name, None, t.seq)
        before = {id(x) for i, (x, _, _) in enumerate(self.history) if not self.conflicts(i)}
        self.finished.add(id(t))
        freed = done(t)
        want = [x for i, (x, _, _) in enumerate(self.history) if not self.conflicts(i) and id(x) not in before]
        assert sorted(x.seq for x in freed) == [x.seq for x in want]  # none is lost, none comes early or twice
        self.running.extend(freed)

    @invariant()
    def one_writer_or_readers(self):
        if not hasattr(self, "vars"):
            return
        for c, v in enumerate(self.vars):
            granted = [(t, r, w) for i, (t, r, w) in enumerate(self.history) if t in self.running]
            writers = sum(c in w for _, _, w in granted)
            readers = sum(c in r for _, r, _ in granted)
            assert writers <= 1 and not (writers and readers), (writers, readers)
            if not any(c in r | w for t, r, w in self.history if id(t) not in self.finished):
                assert v.held == 0 and v.queue is None

    def teardown(self):
        while getattr(self, "running", None):  # no task starves: completing those that run gets all done
            t = self.running.pop(0)
            self.finished.add(id(t))
            self.running.extend(done(t))
        assert len(getattr(self, "finished", ())) == len(getattr(self, "history", ()))


TestBookkeeping = Bookkeeping.TestCase
TestBookkeeping.settings = settings(max_examples=120, stateful_step_count=40, deadline=None, derandomize=True)


def test_readers_run_together_and_a_writer_alone():
    v = Var()
    readers = [task([v], [], i) for i in range(3)]
    writer, late = task([], [v], 3), task([v], [], 4)
    assert [add(t) for t in (*readers, writer, late)] == [True, True, True, False, False]
    assert [list(done(t)) for t in readers] == [[], [], [writer]]
    assert list(done(writer)) == [late]


def test_a_failure_poisons_mutated_variables_and_their_readers():
    a, b, c = Var(), Var(), Var()
    fails, reads, other = task([], [a], 0), task([a], [b], 1), task([c], [], 2)
    assert [add(t) for t in (fails, reads, other)] == [True, False, True]
    fails.failure = failure = Failure(ValueError(), "fails", None, 0)
    done(fails)
    assert reads.failure is failure and other.failure is None
    done(reads)
    assert a.failure is b.failure is failure
    anew = task([], [a], 3)
    assert add(anew) and anew.failure is None
    done(anew)
    assert a.failure is None and b.failure is failure


def test_of_two_failures_the_first_pushed_is_inherited():
    a, b = Var(), Var()
    a.failure, b.failure = Failure(ValueError(), "late", None, 7), Failure(ValueError(), "early", None, 3)
    for const in ([a, b], [b, a]):
        t = task(const, [])
        add(t)
        assert t.failure is b.failure


@pytest.mark.parametrize("n", [10, 1000])
def test_bookkeeping_keeps_no_tasks_alive(n):
    v = Var()
    tasks = [task([], [v], i) for i in range(n)]
    ready = [t for t in tasks if add(t)]
    while ready:
        ready.extend(done(ready.pop()))
    assert v.held == 0 and v.queue is None
