"""WikiText2 and WikiText103: texts of Wikipedia for language models, from local files. Nothing is downloaded."""

from __future__ import annotations

import os
import zipfile
from collections import Counter
from typing import Any, ClassVar

import numpy as np

from .... import ndarray as nd
from ....errors import FileError, check_choice
from ....train.compat.base import data_dir
from ....train.vocabulary import EOS_TOKEN, Vocabulary, count_tokens_from_str
from ...data import dataset

__all__ = ["WikiText2", "WikiText103"]

_FILES = {"train": "wiki.train.tokens", "validation": "wiki.valid.tokens", "test": "wiki.test.tokens"}


class _WikiText(dataset._DownloadedDataset):
    """Samples (words, next words), each int32[seq_len] as NDArray, of the text with "<eos>" after every line.

    root:        the folder with wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens, or with MXNet's archive of them.
    segment:     "train", "validation" or "test".
    vocab:       a Vocabulary; None: one of all words of the segment.
    Raises FileError for a missing file.
    """

    _archive: ClassVar[str] = ""

    def __init__(self, root: str, segment: str, vocab: Vocabulary | None, seq_len: int):
        check_choice(type(self).__name__, "segment", segment, _FILES)
        self._segment, self._seq_len, self._vocab = segment, seq_len, vocab
        self._counter: Counter[str] | None = None
        super().__init__(root, None)

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The words and their numbers."""
        return self._vocab

    @property
    def frequencies(self) -> Counter[str] | None:
        """How often each word occurs."""
        return self._counter

    def _read(self) -> str:
        name, archive = _FILES[self._segment], os.path.join(self._root, self._archive)
        path = os.path.join(self._root, name)
        try:
            if os.path.exists(path):
                with open(path, "rb") as file:
                    return file.read().decode("utf-8")
            if os.path.exists(archive):
                with zipfile.ZipFile(archive) as packed:
                    for member in packed.namelist():
                        if os.path.basename(member) == name:
                            return packed.read(member).decode("utf-8")
        except (zipfile.BadZipFile, UnicodeDecodeError) as e:
            raise FileError(f"{type(self).__name__}: {path} or {archive} is damaged: {e}.") from None
        raise FileError(f"{type(self).__name__}: there is no file {path} or {archive}. Nothing is downloaded: put it there, or "
                        f"give another root.")

    def _get_data(self) -> None:
        content = self._read()
        self._counter = count_tokens_from_str(content)
        if self._vocab is None:
            self._vocab = Vocabulary(counter=self._counter, reserved_tokens=[EOS_TOKEN])
        words: list[Any] = [word for line in content.splitlines() if line.strip() for word in (*line.split(), EOS_TOKEN)]
        numbers = np.array(self._vocab.to_indices(words), np.int32)
        whole = max(0, len(numbers) - 1) // self._seq_len * self._seq_len
        self._data, self._label = (nd.array(part[:whole].reshape(-1, self._seq_len), dtype=np.int32)
                                   for part in (numbers, numbers[1:]))


class WikiText2(_WikiText):
    """WikiText-2, of 2 million words (Merity et al. 2016). See _WikiText for the parameters."""

    _archive = "wikitext-2-v1.zip"

    def __init__(self, root: str = os.path.join(data_dir(), "datasets", "wikitext-2"), segment: str = "train",
                 vocab: Vocabulary | None = None, seq_len: int = 35):
        super().__init__(root, segment, vocab, seq_len)


class WikiText103(_WikiText):
    """WikiText-103, of 103 million words (Merity et al. 2016). See _WikiText for the parameters."""

    _archive = "wikitext-103-v1.zip"

    def __init__(self, root: str = os.path.join(data_dir(), "datasets", "wikitext-103"), segment: str = "train",
                 vocab: Vocabulary | None = None, seq_len: int = 35):
        super().__init__(root, segment, vocab, seq_len)
