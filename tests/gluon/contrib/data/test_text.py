"""WikiText datasets from local files. Oracle: words counted by hand."""

import zipfile
from collections import Counter

import pytest
from tritium.errors import FileError, ParameterError
from tritium.gluon.contrib.data import IntervalSampler, WikiText2, WikiText103
from tritium.train.vocabulary import Vocabulary

TEXT = " = Sea = \n\n the sea is wide . \n the sky is wide too . \n"
WORDS = ["<unk>", "<eos>", ".", "=", "is", "the", "wide", "Sea", "sea", "sky", "too"]
LINES = ["=", "Sea", "=", "<eos>", "the", "sea", "is", "wide", ".", "<eos>", "the", "sky", "is", "wide", "too", ".", "<eos>"]


@pytest.mark.parametrize("dataset", [WikiText2, WikiText103])
@pytest.mark.parametrize("packed", [False, True], ids=["file", "archive"])
def test_samples_are_stretches_of_the_text_and_the_next_words(tmp_path, dataset, packed):
    if packed:
        with zipfile.ZipFile(tmp_path / dataset._archive, "w") as archive:
            archive.writestr("wikitext/wiki.valid.tokens", TEXT)
    else:
        (tmp_path / "wiki.valid.tokens").write_text(TEXT)
    data = dataset(str(tmp_path), "validation", seq_len=5)
    assert data.vocabulary.idx_to_token == WORDS and data.frequencies["is"] == 2
    assert len(data) == 3  # of 16 pairs of words
    for i in range(3):
        words, following = data[i]
        assert data.vocabulary.to_tokens(words.asnumpy()) == LINES[5 * i:5 * i + 5]
        assert data.vocabulary.to_tokens(following.asnumpy()) == LINES[5 * i + 1:5 * i + 6]
    again = dataset(str(tmp_path), "validation", Vocabulary(Counter({"the": 2})), seq_len=4)
    assert again[1][0].asnumpy().tolist() == [1, 0, 0, 0]


def test_a_missing_or_damaged_file_is_named(tmp_path):
    with pytest.raises(FileError, match=r"WikiText2: there is no file .*wiki\.train\.tokens or .*wikitext-2-v1\.zip"):
        WikiText2(str(tmp_path))
    (tmp_path / "wikitext-2-v1.zip").write_bytes(b"no archive")
    with pytest.raises(FileError, match="is damaged"):
        WikiText2(str(tmp_path))
    with pytest.raises(ParameterError, match="segment='all' is not one of 'train', 'validation', 'test'"):
        WikiText2(str(tmp_path), "all")


def test_an_interval_is_at_most_the_length():
    with pytest.raises(ParameterError, match="interval 4 is larger than length 3"):
        IntervalSampler(3, 4)
