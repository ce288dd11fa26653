"""ThreadedEngine: random programs leave exactly what the serial engine leaves. Oracle: NaiveEngine."""

import pytest
from tritium.engine import NaiveEngine, ThreadedEngine

from .programs import Foreign, random_program, run_program

SEEDS, CHUNK = 1200, 60


@pytest.fixture(scope="module")
def machines():
    foreign = Foreign()
    engines = [ThreadedEngine(1), ThreadedEngine(4)]
    yield NaiveEngine(), engines, foreign
    for e in engines:
        e.stop()
    foreign.close()


@pytest.mark.parametrize("start", range(0, SEEDS, CHUNK))
def test_threads_agree_with_serial(start, machines):
    naive, engines, foreign = machines
    for seed in range(start, start + CHUNK):
        program = random_program(seed)
        want = run_program(program, naive, foreign)
        for engine in engines:
            assert run_program(program, engine, foreign) == want, f"seed {seed}, {engine.workers} workers"


@pytest.mark.nightly
@pytest.mark.parametrize("start", range(0, 21_000, 1000))
def test_twenty_thousand_programs_agree_with_serial(start, machines):
    naive, engines, foreign = machines
    for seed in range(1_000_000 + start, 1_001_000 + start):
        program = random_program(seed, n=30, cells=6)
        want = run_program(program, naive, foreign)
        for engine in engines:
            assert run_program(program, engine, foreign) == want, f"seed {seed}, {engine.workers} workers"


def test_long_program(machines):
    naive, engines, foreign = machines
    program = random_program(0, n=5000, cells=20)
    want = run_program(program, naive, foreign)
    assert [run_program(program, e, foreign) for e in engines] == [want, want]
