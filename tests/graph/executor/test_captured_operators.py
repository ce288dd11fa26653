"""The operators that a CUDA graph can hold: all but a few, each of which has its reason here."""

from typing import Any

import numpy as np
import pytest
import tritium as mx
from support.census import MORE
from support.helpers import assert_close
from support.operator_jobs import DTYPES, operators, specs_of, uses
from tritium.engine.gpu import cuda
from tritium.errors import MXNetError
from tritium.graph import options
from tritium.graph.executor.cuda_graph import CapturedSegment
from tritium.kernels.declare.composite import composite, ops

interpreted = pytest.mark.skipif(not mx.num_gpus() or cuda.is_real(), reason="needs the interpreted GPU")

#: Operators that break a capture -> the reason.
APART = {
    "Custom": "a user's code may do anything",
    "_foreach": "the host runs the rounds, and may stop",
    "_while_loop": "the host reads the condition of each round",
    "_cond": "the host reads the condition",
    "_linalg_gelqf": "LAPACK computes it on the host",
    "_linalg_syevd": "LAPACK computes it on the host",
    "_contrib_ROIAlign": "NumPy computes it on the host",
    "_contrib_RROIAlign": "NumPy computes it on the host",
    "_contrib_DeformablePSROIPooling": "NumPy computes it on the host",
    "_image_random_color_jitter": "its numbers, drawn on the host, say which kernels run in which order",
}


def captured(op):
    """True if a CUDA graph holds every use of an operator, and its derivative."""
    found = [(u, p, "float32") for u, p in uses(op, length=1000)] or MORE.get(op.name, [])
    if not found:
        return op.capturable
    for inputs, given, dtype in found:
        p = op.parse(given)
        try:
            ins, outs = specs_of(op, p, inputs, DTYPES.get(dtype, DTYPES["float32"]))
        except MXNetError:  # integers alone
            ins, outs = specs_of(op, p, inputs, DTYPES["int32"])
        if not op.can_be_captured(p, ins):
            return False
        gradient = op.gradient_of(p)
        groups = {"dy": outs, "x": ins, "y": outs}
        if gradient and not gradient.op.can_be_captured(p, [groups[kind][i] for kind, i in gradient.needs]):
            return False
    return True


def test_at_most_ten_operators_break_a_capture():
    assert {op.name for op in operators() if not captured(op)} == set(APART)
    assert len(APART) <= 10


# ---- replays ----------------------------------------------------------------------------------------------------------
@composite("_test_noisy", draws=True)
def noisy(x: Any, *, scale: float = 1.0) -> Any:
    """x times noise: its derivative draws the same numbers again."""
    return x * ops.Dropout(ops.exp(x), p=0.4) * scale


def definite(n):
    a = np.random.default_rng(n).normal(size=(2, n, n))
    return (a @ a.transpose(0, 2, 1) + n * np.eye(n)).astype("float32")


V = mx.sym.Variable
RATES = {"lrs": (0.1, 0.2), "wds": (0.0, 0.1), "num_weights": 2}
LAMB = {"learning_rates": (0.1, 0.2), "wds": (0.0, 0.1), "step_count": (1, 2), "num_tensors": 2}
#: A graph, and its inputs: shapes, or arrays.
GRAPHS = {
    "composite": (lambda: mx.sym.linalg_syrk(V("a"), alpha=0.5), {"a": (3, 4)}),
    "composite that draws": (lambda: mx.sym._test_noisy(V("a")), {"a": (40,)}),
    "composites in composites": (lambda: mx.sym.SpatialTransformer(V("a"), V("b"), target_shape=(3, 3), transform_type="affine",
                                                                   sampler_type="bilinear"), {"a": (1, 2, 4, 4), "b": (1, 6)}),
    "casts": (lambda: mx.sym.Group(list(mx.sym.amp_multicast(*(
        mx.sym.amp_cast(V(n), dtype=d) for n, d in (("a", "float16"), ("b", "float32"))), num_outputs=2))),
              {"a": (5,), "b": (5,)}),
    "gamma": (lambda: mx.sym.sample_gamma(V("a"), V("b"), shape=(20,)), {"a": np.array([0.5, 3]), "b": np.array([1, 2])}),
    "poisson": (lambda: mx.sym.random.poisson(lam=30, shape=(20,)) + V("a"), {"a": (20,)}),
    "counts": (lambda: mx.sym.sample_generalized_negative_binomial(V("a"), V("b"), shape=(9,)), {"a": np.array([2, 20]),
                                                                                                 "b": np.array([0, 0.3])}),
    "uniform like": (lambda: mx.sym._random_uniform_like(V("a"), low=-1.0) * 2, {"a": (30,)}),
    "flip": (lambda: mx.sym.image.random_flip_left_right(V("a"), p=0.5) + 1, {"a": (3, 4, 3)}),
    "colours": (lambda: mx.sym.image.random_lighting(mx.sym.image.random_hue(mx.sym.image.random_contrast(
        V("a"), 0.5, 1.5), 0.1, 0.9), alpha_std=3.0), {"a": (3, 4, 3)}),
    "several updates": (lambda: mx.sym.Group(list(mx.sym.multi_sgd_mom_update(*map(V, "abcdef"), momentum=0.9, **RATES))),
                        dict.fromkeys("abcdef", (3, 5))),
    "several LAMB updates": (lambda: mx.sym.Group(list(mx.sym._multi_lamb_update(*map(V, "abcdefgh"), **LAMB))),
                             dict.fromkeys("abcdefgh", (3, 5))),
    "preloaded rates": (lambda: mx.sym.Group(list(mx.sym.preloaded_multi_sgd_update(*map(V, "abcdef"), num_weights=2))),
                        {**dict.fromkeys("abcd", (3, 5)), "e": (2,), "f": (2,)}),
    "factors": (lambda: mx.sym.linalg_inverse(mx.sym.linalg_potrf(V("a"))) + mx.sym.exp(V("b")),
                {"a": definite(4), "b": (2, 4, 4)}),
    "determinants": (lambda: mx.sym.linalg_det(V("a")), {"a": definite(3)}),
}


def runs(make, inputs, capture):
    """The outputs, derivatives and states of three steps, and the segments. The data changes from step to step."""
    mx.random.seed(7)
    symbol = make()
    with options(capture=capture):
        executor = symbol.simple_bind(mx.gpu(0), "write", **{n: getattr(a, "shape", a) for n, a in inputs.items()})
    rng, seen = np.random.default_rng(2), []
    for step in range(3):
        for name, array in {**executor.arg_dict, **executor.aux_dict}.items():
            given = inputs[name]
            array[:] = given * (step + 1) if isinstance(given, np.ndarray) else np.abs(rng.normal(size=given))
        outs = executor.forward(is_train=True)
        executor.backward([mx.nd.ones(o.shape, mx.gpu(0), dtype=o.dtype) for o in outs])
        seen += [a.asnumpy() for a in (*outs, *executor.grad_dict.values(), *executor.aux_dict.values()) if a is not None]
    compiled = executor._compile(True)
    return seen, [*compiled.forward, *compiled.backward]


@interpreted
@pytest.mark.parametrize("graph", GRAPHS)
def test_replays_give_the_bits_of_launches(graph):
    (a, replayed), (b, launched) = (runs(*GRAPHS[graph], capture) for capture in (True, False))
    assert all(isinstance(s, CapturedSegment) and s.is_captured for s in replayed) and replayed
    assert not any(isinstance(s, CapturedSegment) for s in launched)
    assert len(a) == len(b) and all(np.array_equal(x, y, equal_nan=True) for x, y in zip(a, b, strict=True))


@interpreted
@pytest.mark.parametrize("graph", ["composite that draws", "gamma", "poisson", "uniform like", "colours"])
def test_a_replay_draws_new_numbers(graph):
    make, inputs = GRAPHS[graph]
    executor = make().simple_bind(mx.gpu(0), "null", **{n: getattr(a, "shape", a) for n, a in inputs.items()})
    for array in executor.arg_dict.values():
        array[:] = mx.nd.arange(1, array.size + 1, ctx=mx.gpu(0)).reshape(array.shape)
    seen = [executor.forward(is_train=True)[0].asnumpy() for _ in range(4)]
    assert all((a != b).any() for i, a in enumerate(seen) for b in seen[:i])


@interpreted
def test_a_replay_refuses_what_a_launch_refuses():
    executor = (mx.sym.linalg_potrf(V("a"), name="low") * 2).simple_bind(mx.gpu(0), "null", a=(2, 3, 3))
    for good in (True, True, False, True, False):
        executor.arg_dict["a"][:] = definite(3) if good else -definite(3)
        if good:
            low = executor.forward()[0].asnumpy() / 2
            assert_close(low @ low.transpose(0, 2, 1), definite(3))
        else:
            with pytest.raises(MXNetError, match=r"low \(_linalg_potrf\): _linalg_potrf: matrix is not positive definite"):
                executor.forward()[0].asnumpy()
    assert all(s.is_captured for s in executor._compile(False).forward)
