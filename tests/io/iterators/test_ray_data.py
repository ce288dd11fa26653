"""Ray Data: the iterator over a stand-in for a Ray dataset, and both directions with Ray itself (nightly)."""

import numpy as np
import pytest
from tritium.errors import DTypeError, MXNetError, ParameterError, ShapeError
from tritium.io.iterators.ray_data import RayDataIter, to_ray_dataset
from tritium.io.records.recordio import IRHeader, MXIndexedRecordIO, pack


class Dataset:
    """Implements iter_batches as Ray Data does."""

    def __init__(self, **columns):
        self.columns = columns

    def iter_batches(self, *, batch_size, batch_format, drop_last):
        assert batch_format == "numpy" and not drop_last
        rows = len(next(iter(self.columns.values())))
        for at in range(0, rows, batch_size):
            yield {name: values[at : at + batch_size] for name, values in self.columns.items()}


def epoch(it):
    batches = [([a.asnumpy() for a in b.data], [a.asnumpy() for a in b.label], b.pad) for b in it]
    it.reset()
    return batches


def test_columns_become_batches_and_the_last_is_padded():
    x, y = np.arange(14.0).reshape(7, 2), np.arange(7)
    it = RayDataIter(Dataset(data=x, label=y), 3)
    assert it.provide_data == [("data", (3, 2))] and it.provide_data[0].dtype is np.float32
    assert it.provide_label == [("label", (3,))] and it.provide_label[0].dtype is np.int64
    for _ in range(2):
        batches = epoch(it)
        assert [pad for *_, pad in batches] == [0, 0, 2]
        assert np.array_equal(np.concatenate([d[0] for d, *_ in batches]), x[[0, 1, 2, 3, 4, 5, 6, 0, 1]])
        assert np.array_equal(np.concatenate([label[0] for _, label, _ in batches]), y[[0, 1, 2, 3, 4, 5, 6, 0, 1]])


def test_fewer_rows_than_a_batch_and_columns_of_objects():
    rows = np.empty(2, object)
    rows[:] = [np.ones((2, 2), np.uint8), np.zeros((2, 2), np.uint8)]
    (data, label, pad), = epoch(RayDataIter(Dataset(a=rows, b=np.array([1.5, 2.5])), 5, data=["a", "b"], label=None))
    assert data[0].shape == (5, 2, 2) and data[0].dtype == np.uint8 and label == [] and pad == 3
    assert data[1].tolist() == [1.5, 2.5, 1.5, 2.5, 1.5]


def test_ray_starts_an_epoch_with_its_first_batch():
    asked = []

    class Counted(Dataset):
        def iter_batches(self, **how):
            asked.append("begun")
            try:
                yield from super().iter_batches(**how)
            finally:
                asked.append("ended")

    it = RayDataIter(Counted(data=np.arange(6.0), label=np.arange(6)), 2)
    next(it)
    it.reset()
    assert asked == ["begun", "ended"], "an epoch left in the middle is ended, and no other is begun"
    assert len(epoch(it)) == 3 and asked == ["begun", "ended"] * 2
    assert list(it)[-1].pad == 0 and not list(it)


RAGGED = np.empty(2, object)
RAGGED[:] = [np.ones(2), np.ones(3)]


@pytest.mark.parametrize("data, batch_size, label, error, text", [
    (RAGGED, 2, None, ShapeError, "the rows of column 'data' have 2 shapes"),
    (np.ones(2), 2, "label", MXNetError, r"no column 'label'\. It has 'data'"),
    (np.array(["a"]), 2, None, DTypeError, "column 'data' has dtype <U1"),
    (np.ones(0), 2, None, ShapeError, "the dataset has no rows"),
    (np.ones(1), 0, "label", ParameterError, "batch_size=0"),
])
def test_invalid_datasets_are_refused(data, batch_size, label, error, text):
    with pytest.raises(error, match=text):
        RayDataIter(Dataset(data=data), batch_size, label=label)


@pytest.mark.nightly
@pytest.mark.filterwarnings("default")
def test_with_ray_itself(tmp_path):
    pytest.importorskip("pyarrow", reason="Ray Data needs pyarrow: pip install 'tritium[ray-data]'")
    ray = pytest.importorskip("ray")
    with MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w") as file:
        for i in range(25):
            file.write_idx(i, pack(IRHeader(0, float(i % 4), i, 0), np.full(6, i, np.uint8).tobytes()))
    ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR")
    try:
        dataset = to_ray_dataset(tmp_path / "a.rec", rows_per_block=10)
        rows = sorted(dataset.take_all(), key=lambda row: row["id"])
        assert [row["label"] for row in rows] == [i % 4 for i in range(25)]
        assert [row["data"] for row in rows] == [bytes([i] * 6) for i in range(25)]
        numbers = dataset.map(lambda row: {"data": np.frombuffer(row["data"], np.uint8), "label": row["label"]})
        got = [(d[0][: 8 - pad], label[0][: 8 - pad]) for d, label, pad in epoch(RayDataIter(numbers, 8))]
        assert sorted(int(v) for d, _ in got for v in d[:, 0]) == list(range(25))
        assert all(v[0] % 4 == want for d, label in got for v, want in zip(d, label))
    finally:
        ray.shutdown()
