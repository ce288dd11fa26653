"""CSVIter, LibSVMIter and TextRows: values against Python's float(); errors with their line."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tritium.errors import FileError, ParameterError, ShapeError
from tritium.io import CSVIter, LibSVMIter
from tritium.io.iterators import text_rows


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def all_rows(it):
    """Return the data and labels of an epoch, without padding."""
    data, labels = [], []
    for b in it:
        kept = it.batch_size - b.pad
        data.append(b.data[0].asnumpy()[:kept])
        labels.append(b.label[0].asnumpy()[:kept])
    return np.concatenate(data), np.concatenate(labels)


lines_end = st.sampled_from(["\n", "\r\n", "\n\n", "\r\n\r\n\n"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(width=32, allow_nan=False), min_size=4, max_size=4), min_size=1, max_size=30),
       lines_end, st.booleans(), st.booleans(), st.integers(1, 5))
def test_csv_values(tmp_path_factory, rows, end, last_end, bom, batch_size):
    text = end.join(",".join(map(repr, r)) for r in rows) + end * last_end
    file = write(tmp_path_factory.mktemp("csv") / "a.csv", ("\ufeff" if bom else "") + text)
    data, labels = all_rows(CSVIter(file, (2, 2), batch_size))
    assert np.array_equal(data, np.array(rows, np.float32).reshape(-1, 2, 2))
    assert np.array_equal(labels, np.zeros(len(rows), np.float32))


def test_csv_with_labels_dtype_and_descriptions(tmp_path):
    data = write(tmp_path / "a.csv", "1,2\n3,4\n5,6\n")
    labels = write(tmp_path / "l.csv", "7,8\n9,10\n11,12\n")
    it = CSVIter(data_csv=str(data), data_shape=(2,), label_csv=str(labels), label_shape=(2,), batch_size=2, dtype="int32")
    assert it.provide_data == [("data", (2, 2))] and it.provide_label == [("softmax_label", (2, 2))]
    got, label = all_rows(it)
    assert got.dtype == np.int32 and got.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert label.tolist() == [[7, 8], [9, 10], [11, 12]]


def test_a_folder_means_its_files_in_the_order_of_their_names(tmp_path):
    write(tmp_path / "b.csv", "3\n4")
    write(tmp_path / "a.csv", "1\n2\n")
    write(tmp_path / ".hidden", "no number")
    assert all_rows(CSVIter(tmp_path, (1,), 3))[0].tolist() == [[1], [2], [3], [4]]


def test_small_blocks_and_pieces_give_equal_rows(tmp_path, monkeypatch):
    file = write(tmp_path / "a.csv", "".join(f"{i},{i * i}\r\n" + "\n" * (i % 3) for i in range(50)))
    want = all_rows(CSVIter(file, (2,), 7))[0]
    for pieces in (1, 2, 3, 7, 64):
        monkeypatch.setattr(text_rows, "_SCAN_BYTES", pieces)
        monkeypatch.setattr(text_rows, "_BLOCK_BYTES", 10)
        assert np.array_equal(all_rows(CSVIter(file, (2,), 7))[0], want)


def test_a_url_is_read_through_fsspec():
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://rows/a.csv", "wb") as f:
        f.write(b"1,2\n3,4\n")
    assert all_rows(CSVIter("memory://rows/a.csv", (2,), 2))[0].tolist() == [[1, 2], [3, 4]]
    assert all_rows(CSVIter("memory://rows", (2,), 2))[0].tolist() == [[1, 2], [3, 4]]
    with pytest.raises(FileError, match="memory://rows/none"):
        CSVIter("memory://rows/none", (2,), 2)


@pytest.mark.parametrize("text, message", [
    ("1,2\n\n3,x\n", r"a\.csv: line 3: it is not 2 comma-separated numbers of dtype float32"),
    ("1,2\n3,4,5\n", r"a\.csv: line 2: it has 3 numbers; shape \(2,\) takes 2"),
    ("1,2\n3\n", r"a\.csv: line 2: it has 1 numbers"),
    ("1,2,3\n4,5,6\n", r"a\.csv: line 1: it has 3 numbers"),
    ("1\n2,3,4\n", r"a\.csv: line 1: it has 1 numbers"),
    ("1,2\n3,\n", r"a\.csv: line 2: it is not 2 .*: b'' is not a number"),
    ("1,2\n3,nan(4)\n", r"a\.csv: line 2: it is not 2 .*: b'nan\(4\)' is not a number"),
    ("1,2\n#3,4\n", r"a\.csv: line 2: it is not 2"),
    ("1,2\n" + "3" * 2000 + ",4", r"a\.csv: line 2 has 2,002 bytes; a row takes at most 1,024"),
    ("", "has no rows"),
    ("\n\r\n\n", "has no rows"),
])
def test_damaged_csv_is_refused_with_its_line(tmp_path, text, message):
    file = write(tmp_path / "a.csv", text)
    with pytest.raises(ValueError, match=message):
        all_rows(CSVIter(file, (2,), 2))


@pytest.mark.parametrize("data, labels, text", [
    ("none.csv", None, r"none\.csv: cannot be opened: No such file"),
    ("two.csv", "one.csv", r"has 2 rows, .*one\.csv has 1\. Every row needs its label"),
    ("empty", None, "the folder contains no files"),
])
def test_csv_files_that_cannot_be_used_are_named(tmp_path, data, labels, text):
    write(tmp_path / "one.csv", "1\n")
    write(tmp_path / "two.csv", "1\n2\n")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match=text):
        CSVIter(tmp_path / data, (1,), 1, label_csv=labels and tmp_path / labels)


def test_a_csv_file_that_changes_its_size_is_refused_at_the_next_reset(tmp_path):
    file = write(tmp_path / "a.csv", "1\n2\n")
    it = CSVIter(file, (1,), 1)
    write(file, "1\n")
    with pytest.raises(FileError, match=r"a\.csv: had 4 bytes when it was opened and has 2 now"):
        it.reset()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.dictionaries(st.integers(0, 8), st.floats(width=32, allow_nan=False))),
                min_size=1, max_size=25), lines_end, st.integers(1, 5))
def test_libsvm_values(tmp_path_factory, rows, end, batch_size):
    text = end.join(" ".join([str(label), *(f"{i}:{row[i]!r}" for i in sorted(row))]) for label, row in rows)
    file = write(tmp_path_factory.mktemp("svm") / "a.libsvm", text)
    dense = np.zeros((len(rows), 9), np.float32)
    for i, (_, row) in enumerate(rows):
        for column, value in row.items():
            dense[i, column] = value
    data, labels = all_rows(LibSVMIter(file, (9,), batch_size))
    assert np.array_equal(data, dense)
    assert labels.tolist() == [label for label, _ in rows]
    sparse = next(LibSVMIter(file, (9,), batch_size, stype="csr")).data[0]
    assert np.array_equal(sparse.asnumpy(), dense[np.arange(batch_size) % len(rows)])
    assert sparse.stype == "csr" and np.array_equal(sparse.tostype("default").asnumpy(), sparse.asnumpy())


def rows_of(text, row):
    """Return row(line) of every line that is not empty, or the number of the first bad line: the oracle."""
    made = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line[:-1] if line.endswith("\r") and number <= text.count("\n") else line
        try:
            made += [row(line)] if line else []
        except ValueError:
            return number
    return made


def csv_row(line):
    a, b = line.split(",")
    return [float(a), float(b)]


def libsvm_row(line):
    label, *pairs = line.replace(",", " ").split()
    assert_no(":" in label)
    row, last = [float(label), 0.0, 0.0], -1
    for pair in pairs:
        index, value = pair.split(":")
        assert_no(float(index) not in (0, 1) or float(index) <= last or not index or not value)
        last = int(float(index))
        row[1 + last] = float(value)
    return row


def assert_no(wrong):
    if wrong:
        raise ValueError


@pytest.mark.parametrize("make, row, alphabet", [
    (lambda file: CSVIter(file, (2,), 2), csv_row, ["1", "2.5", ",", "1,2", "\n", "3,4\n", "\r", " ", "x", "\r\n"]),
    (lambda file: LibSVMIter(file, (2,), 2), libsvm_row,
     ["1", "-1", " ", " 0:", "1 ", ":", "1 0:2 1:3\n", "-1 1:5\n", "\n", "\r\n", "\t", ",", " 2:", "x"]),
], ids=["csv", "libsvm"])
@pytest.mark.parametrize("block", [1, 1 << 20])
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_text_gives_its_rows_or_an_error_that_names_the_line(tmp_path, monkeypatch, make, row, alphabet, block, data):
    monkeypatch.setattr(text_rows, "_BLOCK_BYTES", block)
    text = "".join(data.draw(st.lists(st.sampled_from(alphabet), max_size=14)))
    file = write(tmp_path / "a.txt", text)
    want = rows_of(text, row)
    if want == []:
        with pytest.raises(ShapeError, match="has no rows"):
            make(file)
    elif isinstance(want, int):
        with pytest.raises(FileError, match=rf"a\.txt: line {want}: "):
            all_rows(make(file))
    else:
        got, labels = all_rows(make(file))
        assert np.array_equal(got if row is csv_row else np.column_stack([labels, got]), np.array(want, np.float32))


def test_libsvm_labels_from_a_second_file(tmp_path):
    data = write(tmp_path / "a", "0 0:1\n0 1:2\n0\n")
    labels = write(tmp_path / "l", "1.0\n-2.0 0:0.125\n4 1:1.0 2:-1.2\n")
    it = LibSVMIter(data_libsvm=data, data_shape=(2,), label_libsvm=labels, label_shape=(3,), batch_size=2)
    got, label = all_rows(it)
    assert got.tolist() == [[1, 0], [0, 2], [0, 0]]
    assert np.allclose(label, [[0, 0, 0], [0.125, 0, 0], [0, 1, -1.2]])


def test_indices_of_libsvm_in_any_order(tmp_path):
    it = LibSVMIter(write(tmp_path / "a", "1 3:5 0:2\n0\n2 2:1 1:3 3:4\n3 0:6\n"), (4,), 4)
    rows = it.next().data[0]
    assert rows.asnumpy().tolist() == [[2, 0, 0, 5], [0, 0, 0, 0], [0, 3, 1, 4], [6, 0, 0, 0]]
    assert rows.indices.asnumpy().tolist() == [0, 3, 1, 2, 3, 0] and rows.indptr.asnumpy().tolist() == [0, 2, 2, 5, 6]


def test_numbers_with_a_point_are_truncated_to_integers(tmp_path):
    file = write(tmp_path / "a.csv", "1.0,2.5\n-3.7,4\n5.0e+00,-0.5\n")
    assert all_rows(CSVIter(file, (2,), 3, dtype="int32"))[0].tolist() == [[1, 2], [-3, 4], [5, 0]]
    for wrong in ("1.5,300\n", "1.5,nan\n", "1.5,x\n", "1.5\n"):
        with pytest.raises(FileError, match=r"a\.csv: line 1: it "):
            all_rows(CSVIter(write(tmp_path / "a.csv", wrong), (2,), 1, dtype="uint8"))


@pytest.mark.parametrize("line, message", [
    ("1 0:1 0:2", "an index occurs twice"),
    ("1 2:1 1:3 2:1", "an index occurs twice"),
    ("1 4:1", "index 4 is not one of 4 columns, which are counted from 0"),
    ("1 -1:1", "index -1 is not one of 4 columns"),
    ("1 0.5:1", r"index 0\.5 is not one of 4 columns"),
    ("1 nan:1", "index nan is not one of 4 columns"),
    ("1 a:1", "b'a' is not a number"),
    ("1 0:", "it is not 1 label and pairs index:value"),
    ("0:1", "it is not 1 label and pairs index:value"),
    ("1 2 0:1", "it is not 1 label and pairs index:value"),
    ("1 0:1_0", "b'1_0' is not a number"),
    ("1 0:1 # note", "it is not 1 label and pairs"),
    ("1:2 3", "it is not 1 label and pairs"),
    ("1 0: 5", "it is not 1 label and pairs"),
    ("1 0 :5", "it is not 1 label and pairs"),
    ("1 0:5:", "it is not 1 label and pairs"),
    ("1 0:1\0", "it is not 1 label and pairs"),
])
def test_damaged_libsvm_is_refused_with_its_line(tmp_path, line, message):
    file = write(tmp_path / "a.libsvm", f"1 0:1\n\n0\n{line}\n1 3:1\n")
    with pytest.raises(FileError, match=rf"a\.libsvm: line 4: {message}"):
        all_rows(LibSVMIter(file, (4,), 2))


@pytest.mark.parametrize("call, text", [
    (lambda file: LibSVMIter(file, (4,), 1, stype="sparse"), "stype='sparse' is not 'default' or 'csr'"),
    (lambda file: LibSVMIter(file, (4, 1), 1), "must each be one number"),
    (lambda file: next(LibSVMIter(file, (4,), 1, stype="csr")).data[0].tostype("row_sparse"), "'row_sparse' is not 'default'"),
])
def test_invalid_arguments_of_libsvm_are_refused(tmp_path, call, text):
    with pytest.raises(ParameterError, match=text):
        call(write(tmp_path / "a", "1 0:1\n"))
