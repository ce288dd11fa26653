"""Every graph that a test here binds has its memory plan checked; names are counted afresh in every test."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from plan_checker import check_plan
from tritium.graph import NameManager, executor


@pytest.fixture(autouse=True)
def _checked_plans():
    executor.on_plan.append(check_plan)
    yield
    executor.on_plan.remove(check_plan)


@pytest.fixture(autouse=True)
def _fresh_names():
    with NameManager():
        yield
