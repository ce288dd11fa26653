"""Jobs on a Ray cluster. The nightly tests start a cluster of one machine, which takes up to half a minute."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from tritium.errors import KVStoreError
from tritium.kvstore.job import ray_job
from tritium.kvstore.job.ray_job import RayJob, require_token


@pytest.mark.parametrize("mode, token, text", [
    (None, 0o600, "a cluster without a token is not used, not even on one machine"),
    ("token", None, "a cluster without a token is not used"),
    ("token", 0o644, "others can read the token: mode 644. Run chmod 600 on it"),
])
def test_a_cluster_without_a_secret_token_is_rejected(tmp_path, monkeypatch, mode, token, text):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "TRITIUM_KV_INSECURE"):
        monkeypatch.delenv(name, raising=False)
    if mode:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    if token:
        (tmp_path / "token").write_text("x" * 64)
        (tmp_path / "token").chmod(token)
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    with pytest.raises(KVStoreError, match=text):
        require_token()
    if token:
        (tmp_path / "token").chmod(0o600)
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        require_token()


def test_a_missing_token_file_is_named(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere/token")
    with pytest.raises(KVStoreError, match="RAY_AUTH_TOKEN_PATH=/nowhere/token: cannot be read"):
        require_token()


@pytest.mark.parametrize(("address", "text"), [
    ("127.0.0.1:1", "no Ray cluster at 127.0.0.1:1: Connection refused. Start one with: ray start --head --port 1"),
    ("here", "'here' is not the address of a Ray cluster, HOST:PORT"),
    ("127.0.0.1:99999999", "no Ray cluster at 127.0.0.1:99999999"),
])
def test_a_wrong_address_fails_at_once(monkeypatch, address, text):
    monkeypatch.setenv("TRITIUM_KV_INSECURE", "1")
    with pytest.raises(KVStoreError, match=text):
        RayJob(address)


@pytest.mark.parametrize(("answer", "text"), [
    ([b"HTTP/1.", b"1 400 Bad Request\r\n"], r"is not a Ray cluster: it answers b'HTTP/1.1 '. Check the port. Start one with: "
     r"ray start --head --port \d+"),
    ([], "is not a Ray cluster: it does not answer"),
    ([b"\0\0\0\4\0", b"\0\0\0\0"], "past the address"),
], ids=["another protocol", "silence", "HTTP/2"])
def test_what_listens_at_the_address_is_examined(monkeypatch, answer, text):
    """Ray itself would try for minutes."""
    monkeypatch.setenv("TRITIUM_KV_INSECURE", "1")
    monkeypatch.setattr(ray_job, "_CONNECT_TIMEOUT", 30.0 if answer else 0.2)

    def past_the_address(*_, **__):
        raise KVStoreError("past the address")

    monkeypatch.setattr(ray_job.Job, "__init__", past_the_address)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            connection, _ = listener.accept()
            with connection, contextlib.suppress(ConnectionResetError):
                for piece in answer:
                    connection.sendall(piece)
                while connection.recv(1000):
                    pass  # until the other end closes

        server = threading.Thread(target=serve)
        server.start()
        with pytest.raises(KVStoreError, match=text):
            RayJob(f"127.0.0.1:{listener.getsockname()[1]}")
        server.join()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """(address, environment) of a cluster of one machine, with a token. It ends with the tests, also if they are killed: a shell
    then reads the end of a pipe.
    """
    folder = tmp_path_factory.mktemp("r")
    token = folder / "token"
    token.touch(0o600)
    token.write_text(secrets.token_hex(32))
    env = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
    temporary = Path(tempfile.gettempdir(), f"tritium-ray-{secrets.token_hex(4)}")  # Ray's sockets need a short path
    shell = ["sh", "-c", '"$@" & read _; trap "" TERM; kill -TERM 0; wait; rm -rf "$0"', str(temporary)]
    head = subprocess.Popen([*shell, str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--port=0",
                             "--num-cpus=8", "--include-dashboard=false", "--disable-usage-stats", f"--temp-dir={temporary}",
                             "--object-store-memory=100000000"], env=env, start_new_session=True, stdin=subprocess.PIPE,
                            stdout=subprocess.DEVNULL)
    try:
        address, deadline = temporary / "ray_current_cluster", time.monotonic() + 120
        while not (address.exists() and address.read_text().strip()):
            assert time.monotonic() < deadline and head.poll() is None
            time.sleep(0.1)
        yield address.read_text().strip(), env
    finally:
        head.stdin.close()
        try:
            head.wait(60)  # it drains its node first
        except subprocess.TimeoutExpired:
            os.killpg(head.pid, signal.SIGKILL)
            head.wait()


def script(code, address, env, cwd=None):
    return subprocess.run([sys.executable, "-c", code, address], env=env, cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.mark.nightly
def test_servers_and_the_coordinator_on_ray_are_restarted_and_lose_nothing(cluster):
    code = """
import os, signal, sys
import tritium as mx
from tritium.kvstore.worker.dist import DistKVStore
from tritium.kvstore.job.ray_job import RayJob
with RayJob(sys.argv[1], 1, 2, snapshot_rounds=3, interface="127.0.0.1") as job:
    kv = DistKVStore("dist_sync", job.file)
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=1.0, momentum=0.5))
    kv.init("w", mx.nd.zeros((300, 10)))
    out, local = mx.nd.zeros((300, 10)), mx.kv.create("local")
    local.set_optimizer(mx.optimizer.SGD(learning_rate=1.0, momentum=0.5))
    local.init("w", out)
    for step in range(8):
        if step == 2:
            os.kill(job.coordinator_pid(), signal.SIGKILL)
        if step == 3:
            kv.barrier()
        if step == 5:
            for i in range(2):
                os.kill(job.server_pid(i), signal.SIGKILL)
        for store in (kv, local):
            store.push("w", mx.nd.ones((300, 10)) * step)
            store.pull("w", out)
            print(out.asnumpy()[0, 0])
    kv.close()
"""
    done = script(code, *cluster)
    lines = [line for line in done.stdout.splitlines() if line[:1] in "-0123456789"]
    assert len(lines) == 16 and lines[::2] == lines[1::2], done.stdout + done.stderr


@pytest.mark.nightly
def test_an_actor_that_fails_to_start_leaves_nothing(cluster):
    """Neither the job's folder nor the coordinator, which has started."""
    code = """
import sys, tempfile
from pathlib import Path
import ray
from tritium.errors import KVStoreError
from tritium.kvstore.job import ray_job

class Fails:
    def __init__(self, *_):
        assert ray.util.list_named_actors(all_namespaces=True)
        raise OSError("no room")

    def pid(self): ...

ray_job.ServerActor = Fails
before = set(Path(tempfile.gettempdir()).glob("tritium-job-*"))
try:
    ray_job.RayJob(sys.argv[1], interface="127.0.0.1")
except KVStoreError as e:
    print(e)
assert set(Path(tempfile.gettempdir()).glob("tritium-job-*")) <= before
ray.init(address=sys.argv[1])
print(ray.util.list_named_actors(all_namespaces=True))
"""
    done = script(code, *cluster)
    assert "Ray did not start the job's processes" in done.stdout, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


@pytest.mark.nightly
def test_servers_on_ray_import_the_modules_of_the_users_optimizers(cluster, tmp_path):
    """The variable is set where the job is started. The cluster does not have it."""
    (tmp_path / "own_optimizer.py").write_text(
        "import tritium as mx\n@mx.optimizer.register\nclass Minus(mx.optimizer.SGD): pass\n")
    code = """
import sys
import own_optimizer
import tritium as mx
from tritium.kvstore.worker.dist import DistKVStore
from tritium.kvstore.job.ray_job import RayJob
with RayJob(sys.argv[1], interface="127.0.0.1") as job:
    kv, out = DistKVStore("dist_sync", job.file), mx.nd.zeros(3)
    kv.set_optimizer(own_optimizer.Minus(learning_rate=1.0))
    kv.init("w", out)
    kv.push("w", mx.nd.ones(3))
    kv.pull("w", out)
    print(out.asnumpy().tolist())
    kv.close()
"""
    address, env = cluster
    done = script(code, address, {**env, "TRITIUM_KV_OPTIMIZERS": "own_optimizer"}, tmp_path)
    assert done.stdout.splitlines()[-1:] == ["[-1.0, -1.0, -1.0]"], done.stdout + done.stderr


@pytest.mark.nightly
def test_processes_on_ray_have_the_variables_of_the_job(cluster):
    """Not those of the cluster."""
    code = """
import os, sys
from tritium.kvstore.job import ray_job

def variables(self):
    return {name: value for name, value in os.environ.items() if name in ("TRITIUM_KV_LOST_AFTER", "TRITIUM_KV_BACK_WITHIN")}

ray_job.CoordinatorActor.variables = ray_job.ServerActor.variables = variables
with ray_job.RayJob(sys.argv[1], interface="127.0.0.1") as job:
    print(*job._get([actor.variables.remote() for actor in job._actors]), sep="\\n")
"""
    address, env = cluster
    own = {"TRITIUM_KV_LOST_AFTER": "77", "TRITIUM_KV_BACK_WITHIN": "78"}
    done = script(code, address, {**env, **own})
    assert done.stdout.splitlines()[-2:] == [str(own)] * 2, done.stdout + done.stderr


@pytest.mark.nightly
def test_launch_on_a_cluster_gives_the_weights_of_one_machine(cluster):
    address, env = cluster
    train = [sys.executable, "-m", "tritium.examples.train_digits_dist", "--epochs", "1"]
    tritium = [sys.executable, "-m", "tritium", "launch", "-n", "2"]
    here = subprocess.run([*tritium, *train], env=env, capture_output=True, text=True, timeout=120)
    there = subprocess.run([*tritium, "--address", address, *train], env={**env, "TRITIUM_KV_INTERFACE": "127.0.0.1"},
                           capture_output=True, text=True, timeout=200)
    digests = [{line.split('"weights": ')[1][:66] for line in out.splitlines() if '"weights"' in line}
               for out in (here.stdout, there.stdout)]
    assert len(digests[0]) == 1 and digests[0] == digests[1], there.stdout + there.stderr


@pytest.mark.nightly
def test_a_wrong_token_is_reported(cluster, tmp_path):
    address, env = cluster
    token = tmp_path / "other"
    token.touch(0o600)
    token.write_text(secrets.token_hex(32))
    done = script("import sys; from tritium.kvstore.job.ray_job import RayJob; RayJob(sys.argv[1])", address,
                  {**env, "RAY_AUTH_TOKEN_PATH": str(token)})
    assert "wrong or missing token" in done.stderr, done.stderr


@pytest.mark.nightly
def test_too_few_processors_a_missing_program_and_variables(cluster, tmp_path):
    address, env = cluster
    env = {**env, "TRITIUM_KV_INTERFACE": "127.0.0.1", "SHELLS": "only here"}

    def launch(*arguments):
        return subprocess.run([sys.executable, "-m", "tritium", "launch", "--address", address, *arguments], env=env,
                              cwd=tmp_path, capture_output=True, text=True, timeout=120)
    few = launch("-n", "6", "-s", "4", "true")
    assert few.returncode == 1 and "6 workers and 4 servers need 10 CPUs, one each; the Ray cluster" in few.stderr
    assert "has 8." in few.stderr
    missing = launch("-n", "1", "./no_such_program")
    assert missing.returncode == 1 and f"./no_such_program cannot be started in {tmp_path} on" in missing.stderr
    code = "import os; print(os.getcwd(), os.environ['SHELLS'], os.environ['NEW'])"
    given = launch("-n", "1", "--tee", "logs", "--env", "SHELLS", "--env", "NEW=2", sys.executable, "-c", code)
    assert given.returncode == 0 and given.stdout == f"[worker 0] {tmp_path} only here 2\n"
    assert (tmp_path / "logs" / "worker-0.log").read_text() == f"{tmp_path} only here 2\n"
    assert f"workers run in {tmp_path} on the machines of the cluster" in given.stderr
