"""C libraries: compiled once, found again, whole or absent; without a compiler, or with a broken one, there are none."""

import ctypes
import os
import random
import select
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
from tritium.errors import ParameterError
from tritium.kernels.cpu import c_compile
from tritium.kernels.cpu.c_printer import c_function
from tritium.kernels.ir.expr import load
from tritium.kernels.op import Expression, Req, Spec

F32 = np.dtype("float32")
needs_compiler = pytest.mark.skipif(c_compile.compiler() is None, reason="no C compiler here")


@pytest.fixture(autouse=True)
def _fresh(tmp_path, monkeypatch):
    """A cache folder of its own, and nothing known yet."""
    monkeypatch.setenv("TRITIUM_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("_loaded", "_wanted", "_files", "_running"):
        monkeypatch.setattr(c_compile, name, {})
    for name in ("_told", "_hung"):
        monkeypatch.setattr(c_compile, name, set(), raising=False)
    c_compile.compiler.cache_clear()
    yield
    monkeypatch.undo()
    c_compile.compiler.cache_clear()


def forget():
    """As a new process would begin."""
    c_compile._loaded.clear()
    c_compile._wanted.clear()


def times(number):
    """x times a number, as a C function."""
    spec = [Spec((10,), F32)]
    made = c_function(Expression((load(0, F32) * number,)), spec, spec, [Req.WRITE])
    assert not isinstance(made, str)
    return made


def right(f, number):
    loaded = c_compile.function(f)
    assert loaded is not None
    for call in (loaded.free, loaded.short):
        x, y = np.arange(10, dtype=F32), np.zeros(10, F32)
        call((ctypes.c_void_p * 2)(x.ctypes.data, y.ctypes.data), 2, 9)
        assert (y == [0, 0, *(x[2:9] * np.float32(number)), 0]).all()
    return True


def fake(tmp_path, monkeypatch, body):
    """A compiler that is a shell script; the calls that compile are counted in a file."""
    script = tmp_path / "cc.sh"
    script.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo fake 1; exit 0; fi\necho >> {tmp_path}/calls\n{body}\n')
    script.chmod(0o755)
    monkeypatch.setenv("TRITIUM_CC", str(script))
    return lambda: len((tmp_path / "calls").read_text().splitlines()) if (tmp_path / "calls").exists() else 0


@needs_compiler
def test_requested_functions_are_compiled_by_one_call_of_the_compiler(tmp_path, monkeypatch):
    calls = fake(tmp_path, monkeypatch, 'exec cc "$@"')
    functions = [times(n) for n in (2, 3, 5)]
    for f in functions:
        c_compile.request(f)
    assert c_compile.compile_wanted() == 3 and c_compile.compile_wanted() == 0
    assert all(right(f, n) for f, n in zip(functions, (2, 3, 5)))
    assert calls() == 1 and len(list(c_compile.folder().glob("*"))) == 1
    c_compile.request(functions[0])
    assert c_compile.compile_wanted() == 0
    forget()
    for f in functions:
        c_compile.request(f)
    assert c_compile.compile_wanted() == 3 and right(functions[1], 3) and calls() == 1
    assert c_compile.usage() == (1, next(c_compile.folder().glob("*")).stat().st_size)


@needs_compiler
def test_quick_functions_are_compiled_apart_with_less_optimization(tmp_path, monkeypatch):
    calls = fake(tmp_path, monkeypatch, f'echo "$@" >> {tmp_path}/flags\nexec cc "$@"')
    quick, plain = times(2), times(3)
    c_compile.request(quick, quick=True)
    c_compile.request(plain)
    assert c_compile.compile_wanted() == 2 and calls() == 2 and right(quick, 2) and right(plain, 3)
    used = [[w for w in line.split() if w.startswith("-O")] for line in (tmp_path / "flags").read_text().splitlines()]
    assert used == [["-O3"], ["-O3", "-O1"]]  # the last one counts


@needs_compiler
@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b[:-1], lambda b: b"", lambda b: b"no library" * 9,
                                    lambda b: b[:5000] + bytes([b[5000] ^ 1]) + b[5001:]])
def test_a_damaged_library_counts_as_absent(damage, tmp_path, monkeypatch):
    calls = fake(tmp_path, monkeypatch, 'exec cc "$@"')
    f = times(7)
    assert right(f, 7) and calls() == 1
    (path,) = c_compile.folder().glob("*.so")
    whole = path.read_bytes()
    path.unlink()  # the open library keeps its file
    path.write_bytes(damage(whole))
    forget()
    assert right(f, 7) and calls() == 2
    assert len(path.read_bytes()) == len(whole)


@needs_compiler
def test_another_compiler_processor_or_text_is_another_file(monkeypatch):
    made_by = c_compile.compiler()
    path = c_compile.library_path("a", made_by)
    assert path != c_compile.library_path("b", made_by)
    newer = c_compile.Compiler(made_by.command, "another version", made_by.flags)
    assert path != c_compile.library_path("a", newer)
    monkeypatch.setattr(c_compile, "processor", lambda: "another")
    assert path != c_compile.library_path("a", made_by)


@needs_compiler
def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file stands where the folder would be")
    f = times(11)
    assert right(f, 11)
    forget()
    assert right(f, 11) and c_compile.usage() == (0, 0)


@pytest.mark.parametrize(("body", "words"), [
    ("echo 'kernels.c: no such type' >&2; exit 1", "kernels.c: no such type"), ("kill -SEGV $$", "SIGSEGV"),
    ("exit 0", "No such file"), ("shift 999; exit 3", "exit status")])
def test_a_compiler_that_fails(body, words, tmp_path, monkeypatch, caplog):
    calls = fake(tmp_path, monkeypatch, body)
    assert c_compile.function(times(13)) is None and c_compile.function(times(13)) is None and calls() == 1
    assert c_compile.function(times(17)) is None
    assert "the C compiler failed" in caplog.text and "computed with NumPy" in caplog.text
    assert words in c_compile.self_test() or words == "exit status"
    assert not list((tmp_path / "cache").glob("**/*.so"))


def test_a_compiler_that_makes_nonsense(tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, 'while [ "$1" != -o ]; do shift; done; echo nonsense > "$2"')
    assert c_compile.function(times(13)) is None
    assert "trial" in c_compile.self_test() or c_compile.self_test()


def test_no_compiler_is_said_once(monkeypatch, caplog):
    monkeypatch.setattr(c_compile, "_warned", set())
    monkeypatch.setenv("TRITIUM_CC", "there-is-no-such-compiler")
    assert c_compile.compiler() is None and not c_compile.available() and not c_compile.available()
    assert c_compile.function(times(2)) is None and c_compile.self_test() == ""
    assert caplog.text.count("no C compiler was found") == 1


def test_the_compiler_in_a_package_is_taken_where_no_other_is_installed(tmp_path, monkeypatch):
    """The package ziglang is a program, `python -m ziglang cc`; here it is a script of that name which calls cc."""
    package = tmp_path / "packages" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("import subprocess, sys\nprint('zig 0') if '--version' in sys.argv else None\n")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", str(package.parent), prepend=os.pathsep)
    monkeypatch.delenv("TRITIUM_CC", raising=False)
    if shutil.which("cc"):
        assert c_compile.compiler().command == ("cc",)
    c_compile.compiler.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    found = c_compile.compiler()
    assert found.command == (sys.executable, "-m", "ziglang", "cc") and found.version == "zig 0"


def test_a_compiler_that_hangs_is_waited_for_once(tmp_path, monkeypatch, caplog):
    """It, and what it started, are ended; every later batch is NumPy's at once."""
    os.mkfifo(tmp_path / "never")
    calls = fake(tmp_path, monkeypatch, f"cat {tmp_path}/never; exit 0")
    assert c_compile.available()
    writers = []

    def communicate(process, input=None, timeout=None):
        writers.append(os.open(tmp_path / "never", os.O_WRONLY))  # waits until the script's child reads
        raise subprocess.TimeoutExpired("cc", timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", communicate)
    assert [c_compile.function(times(n)) for n in (13, 17, 19)] == [None] * 3 and calls() == 1
    assert not c_compile.available() and c_compile.function(times(23)) is None and calls() == 1
    assert caplog.text.count("the C compiler failed") == 1 and "timed out after 60.0 seconds" in caplog.text
    ended = select.poll()
    ended.register(writers[0], 0)
    assert ended.poll(30_000) == [(writers[0], select.POLLERR)], "nobody reads any more"
    os.close(writers[0])


@pytest.mark.parametrize("seed", range(40))
def test_any_text_in_tritium_cc_is_a_command_none_or_a_named_error(monkeypatch, seed):
    chance = random.Random(seed)
    given = "".join(chance.choices(["gcc", "cc ", "'", '"', "\\", " ", "-m64", "#", "\n", "ö", "\udcff", "$(x)", "|"],
                                  k=chance.randrange(7)))
    monkeypatch.setenv("TRITIUM_CC", given)
    try:
        found = c_compile.compiler()
    except ParameterError as e:
        assert str(e).startswith(f"TRITIUM_CC: {given!r} is not a command: No ") and c_compile.self_test() == str(e)
    else:
        assert found is None or "cc" in found.command[0]


def test_an_open_quote_in_tritium_cc_is_named(monkeypatch):
    monkeypatch.setenv("TRITIUM_CC", "gcc 'open")
    with pytest.raises(ParameterError, match=r"TRITIUM_CC: \"gcc 'open\" is not a command: No closing quotation\. "
                                             r"Change it, or unset it\."):
        c_compile.compiler()


def test_compiler_messages_that_are_not_utf_8_are_reported(tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, "printf 'caf\\351: no' >&2; exit 1")
    assert c_compile.function(times(13)) is None and c_compile.self_test() == "caf\ufffd: no"


def test_an_unknown_mode_is_named(monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "fortran")
    with pytest.raises(ParameterError, match="TRITIUM_CPU_CODE: 'fortran' is not one of auto, c, numpy"):
        c_compile.mode()
    monkeypatch.setenv("TRITIUM_CPU_CODE", "")
    assert c_compile.mode() == "auto"


@needs_compiler
def test_processes_that_compile_at_once():
    text = ("import numpy as np, test_c_compile as t\n"
            "assert all(t.right(t.times(n), n) for n in (2, 3, 4))\n")
    here = os.path.dirname(__file__)
    running = [subprocess.Popen([sys.executable, "-c", text], env={**os.environ, "PYTHONPATH": here}, stderr=subprocess.PIPE)
               for _ in range(2)]
    for process in running:
        said = process.communicate(timeout=120)[1].decode()
        assert process.returncode == 0, said
    assert [p.suffix for p in c_compile.folder().iterdir()] == [".so"] * 3


# ---- files that are begun before they are needed ------------------------------------------------------------------------
def file(number):
    """A C file with a function that stores a number."""
    text = "#include <stdint.h>\nvoid stored_%d(void *const *a, int64_t b, int64_t e) { *(int64_t *)a[0] = %d; }\n"
    return text % (number, number), (f"stored_{number}",)


def stored(number):
    found = c_compile.library(*file(number))
    if found is None:
        return None
    place = ctypes.c_int64()
    found[f"stored_{number}"].short((ctypes.c_void_p * 1)(ctypes.addressof(place)), 0, 1)
    return place.value


def ended():
    for thread in threading.enumerate():
        if thread.name == "tritium C compiler":
            thread.join()


@needs_compiler
def test_begun_files_are_compiled_without_being_asked_for_and_once(tmp_path, monkeypatch):
    calls = fake(tmp_path, monkeypatch, 'exec cc "$@"')
    c_compile.begin([file(n) for n in (1, 2, 3)])
    c_compile.begin([file(n) for n in (1, 2, 3)])
    ended()
    assert calls() == 3 and set(c_compile._loaded) == {"stored_1", "stored_2", "stored_3"} and not c_compile._files
    assert [stored(n) for n in (1, 2, 3)] == [1, 2, 3] and calls() == 3
    forget()
    c_compile.begin([file(n) for n in (1, 2, 3)])
    ended()
    assert not c_compile._loaded, "what is in the cache folder is loaded when it is asked for"
    assert stored(2) == 2 and calls() == 3


@needs_compiler
def test_a_file_is_compiled_by_who_asks_first_and_the_last_one_first_in_the_background(tmp_path, monkeypatch):
    """The helper waits at the last file until the first one is asked for, which it then has not begun."""
    os.mkfifo(tmp_path / "go")
    fake(tmp_path, monkeypatch, f"for a; do case $a in *.c) grep -o 'stored_[0-9]' $a >> {tmp_path}/order;"
                                f" grep -q stored_3 $a && read x < {tmp_path}/go; esac; done; exec cc \"$@\"")
    c_compile.begin([file(n) for n in (1, 2, 3)])
    with open(tmp_path / "go", "w") as go:  # opened once the helper's compiler reads
        assert stored(1) == 1
        go.write("on\n")
    ended()
    assert (tmp_path / "order").read_text().split() == ["stored_3", "stored_1", "stored_2"]
    assert [stored(n) for n in (2, 3)] == [2, 3]


def test_a_begun_file_that_does_not_compile_is_none(tmp_path, monkeypatch, caplog):
    calls = fake(tmp_path, monkeypatch, "echo no such thing >&2; exit 1")
    c_compile.begin([file(4)])
    ended()
    assert stored(4) is None and calls() == 1 and caplog.text.count("the C compiler failed") == 1


def test_without_a_compiler_nothing_is_begun(monkeypatch):
    monkeypatch.setenv("TRITIUM_CC", "there-is-no-such-compiler")
    c_compile.begin([file(5)])
    assert not c_compile._files and not c_compile._helper and stored(5) is None


@needs_compiler
def test_a_forked_child_does_not_wait_for_its_parents_threads():
    c_compile._running["stored_6"] = threading.Event()  # a thread of the parent compiles it
    c_compile._files["stored_7"] = file(7)
    c_compile._helper.append(threading.current_thread())
    c_compile._forget_running()
    assert not c_compile._files and not c_compile._helper and stored(6) == 6


@needs_compiler
def test_a_process_that_ends_leaves_whole_files_and_no_others(tmp_path):
    text = ("import test_c_compile as t\nfrom tritium.kernels.cpu import c_compile\n"
            "c_compile.begin([t.file(n) for n in (8, 9)])\n")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    subprocess.run([sys.executable, "-c", text], timeout=120, check=True, env={
        **os.environ, "TMPDIR": str(scratch), "PYTHONPATH": os.pathsep.join(
            [os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])})
    files = list(c_compile.folder().glob("*"))
    assert len(files) <= 2 and all(p.suffix == ".so" and c_compile._intact(p) for p in files)
    assert not list(scratch.iterdir())
