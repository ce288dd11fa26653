"""kv.create: names of stores, and errors for unknown names."""

import subprocess
import sys

import pytest
import tritium as mx
from tritium.errors import MXNetError, ParameterError


@pytest.mark.parametrize("name, kind", [("local", "local"), ("Device", "device"), ("nccl", "device")])
def test_a_name_gives_its_kind_of_store(name, kind):
    assert mx.kv.create(name).type == kind


def test_without_pyzmq_the_error_names_the_package_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "zmq", None)
    for name in [m for m in sys.modules if m.startswith("tritium.kvstore.")]:
        if name.rpartition(".")[2] in ("dist", "client", "event_loop", "server_connection", "sockets"):
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MXNetError, match=r"kv.create: 'dist_sync' .* pyzmq is not installed. pip install \"tritium\[dist\]\""):
        mx.kv.create("dist_sync")


def test_importing_tritium_imports_neither_ray_nor_zmq():
    code = "import sys, tritium; tritium.kv.create('local'); print([m for m in ('ray', 'zmq') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250).stdout == "[]\n"


def test_a_registered_store_is_created_by_its_class_name():
    @mx.kv.KVStoreBase.register
    class MyOwnStore(mx.kv.KVStoreBase):
        pass

    assert isinstance(mx.kv.create("MyOwnStore"), MyOwnStore)
    assert mx.kv.create("myownstore").type == "myownstore"


@pytest.mark.parametrize("kind, message", [("locl", "unknown store type 'locl'"), (3, "the type must be a string, not 3")])
def test_unknown_names_raise_an_error(kind, message):
    with pytest.raises(ParameterError, match=message):
        mx.kv.create(kind)
