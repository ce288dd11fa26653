"""Whatever reads a file refuses a pipe, which may never begin, and a device, which may never end, before it reads."""

import contextlib
import os
import threading

import pytest
import tritium as mx
from support.image_files import write_pictures
from tritium import atomic_file
from tritium.atomic_file import read_file
from tritium.cli.inspect import inspect_file
from tritium.errors import FileError
from tritium.io.image.im2rec import pack_list
from tritium.kernels.configs.store import read_rows


@contextlib.contextmanager
def pipe(path):
    """An empty pipe. A reader waits for this writer and then reads its end, so that no test hangs."""
    os.mkfifo(path)
    done = threading.Event()

    def write():
        while not done.is_set():
            os.close(os.open(path, os.O_WRONLY))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield path
    finally:
        done.set()
        while writer.is_alive():
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            writer.join(0.01)


def module():
    made = mx.mod.Module(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1), label_names=None)
    made.bind([("data", (1, 2))])
    made.init_params()
    return made


def module_states(path, store=None):
    made = module()
    made.init_optimizer(kvstore=store)
    made.load_optimizer_states(path)


def store_states(path):
    kv = mx.kv.create("local")
    kv.set_optimizer(mx.optimizer.SGD())
    kv.load_optimizer_states(path)


def checkpoint(path):
    """The parameters of a checkpoint whose symbol is a good one."""
    prefix = f"{path}-net"
    module().symbol.save(f"{prefix}-symbol.json")
    os.symlink(path, f"{prefix}-0001.params")
    mx.model.load_checkpoint(prefix, 1)


def beside_records(path, **more):
    """A good record file, with path in place of a file that belongs to it."""
    records = f"{path}-good.rec"
    write_pictures(records, 2)
    return mx.io.ImageRecordIter(path_imgrec=records, data_shape=(3, 40, 50), batch_size=1, **more)


def index(path):
    write_pictures(f"{path}-good.rec", 2)
    mx.recordio.MXIndexedRecordIO(path, f"{path}-good.rec", "r")


def packed(path):
    """An image of a list."""
    with open(f"{path}.lst", "w") as f:
        f.write(f"0\t1\t{os.path.basename(path)}\n")
    pack_list(f"{path}.lst", os.path.dirname(path))


LOADERS = {
    "read_file": read_file, "nd.load": mx.nd.load, "nd.load_metadata": mx.nd.load_metadata, "sym.load": mx.sym.load,
    "load_checkpoint": checkpoint, "Module.load_optimizer_states": module_states, "KVStore.load_optimizer_states": store_states,
    "MXRecordIO": lambda path: mx.recordio.MXRecordIO(path, "r"), "MXIndexedRecordIO's index": index,
    "MXIndexedRecordIO": lambda path: mx.recordio.MXIndexedRecordIO(f"{path}.idx", path, "r"),
    "ImageRecordIter": lambda path: mx.io.ImageRecordIter(path_imgrec=path, data_shape=(3, 4, 4), batch_size=1),
    "ImageRecordIter's index": lambda path: beside_records(path, path_imgidx=path),
    "ImageRecordIter's list": lambda path: beside_records(path, path_imglist=path),
    "ImageRecordIter's mean": lambda path: beside_records(path, mean_img=path),
    "ImageIter's list": lambda path: mx.image.ImageIter(1, (3, 4, 4), path_imglist=path, path_root="."),
    "CSVIter": lambda path: mx.io.CSVIter(path, (1,), batch_size=1),
    "LibSVMIter": lambda path: mx.io.LibSVMIter(path, (1,), batch_size=1),
    "MNISTIter": lambda path: mx.io.MNISTIter(path, path), "imread": mx.image.imread, "im2rec": packed,
    "Load": lambda path: mx.init.Load(path), "inspect": inspect_file, "tune --import": lambda path: list(read_rows(path)),
}


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_what_may_have_no_end_is_not_read(tmp_path, load):
    text = r"/no-end\S*: is a folder, a pipe or a device, and not a file"
    (tmp_path / "pipe").mkdir()
    with pipe(tmp_path / "pipe" / "no-end") as made, pytest.raises(FileError, match=text):
        load(str(made))
    os.symlink("/dev/zero", tmp_path / "no-end")
    with pytest.raises(FileError, match=text):
        load(str(tmp_path / "no-end"))


def test_a_file_that_grows_is_read_to_where_it_ended(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    size = os.fstat

    def and_then_it_grows(descriptor):
        told = size(descriptor)
        with open(path, "ab") as f:
            f.write(b"more")
        return told

    monkeypatch.setattr(atomic_file.os, "fstat", and_then_it_grows)
    assert read_file(path) == b"12345more" and path.stat().st_size == 13, "it grew twice, and once before its size was asked for"
