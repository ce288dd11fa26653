"""streams: order on a GPU by events. Oracle: the log of the streams' calls, run in the worst order it allows.

The interpreted GPU does everything at once, so results say nothing about order; the log does. From it we work out what
must have happened before what on a real device, where streams run on their own, and look at every pair of functions of
which one writes what the other uses.
"""

import functools
import random
import threading

import pytest
from tritium.context import GPU_MODE, cpu, gpu
from tritium.engine import ThreadedEngine
from tritium.engine.gpu import cuda
from tritium.errors import EngineError

pytestmark = pytest.mark.skipif(GPU_MODE != "interpret", reason="the interpreted GPU only")


def happened_before(log):
    """name -> names of functions that are certainly done before it begins; "host" points get (name, thread)."""
    last = {}  # stream -> the work done before its next
    at, before = {}, {}  # event -> the work done when it occurs; function -> the work done before it
    for kind, stream, what in log:
        if kind == "run":
            before[what] = set(last.get(stream, ()))
            last[stream] = before[what] | {what}
        elif kind == "record":
            at[what] = set(last.get(stream, ()))
        elif kind == "wait":
            last[stream] = last.get(stream, set()) | at[what]
    return before, at


@pytest.mark.parametrize("seed", range(40))
def test_every_conflict_is_ordered_across_streams(seed):
    """GPU functions on three kinds of streams, and CPU functions between them."""
    r = random.Random(seed)
    engine = ThreadedEngine(2)
    variables = [engine.new_variable() for _ in range(6)]
    cuda.log.clear()
    pushed, host, lock = [], {}, threading.Lock()  # host: name -> thread, place in the log
    for i in range(60):
        chosen = r.sample(range(6), r.randint(1, 3))
        cut = r.randint(0, len(chosen) - 1)
        reads, writes = chosen[:cut], chosen[cut:]
        on_cpu = r.random() < 0.2
        name = f"op{i}"
        pushed.append((name, set(reads), set(writes), on_cpu))

        def fn(run, name=name):
            if run.stream is None:
                with lock:
                    host[name] = threading.get_ident(), len(cuda.log)  # the calls it waited for stand before this place

        def handed_on(run, done):
            done()
        lists = [variables[c] for c in reads], [variables[c] for c in writes]
        if not on_cpu and r.random() < 0.2:
            engine.push_async(handed_on, gpu(), *lists, prop=r.choice([None, "copy", "priority"]), name=name)
        else:
            engine.push_sync(fn, cpu() if on_cpu else gpu(), *lists, name=name,
                             prop=None if on_cpu else r.choice([None, None, "copy", "priority", "io"]))
    engine.wait_for_all()
    log = list(cuda.log)
    before, at = happened_before(log)
    assert len({s for kind, s, _ in log if kind == "run"}) == 3
    assert any(kind == "wait" for kind, _, _ in log) and any(kind == "host waits" for kind, _, _ in log)
    steps = {name: (reads, writes) for name, reads, writes, _ in pushed}
    names = list(steps)

    def conflicts(name):
        reads, writes = steps[name]
        return [e for e in names[:names.index(name)] if steps[e][1] & (reads | writes) or steps[e][0] & writes]

    @functools.cache
    def known(name):
        """GPU functions that are done before this one begins, on the host or on its stream."""
        if name in host:  # it has waited for these itself, on its thread, since that thread's last function
            thread, end = host[name]
            begin = max((p for n, (t, p) in host.items() if t == thread and p < end), default=0)
            direct = {n for kind, t, e in log[begin:end] if kind == "host waits" and t == thread for n in at.get(e, ())}
        else:
            direct = before[name]
        # the engine starts a function when those on the host that it follows have returned
        return direct.union(*(known(n) for n in (*direct, *(c for c in conflicts(name) if c in host)) if n != name))

    for late in names:
        for early in conflicts(late):
            assert early in host or early in known(late), (early, late)
    engine.stop()


def test_functions_are_enqueued_without_waiting_for_the_device():
    """A GPU function that follows another needs no wait of the host, on the same stream not even of the stream."""
    engine = ThreadedEngine(2)
    v = engine.new_variable()
    cuda.log.clear()
    for i in range(5):
        engine.push_sync(lambda run: None, gpu(), [], [v], name=f"k{i}")
    engine.push_sync(lambda run: None, gpu(), [v], [], name="copy", prop="copy")
    engine.wait_for_all()
    kinds = [kind for kind, _, _ in cuda.log]
    assert kinds.count("run") == 6 and kinds.count("wait") == 1 and "host waits" not in kinds
    engine.stop()


def test_waiting_for_a_var_waits_for_its_event():
    engine = ThreadedEngine(1)
    v, w = engine.new_variable(), engine.new_variable()
    engine.push_sync(lambda run: None, gpu(), [w], [v], name="writes v")
    engine.push_sync(lambda run: None, gpu(), [v], [], name="reads v")
    cuda.log.clear()
    engine.wait_for_var(v)
    (_, _, event), = [e for e in cuda.log if e[0] == "host waits"]
    assert event is v.pending_events.writer[1]
    cuda.log.clear()
    engine.wait_for_var(w)  # only read: nothing to wait for
    assert not [e for e in cuda.log if e[0] == "host waits"]
    engine.push_sync(lambda run: None, cpu(), [], [v], name="host writes")
    engine.wait_for_all()
    assert v.pending_events is None
    engine.stop()


def test_each_kind_of_work_has_its_own_stream():
    engine, streams = ThreadedEngine(1), {}
    for prop in (None, "copy", "priority", "io"):
        engine.push_sync(lambda run, prop=prop: streams.__setitem__(prop, run.stream), gpu(), [], [], prop=prop)
    engine.wait_for_all()
    assert streams["io"] is streams["copy"] and len(set(map(id, streams.values()))) == 3
    assert [streams[p].kind for p in (None, "copy", "priority")] == ["compute", "copy", "priority"]
    assert cuda.stream(0) is streams[None]
    engine.stop()


def test_a_graph_is_captured_once_and_replayed():
    calls = []
    graph = cuda.Graph(0, "step")
    with pytest.raises(EngineError, match=r"cuda\.Graph: step was replayed before it was captured"):
        graph.replay()
    graph.capture(lambda: calls.append(1))
    cuda.log.clear()
    engine = ThreadedEngine(1)
    for _ in range(3):
        engine.push_sync(lambda run: graph.replay(), gpu(), [], [engine.new_variable()], name="replay", prop="copy")
    engine.wait_for_all()
    assert len(calls) == 3
    assert [(kind, s.kind, what) for kind, s, what in cuda.log if kind == "replay"] == [("replay", "copy", "step")] * 3
    engine.stop()
