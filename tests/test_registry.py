"""The registry: every operator is proved in every respect, or REASONS says why one does not apply. Here also is what can be
proved of all operators alike: requests, dtypes and empty arrays."""

import json
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support.operator_jobs import DTYPES, FLOATS, MORE, jobs_of, on_host, operators, specs_of, uses
from test_every_operator import SMOOTH, TABLE, Integers, data
from tritium.errors import MXNetError
from tritium.kernels.declare.check_op import HostRun
from tritium.kernels.declare.reduction import ReductionOp
from tritium.kernels.declare.simple_op import SimpleOp
from tritium.kernels.op import Req, Spec, compiled, registered
from tritium.kernels.tolerance import differs

TESTS = Path(__file__).parent
RESPECTS = ("values", "gradient", "requests", "dtypes", "shapes", "gpu", "compiled")
_RANDOM = [n for o in operators() for n in (o.name,) if n.startswith(("_random_", "_sample_"))
           and not n.startswith("_random_pdf_")]
_PDF = [o.name for o in operators() if o.name.startswith("_random_pdf_")]
#: Factors of matrices of a kind, which the tables' random numbers are not.
_MATRICES = [f"_linalg_{n}" for n in ("sumlogdiag", "potrf", "potri", "trsm", "gelqf", "syevd", "inverse", "det", "slogdet")]
#: To and from integers of eight bits.
_WHOLE = [f"_contrib_{n}" for n in ("quantize", "quantize_v2", "dequantize", "requantize")]
#: What tests of its own prove of an operator, beyond the tables: file -> (respects, operators).
OWN = {
    "kernels/ops/random/test_distributions.py": (
        "values shapes gpu", [n for n in _RANDOM if n.split("_")[2] not in ("multinomial", "randint")]),
    "kernels/ops/random/test_uniform.py": ("values shapes gpu", ["_random_uniform", "_random_normal", "_random_randint"]),
    "kernels/ops/random/test_multinomial.py": ("values shapes gpu", ["_sample_multinomial", "_shuffle"]),
    "kernels/ops/optimizer/test_multi.py": ("values shapes gpu", [
        "multi_sgd_update", "multi_sgd_mom_update", "multi_mp_sgd_update", "multi_mp_sgd_mom_update", "multi_sum_sq",
        "all_finite", "multi_all_finite"]),
    "kernels/ops/optimizer/test_adaptive.py": ("values shapes gpu requests dtypes", [
        "_adamw_update", "_mp_adamw_update", "mp_lamb_update_phase1", "mp_lamb_update_phase2"]),
    "kernels/ops/nn/test_attention.py": ("values", ["_contrib_attention"]),
    "graph/passes/test_fuse_attention.py": ("values shapes", ["_attention_selfatt", "_attention_encdec"]),
    "kernels/ops/nn/test_resize.py": ("values shapes", ["_contrib_BilinearResize2D", "_contrib_AdaptiveAvgPooling2D"]),
    "kernels/ops/tensor/test_moveaxis.py": ("values shapes", ["_split_v2", "_np_moveaxis"]),
    "kernels/ops/tensor/test_gather_nd.py": ("values shapes", ["_backward_gather_nd"]),
    "kernels/ops/tensor/test_pick.py": ("values gradient shapes", ["batch_take", "fill_element_0index"]),
    "kernels/ops/loss/test_label_loss.py": ("shapes", ["IdentityAttachKLSparseReg"]),
    "kernels/ops/linalg/test_products.py": ("shapes", _MATRICES),
    "kernels/ops/rnn/test_rnn.py": ("values", ["RNN"]),
    "gluon/rnn/test_golden.py": ("values shapes", ["_rnn_projected", "_rnn_param_concat"]),
    "kernels/ops/random/test_pdf.py": ("values shapes gpu", _PDF),
    "kernels/ops/optimizer/test_preloaded.py": ("values shapes gpu", [
        *(f"preloaded_multi_{n}" for n in ("sgd_update", "sgd_mom_update", "mp_sgd_update", "mp_sgd_mom_update")),
        "_multi_adamw_update", "_multi_mp_adamw_update", "reset_arrays"]),
    "kernels/ops/optimizer/test_multi_lamb.py": ("values shapes gpu", [
        "_multi_lamb_update", "_multi_mp_lamb_update", "_contrib_group_adagrad_update"]),
    "kernels/ops/contrib/test_fft.py": ("values shapes", ["_contrib_fft", "_contrib_ifft"]),
    "kernels/ops/image/test_image_ops.py": ("values shapes", [f"_image_random_{n}" for n in (
        "saturation", "color_jitter", "lighting", "flip_left_right", "flip_top_bottom")]),
    "kernels/ops/contrib/test_contrib_ops.py": ("values shapes", ["_alone", "_contrib_allclose", "amp_multicast"]),
    "kernels/ops/nn/test_batch_norm.py": ("values shapes", ["_contrib_SyncBatchNorm"]),
    "ndarray/autograd/test_higher_order.py": ("values shapes", ["_norm_gradient"]),
    "kernels/ops/contrib/test_quantize.py": ("values shapes gpu requests compiled", _WHOLE),
    "kernels/ops/contrib/test_count_sketch.py": ("values shapes", ["_contrib_count_sketch"]),
}
#: (operator, respect) -> why it does not apply.
REASONS = {
    **{("Custom", r): "what users register: tests/test_user_operators.py" for r in RESPECTS},
    **{(n, r): "runs a graph: tests/ndarray/functions/test_control_flow.py, tests/graph/control_flow/test_ops.py"
       for n in ("_foreach", "_while_loop", "_cond") for r in RESPECTS},
    **{("_points", r): "a part of others, proved by them: tests/kernels/ops/vision/test_roi.py" for r in ("values", "shapes")},
    **{("_at_the_largest", r): "max pooling's second derivative: tests/ndarray/autograd/test_higher_order.py"
       for r in ("values", "shapes")},
    **{(n, "gradient"): "another dtype than its input's; that of Cast, which it calls"
       for n in ("_image_to_tensor", "amp_multicast")},
    ("_image_adjust_lighting", "gradient"): "copied; the slope is lost in float32: tests/kernels/ops/image/test_image_ops.py",
    **{(n, "compiled"): "NumPy computes it wherever its arrays live: kernels/declare/host_op.py" for n in _MATRICES},
    **{(n, "requests"): "kernels/declare/host_op.py stores all results alike" for n in _MATRICES},
    **{(n, r): "a part of quantize_v2 or requantize: tests/kernels/ops/contrib/test_quantize.py" for r in RESPECTS
       for n in (f"_{kind}_{part}" for kind in ("quantize", "requantize") for part in ("given", "ends", "by"))},
    **{(n, "dtypes"): "float32 or 8-bit integers, as in MXNet: tests/kernels/ops/contrib/test_quantize.py" for n in _WHOLE},
    **{(n, "dtypes"): "float32 and float64 alone, as in MXNet: tests/kernels/ops/linalg/test_products.py" for n in _MATRICES},
}


@cache
def golden():
    """{operator: its cases, their shapes, and those with derivatives} that MXNet recorded: tests/test_golden_operators.py."""
    found = {}
    for path in sorted((TESTS / "golden" / "ops").glob("*.npz")):
        with np.load(path) as z:
            for m in json.loads(str(z["meta"])):
                if m["error"] or m["op"] not in registered():
                    continue
                cases, shapes, derivatives = found.setdefault(registered()[m["op"]].name, (set(), set(), set()))
                cases.add((path.stem, m["case"]))
                shapes.add(str([z[f"{m['case']}.in.{n}"].shape for n in m["inputs"]]))
                if m["backward"]:
                    derivatives.add((path.stem, m["case"]))
    return found


def proved(op):
    """The respects in which the tables, and the tests that read them, prove op."""
    found = {r for respects, names in OWN.values() if op.name in names for r in respects.split()}
    traced = type(op) in (SimpleOp, ReductionOp)  # tests/kernels/ops/tensor/test_elementwise.py takes these from the registry
    cases, shapes, derivatives = golden().get(op.name, ((), (), ()))
    table = TABLE.get(op.name, ())
    if cases or traced:
        found.add("values")
    none = all(op.gradient_of(op.parse(params)) is None for _, params in uses(op))
    if none or derivatives or traced or op.name in {c.values[0] for c in SMOOTH}:
        found.add("gradient")
    if traced or len(shapes) + len({str(c.shapes) for c in table}) > 1:
        found.add("shapes")
    if traced or table or cases:
        found.add("gpu")
    if traced or op in ALIKE:
        found |= {"requests", "dtypes"}
    if uses(op) and all(on_host(op, op.parse(use[1])) or jobs_of(op, *use, DTYPES["float32"], 90) for use in uses(op)):
        found.add("compiled")  # tests/kernels/gpu/test_operators_compile.py
    return found


#: Operators with a use, which do not prove themselves from their declaration.
ALIKE = [o for o in operators() if type(o) not in (SimpleOp, ReductionOp) and (TABLE.get(o.name) or o.name in MORE or
                                                                             isinstance(o, SimpleOp))]
USES = [pytest.param(o, *use, id=f"{o.name}-{i}") for o in ALIKE for i, use in enumerate(uses(o, 41))]


@pytest.mark.parametrize("op", operators(), ids=lambda o: o.name)
def test_every_operator_is_proved(op):
    missing = [r for r in RESPECTS if r not in proved(op) and (op.name, r) not in REASONS]
    assert not missing, (f"{op.name}: nothing proves its {', '.join(missing)}. Give it a line in TABLE (test_every_operator.py) "
                         f"or MORE (operator_jobs.py), name its own test in OWN, or say in REASONS why it does not apply.")


def test_own_tests_and_reasons_are_about_what_is_there():
    names = {o.name: (o.name, *o.aliases) for o in operators()}
    for file, (respects, mine) in OWN.items():
        text = (TESTS / file).read_text()
        assert set(respects.split()) <= set(RESPECTS)
        for n in mine:
            assert any(a in text or a.split("_")[-1] in text for a in names[n]), f"{file} does not mention {n}"
    assert {n for n, _ in REASONS} <= set(names)


# ---- what is the same for all ------------------------------------------------------------------------------------------
def inputs_of(op, p, inputs, dtype):
    """(arrays, output specs) of a use: the data of the tables, rounded to dtype; states are positive."""
    rng = np.random.default_rng(zlib.crc32(op.name.encode()))
    ins, outs = specs_of(op, p, inputs, DTYPES[dtype])
    states = len(ins) - len(op.auxiliaries(p))
    arrays = [x.astype(DTYPES[dtype] if x.dtype.kind == "f" else x.dtype).astype(s.dtype) for x, s in zip(data(inputs, rng), ins)]
    return [np.abs(a) if i >= states else a for i, a in enumerate(arrays)], outs


def run(op, p, arrays, outs, req=Req.WRITE, fill=0):
    """Outputs of one run on the CPU that found `fill` in them. States are copies; what a user does not see is never added."""
    made = [np.full(s.shape, fill, s.dtype) for s in outs]
    if not any(s.size for s in outs):
        return made  # as ndarray/dispatch/invoke.py
    more = {"random": (1, 2)} if op.num_random(p, outs) else {}
    reqs = [Req.WRITE if req == Req.ADD and i >= op.visible_outputs(p) else req for i in range(len(outs))]
    compiled(op, p, tuple(map(spec, arrays)), tuple(outs), tuple(reqs), "cpu", True)(HostRun(), [a.copy() for a in arrays], made,
                                                                                     **more)
    return made


def spec(array):
    return Spec(array.shape, array.dtype)


def both(op, p, arrays, outs):
    """(operator, its inputs, its outputs): forward, and its derivative where there is one."""
    yield op, arrays, outs
    g = op.gradient_of(p)
    if g is not None:
        rng = np.random.default_rng(0)
        groups = {"dy": [rng.normal(size=s.shape).astype(s.dtype) for s in outs], "x": arrays, "y": run(op, p, arrays, outs)}
        yield g.op, [groups[kind][i] for kind, i in g.needs], [spec(arrays[i]) for i in g.gives]


@pytest.mark.parametrize("op, inputs, params", USES)
def test_requests(op, inputs, params):
    p = op.parse(params)
    for part, arrays, outs in both(op, p, *inputs_of(op, p, inputs, "float32")):
        plain = run(part, p, arrays, outs)
        for add, y in list(zip(run(part, p, arrays, outs, Req.ADD, fill=1), plain))[:part.visible_outputs(p)]:
            assert not differs(add, (y.astype("float64") + 1).astype(y.dtype), y.dtype, scale=4), part.name
        untouched = run(part, p, arrays, outs, Req.NULL, fill=7)[:part.visible_outputs(p)]
        assert all((a == 7).all() for a in untouched), part.name


@pytest.mark.parametrize("op, inputs, params", USES)
def test_dtypes(op, inputs, params):
    """Every float dtype that is taken gives float64's values, rounded: within 40 units of its last place or of the largest."""
    p = op.parse(params)
    for dtype in FLOATS:
        try:
            arrays, outs = inputs_of(op, p, inputs, dtype)
        except MXNetError:
            assert dtype != "float32"
            continue
        found = run(op, p, arrays, outs)
        if op.num_random(p, outs) or dtype == "float64":
            continue
        wide = [a.astype("float64") if a.dtype == DTYPES[dtype] else a for a in arrays]
        want = run(op, p, wide, specs_of(op, p, inputs, DTYPES["float64"])[1])
        for y, w in zip(found, want):
            scale = 40 * max(1.0, float(np.max(np.abs(w), initial=0, where=np.isfinite(w))))
            assert not differs(y, w.astype(y.dtype), y.dtype, scale=scale), dtype


@pytest.mark.parametrize("op, inputs, params", [u for u in USES if u.values[1]])
def test_nothing_is_computed_of_nothing(op, inputs, params):
    """Without a first row: a result, or a refusal that says so."""
    shapes = [i.shape if isinstance(i, Integers) else i for i in inputs]
    first = shapes[0][:1]
    without = [(0, *s[1:]) if s[:1] == first else s for s in shapes]
    empty = [Integers(s, i.below) if isinstance(i, Integers) else s for s, i in zip(without, inputs)]
    try:
        p = op.parse(params)
        for part, arrays, outs in both(op, p, *inputs_of(op, p, empty, "float32")):
            run(part, p, arrays, outs)
    except MXNetError as e:
        assert len(str(e)) > 20
