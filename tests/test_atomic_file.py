"""atomic_file: the file at a name before, during and after a write. Oracle: plain open()."""

import errno
import os
import random
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import tritium
from tritium import atomic_file as module
from tritium.atomic_file import replace_file, write_atomic
from tritium.errors import FileError


def _names(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize("pieces", [[], [b""], [b"a", b"", b"bc"], [bytes(100_000)] * 3], ids=len)
@pytest.mark.parametrize("before", [None, b"longer than what comes"])
def test_the_bytes_are_those_given(tmp_path, pieces, before):
    file = tmp_path / "x"
    if before is not None:
        file.write_bytes(before)
    write_atomic(file, map(memoryview, pieces))
    assert file.read_bytes() == b"".join(pieces) and _names(tmp_path) == ["x"]
    write_atomic(str(file), b"".join(pieces) + b"!", sync=False)
    assert file.read_bytes() == b"".join(pieces) + b"!"


def test_text_is_utf_8(tmp_path):
    write_atomic(tmp_path / "x", "größe\n")
    assert (tmp_path / "x").read_bytes() == "größe\n".encode()


@pytest.mark.parametrize("failure", [KeyError("mine"), OSError(28, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_a_failing_block_leaves_what_was_there_and_its_own_error(tmp_path, failure):
    file = tmp_path / "x"
    file.write_text("old")
    with pytest.raises(type(failure)) as caught, replace_file(file) as new:
        with open(new, "w") as f:
            f.write("half")
        assert file.read_text() == "old" and os.path.dirname(new) == str(tmp_path) and len(_names(tmp_path)) == 2
        raise failure
    assert caught.value is failure and file.read_text() == "old" and _names(tmp_path) == ["x"]


def test_pieces_that_fail_leave_what_was_there(tmp_path):
    def pieces():
        yield b"half"
        raise FileError("mine")

    with pytest.raises(FileError, match=r"^mine$"):
        write_atomic(tmp_path / "x", pieces())
    assert _names(tmp_path) == []


def test_a_full_disk_is_told_with_the_path(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    (tmp_path / "x").write_text("old")
    with pytest.raises(FileError) as caught:
        write_atomic(tmp_path / "x", b"new")
    assert str(caught.value) == f"{tmp_path}/x: cannot be written: No space left on device. The old file is unchanged."
    assert (tmp_path / "x").read_text() == "old" and _names(tmp_path) == ["x"]


@pytest.mark.parametrize("name, why", [("no/x", "No such file or directory"), ("", "Is a directory"),
                                       ("x\0y", "embedded null byte"), ("file/x", "Not a directory"),
                                       ("n" * 300, "File name too long")])
def test_a_name_that_cannot_be_is_told(tmp_path, name, why):
    (tmp_path / "file").write_text("old")
    with pytest.raises(FileError) as caught, replace_file(f"{tmp_path}/{name}"):
        raise AssertionError("nothing can be written there")
    assert str(caught.value) == f"{tmp_path}/{name}: cannot be written: {why}. The old file is unchanged."
    assert _names(tmp_path) == ["file"]


def test_a_name_as_long_as_can_be(tmp_path):
    write_atomic(tmp_path / ("ö" * 127), b"1")
    assert _names(tmp_path) == ["ö" * 127]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_permissions_are_those_of_plain_open(tmp_path, umask):
    before = os.umask(umask)
    try:
        for name in ("theirs", "kept"):
            (tmp_path / name).write_text("plain open")
        (tmp_path / "kept").chmod(0o640)
        write_atomic(tmp_path / "ours", b"1")
        write_atomic(tmp_path / "kept", b"1")
        write_atomic(tmp_path / "secret", b"1", mode=0o600)
        with replace_file(tmp_path / "secret", mode=0o600) as new:
            assert stat.S_IMODE(os.stat(new).st_mode) == 0o600, "also before it has its name"
    finally:
        os.umask(before)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    assert modes == {"theirs": 0o666 & ~umask, "ours": 0o666 & ~umask, "kept": 0o640, "secret": 0o600}


def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "x").write_text("old")
    monkeypatch.setattr(os, "access", lambda path, how: False)  # root may write everything
    with pytest.raises(FileError, match="x: cannot be written: Permission denied"):
        write_atomic(tmp_path / "x", b"new")
    assert (tmp_path / "x").read_text() == "old"


def test_links_are_followed_and_stay(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/x")
    write_atomic(tmp_path / "link", b"1")  # where nothing is yet
    write_atomic(tmp_path / "link", b"2")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "folder" / "x").read_bytes() == b"2"
    assert _names(tmp_path / "folder") == ["x"]


def test_a_pipe_is_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomic(tmp_path / "pipe", b"through", sync=False)
    assert os.read(reader, 99) == b"through" and _names(tmp_path) == ["pipe"], "devices and pipes are never replaced"
    os.close(reader)


def test_many_writers_of_one_file(tmp_path):
    """Readers see one of the texts, whole, while others write."""
    file, texts = tmp_path / "x", [bytes([i]) * 10_000 for i in range(4)]
    file.write_bytes(texts[0])
    with ThreadPoolExecutor(4) as pool:
        writes = [pool.submit(write_atomic, file, t, sync=False) for t in texts * 5]
        while not all(w.done() for w in writes):
            assert file.read_bytes() in texts
    assert not any(w.exception() for w in writes) and _names(tmp_path) == ["x"]


#: Another process that saves, without the package around it, which takes long to import: it says when it is in the middle.
SAVING = """
import sys, types
sys.modules["t"] = package = types.ModuleType("t")
package.__path__ = [sys.argv[1]]
from t.atomic_file import replace_file
with replace_file(sys.argv[2]) as new:
    open(new, "w").write(sys.argv[3])
    print("in the middle", flush=True)
    sys.stdin.read()
"""


class Saving:
    """A process in the middle of a save."""

    def __init__(self, path, text):
        self.path, self.text = path, text
        command = [sys.executable, "-S", "-c", SAVING, os.path.dirname(tritium.__file__), str(path), text]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"in the middle\n"

    def end(self, kill):
        if kill:
            self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        assert self.process.returncode == (-signal.SIGKILL if kill else 0)


def _left(folder):
    return [name for name in _names(folder) if name.endswith(".part")]


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path):
    living, killed = Saving(tmp_path / "x", "living"), Saving(tmp_path / "epoch-7", "killed")
    killed.end(kill=True)
    assert len(_left(tmp_path)) == 2
    write_atomic(tmp_path / "y", b"1")
    assert len(_left(tmp_path)) == 1
    write_atomic(tmp_path / "x", b"mine", sync=False)
    living.end(kill=False)
    assert _names(tmp_path) == ["x", "y"] and (tmp_path / "x").read_text() == "living"


@pytest.mark.parametrize("seed", range(4))
def test_random_saves_and_kills(tmp_path, seed):
    """After every save no file is left but those of living processes; every file holds the text of the last save that ended."""
    chance, under_way, want = random.Random(seed), [], {}
    for step in range(12):
        path, text = tmp_path / f"file {chance.randrange(3)}", f"text {step}"
        what = chance.choice(["begin", "end", "kill", "save"])
        if what == "begin" and len(under_way) < 3:
            under_way.append(Saving(path, text))
        elif what in ("end", "kill") and under_way:
            saving = under_way.pop(chance.randrange(len(under_way)))
            saving.end(what == "kill")
            if what == "end":
                want[saving.path] = saving.text
        elif what == "save":
            write_atomic(path, text)
            want[path] = text
            assert len(_left(tmp_path)) == len(under_way)
        assert {p: p.read_text() for p in tmp_path.glob("file *")} == want
    for saving in under_way:
        saving.end(kill=True)
    write_atomic(tmp_path / "last", "")
    assert not _left(tmp_path)


def test_a_file_that_is_taken_for_a_leftover_before_it_is_locked_is_made_anew(tmp_path, monkeypatch):
    lock, times = module._lock, []

    def late(descriptor, wait=True):
        times.append(wait)
        if len(times) == 1:
            module._sweep(str(tmp_path))  # another process saves
        return lock(descriptor, wait)

    monkeypatch.setattr(module, "_lock", late)
    write_atomic(tmp_path / "x", b"1")
    assert times == [True, False, True] and _names(tmp_path) == ["x"] and (tmp_path / "x").read_bytes() == b"1"


def test_what_is_no_leftover_stays(tmp_path):
    """Other programs' files, folders, links, and files that cannot be opened stay."""
    names = ["x.part", ".x.part", ".x.0123456789abcdeg.part", ".x.0123456789abcdef.part.gz", ".x.0123456789abcdef"]
    for name in names:
        (tmp_path / name).write_text("theirs")
    (tmp_path / ".folder.0123456789abcdef.part").mkdir()
    (tmp_path / ".link.0123456789abcdef.part").symlink_to("x.part")
    os.mkfifo(tmp_path / ".pipe.0123456789abcdef.part")
    before = _names(tmp_path)
    (tmp_path / ".x.0123456789abcdef.part").write_text("a leftover")
    (tmp_path / ("." + "ö" * 50 + ".0123456789abcdef.part")).write_text("a leftover")
    write_atomic(tmp_path / "x", b"1")
    assert _names(tmp_path) == sorted([*before, "x"])


def test_without_locks_nothing_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "fcntl", None)
    (tmp_path / ".x.0123456789abcdef.part").write_text("a leftover, or not")
    write_atomic(tmp_path / "x", b"1")
    assert _names(tmp_path) == [".x.0123456789abcdef.part", "x"] and (tmp_path / "x").read_bytes() == b"1"
