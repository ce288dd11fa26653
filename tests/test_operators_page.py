"""docs/operators.md: its blocks run in order on both devices and give equal arrays; its table of lines is counted from them."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.context import GPU_MODE
from tritium.kernels import op as registry
from tritium.ndarray.custom import custom_op

PAGE = Path(__file__).resolve().parents[1] / "docs" / "operators.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)


@pytest.fixture(autouse=True)
def names(monkeypatch):
    """Restore the registered names of operators after the test."""
    for table in ("_registry", "_declared_in"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
    monkeypatch.setattr(custom_op, "_types", dict(custom_op._types))


def arrays(namespace):
    """{name: values} of the arrays in a namespace, and of their derivatives."""
    found = {name: a for name, a in namespace.items() if isinstance(a, mx.nd.NDArray)}
    found |= {f"{name}.grad": a.grad for name, a in found.items() if a.grad is not None}
    return {name: a.asnumpy() for name, a in found.items()}


def run_page(ctx, folder):
    """Run the blocks as the cells of a notebook. Returns: the namespace, and the arrays in it after each block."""
    namespace, after = {"__name__": "__main__"}, []
    for i, code in enumerate(BLOCKS):
        path = folder / f"block{i}.py"  # a file, because jit reads the text of kernels
        path.write_text(code, encoding="utf-8")
        mx.random.seed(i)
        with ctx:
            exec(compile(code, str(path), "exec"), namespace)
            after.append(arrays(namespace))
    return namespace, after


@pytest.mark.skipif(importlib.util.find_spec("triton") is None or GPU_MODE == "off", reason="there is no GPU")
def test_every_block_gives_the_same_on_both_devices(tmp_path):
    (_, cpu), (_, gpu) = run_page(mx.cpu(0), tmp_path), run_page(mx.gpu(0), tmp_path)
    assert len(BLOCKS) >= 20
    for i, (a, b) in enumerate(zip(cpu, gpu)):
        assert a.keys() == b.keys(), BLOCKS[i]
        for name in a:
            assert a[name].dtype == b[name].dtype and a[name].shape == b[name].shape, (name, BLOCKS[i])
            assert_close(b[name], a[name])
    assert len(cpu[-1]) > 20


def test_the_layers_of_the_page_have_the_derivatives_of_ours(ctx, tmp_path):
    namespace, _ = run_page(ctx, tmp_path)
    data, weight = (namespace["bound"].arg_dict[n] for n in ("data", "conv_weight"))
    data.attach_grad("add"), weight.attach_grad()
    rng = np.random.default_rng(0)
    dy = mx.nd.array(rng.normal(size=(2, 2, 5)), ctx)
    found = []
    for name, more in (("MyConvolution", {"kernel": 3}), ("Convolution", {"kernel": (3,), "no_bias": True})):
        data.grad[:] = 1
        states = [mx.nd.zeros(1, ctx)] if name == "MyConvolution" else []
        with mx.autograd.record():
            y = getattr(mx.nd, name)(data, weight, *states, num_filter=2, **more)
        y.backward(dy)
        found.append([y.asnumpy(), data.grad.asnumpy(), weight.grad.asnumpy()])
    for got, want in zip(*found):
        assert_close(got, want)


def lines_of(code):
    """The lines of code that are neither blank nor comments nor docstrings."""
    code = re.sub(r'"""(?:.|\n)*?"""', "", code)
    return len([line for line in code.splitlines() if line.strip() and not line.strip().startswith("#")])


def test_the_table_of_lines_is_true():
    section = TEXT.split("## How many lines", 1)[1]
    rows = dict(re.findall(r"^\| `(\w+)`[^|]*\| (\d+) \|", section, re.M))
    assert rows
    blocks = dict(re.findall(r"<!-- lines: (\w+) -->\n```python\n(.*?)^```", TEXT, re.M | re.S))
    assert {name: int(n) for name, n in rows.items()} == {name: lines_of(code) for name, code in blocks.items()}


def test_links_lead_somewhere():
    text = re.sub(r"```.*?```", "", TEXT, flags=re.S)
    for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", text):
        assert (PAGE.parent / target).exists(), target
    assert "docs/operators.md" in (PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    assert "operators.md" in (PAGE.parent / "architecture.md").read_text(encoding="utf-8")
