"""perf/kvstore_scale.py: the model's times against formulas, and the messages of a step in each role."""

import importlib.util
import sys
from pathlib import Path

import pytest

PERF = Path(__file__).parents[1] / "perf"


@pytest.fixture(scope="module")
def scale():
    sys.path.insert(0, str(PERF))
    try:
        spec = importlib.util.spec_from_file_location("kvstore_scale", PERF / "kvstore_scale.py")
        module = sys.modules["kvstore_scale"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(PERF))
        del sys.modules["kvstore_scale"]


@pytest.fixture
def links(scale):
    """Links without processors: 1000 bytes a second, half a second away."""
    return scale.Network(bandwidth=1000.0, latency=0.5, overhead=1.0, per_message=0.0, per_byte=0.0)


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_one_key_waits_for_all_workers_at_the_servers_link_and_comes_back_through_it(scale, links, workers):
    wire = (4000 + scale._HEAD) / 1000
    seconds = scale.Simulation(workers, 1, [4000], links, compute=3.0).run(1)
    assert seconds == pytest.approx(3.0 + 2 * (0.5 + workers * wire))


def test_keys_on_different_servers_share_the_workers_link_only(scale, links):
    wire = (4000 + scale._HEAD) / 1000
    seconds = scale.Simulation(1, 2, [4000, 4000], links).run(1)
    assert seconds == pytest.approx(2 * 0.5 + 3 * wire)  # the first value comes back while the second key is on its way


def test_a_processor_takes_its_time_for_bytes_and_messages(scale, links):
    network = scale.replace(links, per_message=1.0, per_byte=0.001)
    wire, there = (4000 + scale._HEAD) / 1000, 0.001 * (4000 + scale._HEAD)
    seconds = scale.Simulation(1, 1, [4000], network).run(1)
    # the server decrypts, adds and encrypts; each end handles one message
    assert seconds == pytest.approx(2 * (0.5 + wire) + 2 * 1.0 + there + 4.0 + 4.0)


def test_a_message_that_finds_a_full_buffer_comes_later(scale, links):
    free = scale.Simulation(4, 1, [4000], links).run(1)
    full = scale.Simulation(4, 1, [4000], scale.replace(links, buffer=5000, resend=100.0)).run(1)
    assert full > free + 50


def test_the_slowest_worker_decides(scale, links):
    even, uneven = (scale.Simulation(4, 1, [4], scale.replace(links, straggling=s), compute=10.0, seed=1).run(1)
                    for s in (0.0, 1.0))
    assert uneven > even + 10


@pytest.mark.parametrize("workers", [2, 16, 64])
def test_messages_of_a_step_grow_with_the_workers_at_a_server_and_not_at_a_worker(scale, workers):
    line = scale.line(workers, 2, [4096] * 6, scale.Network(), compute=0.0)
    assert line["worker_sent"] == line["worker_received"] == 6
    assert line["server_sent"] == line["server_received"] == 3 * workers
    on_a_host = scale.line(workers, 2, [4096] * 6, scale.Network(), compute=0.0, groups=2)
    assert on_a_host["server_received"] == 3 * workers // 2


@pytest.mark.parametrize(("workers", "servers"), [(2, 1), (16, 4), (64, 16)])
def test_messages_of_the_coordinator_grow_with_workers_plus_servers(scale, workers, servers):
    """When all workers speak at once: at the start, in init, at a barrier, and at the end."""
    line = scale.coordinator_line(workers, servers)
    counts = {what.removesuffix("_messages"): n for what, n in line.items() if what.endswith("_messages")}
    assert counts == {"step": 0, "join": 3 * workers + 4 * servers, "init": 2 * workers + 1,  # "filled" is answered, too
                      "barrier": 2 * workers, "leave": 2 * workers + 4 * servers}
