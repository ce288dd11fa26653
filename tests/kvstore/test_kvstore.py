"""kv.create: names, and the errors for those it does not know."""

import pytest
import tritium as mx
from tritium.errors import MXNetError, ParameterError


@pytest.mark.parametrize("name, kind", [("local", "local"), ("Device", "device"), ("nccl", "device")])
def test_names(name, kind):
    assert mx.kv.create(name).type == kind


@pytest.mark.parametrize("name", ["dist_sync", "dist_async", "dist_device_sync", "dist"])
def test_stores_across_machines_are_not_built(name):
    with pytest.raises(MXNetError, match=rf'kv.create: \'{name}\' .* "tritium\[dist\]" and is not built yet'):
        mx.kv.create(name)


def test_unknown_names():
    with pytest.raises(ParameterError, match="no store of type 'locl'"):
        mx.kv.create("locl")
    with pytest.raises(ParameterError, match="the type must be a string, not 3"):
        mx.kv.create(3)
