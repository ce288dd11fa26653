"""Simulated jobs: with any order of messages and any faults, every value is right and every worker finishes."""

from __future__ import annotations

import shutil
from collections import Counter

import pytest
from support.kvstore_simulation import SimulatedJob
from tritium.dtype import bfloat16

CONNECTIONS = ("cut",)
CASES = {
    "undisturbed": {},
    "connections that end": {"faults": CONNECTIONS},
    "no optimizer": {"faults": (*CONNECTIONS, "kill_server"), "optimizer": False},
    "servers that die": {"faults": (*CONNECTIONS, "kill_server")},
    "unreachable processes": {"faults": (*CONNECTIONS, "silence")},
    "unreachable processes that are waited for": {"faults": (*CONNECTIONS, "silence"), "policy": "wait"},
    "workers that are replaced": {"faults": (*CONNECTIONS, "silence", "replace")},
    "workers that are waited for": {"faults": (*CONNECTIONS, "silence", "replace"), "policy": "wait"},
    "workers that are removed": {"faults": (*CONNECTIONS, "lose"), "policy": "shrink", "workers": 3},
    "a coordinator that dies": {"faults": (*CONNECTIONS, "kill_server", "kill_coordinator")},
    "all faults except dead workers": {"faults": ("cut", "silence", "kill_server", "kill_coordinator")},
    "deadlines": {"faults": (*CONNECTIONS, "silence"), "timeout": 2.0},
    "deadlines and servers that die": {"faults": (*CONNECTIONS, "kill_server"), "timeout": 2.0},
    "replacements that start from the beginning": {"faults": (*CONNECTIONS, "replace"), "policy": "wait", "from_start": True},
    "bfloat16": {"faults": (*CONNECTIONS, "kill_server", "replace"), "dtype": bfloat16},
    "int32, no optimizer": {"faults": (*CONNECTIONS, "kill_server"), "dtype": "int32", "optimizer": False},
    "async": {"faults": ("cut", "silence", "kill_server", "kill_coordinator"), "kind": "async"},
    "async, workers that are replaced": {"faults": (*CONNECTIONS, "silence", "replace"), "kind": "async"},
    "async, deadlines": {"faults": (*CONNECTIONS, "silence"), "kind": "async", "timeout": 2.0},
}
SEEDS = {"replacements that start from the beginning": (69, 87, 92)}  # a replacement continues when the others have left


def run(folder, case, seed):
    return SimulatedJob(seed, folder, **{"workers": 2 + seed % 2, "servers": 1 + seed // 2 % 2, **CASES[case]}).run()


@pytest.mark.parametrize("case", CASES)
def test_every_value_is_right(tmp_path, case):
    folders = [tmp_path / str(seed) for seed in SEEDS.get(case, (2, 3))]
    for folder in folders:
        folder.mkdir()
    happened = sum((run(folder, case, int(folder.name)) for folder in folders), Counter())
    assert bool(happened) == ("faults" in CASES[case])


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", CASES)
def test_every_value_is_right_for_ten_thousand_seeds(tmp_path, case):
    """Five minutes each."""
    failures = {}
    for seed in range(100, 10_100):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            run(folder, case, seed)
        except Exception as e:
            failures[seed] = e
        shutil.rmtree(folder)
    assert not failures
