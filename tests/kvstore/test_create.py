"""kv.create: names of stores, and errors for unknown names."""

import os
import subprocess
import sys

import pytest
import tritium as mx
from tritium.errors import MXNetError, ParameterError
from tritium.kvstore.wire import credentials


@pytest.mark.parametrize("name, kind", [("local", "local"), ("Device", "device"), ("nccl", "device")])
def test_a_name_gives_its_kind_of_store(name, kind):
    assert mx.kv.create(name).type == kind


def test_a_job_on_one_host_needs_no_other_package():
    code = ("import sys; sys.modules.update(dict.fromkeys(['ray', 'cryptography'])); import numpy as np, tritium as mx; "
            "kv = mx.kv.create('dist_sync'); kv.init(0, mx.nd.ones(3)); kv.push(0, mx.nd.ones(3) * 2); out = mx.nd.zeros(3); "
            "kv.pull(0, out); print(out.asnumpy())")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, env=without_job())
    assert (done.stdout, done.returncode) == ("[2. 2. 2.]\n", 0), done.stderr


def test_between_machines_the_error_names_the_package_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MXNetError, match=r'package cryptography is not .* pip install "tritium\[dist\]"'):
        credentials.new_authority()


def without_job():
    return {k: v for k, v in os.environ.items() if not k.startswith("TRITIUM_KV_")}


def test_importing_tritium_imports_no_package_of_distributed_stores():
    code = "import sys, tritium; tritium.kv.create('local'); print([m for m in ('ray', 'cryptography') if m in sys.modules])"
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
