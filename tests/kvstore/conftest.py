"""Fixtures of the store's tests."""

import pytest
from tritium import engine


@pytest.fixture(scope="package", autouse=True)
def _patience():
    """Who does not run for a while is not taken for dead, but where a test says so: how busy a machine is decides nothing."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TRITIUM_KV_LOST_AFTER", "TRITIUM_KV_BACK_WITHIN"):
            patch.setenv(name, "100")
        yield


@pytest.fixture
def serial():
    """The naive engine, as in a shard's process."""
    before = engine.current()
    engine.set_current(engine.NaiveEngine())
    yield
    engine.set_current(before)
