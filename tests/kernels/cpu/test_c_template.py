"""Where C computes: from a size on, and, where NumPy gives the same bits, below it once nobody has to wait for a compiler."""

import uuid

import pytest
from tritium.kernels.cpu import c_compile
from tritium.kernels.cpu.c_template import Template

pytestmark = pytest.mark.skipif(c_compile.compiler() is None, reason="there is no C compiler")


@pytest.fixture
def begun(cpu_code, monkeypatch):
    """The names of the functions whose compilation was begun in the background; nothing is."""
    cpu_code("auto")
    asked = []
    monkeypatch.setattr(c_compile, "begin", lambda files: asked.extend(names for _, names in files))
    return asked


@pytest.fixture
def new():
    """A template that no machine has compiled."""
    name = f"nothing_{uuid.uuid4().hex}"
    return Template(lambda: f"void {name}(void *const *arrays, int64_t begin, int64_t end) {{ }}", (name,))


def test_small_work_is_numpys_until_c_is_compiled(new, begun):
    assert not new.serves(1, 100, exact=True) and begun == [new.names]
    assert new.functions()
    assert new.serves(1, 100, exact=True) and not new.serves(0, 100, exact=True)


def test_large_work_is_compiled_at_once(new, begun):
    assert new.serves(100, 100, exact=True) and not begun


def test_where_numpys_bits_differ_size_alone_decides(new, begun):
    assert not new.serves(99, 100) and new.serves(100, 100) and not new.serves(99, 100)
    assert not begun


def test_the_modes(new, begun, cpu_code):
    cpu_code("numpy")
    assert not new.serves(1000, 100, exact=True) and not begun
    cpu_code("c")
    assert new.serves(1, 100, exact=True) and not begun
