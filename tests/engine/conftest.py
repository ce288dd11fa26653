"""The engines that one test runs on: serial, with one worker, with four."""

import pytest
from tritium.engine import NaiveEngine, ThreadedEngine
from tritium.errors import EngineError


@pytest.fixture(params=["naive", 1, 4])
def engine(request):
    e = NaiveEngine() if request.param == "naive" else ThreadedEngine(request.param)
    yield e
    e.start()
    try:
        e.stop()
    except (ArithmeticError, EngineError, KeyError, OSError, ValueError):
        pass
