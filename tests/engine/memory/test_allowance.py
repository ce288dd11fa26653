"""allowance: the least of the machine's memory, control groups and limits. Oracle: files written by hand."""

import resource

import pytest
from tritium.engine.memory.allowance import allowed

MB = 1 << 20


@pytest.fixture
def group(tmp_path):
    """Write control groups: (lines of /proc/self/cgroup, {file: text}) -> bytes allowed."""
    def read(lines, files):
        (tmp_path / "self").write_text("\n".join(lines) + "\n")
        for name, text in files.items():
            path = tmp_path / "mounted" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        return allowed(str(tmp_path / "self"), str(tmp_path / "mounted"))
    return read


@pytest.mark.parametrize("lines, files, bytes_", [
    (["0::/a/b"], {"a/b/memory.max": "max", "a/memory.max": str(300 * MB), "memory.max": "max"}, 300 * MB),
    (["0::/a/b"], {"a/b/memory.max": str(200 * MB), "a/memory.max": str(300 * MB)}, 200 * MB),
    (["0::/"], {"memory.max": str(100 * MB)}, 100 * MB),
    (["0::/of/the/host"], {"memory.max": str(90 * MB)}, 90 * MB),  # a container: its group is mounted at the top
    (["5:cpu,cpuacct:/x", "4:memory:/x/y"],
     {"memory/x/y/memory.limit_in_bytes": str(80 * MB), "cpu/x/memory.max": "5"}, 80 * MB),
    (["4:memory:/x"], {"memory/x/memory.limit_in_bytes": str((1 << 63) - 4096), "memory/memory.limit_in_bytes": str(70 * MB)},
     70 * MB),
])
def test_the_least_limit_of_the_control_groups_counts(group, lines, files, bytes_):
    assert group(lines, files) == bytes_


def test_without_limits_the_memory_of_the_machine_counts(group):
    machine = allowed("/nowhere", "/nowhere")
    assert machine > 64 * MB
    assert group(["0::/", "broken", ""], {"memory.max": "max", "memory/memory.limit_in_bytes": "-1"}) == machine
    assert group(["0::/../.."], {"memory.max": "no number"}) == machine


def test_a_limit_on_addresses_counts(monkeypatch):
    real = resource.getrlimit
    monkeypatch.setattr(resource, "getrlimit", lambda what: (50 * MB, -1) if what == resource.RLIMIT_AS else real(what))
    assert allowed("/nowhere", "/nowhere") == 50 * MB
