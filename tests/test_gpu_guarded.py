"""Every operator's GPU kernels, interpreted, between unreadable pages: no byte outside an array is read or written, scratch
included. A child process makes the attempt; a sample for every change, all of them nightly."""

import signal
import types
import zlib

import numpy as np
import pytest
from support.guard_pages import dies_of, guarded
from support.operator_jobs import DTYPES, on_host, operators, specs_of, uses
from test_every_operator import Integers, data
from tritium.kernels.gpu.load import INTERPRET
from tritium.kernels.op import Req, Spec

pytestmark = pytest.mark.skipif(not INTERPRET, reason="needs TRITIUM_GPU=interpret")
torch = pytest.importorskip("torch")
LENGTH = 1003  # elements of an elementwise operator's arrays
USES = [pytest.param(o, *use, id=f"{o.name}-{i}") for o in operators() for i, use in enumerate(uses(o, LENGTH))
        if not on_host(o, o.parse(use[1])) and sum(np.prod(s.shape if isinstance(s, Integers) else s) for s in use[0]) < 1e6]
SAMPLE = [u for u in USES if zlib.crc32(u.id.encode()) % 12 == 0]


def tensor(a):
    """A tensor that ends at an unreadable page. Halves of another kind are their bits."""
    end = guarded(np.ascontiguousarray(a))
    return torch.from_numpy(end.view("int16")).view(torch.bfloat16) if a.dtype.name == "bfloat16" else torch.from_numpy(end)


def launch(op, p, arrays, outs, req):
    run = types.SimpleNamespace(stream=None, workspace=lambda s, d: tensor(np.full(s, 1, d)), parallel=None, constant=tensor,
                                to_host=lambda a: a.numpy())
    more = {"random": (1, 2)} if op.num_random(p, outs) else {}
    if p.scalars:
        more["scalars"] = p.scalars
    kernel = op.kernel(p, tuple(Spec(a.shape, a.dtype) for a in arrays), tuple(outs), (req,) * len(outs), "gpu", True)
    made = [np.full(s.shape, 1, s.dtype) for s in outs]
    tensors = [tensor(m) for m in made]
    kernel(run, [tensor(a) for a in arrays], tensors, **more)
    return [t.float().numpy().astype(s.dtype) if s.dtype.name == "bfloat16" else t.numpy() for t, s in zip(tensors, outs)]


def attempt(op, inputs, params):
    p, rng = op.parse(params), np.random.default_rng(0)
    ins, outs = specs_of(op, p, inputs, DTYPES["float32"])
    arrays = [np.abs(x).astype(s.dtype) for x, s in zip(data(inputs, rng), ins)]
    for req in (Req.WRITE, Req.ADD):
        results = launch(op, p, arrays, outs, req)
        gradient = op.gradient_of(p)
        if gradient is not None:
            heads = [rng.normal(size=s.shape).astype(s.dtype) for s in outs]
            groups = {"dy": heads, "x": arrays, "y": results}
            needs = [groups[kind][i] for kind, i in gradient.needs]
            gives = [Spec(arrays[i].shape, arrays[i].dtype) for i in gradient.gives]
            launch(gradient.op, p, needs, gives, req)


@pytest.mark.parametrize("op, inputs, params", SAMPLE)
def test_a_sample(op, inputs, params):
    died = dies_of(lambda: attempt(op, inputs, params))
    assert died == 0, f"{op.name}: {signal.Signals(died).name if died > 0 else 'an exception: see standard error'}"


@pytest.mark.nightly
@pytest.mark.parametrize("op, inputs, params", USES)
def test_all(op, inputs, params):
    test_a_sample(op, inputs, params)
