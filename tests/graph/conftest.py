"""The numbers in names start again in every test."""

import pytest
from tritium.graph import NameManager


@pytest.fixture(autouse=True)
def _fresh_names():
    with NameManager():
        yield
