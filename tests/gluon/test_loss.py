"""Every loss of gluon.loss: values and gradients of MXNet 1.9.1 (tests/golden/gluon), as arrays and hybridized."""

import json
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from golden.gluon.cases import FORWARD_ALONE, losses, noise, read, run
from tritium.gluon.loss import _apply_weighting, _reshape_like

GOLDEN = Path(__file__).parents[1] / "golden" / "gluon"
STORED = read(GOLDEN / "losses.npz")
TEXT = json.loads((GOLDEN / "text.json").read_text())
LOSSES = losses(mx)


@pytest.mark.parametrize("hybrid", [False, True], ids=["arrays", "hybridized"])
@pytest.mark.parametrize("name", LOSSES)
def test_computes_as_mxnet(name, hybrid):
    make, arrays = LOSSES[name]
    loss = make()
    assert repr(loss) == TEXT[f"loss.{name}"]["before"]
    if hybrid:
        loss.hybridize()
    found = run(mx, loss, arrays, parameters=False, backward=name not in FORWARD_ALONE)
    wanted = {k.split(".")[1]: v for k, v in STORED.items() if k.startswith(name + ".")}
    assert wanted.keys() == found.keys()
    for k, v in wanted.items():
        assert found[k].shape == v.shape, k
        np.testing.assert_allclose(found[k], v, 1e-4, 1e-5, err_msg=k)


def test_there_are_eighteen_names():
    from tritium.gluon import loss
    assert len(loss.__all__) == 17 and loss.SigmoidBCELoss is loss.SigmoidBinaryCrossEntropyLoss


def test_poisson_of_zero_counts_is_finite_where_mxnets_is_not():
    full = mx.gluon.loss.PoissonNLLLoss(compute_full=True)
    short = mx.gluon.loss.PoissonNLLLoss()
    pred, counts = mx.nd.array(noise((2, 3))), mx.nd.array([[0, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(full(pred, counts).asnumpy(), short(pred, counts).asnumpy())


@pytest.mark.parametrize("F", ["nd", "sym"])
def test_helpers_take_both_namespaces(F):
    F = getattr(mx, F)
    x = mx.nd.array([[1, 2], [3, 4]])
    weight = mx.nd.array([[2], [3]])
    if F is mx.sym:
        y = _apply_weighting(F, F.var("x"), 0.5, F.var("w")).bind(mx.cpu(), {"x": x, "w": weight}).forward()[0]
        z = _reshape_like(F, F.var("x"), F.var("y")).bind(mx.cpu(), {"x": x, "y": mx.nd.zeros((4, 1))}).forward()[0]
    else:
        y, z = _apply_weighting(F, x, 0.5, weight), _reshape_like(F, x, mx.nd.zeros((4, 1)))
    np.testing.assert_array_equal(y.asnumpy(), [[1, 2], [4.5, 6]])
    assert z.shape == (4, 1)


@pytest.mark.parametrize("make, message", [
    (lambda loss: loss.CTCLoss(layout="NCT"), "CTCLoss: layout='NCT' is not one of 'NTC', 'TNC'"),
    (lambda loss: loss.CTCLoss(label_layout="T"), "CTCLoss: label_layout='T' is not one of 'NT', 'TN'"),
    (lambda loss: loss.LogisticLoss(label_format="both"), "LogisticLoss: label_format='both' is not one of 'signed', 'binary'"),
    (lambda loss: loss.L1Loss(weight="1")(mx.nd.ones((2, 2)), mx.nd.ones((2, 2))), "weight='1'. It must be a number"),
])
def test_errors(make, message):
    with pytest.raises(mx.MXNetError, match=message):
        make(mx.gluon.loss)
