"""KVStore: push all keys, pull all keys, wait. Against MXNet's ps-lite, and in one process against MXNet's local and device.

    python perf/bench_kvstore.py [--peer /path/to/mxnet/bin/python] [--rounds 5] [--only sync,sgd,...]

Systems take turns, in fresh processes; each line has the median over rounds of the per-round medians, and their ratio. ps-lite is
run by hand: a scheduler, a server, two workers (`DMLC_*`). PORT is taken out of its environment: ps-lite would read it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

import common

#: name: (keys, float32 elements of each, calls timed in a run)
LOADS = {"1x4KB": (1, 1024, 300), "100x4KB": (100, 1024, 40), "20x1MB": (20, 262144, 15), "4x64MB": (4, 16777216, 4)}
LIMITS = {("sync", "1x4KB"): 1.0, ("sync", "100x4KB"): 0.45, ("sync", "20x1MB"): 0.70, ("sync", "4x64MB"): 0.50,
          ("sgd", "100x4KB"): 0.40, ("sgd", "20x1MB"): 0.75, ("sgd", "4x64MB"): 0.60,
          ("async", "100x4KB"): 0.40, ("async", "20x1MB"): 0.75, ("async", "4x64MB"): 0.60,
          ("wire", "20x1MB"): 1.2, ("wire", "4x64MB"): 1.2}
_MESSAGE = 256 << 10  # bytes
LOCAL_LOADS = {"4KB": (1, 1024, 300), "1MB": (1, 262144, 40), "64MB": (1, 16777216, 5)}
LOCAL_LIMITS = {"4KB": 0.8, "1MB": 0.7, "64MB": 1.1}


def library(name):
    """tritium or mxnet, as mx."""
    if name == "tritium":
        import tritium as mx
    else:
        import mxnet as mx
    return mx


def timed(mx, kv, loads, contexts=1, values=None, warm=3):
    """{load: [seconds of each call]} of push and pull of all keys, with one array for each of several CPU contexts.

    warm:  calls before those that are timed.
    """
    found = {}
    for name, (keys, n, calls) in loads.items():
        names = [f"{name}.{i}" for i in range(keys)]
        ctxs = [mx.cpu(i) for i in range(contexts)]
        kv.init(names, [mx.nd.zeros((n,))] * keys)
        grads = [[mx.nd.ones((n,), ctx=c) for c in ctxs] for _ in names]
        outs = [[mx.nd.zeros((n,), ctx=c) for c in ctxs] for _ in names]
        mx.nd.waitall()
        seconds = []
        for call in range(calls + warm):
            start = time.perf_counter()
            kv.push(names, grads)
            kv.pull(names, outs)
            mx.nd.waitall()
            if call >= warm:
                seconds.append(time.perf_counter() - start)
        kv._barrier()
        if values is not None:
            values[name] = float(outs[0][0][:1].asnumpy()[0])
        found[name] = seconds
    return found


def worker(lib, mode, loads, warm):
    """One worker of a cluster; rank 0 prints its times."""
    mx = library(lib)
    kv = mx.kv.create("dist_async" if mode == "async" else "dist_sync")
    if mode in ("sgd", "async"):
        kv.set_optimizer(mx.optimizer.create("sgd", learning_rate=0.1))
    values = {}
    found = timed(mx, kv, {k: LOADS[k] for k in loads.split(",")}, values=values, warm=int(warm))
    # (MXNet's own sums grow: its pull writes into the arrays that were pushed)
    if lib == "tritium" and mode == "sync" and any(v != kv.num_workers for v in values.values()):
        raise SystemExit(f"wrong sums: {values}")
    if kv.rank == 0:
        print(json.dumps(found), flush=True)
    kv._barrier()


def local(lib, kind, contexts):
    """Push and pull in one process."""
    mx = library(lib)
    found = timed(mx, mx.kv.create(kind), LOCAL_LOADS, int(contexts))
    print(json.dumps(found), flush=True)


def environment(extra):
    """Ours, without the names that ps-lite and BLAS would misread, plus extra."""
    kept = {k: v for k, v in os.environ.items() if k != "PORT" and not k.startswith(("DMLC_", "TRITIUM_KV_"))}
    return {**kept, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **extra}


def finish(processes, timeout=300):
    """The JSON line that one of the processes printed; all are ended."""
    found = None
    try:
        for p in processes:
            out, _ = p.communicate(timeout=timeout)
            if p.returncode:
                raise RuntimeError(f"a worker ended with {p.returncode}")
            found = next((json.loads(line) for line in out.splitlines() if line.startswith("{")), found)
        return found
    finally:
        for p in processes:
            if p.poll() is None:
                p.kill()


def command(python, *arguments):
    return [python, os.path.abspath(__file__), *arguments]


def run_ours(mode, loads, workers, snapshot_rounds=0, shared=True, warm=3, interface=None):
    """A cluster of ours: one server, so many workers. interface: of TLS; None: Unix domain sockets."""
    from tritium.kvstore.job.local_job import LocalJob

    with LocalJob(workers, 1, snapshot_rounds=snapshot_rounds, interface=interface) as job:
        extra = {"TRITIUM_KV_JOB": str(job.file), "TRITIUM_KV_SHARED": "1" if shared else "0"}
        arguments = command(sys.executable, "--worker", "tritium", mode, loads, str(warm))
        return finish([subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True,
                                        env=environment({**extra, "TRITIUM_KV_RANK": str(r)})) for r in range(workers)])


def run_echo(loads):
    """The bytes of loads to another process and back over TCP, neither encrypted nor checked."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = subprocess.Popen(command(sys.executable, "--echo", str(server.getsockname()[1])), env=environment({}))
        s, _ = server.accept()
    found, message, received = {}, bytes(_MESSAGE), memoryview(bytearray(_MESSAGE))
    for load in loads.split(","):
        count, n, calls = LOADS[load]
        messages, seconds = count * n * 4 // _MESSAGE, []
        for _ in range(calls + 1):
            start, left = time.perf_counter(), messages * _MESSAGE
            sender = threading.Thread(target=lambda k=messages: [s.sendall(message) for _ in range(k)])
            sender.start()
            while left:
                left -= s.recv_into(received)
            sender.join()
            seconds.append(time.perf_counter() - start)
        found[load] = seconds[1:]
    s.close()
    other.wait()
    return found


def echo(port):
    """Echo every byte."""
    data = memoryview(bytearray(_MESSAGE))
    with socket.create_connection(("127.0.0.1", int(port))) as s:
        while count := s.recv_into(data):
            s.sendall(data[:count])


def run_peer(python, mode, loads, workers):
    """ps-lite: a scheduler, one server, so many workers."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    shared = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port), "DMLC_NUM_SERVER": "1",
              "DMLC_NUM_WORKER": str(workers), "DMLC_NODE_HOST": "127.0.0.1"}
    helpers = [subprocess.Popen([python, "-W", "ignore", "-c", "import mxnet"], env=environment({**shared, "DMLC_ROLE": role}))
               for role in ("scheduler", "server")]
    try:
        return finish([subprocess.Popen(command(python, "--worker", "mxnet", mode, loads, "3"), stdout=subprocess.PIPE, text=True,
                                        env=environment({**shared, "DMLC_ROLE": "worker"})) for _ in range(workers)])
    finally:
        for p in helpers:
            p.kill()
            p.wait()


def compare(bench, systems, rounds, limits):
    """Run systems {name: function -> {load: seconds}} in turn; a line for each load with the ratio of the first to the second."""
    medians, tails = {}, {}
    for _ in range(rounds):
        for name, run in systems.items():
            for load, seconds in (run() or {}).items():
                medians.setdefault((name, load), []).append(statistics.median(seconds))
                tails.setdefault((name, load), []).append(sorted(seconds)[int(0.9 * len(seconds))])
    names = list(systems)
    for load in dict.fromkeys(load for _, load in medians):
        line = {"bench": bench, "load": load, "load_average": os.getloadavg()[0]}
        for name in names:
            if (name, load) in medians:
                line[f"{name}_ms"] = round(1e3 * statistics.median(medians[name, load]), 3)
                line[f"{name}_best_ms"] = round(1e3 * min(medians[name, load]), 3)
                line[f"{name}_p90_ms"] = round(1e3 * statistics.median(tails[name, load]), 3)
        if len(names) > 1 and all((n, load) in medians for n in names[:2]):
            pairs = [a / b for a, b in zip(medians[names[0], load], medians[names[1], load])]
            line["ratio"] = round(statistics.median(pairs), 3)
            line["p90_ratio"] = round(line[f"{names[0]}_p90_ms"] / line[f"{names[1]}_p90_ms"], 3)
        if load in limits:
            line["limit"] = limits[load]
        common.say(line)


def recovery(rounds):
    """Seconds from kill -9 of the server to the next finished round, and from kill -9 of a worker to the survivor's error."""
    import tritium as mx
    from tritium.kvstore.job.local_job import LocalJob
    from tritium.kvstore.worker.dist import DistKVStore

    back, noticed = [], []
    for _ in range(rounds):
        with LocalJob(1, 1, snapshot_rounds=10) as job:
            kv = DistKVStore("dist_sync", job.file)
            kv.init("w", mx.nd.zeros((262144,)))
            out = mx.nd.zeros((262144,))
            for step in range(30):
                if step == 15:
                    os.kill(job.server_pid(0), signal.SIGKILL)
                start = time.perf_counter()
                kv.push("w", mx.nd.ones((262144,)))
                kv.pull("w", out)
                out.wait_to_read()
                if step == 15:
                    back.append(time.perf_counter() - start)
            kv.close()
        with LocalJob(2, 1, snapshot_rounds=0) as job:
            other = subprocess.Popen([sys.executable, "-c", "import tritium as mx, time; kv = mx.kv.create('dist_sync'); "
                                      "kv.init('w', mx.nd.zeros((4,))); print('{}', flush=True); time.sleep(60)"],
                                     env=environment({"TRITIUM_KV_JOB": str(job.file)}), stdout=subprocess.PIPE, text=True)
            kv = DistKVStore("dist_sync", job.file)
            kv.init("w", mx.nd.zeros((4,)))
            other.stdout.readline()
            kv.push("w", mx.nd.ones((4,)))
            killed = []
            threading.Timer(0.3, lambda k=killed, o=other: (k.append(time.perf_counter()), o.kill())).start()
            try:
                kv.barrier()
            except mx.MXNetError:
                noticed.append(time.perf_counter() - killed[0])
            kv.close()
            other.wait()
    common.say({"bench": "recovery", "server_s": [round(s, 2) for s in back], "limit_s": 10,
                "worker_s": [round(s, 3) for s in noticed], "worker_limit_s": 2})


def main():
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:])
        return
    if sys.argv[1:2] == ["--local"]:
        local(*sys.argv[2:])
        return
    if sys.argv[1:2] == ["--echo"]:
        echo(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="a Python with MXNet 1.9.1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="sync,sgd,async,local,durable,recovery,wire")
    parser.add_argument("--loads", default=",".join(LOADS), help="of sync, sgd and async")
    args = parser.parse_args()
    common.say({"bench": "machine", **common.machine(), "load_average": os.getloadavg()[0]})
    only = args.only.split(",")
    for mode in ("sync", "sgd", "async"):
        if mode in only:
            loads = ",".join(load for load in args.loads.split(",") if mode == "sync" or load != "1x4KB")
            systems = {"tritium": lambda m=mode, lo=loads: run_ours(m, lo, 2)}
            if args.peer:
                systems["mxnet"] = lambda m=mode, lo=loads: run_peer(args.peer, m, lo, 2)
            compare(f"dist_{mode}", systems, args.rounds, {load: v for (m, load), v in LIMITS.items() if m == mode})
    if "durable" in only:
        # after the rounds that allocate memory for the pushes that workers keep until they are on disk
        compare("durable", {"every_10": lambda: run_ours("sync", "20x1MB", 2, snapshot_rounds=10, warm=25),
                            "never": lambda: run_ours("sync", "20x1MB", 2, warm=25)}, args.rounds, {"20x1MB": 1.25})
    if "wire" in only:
        loads = ",".join(load for load in ("20x1MB", "4x64MB") if load in args.loads)
        systems = {"tritium": lambda: run_ours("sync", loads, 1, shared=False, interface="127.0.0.1")}
        if args.peer:
            systems["mxnet"] = lambda: run_peer(args.peer, "sync", loads, 1)
        systems["tcp_alone"] = lambda: run_echo(loads)
        compare("wire", systems, args.rounds, {load: v for (m, load), v in LIMITS.items() if m == "wire"})
    if "local" in only:
        for kind in ("local", "device"):
            for contexts in ("2", "4"):
                pythons = {"tritium": sys.executable, **({"mxnet": args.peer} if args.peer else {})}
                systems = {lib: lambda p=p, lib=lib, k=kind, c=contexts: finish([subprocess.Popen(
                    command(p, "--local", lib, k, c), stdout=subprocess.PIPE, text=True, env=environment({}))])
                    for lib, p in pythons.items()}
                compare(f"{kind}, {contexts} contexts", systems, args.rounds, LOCAL_LIMITS)
    if "recovery" in only:
        recovery(args.rounds)


if __name__ == "__main__":
    main()
