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
from tritium.kernels.gpu.compile import compile_all
from tritium.kernels.gpu.record import FakeArray, FakeRun, record
from tritium.kernels.op import Req, Spec
from tritium.ndarray.custom import custom_op

PAGE = Path(__file__).resolve().parents[1] / "docs" / "operators.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)


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


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The page run on each device, once. The names of its operators are known while the tests of this file run."""
    with pytest.MonkeyPatch.context() as patch:
        for table in ("_registry", "_declared_in"):
            patch.setattr(registry, table, dict(getattr(registry, table)))
        patch.setattr(custom_op, "_types", dict(custom_op._types))
        yield [run_page(ctx, tmp_path_factory.mktemp("page")) for ctx in (mx.cpu(0), mx.gpu(0))]


needs_gpu = pytest.mark.skipif(importlib.util.find_spec("triton") is None or GPU_MODE == "off", reason="there is no GPU")


@needs_gpu
def test_every_block_gives_the_same_on_both_devices(pages):
    (_, cpu), (_, gpu) = pages
    assert len(BLOCKS) >= 20
    for i, (a, b) in enumerate(zip(cpu, gpu)):
        assert a.keys() == b.keys(), BLOCKS[i]
        for name in a:
            assert a[name].dtype == b[name].dtype and a[name].shape == b[name].shape, (name, BLOCKS[i])
            assert_close(b[name], a[name])
    assert len(cpu[-1]) > 20


@needs_gpu
@pytest.mark.parametrize("device", [0, 1], ids=["cpu", "gpu"])
def test_the_convolution_of_the_page_has_the_derivatives_of_ours(pages, device):
    ctx, bound = (mx.cpu(0), mx.gpu(0))[device], pages[device][0]["bound"]
    data, weight = (bound.arg_dict[n] for n in ("data", "conv_weight"))
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


def launched(name, inputs, states=(), **params):
    """Call forward and backward of a layer of the page on recorded arrays, adding derivatives."""
    op = registry.get(name)
    p = op.parse(params)
    shapes, made = op.infer_shape(p, [*inputs, *states])
    ins, outs = ([Spec(tuple(s), np.dtype("float32")) for s in group] for group in (shapes, made))
    g = op.gradient_of(p)
    for o, a, b, req in ((op, ins, outs, Req.WRITE), *([] if g is None else [(g.op, *backward_specs(g, ins, outs), Req.ADD)])):
        fakes = [[FakeArray(s.shape, s.dtype) for s in group] for group in (a, b)]
        more = {"random": (1, 2)} if o.num_random(p, b) else {}
        o.kernel(p, tuple(a), tuple(b), (req,) * len(b), "gpu", True)(FakeRun(), *fakes, **more)


def backward_specs(g, ins, outs):
    of = {"x": ins, "dy": outs, "y": outs}
    return [of[kind][i] for kind, i in g.needs], [ins[i] for i in g.gives]


@needs_gpu
@pytest.mark.parametrize("target", [90, *(pytest.param(t, marks=pytest.mark.nightly) for t in (80, 100))])
def test_the_kernels_of_the_page_compile(target, pages):
    with record(target) as recorder:
        launched("MyScale", [(3000,)])
        launched("MyDropout", [(3000,)])
        launched("MyLabelLoss", [(30, 10), (30,)])
        launched("MyConvolution", [(4, 3, 100), None], [None], num_filter=2)
        launched("my_sorted", [(30, 100)])
    for outcome in compile_all(recorder.jobs, timeout=240):
        assert not isinstance(outcome, Exception), outcome
        assert outcome.spills == 0, outcome
    assert {"scale_kernel", "drop_kernel", "times_kernel", "row_loss_kernel", "sum_kernel", "conv_kernel", "conv_dx_kernel",
            "conv_dw_kernel", "count_kernel", "sort_rows"} <= {job.name for job in recorder.jobs}


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
