"""Names are counted afresh in every test."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tritium.graph import NameManager


@pytest.fixture(autouse=True)
def _fresh_names():
    with NameManager():
        yield
