"""Initializers. Oracle: the values of MXNet 1.9.1 for each name and shape (golden), or their spread if random."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from tritium.errors import ParameterError, ShapeError
from tritium.train import initializer as init

HERE = Path(__file__).parents[1] / "golden/metrics"
CASES = [c for c in json.loads((HERE / "initializers.json").read_text()) if c.get("shape")]
DATA = np.load(HERE / "initializers.npz")


def of(case):
    if case["label"] == "Mixed":
        return init.Mixed(["bias", ".*"], [init.Zero(), init.One()])
    return init.create(case["dumps"])


def name_of(case):
    name = case["name"]
    return name if case["label"].startswith("legacy") else init.InitDesc(name, case["attrs"])


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['label']}-{c['name']}")
def test_values_or_their_spread_equal_those_of_mxnet(case):
    a = mx.nd.full(case["shape"], 7.0)
    if "error" in case:
        with pytest.raises((ParameterError, ShapeError)):
            of(case)(name_of(case), a)
        return
    mx.random.seed(3)
    of(case)(name_of(case), a)
    got = a.asnumpy()
    if case.get("array"):
        np.testing.assert_allclose(got, DATA[case["array"]], rtol=1e-6)  # closer than the table
    elif math.prod(case["shape"]) > 100:
        assert got.std() == pytest.approx(case["std"], rel=0.05)
        assert abs(got.mean()) < 0.1 * case["std"]
        if "gaussian" not in case["label"] and "ormal" not in case["label"] and "MSRA" not in case["label"]:
            if "Orthogonal" not in case["label"]:
                assert np.abs(got).max() <= max(case["max"], -case["min"]) * 1.02


def test_the_same_seed_gives_the_same_values_on_every_device(ctx):
    def drawn(seed):
        mx.random.seed(seed)
        a, b = mx.nd.zeros((30, 40), ctx=ctx), mx.nd.zeros((30, 40), ctx=ctx)
        init.Xavier()("a_weight", a)
        init.Xavier()("b_weight", b)
        return a.asnumpy(), b.asnumpy()

    (a, b), (a2, b2), (a3, _) = drawn(1), drawn(1), drawn(2)
    assert np.array_equal(a, a2) and np.array_equal(b, b2)
    assert not np.array_equal(a, b) and not np.array_equal(a, a3)


@pytest.mark.parametrize("shape", [(20, 30), (30, 20), (8, 2, 3, 3)])
def test_rows_or_columns_of_orthogonal_weights_are_orthogonal(shape):
    a = mx.nd.zeros(shape)
    init.Orthogonal(scale=1.5)("c_weight", a)
    w = a.asnumpy().reshape(shape[0], -1).astype("f8")
    gram = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(gram, 2.25 * np.eye(len(gram)), atol=1e-5)  # drawn in float32, multiplied in float64


def test_half_precision_arrays_are_initialized():
    a = mx.nd.zeros((100, 100), dtype="float16")
    init.Normal(0.5)("w_weight", a)
    assert a.asnumpy().dtype == np.float16
    assert a.asnumpy().astype("f8").std() == pytest.approx(0.5, rel=0.05)


def test_load_uses_the_default_for_missing_parameters(tmp_path):
    mx.nd.save(str(tmp_path / "p"), {"arg:fc_weight": mx.nd.full((2, 2), 3.0)})
    load = init.Load(str(tmp_path / "p"), default_init=init.One())
    a, b = mx.nd.zeros((2, 2)), mx.nd.zeros((2, 2))
    load("fc_weight", a)
    load("gc_weight", b)
    assert a.asnumpy()[0, 0] == 3 and b.asnumpy()[0, 0] == 1


def test_a_users_initializer_is_found_by_name():
    @init.register
    class Twos(init.Initializer):
        def _init_weight(self, name, arr):
            arr[:] = 2.0

    a = mx.nd.zeros(3)
    init.create("twos")("x_weight", a)
    assert a.asnumpy().tolist() == [2, 2, 2]
    assert init.create(Twos().dumps()) == Twos()


@pytest.mark.parametrize(
    "act, text",
    [
        (lambda: init.create("xavir"), "initializer.create: no initializer is called 'xavir'. Did you mean 'xavier'"),
        (lambda: init.create('["zero"]'), r"is not of the form \[.name., {settings}\]"),
        (lambda: init.create('["zero", {"x": 1}]'), "is not of the form"),
        (lambda: init.Xavier(rnd_type="even"), "Xavier: rnd_type='even' is not one of 'uniform', 'gaussian'."),
        (lambda: init.Xavier()(init.InitDesc("q_weight"), mx.nd.zeros(3)), r"Xavier: 'q_weight' has shape \(3,\), at least two"),
        (lambda: init.Zero()(init.InitDesc("odd"), mx.nd.zeros(3)), "Zero: the name 'odd' does not end in weight, bias"),
        (lambda: init.Mixed(["a"], [init.Zero()])("b", mx.nd.zeros(3)), "Mixed: no pattern matches 'b': a."),
        (lambda: init.Load({"a": mx.nd.zeros((2, 2))})("a", mx.nd.zeros(3)),
         r"Load: parameter 'a' was loaded with shape \(2, 2\), the network needs \(3,\)"),
        (lambda: init.Load({})("x", mx.nd.zeros(3)), "Load: no parameter is called 'x'. Pass default_init"),
    ],
)
def test_errors(act, text):
    with pytest.raises((ParameterError, ShapeError), match=text):
        act()


def test_a_verbose_initializer_logs_what_it_fills(caplog):
    xavier = init.Xavier().set_verbosity(True)
    plain = mx.nd.ones((2, 3))
    with caplog.at_level("INFO"):
        xavier(init.InitDesc("a_bias"), plain)
        xavier(init.InitDesc("b_gamma"), plain)
        xavier(init.InitDesc("q", attrs={"__init__": init.Constant(2).dumps()}), plain)
        xavier("moving_mean", plain)  # a plain name is not logged, as in MXNet
        init.One().set_verbosity(True, lambda x: f"shape {x.shape}")(init.InitDesc("w_weight"), plain)
        init.One()(init.InitDesc("w_weight"), plain)
    assert [r.getMessage() for r in caplog.records] == [
        "Initialized a_bias as bias: 0.0", "Initialized b_gamma as gamma: 1.0",
        'Initialized q as ["constant", {"value": 2}]: 2.0', "Initialized w_weight as weight: shape (2, 3)"]
