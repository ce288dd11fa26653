"""Fixtures for the tests of stores."""

import pytest
from tritium import engine


@pytest.fixture(scope="package", autouse=True)
def _patience():
    """Long timeouts, so that a process on a busy machine is not declared dead, except in tests that set them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TRITIUM_KV_LOST_AFTER", "TRITIUM_KV_BACK_WITHIN"):
            patch.setenv(name, "100")
        yield


@pytest.fixture
def serial():
    """The naive engine, as in a server's process."""
    before = engine.current()
    engine.set_current(engine.NaiveEngine())
    yield
    engine.set_current(before)
