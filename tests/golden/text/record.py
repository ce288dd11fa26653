"""Record what MXNet's text package gives: `python record.py`, with MXNet 1.9.1 installed."""

import json
import tempfile
import warnings
from collections import Counter
from pathlib import Path

FIRST = "2 3\nhello 1 2 3\nworld 4 5 6\nhello 7 8 9\n<unk> 0.5 0.5 0.5\nSun -1 -2 -3\n"
SECOND = "hello;10;20\nmoon;30;40\n"


def results(text, nd, folder):
    """Return named results as lists."""
    counter = text.utils.count_tokens_from_str(" Life is great ! \n life is good . \n", " ", "\n", True)
    more = text.utils.count_tokens_from_str("a,b;a", ",", ";", counter_to_update=Counter(a=2))
    some = text.vocab.Vocabulary(counter, most_freq_count=3, min_freq=1, unknown_token="<u>", reserved_tokens=["<pad>"])
    rare = text.vocab.Vocabulary(counter, min_freq=2)
    one, two = Path(folder, "one.txt"), Path(folder, "two.txt")
    one.write_text(FIRST)
    two.write_text(SECOND)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = text.embedding.CustomEmbedding(str(one))
        second = text.embedding.CustomEmbedding(str(two), elem_delim=";", init_unknown_vec=nd.ones)
        kept = text.embedding.CustomEmbedding(str(one), vocabulary=text.vocab.Vocabulary(Counter(["world", "moon"])))
    both = text.embedding.CompositeEmbedding(text.vocab.Vocabulary(Counter(["hello", "hello", "moon"])), [first, second])
    yield [dict(sorted(counter.items())), dict(more)]
    for v in (some, rare, text.vocab.Vocabulary()):
        yield [len(v), v.idx_to_token, v.token_to_idx, v.unknown_token, v.reserved_tokens,
               v.to_indices(["life", "<u>", "nothing"]), v.to_indices("is"), v.to_tokens([0, 0]), v.to_tokens(0)]
    for e in (first, second, kept, both):
        yield [len(e), e.idx_to_token, e.vec_len, e.idx_to_vec.asnumpy().tolist(),
               e.get_vecs_by_tokens("hello").asnumpy().tolist(),
               e.get_vecs_by_tokens(["sun", "SUN", "world"], lower_case_backup=True).asnumpy().tolist(), e.unknown_token,
               e.reserved_tokens]
    first.update_token_vectors("hello", nd.array([9, 9, 9]))
    first.update_token_vectors(["world", "<unk>"], nd.array([[1, 1, 1], [2, 2, 2]]))
    yield first.idx_to_vec.asnumpy().tolist()
    names = text.embedding.get_pretrained_file_names()
    yield [sorted(names), sorted(names["glove"]), sorted(names["fasttext"])]


if __name__ == "__main__":
    import mxnet as mx

    with tempfile.TemporaryDirectory() as folder:
        lines = map(json.dumps, results(mx.contrib.text, mx.nd, folder))
        Path(__file__).with_name("results.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
