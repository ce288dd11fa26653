"""mx.contrib.text against results of MXNet 1.9.1, and its errors."""

import importlib.util
import json
from collections import Counter
from pathlib import Path

import pytest
import tritium as mx
from tritium.contrib import text
from tritium.errors import DTypeError, FileError, MXNetError, ParameterError, ShapeError

GOLDEN = Path(__file__).parents[1] / "golden" / "text"
spec = importlib.util.spec_from_file_location("record_text", GOLDEN / "record.py")
record = importlib.util.module_from_spec(spec)
spec.loader.exec_module(record)


def test_results_are_mxnets(tmp_path):
    expected = json.loads((GOLDEN / "results.json").read_text())
    for ours, theirs in zip(record.results(text, mx.nd, tmp_path), expected, strict=True):
        assert json.loads(json.dumps(ours)) == theirs


def test_repeated_tokens_and_headers_warn(tmp_path):
    (tmp_path / "a").write_text(record.FIRST)
    with pytest.warns(UserWarning) as warned:
        text.embedding.CustomEmbedding(str(tmp_path / "a"))
    messages = [str(w.message).split(": ", 1)[1] for w in warned]
    assert messages == ["line 1: token '2' with one number is taken for a header, and left out.",
                        "line 4: token 'hello' stands there again; its first vector is kept."]


def test_published_files_are_read_from_their_folder(tmp_path):
    (tmp_path / "glove").mkdir()
    (tmp_path / "glove" / "glove.6B.50d.txt").write_text("a 1 2\n")
    made = text.embedding.create("glove", pretrained_file_name="glove.6B.50d.txt", embedding_root=str(tmp_path))
    assert isinstance(made, text.embedding.GloVe) and made.idx_to_vec.asnumpy().tolist() == [[0, 0], [1, 2]]


def test_reserved_tokens_have_vectors_of_zeros(tmp_path):
    """In MXNet they have none, and all others the vectors of their neighbours."""
    made = custom("a 1 2\n", tmp_path, reserved_tokens=["<pad>"])
    assert made.idx_to_vec.asnumpy().tolist() == [[0, 0], [0, 0], [1, 2]]
    assert made.get_vecs_by_tokens("a").asnumpy().tolist() == [1, 2]


def test_classes_can_be_registered():
    @text.embedding.register
    class Mine(text.embedding._TokenEmbedding):
        pretrained_file_names = ["x.txt"]

    assert text.embedding.get_pretrained_file_names("mine") == ["x.txt"] and isinstance(text.embedding.create("mine"), Mine)


def custom(content, folder, **settings):
    (folder / "a").write_text(content)
    return text.embedding.CustomEmbedding(str(folder / "a"), **settings)


@pytest.mark.parametrize("act, error, message", [
    (lambda p: text.vocab.Vocabulary(min_freq=0), ParameterError, "min_freq=0 must be at least 1"),
    (lambda p: text.vocab.Vocabulary(reserved_tokens=["<unk>"]), ParameterError, "'<unk>' is among the reserved tokens"),
    (lambda p: text.vocab.Vocabulary(reserved_tokens=["a", "a"]), ParameterError, "a reserved token stands twice"),
    (lambda p: text.vocab.Vocabulary({"a": 1}), DTypeError, "counter is a dict, not a collections.Counter"),
    (lambda p: text.vocab.Vocabulary().to_tokens([0, 1]), ParameterError, "1 is not an index of 1 tokens"),
    (lambda p: text.vocab.Vocabulary().to_tokens(-1), ParameterError, "-1 is not an index of 1 tokens"),
    (lambda p: text.embedding.CustomEmbedding("nowhere.txt"), FileError, "CustomEmbedding: there is no file nowhere.txt"),
    (lambda p: custom("a 1 2\nb 1\n b x y", p), FileError, r"line 3: could not convert string to float"),
    (lambda p: custom("a 1 2\nb 1 2 3\n", p), FileError, r"line 2: the vector of 'b' has 3 numbers, those before have 2"),
    (lambda p: custom("a 1 2\nb\n", p), FileError, "line 2 holds no numbers. Each line is a token and its numbers, with ' '"),
    (lambda p: custom("", p), FileError, "the file has no vectors"),
    (lambda p: custom("a 1 2", p, vocabulary=Counter("a")), DTypeError, "vocabulary is a Counter, not a text.vocab.Vocabulary"),
    (lambda p: custom("a 1 2", p).update_token_vectors("b", mx.nd.ones(2)), ParameterError, "'b' is unknown. .* give '<unk>'"),
    (lambda p: custom("a 1 2", p).update_token_vectors("a", mx.nd.ones(3)), ShapeError, r"new_vectors \(1, 3\) must be \(1, 2\)"),
    (lambda p: custom("a 1 2", p).update_token_vectors("a", [1, 2]), DTypeError, "new_vectors is a list, not an NDArray"),
    (lambda p: text.embedding.GloVe("x.txt"), ParameterError, "GloVe: there is no pretrained file 'x.txt'"),
    (lambda p: text.embedding.FastText(embedding_root=str(p)), FileError,
     "fasttext/wiki.simple.vec. Nothing is downloaded: get the archive of wiki.simple.vec from https"),
    (lambda p: text.embedding.get_pretrained_file_names("word"), ParameterError, "no embedding is called 'word'. Known: "),
    (lambda p: text.embedding.create("word"), ParameterError, "token embedding.create: no token embedding is called 'word'"),
    (lambda p: text.embedding.CompositeEmbedding(None, []), MXNetError, "CompositeEmbedding: vocabulary is missing"),
    (lambda p: text.embedding.CompositeEmbedding(text.vocab.Vocabulary(), [3]), DTypeError, "a int is not an embedding"),
])
@pytest.mark.filterwarnings("ignore:.*taken for a header")
def test_errors(act, error, message, tmp_path):
    with pytest.raises(error, match=message):
        act(tmp_path)
