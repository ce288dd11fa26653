"""`mx.contrib.text.embedding`: a vector for each token of a vocabulary, from local files."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from ... import ndarray as nd
from ...errors import DTypeError, FileError, MXNetError, ParameterError, ShapeError
from ...ndarray import NDArray, array
from ...train.compat import registry
from ...train.compat.base import data_dir
from .pretrained_files import FAST_TEXT, GLOVE
from .vocab import UNKNOWN_INDEX, Vocabulary

_URL = "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/gluon/embeddings/"


class _TokenEmbedding(Vocabulary):
    """Base: a vocabulary with a vector for each token."""

    pretrained_file_names: ClassVar[Sequence[str]] = ()
    _vec_len: int
    _idx_to_vec: NDArray

    # ---- files -------------------------------------------------------------------------------------------------------
    @classmethod
    def _published_file(cls, name: str, embedding_root: str) -> str:
        """Return the path of a published file. Raises ParameterError for an unknown name, FileError if it is not there."""
        kind = cls.__name__.lower()
        if name not in cls.pretrained_file_names:
            raise ParameterError(f"{cls.__name__}: there is no pretrained file {name!r}. The function "
                                 f"text.embedding.get_pretrained_file_names({kind!r}) lists them.")
        path = os.path.join(os.path.expanduser(embedding_root), kind, name)
        if not os.path.isfile(path):
            raise FileError(f"{cls.__name__}: there is no file {path}. Nothing is downloaded: get the archive of {name} from "
                            f"{_URL}{kind}/ and put the file there, or give another embedding_root.")
        return path

    def _load_embedding(self, path: str, elem_delim: str, init_unknown_vec: Callable[..., NDArray], encoding: str = "utf8"
                        ) -> None:
        """Add the tokens of a file, of lines `token number number ...`, with their vectors. Raises FileError with the line."""
        path = os.path.expanduser(path)
        if not os.path.isfile(path):
            raise FileError(f"{type(self).__name__}: there is no file {path}.")
        logging.info("Loading pre-trained token embedding vectors from %s", path)
        vectors: list[np.ndarray] = []
        unknown: np.ndarray | None = None
        new_tokens: set[str] = set()
        with open(path, encoding=encoding) as file:
            for number, line in enumerate(file, 1):
                token, vector = self._parse(path, number, line, elem_delim)
                if token == self.unknown_token and unknown is None:
                    unknown = vector
                    new_tokens.add(token)
                elif token in new_tokens:
                    warnings.warn(f"{path}: line {number}: token {token!r} stands there again; its first vector is kept.",
                                  stacklevel=4)
                elif len(vector) == 1:
                    warnings.warn(f"{path}: line {number}: token {token!r} with one number is taken for a header, and left out.",
                                  stacklevel=4)
                elif vectors and len(vector) != len(vectors[0]):
                    raise FileError(f"{path}: line {number}: the vector of {token!r} has {len(vector)} numbers, those before "
                                    f"have {len(vectors[0])}.")
                else:
                    vectors.append(vector)
                    new_tokens.add(token)
                    self._token_to_idx[token] = len(self._idx_to_token)
                    self._idx_to_token.append(token)
        if not vectors:
            raise FileError(f"{path}: the file has no vectors.")
        self._vec_len = len(vectors[0])
        before = np.zeros((len(self) - len(vectors), self._vec_len), np.float32)
        self._idx_to_vec = array(np.concatenate([before, np.stack(vectors)]))
        self._idx_to_vec[UNKNOWN_INDEX] = init_unknown_vec(shape=self._vec_len) if unknown is None else array(unknown)

    def _parse(self, path: str, number: int, line: str, elem_delim: str) -> tuple[str, np.ndarray]:
        token, *elements = line.rstrip().split(elem_delim)
        try:
            vector = np.array([float(e) for e in elements], np.float32)
        except ValueError as e:
            raise FileError(f"{path}: line {number}: {e}. Each line is a token and its numbers, with {elem_delim!r} between "
                            f"them.") from None
        if not len(vector):
            raise FileError(f"{path}: line {number} holds no numbers. Each line is a token and its numbers, with {elem_delim!r} "
                            f"between them.")
        return token, vector

    # ---- vocabularies ------------------------------------------------------------------------------------------------
    def _use_vocabulary(self, vocabulary: Vocabulary | None, embeddings: Sequence[_TokenEmbedding]) -> None:
        """Take the tokens of a vocabulary, with their vectors in all embeddings, side by side. None changes nothing."""
        if vocabulary is None:
            return
        if not isinstance(vocabulary, Vocabulary):
            raise DTypeError(f"{type(self).__name__}: vocabulary is a {type(vocabulary).__name__}, not a text.vocab.Vocabulary.")
        tokens = list(vocabulary.idx_to_token)
        parts = [nd.concat(e.idx_to_vec[0:1], e.get_vecs_by_tokens(tokens[1:]), dim=0) if len(tokens) > 1 else e.idx_to_vec[0:1]
                 for e in embeddings]
        self._idx_to_vec = nd.concat(*parts, dim=1)
        self._vec_len = self._idx_to_vec.shape[1]
        self._token_to_idx, self._idx_to_token = dict(vocabulary.token_to_idx), tokens
        self._unknown_token, self._reserved_tokens = vocabulary.unknown_token, vocabulary.reserved_tokens

    # ---- vectors -----------------------------------------------------------------------------------------------------
    @property
    def vec_len(self) -> int:
        """The length of the vectors."""
        return self._vec_len

    @property
    def idx_to_vec(self) -> NDArray:
        """The vectors by index, float32[tokens, vec_len]."""
        return self._idx_to_vec

    def get_vecs_by_tokens(self, tokens: Any, lower_case_backup: bool = False) -> NDArray:
        """Return the vector of a token, [vec_len], or of a list of tokens, [n, vec_len].

        lower_case_backup: look for the token in lower case where it is unknown.
        """
        given = tokens if isinstance(tokens, list) else [tokens]
        known = self._token_to_idx
        index = [known.get(t, known.get(t.lower(), UNKNOWN_INDEX) if lower_case_backup else UNKNOWN_INDEX) for t in given]
        vectors = self._idx_to_vec.take(array(index, dtype="int64"))
        return vectors if isinstance(tokens, list) else vectors[0]

    def update_token_vectors(self, tokens: Any, new_vectors: NDArray) -> None:
        """Set the vectors of a token, or of a list of tokens. Raises ParameterError for tokens that are unknown."""
        given = tokens if isinstance(tokens, list) else [tokens]
        if not isinstance(new_vectors, NDArray):
            raise DTypeError(f"update_token_vectors: new_vectors is a {type(new_vectors).__name__}, not an NDArray.")
        if new_vectors.ndim == 1 and len(given) == 1:
            new_vectors = new_vectors.expand_dims(0)
        if new_vectors.shape != (len(given), self._vec_len):
            raise ShapeError(f"update_token_vectors: new_vectors {new_vectors.shape} must be {(len(given), self._vec_len)}: a "
                             f"vector for each token.")
        unknown = [t for t in given if t not in self._token_to_idx]
        if unknown:
            raise ParameterError(f"update_token_vectors: {unknown[0]!r} is unknown. To set the vector of unknown tokens, give "
                                 f"{self.unknown_token!r}.")
        self._idx_to_vec[array([self._token_to_idx[t] for t in given], dtype="int64")] = new_vectors


# ---- registry --------------------------------------------------------------------------------------------------------
register = registry.get_register_func(_TokenEmbedding, "token embedding")
_create = registry.get_create_func(_TokenEmbedding, "token embedding")


def create(embedding_name: str, **kwargs: Any) -> _TokenEmbedding:
    """Return a registered embedding by name, such as "glove", with its arguments."""
    return _create(embedding_name, **kwargs)


def get_pretrained_file_names(embedding_name: str | None = None) -> Any:
    """Return the names of published files of an embedding; None: of all, {name: file names}."""
    known: dict[str, Any] = registry.get_registry(_TokenEmbedding)
    if embedding_name is None:
        return {name: list(cls.pretrained_file_names) for name, cls in known.items()}
    if embedding_name not in known:
        raise ParameterError(f"get_pretrained_file_names: no embedding is called {embedding_name!r}. Known: {', '.join(known)}.")
    return list(known[embedding_name].pretrained_file_names)


# ---- embeddings ------------------------------------------------------------------------------------------------------
@register
class GloVe(_TokenEmbedding):
    """GloVe vectors.

    pretrained_file_name:  in embedding_root/glove; by default that is `embeddings/glove` in mx.base.data_dir().
    init_unknown_vec:      makes the vector of unknown tokens from shape=.
    vocabulary:            keep its tokens only.
    Raises: FileError if the file is not there, or damaged; nothing is downloaded.
    """

    pretrained_file_names = GLOVE

    def __init__(self, pretrained_file_name: str = "glove.840B.300d.txt", embedding_root: str | None = None,
                 init_unknown_vec: Callable[..., NDArray] = nd.zeros, vocabulary: Vocabulary | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        root = os.path.join(data_dir(), "embeddings") if embedding_root is None else embedding_root
        self._load_embedding(self._published_file(pretrained_file_name, root), " ", init_unknown_vec)
        self._use_vocabulary(vocabulary, [self])


@register
class FastText(_TokenEmbedding):
    """fastText vectors. Arguments and errors are those of GloVe; the folder is `fasttext`."""

    pretrained_file_names = FAST_TEXT

    def __init__(self, pretrained_file_name: str = "wiki.simple.vec", embedding_root: str | None = None,
                 init_unknown_vec: Callable[..., NDArray] = nd.zeros, vocabulary: Vocabulary | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        root = os.path.join(data_dir(), "embeddings") if embedding_root is None else embedding_root
        self._load_embedding(self._published_file(pretrained_file_name, root), " ", init_unknown_vec)
        self._use_vocabulary(vocabulary, [self])


class CustomEmbedding(_TokenEmbedding):
    """The vectors of any file of lines `token number number ...`. elem_delim: what stands between them."""

    def __init__(self, pretrained_file_path: str, elem_delim: str = " ", encoding: str = "utf8",
                 init_unknown_vec: Callable[..., NDArray] = nd.zeros, vocabulary: Vocabulary | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self._load_embedding(pretrained_file_path, elem_delim, init_unknown_vec, encoding)
        self._use_vocabulary(vocabulary, [self])


class CompositeEmbedding(_TokenEmbedding):
    """The vectors of several embeddings, side by side, for the tokens of a vocabulary."""

    def __init__(self, vocabulary: Vocabulary, token_embeddings: _TokenEmbedding | Sequence[_TokenEmbedding]):
        super().__init__()
        given = [token_embeddings] if isinstance(token_embeddings, _TokenEmbedding) else list(token_embeddings)
        for e in given:
            if not isinstance(e, _TokenEmbedding):
                raise DTypeError(f"CompositeEmbedding: a {type(e).__name__} is not an embedding.")
        if vocabulary is None:
            raise MXNetError("CompositeEmbedding: vocabulary is missing.")
        self._use_vocabulary(vocabulary, given)
