"""Checkpoint files. Oracle: files that MXNet 1.9.1 wrote (golden)."""

from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from tritium.errors import FileError
from tritium.train import checkpoint

GOLDEN = Path(__file__).parents[1] / "golden/symbols"


@pytest.mark.parametrize("name, epoch", [("mlp", 0), ("lenet", 0), ("digits_mlp", 20)])
def test_checkpoints_of_mxnet_give_the_outputs_of_mxnet(name, epoch, ctx):
    if name == "lenet" and ctx.is_gpu and mx.context.GPU_MODE == "interpret":
        ctx = mx.cpu(1)  # the interpreter takes minutes
    want = np.load(GOLDEN / f"{name}.npz")
    m = mx.mod.Module.load(str(GOLDEN / name), epoch, context=ctx, label_names=None)
    m.bind([("data", want["in.data"].shape)], for_training=False)
    # closer than the table for large values
    np.testing.assert_allclose(m.predict(want["in.data"]).asnumpy(), want["out.0"], atol=1e-5)


def test_a_checkpoint_is_written_and_read(tmp_path):
    net = mx.sym.BatchNorm(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc"), name="bn")
    arg, aux = {"fc_weight": mx.nd.ones((2, 3)), "fc_bias": mx.nd.zeros(2)}, {"bn_moving_mean": mx.nd.full(2, 4.0)}
    prefix = str(tmp_path / "m")
    checkpoint.save_checkpoint(prefix, 7, net, arg, aux)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m-0007.params", "m-symbol.json"]
    net2, arg2, aux2 = checkpoint.load_checkpoint(prefix, 7)
    assert net2.tojson() == net.tojson()
    assert {k: v.asnumpy().tolist() for k, v in arg2.items()} == {k: v.asnumpy().tolist() for k, v in arg.items()}
    assert aux2["bn_moving_mean"].asnumpy().tolist() == [4, 4]


@pytest.mark.parametrize("arrays, text", [
    (None, r"load_params: .*x-0001.params: cannot be read"),
    ([mx.nd.ones(2)], "its arrays have no names, so it is not a checkpoint"),
    ({"w": mx.nd.ones(2)}, "the name 'w' begins with neither arg: nor aux:"),
])
def test_a_file_that_is_not_a_checkpoint_is_refused(arrays, text, tmp_path):
    if arrays is not None:
        mx.nd.save(str(tmp_path / "x-0001.params"), arrays)
    with pytest.raises(FileError, match=text):
        checkpoint.load_params(str(tmp_path / "x"), 1)


@pytest.mark.parametrize("name, epoch", [("mlp", 0), ("lenet", 0), ("digits_mlp", 20)])
def test_a_checkpoint_read_and_written_again_has_the_same_bytes(name, epoch, tmp_path):
    symbol, arg, aux = checkpoint.load_checkpoint(str(GOLDEN / name), epoch)
    checkpoint.save_checkpoint(str(tmp_path / name), epoch, symbol, arg, aux)
    for file in (f"{name}-symbol.json", f"{name}-{epoch:04d}.params"):
        assert (tmp_path / file).read_bytes() == (GOLDEN / file).read_bytes()


def test_the_last_checkpoint_is_the_largest_epoch_with_a_params_file(tmp_path):
    prefix = str(tmp_path / "a+b")
    assert mx.model.last_checkpoint(prefix) is None and mx.model.last_checkpoint(str(tmp_path / "none" / "x")) is None
    for name in ("a+b-0002.params", "a+b-0010.params", "a+b-12345.params", "a+b-0011.states", "aab-99999.params", "a+b-3.params"):
        (tmp_path / name).touch()
    assert mx.model.last_checkpoint(prefix) == 12345
