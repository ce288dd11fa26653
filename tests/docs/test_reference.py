"""The reference lists every public name, each has a docstring, and docstrings are rendered as they are written."""

import inspect
import re
import sys
import types
from collections import Counter
from pathlib import Path

import pytest
import tritium as mx
from tritium.kernels import op as registry
from tritium.kernels.params import meaning

pytest.importorskip("sphinx")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from reference import pages, public
from reference.docstring import nodes_of
from root_pages import relinked

#: Modules that `mx` has because its own file imports them or they are folders of the code.
INNER = {"contrib", "np_shape"}


@pytest.mark.parametrize("name", public.MODULES)
def test_every_name_of_a_module_is_in_the_reference(name):
    module = public.module(name)
    listed = set(public.public_names(name)) | {n for space, n in public.operator_names() if space == name}
    offered = set(getattr(module, "__all__", dir(module)))
    if isinstance(module, public.Namespace):
        offered = set(module._extra)  # every operator is there, too
    else:
        offered -= public.imported(module) | registry._declared_in.keys()  # operators that other tests declared
    values = {n: getattr(module, n) for n in offered if not n.startswith("_")}
    missing = {n for n, v in values.items() if n not in listed and not isinstance(v, types.ModuleType) and public.is_ours(v)}
    assert not missing


@pytest.mark.parametrize("name", public.MODULES)
def test_every_public_name_has_a_docstring(name):
    missing = []
    for entry in public.entries()[name]:
        value = entry.value
        if not callable(value) or entry.home != f"{name}.{entry.name}":
            continue
        if not (inspect.getdoc(value) or "").strip():
            missing.append(entry.name)
        if inspect.isclass(value):
            missing += [f"{entry.name}.{n}" for n, v, stored in public.members(value)
                        if not (inspect.getdoc(stored if isinstance(stored, property) else v) or "").strip()]
    assert not missing


def test_every_module_of_mx_has_a_page():
    described = {id(public.module(n)) for n in public.MODULES}
    names = {n for n in dir(mx) if not n.startswith("_") and isinstance(getattr(mx, n), types.ModuleType)}
    assert not {n for n in names - INNER if id(getattr(mx, n)) not in described}


def test_operators_are_described_once_and_have_docstrings():
    found = public.operators()
    titles = [o.names[0] for o in found]
    assert len(set(titles)) == len(titles) >= 300
    assert not [o.names[0] for o in found if not (o.op.doc or "").strip()]
    for o in found:
        assert (ROOT / o.file).exists(), o
        for n in o.names:
            where, _, last = f"mx.nd.{n}".rpartition(".")
            assert callable(getattr(public.module(where), last)), n
    for n in ("Convolution", "contrib.box_nms", "linalg.gemm", "linalg_gemm", "image.normalize", "sgd_update"):
        assert any(n in o.names for o in found), n


def test_parameters_of_several_operators_are_described():
    """By the declaration, by the operator's docstring, or by the usual meaning of the name."""
    silent = [(d.name, o.names[0]) for o in public.operators() for d in o.op.params if d.name != "num_args"
              if not meaning(d, o.op.doc) and not re.search(rf"\b{d.name}\b", o.op.doc or "")]
    often = Counter(name for name, _ in silent)
    assert not [pair for pair in silent if often[pair[0]] > 2]
    assert len(silent) < 40


def test_no_home_is_documented_twice():
    titles = {f"mx.nd.{o.names[0]}" for o in public.operators()}
    homes = [e.home for names in public.entries().values() for e in names if e.home == f"{e.module}.{e.name}"]
    assert len(set(homes)) == len(homes)
    assert not titles & set(homes)


def text_of(docstring):
    return [(type(n).__name__, n.astext()) for n in nodes_of(docstring, lambda _: None)]


def test_a_docstring_is_rendered_as_it_is_written():
    assert text_of("""Return *a* |b| `c_`: [n, c].

    a, b:    two arrays, of shape
             [n, 2].
    Returns: a number; `x ** 2`
        and more.

    A sentence that goes on with
    dots: it is no field.

        def f(x):

            return x

    * one
      and more
    * two
    Source: a book.
    """) == [
        ("paragraph", "Return *a* |b| c_: [n, c]."),
        ("field_list", "a, b\n\ntwo arrays, of shape [n, 2].\n\nReturns\n\na number; x ** 2 and more."),
        ("paragraph", "A sentence that goes on with dots: it is no field."),
        ("literal_block", "def f(x):\n\n    return x"),
        ("bullet_list", "one and more\n\ntwo"),
        ("field_list", "Source\n\na book."),
    ]


def test_a_first_sentence_and_names_of_things_are_no_fields():
    assert [kind for kind, _ in text_of("Gluon: networks.")] == ["paragraph"]
    assert [kind for kind, _ in text_of("size: of it.")] == ["paragraph"]
    assert [kind for kind, _ in text_of("A thing.\n\nModule: a network.")] == ["paragraph", "paragraph"]
    assert [kind for kind, _ in text_of("A thing.\n\nX:  of shape [n].")] == ["paragraph", "field_list"]


def test_every_docstring_can_be_rendered():
    for names in public.entries().values():
        for e in names:
            if callable(e.value):
                words = " ".join(t for _, t in text_of(inspect.getdoc(e.value))).split()
                assert len(words) >= len((inspect.getdoc(e.value) or "").split()) * 0.7, e.home


def test_the_pages_of_the_reference():
    found = pages()
    assert {f"modules/{m}" for m in public.MODULES} | {f"operators/{k}" for k in public.KINDS} <= found.keys()
    assert "* [mx.io](modules/mx.io.md): " in found["index"]


def test_links_between_the_root_and_the_site(tmp_path):
    site = ROOT / "docs"
    assert relinked("[a](../SECURITY.md#x) [b](engine.md) [c](../perf/README.md)", site, site) == \
        "[a](project/security.md#x) [b](engine.md) c"
    assert relinked("[a](docs/engine.md) [`b`](LICENSE)\n```\n[a](docs/engine.md)\n```", ROOT, site) == \
        "[a](../engine.md) `b`\n```\n[a](docs/engine.md)\n```"
    assert relinked("[a](https://x.org/y.md) [b](#here)", site, site) == "[a](https://x.org/y.md) [b](#here)"
