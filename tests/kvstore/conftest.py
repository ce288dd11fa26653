"""Fixtures of the store's tests."""

import pytest
from tritium import engine


@pytest.fixture
def serial():
    """The naive engine, as in a shard's process."""
    before = engine.current()
    engine.set_current(engine.NaiveEngine())
    yield
    engine.set_current(before)
