"""The examples, with few epochs on their own data: the results that their texts promise."""

from pathlib import Path

import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.examples import custom_softmax, data_parallel, fine_tune, lstm_language_model, model_parallel, score_checkpoint

GOLDEN = Path(__file__).parents[1] / "golden/symbols"


def test_the_language_model_learns_letters():
    perplexity = lstm_language_model.train_language_model(3)
    assert perplexity[0] < 40 and perplexity[2] < perplexity[1] < perplexity[0] and perplexity[2] < 19


def test_every_line_fits_a_bucket():
    assert len(lstm_language_model.lines()) > 100
    assert max(map(len, lstm_language_model.lines())) <= lstm_language_model.BUCKETS[-1]


@pytest.mark.parametrize("kvstore", ["local", "device"])
def test_two_contexts_give_the_weights_of_one(kvstore):
    assert data_parallel.largest_difference(50, kvstore) < 1e-5


def test_layers_on_two_contexts_give_the_weights_of_one():
    (one, _), (two, accuracy) = model_parallel.train_placed(None, 3), model_parallel.train_placed(model_parallel.CONTEXTS, 3)
    assert accuracy > 0.9 and set(one) == {"fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"}
    for name, value in one.items():
        assert_close(two[name], value, scale=0.1)  # 0.1: closer than the table: few roundings


def test_a_network_with_a_loss_in_python_learns():
    assert custom_softmax.train_with_custom_softmax(2) > 0.9


def test_a_new_last_layer_learns_from_fixed_features(tmp_path):
    before, after = fine_tune.fine_tune(tmp_path, 3)
    assert before > 0.95 and after > 0.8


def test_a_checkpoint_of_mxnet_is_scored(ctx):
    """MXNet reached 0.98 on its own split of the digits."""
    assert score_checkpoint.score_checkpoint(str(GOLDEN / "digits_mlp"), 20, ctx) > 0.97


def test_main_prints_the_accuracy_or_its_usage(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["score", str(GOLDEN / "digits_mlp"), "20"])
    score_checkpoint.main()
    assert "accuracy on the held-out digits: 0.9" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["score"])
    with pytest.raises(SystemExit, match="PREFIX EPOCH"):
        score_checkpoint.main()
    assert mx.current_context() == mx.cpu()
