"""Modules and functions of MXNet that are not available: imports and calls are errors with the reason and another way."""

import importlib

import pytest
import tritium as mx
from tritium.errors import NoSuchModuleError, NotAvailableError, ParameterError
from tritium.train.compat.absent import ABSENT


@pytest.mark.parametrize("name", ABSENT)
def test_an_import_says_why_and_what_to_use(name):
    with pytest.raises(NoSuchModuleError, match=r"^mx\.[\w.]+ is not available: .+(Use|mx\.|`tritium)"):
        importlib.import_module(f"tritium.{name}")


def test_modules_below_are_absent_too_and_other_names_are_not_explained():
    with pytest.raises(ImportError, match=r"mx\.notebook is not available: charts of pandas"):
        importlib.import_module("tritium.notebook.callback")
    with pytest.raises(AttributeError, match=r"mx\.torch is not available: functions of Lua Torch"):
        getattr(mx, "torch")  # noqa: B009
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'tritium\.nothing'$"):
        importlib.import_module("tritium.nothing")
    assert not hasattr(mx, "notebook")


@pytest.mark.parametrize("name", mx.contrib.quantization.__all__)
def test_int8_networks_are_refused_at_the_call(name):
    with pytest.raises(NotAvailableError, match=rf"^contrib\.quantization\.{name}: int8 networks .* Use mx\.contrib\.amp"):
        getattr(mx.contrib.quantization, name)(None, ctx=mx.cpu())
    assert mx.contrib.quant is mx.contrib.quantization


def test_a_script_does_not_become_a_server():
    with pytest.raises(NotAvailableError, match=r"KVStoreServer: .* `tritium launch -n WORKERS"):
        mx.kvstore.kvstore_server.KVStoreServer(mx.kv.create("local"))


def test_group_adagrad_refuses_what_mxnet_refuses():
    opt = mx.optimizer.GroupAdaGrad(wd=0.1)
    with pytest.raises(ParameterError, match=r"GroupAdaGrad: parameter 0 \(3,\) is not a matrix\. Use AdaGrad"):
        opt.create_state(0, mx.nd.ones(3))
    weight = mx.nd.ones((2, 2))
    with pytest.raises(ParameterError, match=r"parameter 0 has weight decay, which is not available\. Use wd=0"):
        opt.update(0, weight, weight, opt.create_state(0, weight))
