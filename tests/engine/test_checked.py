"""CheckedEngine: undeclared reads and writes raise, with the names of function and array."""

import os
import subprocess
import sys

import numpy as np
import pytest
from support.engine_programs import Foreign, random_program, run_program
from tritium.context import GPU_MODE, cpu, gpu
from tritium.engine import CheckedEngine, NaiveEngine
from tritium.engine.memory import storage
from tritium.errors import EngineError


@pytest.fixture
def engine():
    e = CheckedEngine()
    yield e
    storage.access_checker = None
    e.stop()


class Cell:
    """An array and the var that stands for it."""

    def __init__(self, engine, shape=(2, 3), ctx=None, fill=1):
        self.var = engine.new_variable()
        self.block = storage.alloc(4 * int(np.prod(shape)), ctx or cpu(), self.var)
        self.early = self.view()  # taken outside any function
        self.shape = shape
        self.early[...] = fill

    def view(self, shape=(2, 3)):
        return storage.view(self.block, 0, shape, "float32")


def told(engine, fn, const, mutable, name="op"):
    """The error of fn, or None."""
    engine.push_sync(fn, cpu(), [c.var for c in const], [c.var for c in mutable], name=name)
    try:
        engine.wait_for_all()
    except EngineError as e:
        return str(e).split(" (pushed")[0]


def put(array, value):
    array[...] = value


READS = {
    "a fresh view": lambda c: c.view(), "a sum": lambda c: c.early.sum(), "an operator": lambda c: c.early + 1,
    "an element": lambda c: c.early[0, 1], "a slice of a slice": lambda c: c.early[1:][0].tolist(),
    "a function": lambda c: np.concatenate([c.early, c.early]), "an input of a ufunc": lambda c: np.add(1, c.early),
    "a reshaped view": lambda c: c.early.reshape(-1).copy(), "a pointer": lambda c: c.early.ctypes.data,
    "a product": lambda c: c.early @ c.early.T, "iteration": lambda c: list(c.early),
    "a keyword": lambda c: np.add(np.ones((2, 3), bool), 1, where=True, out=None) + np.sum(a=c.early),
}
WRITES = {
    "assignment": lambda c: put(c.early, 5), "fill": lambda c: c.early.fill(5), "out": lambda c: np.add(1, 1, out=c.early),
    "copyto": lambda c: np.copyto(c.early, 5), "in place": lambda c: c.early.__iadd__(5),
    "an element": lambda c: c.early[1].__setitem__(0, 5), "ufunc.at": lambda c: np.add.at(c.early, (0, 0), 5),
    "behind its back": lambda c: put(np.asarray(c.early), 5), "a raw block": lambda c: put(c.block.memory, 5),
}


@pytest.mark.parametrize("how", READS)
def test_an_undeclared_read_raises(engine, how):
    a, b = Cell(engine), Cell(engine)
    said = told(engine, lambda run: READS[how](a), [], [b])
    assert said == ("op: reads float32[2,3]@cpu(0), which it did not declare. Put its var into const_vars, or into "
                    "mutable_vars if it changes it.")
    assert told(engine, lambda run: READS[how](a), [a], [b]) is None


@pytest.mark.parametrize("how", WRITES)
def test_an_undeclared_write_raises(engine, how):
    a, b = Cell(engine), Cell(engine)
    said = told(engine, lambda run: WRITES[how](a), [], [b], "stray")
    assert said == "stray: writes float32[2,3]@cpu(0), which it did not declare. Put its var into mutable_vars."
    a = Cell(engine)
    said = told(engine, lambda run: WRITES[how](a), [a], [b], "stray")
    assert said == ("stray: writes float32[2,3]@cpu(0), but declared only to read it. Move its var from const_vars to "
                    "mutable_vars.")
    assert told(engine, lambda run: WRITES[how](a), [b], [a]) is None


def test_views_of_variables_declared_as_read_are_read_only(engine):
    a = Cell(engine)
    said = told(engine, lambda run: put(np.asarray(a.view()), 3), [a], [])
    assert said.startswith("op: writes an array that it declared only to read (assignment destination is read-only)")
    assert a.early.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_accesses_outside_functions_and_to_results_are_not_checked(engine):
    a, b = Cell(engine), Cell(engine)
    made = []
    assert told(engine, lambda run: made.append(a.early + 1), [a], []) is None
    assert told(engine, lambda run: put(b.early, made[0] * 2), [], [b]) is None  # the sum's bytes are its own
    assert type(made[0]) is np.ndarray and b.early.tolist() == [[4, 4, 4], [4, 4, 4]] and float(a.early.sum()) == 6


def test_a_function_may_use_memory_it_allocates(engine):
    kept = []

    def fn(run):
        kept.append(Cell(engine))
        put(kept[0].view(), 2)
    a = Cell(engine)
    assert told(engine, fn, [], [a]) is None
    assert "reads float32[2,3]@cpu(0), which it did not declare" in told(engine, lambda run: kept[0].view(), [], [a])


def test_members_of_a_bulk_are_checked_one_by_one(engine):
    a, b = Cell(engine), Cell(engine)
    with engine.bulk(4):
        engine.push_sync(lambda run: put(a.early, 2), cpu(), [], [a.var], name="fine")
        engine.push_sync(lambda run: put(a.early, 3), cpu(), [], [b.var], name="stray")
    with pytest.raises(EngineError, match="stray: writes float32"):
        engine.wait_for_all()


@pytest.mark.skipif(GPU_MODE != "interpret", reason="the interpreted GPU only")
def test_accesses_on_the_interpreted_gpu_are_checked(engine):
    a, b = Cell(engine, ctx=gpu()), Cell(engine, ctx=gpu())
    assert "op: reads float32[2,3]@gpu(0)" in told(engine, lambda run: a.view(), [], [b])
    assert "op: writes float32[2,3]@gpu(0), which it did not declare" in told(engine, lambda run: put(a.early, 9), [], [b])


def test_random_programs_give_the_results_of_the_naive_engine(engine):
    foreign = Foreign()
    try:
        for seed in range(60):
            program = random_program(seed)
            assert run_program(program, engine, foreign) == run_program(program, NaiveEngine(), foreign)
    finally:
        foreign.close()


def test_operators_of_the_package_declare_what_they_use():
    """The same demo, in a process of its own: every kernel, optimizer and copy of it is held to its vars."""
    code = ("import tritium as mx\n"
            "x = mx.nd.arange(12).reshape((3, 4))\nx.attach_grad()\n"
            "with mx.autograd.record():\n    y = mx.nd.dot(x, x.T).tanh().sum() + x[1].sum()\n"
            "y.backward()\nx[0] = 7\nprint(type(mx.engine.current()).__name__, x.grad.shape, (x * 2).asnumpy().sum())\n"
            "from tritium.context import cpu\n"
            "a = mx.nd.ones((2,))\nb = mx.nd.zeros((2,))\n"
            "mx.engine.current().push_sync(lambda run: b.asnumpy(), cpu(), [a.chunk.var], [], name='mine')\n"
            "try:\n    mx.nd.waitall()\nexcept mx.MXNetError as e:\n    print(e)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250,
                          env={**os.environ, "TRITIUM_ENGINE_TYPE": "CheckedEngine"})
    assert done.stderr == ""
    assert done.stdout.splitlines()[0] == "CheckedEngine (3, 4) 176.0"
    assert done.stdout.splitlines()[1].startswith("mine: reads float32[2]@cpu(0), which it did not declare.")
