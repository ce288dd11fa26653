"""Any order of messages, and whatever ends meanwhile: every value that a worker is given is the right one, and all get there."""

from __future__ import annotations

from collections import Counter

import pytest
from support.kvstore_simulation import Job
from tritium.dtype import bfloat16

LINKS = ("cut", "cut_lane")
CASES = {
    "undisturbed": {},
    "connections that end": {"faults": LINKS},
    "no optimizer": {"faults": (*LINKS, "kill_server"), "optimizer": False},
    "servers that die": {"faults": (*LINKS, "kill_server")},
    "who is only silent": {"faults": (*LINKS, "silence")},
    "who is only silent is waited for": {"faults": (*LINKS, "silence"), "policy": "wait"},
    "workers that are replaced": {"faults": (*LINKS, "silence", "replace")},
    "workers that are waited for": {"faults": (*LINKS, "silence", "replace"), "policy": "wait"},
    "workers that are done without": {"faults": (*LINKS, "lose"), "policy": "shrink", "workers": 3},
    "a coordinator that dies": {"faults": (*LINKS, "kill_server", "kill_coordinator")},
    "all but workers": {"faults": ("cut_lane", "silence", "kill_server", "kill_coordinator")},
    "deadlines": {"faults": (*LINKS, "silence"), "timeout": 2.0},
    "deadlines and servers that die": {"faults": (*LINKS, "kill_server"), "timeout": 2.0},
    "workers that begin anew": {"faults": (*LINKS, "replace"), "policy": "wait", "anew": True},
    "bfloat16": {"faults": (*LINKS, "kill_server", "replace"), "dtype": bfloat16},
    "int32, no optimizer": {"faults": (*LINKS, "kill_server"), "dtype": "int32", "optimizer": False},
    "async": {"faults": ("cut_lane", "silence", "kill_server", "kill_coordinator"), "kind": "async"},
    "async, workers that are replaced": {"faults": (*LINKS, "silence", "replace"), "kind": "async"},
    "async, deadlines": {"faults": (*LINKS, "silence"), "kind": "async", "timeout": 2.0},
}
SEEDS = {"workers that begin anew": (5, 6)}  # in which a replacement goes on when the others have left


def run(folder, case, seed):
    return Job(seed, folder, **{"workers": 2 + seed % 2, "shards": 1 + seed // 2 % 2, **CASES[case]}).run()


@pytest.mark.parametrize("case", CASES)
def test_every_value_is_right(tmp_path, case):
    folders = [tmp_path / str(seed) for seed in SEEDS.get(case, (2, 3))]
    for folder in folders:
        folder.mkdir()
    happened = sum((run(folder, case, int(folder.name)) for folder in folders), Counter())
    assert bool(happened) == ("faults" in CASES[case])


@pytest.mark.nightly
@pytest.mark.parametrize("case", CASES)
def test_every_value_is_right_for_many_seeds(tmp_path, case):
    for seed in range(100, 500):
        folder = tmp_path / str(seed)
        folder.mkdir()
        run(folder, case, seed)
