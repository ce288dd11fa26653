"""The GPU launches of every registered operator, as compiler jobs. Launches are only recorded, so neither a GPU nor Triton
is needed to list them."""

import numpy as np
from test_every_operator import DISTRIBUTIONS, TABLE, Integers
from tritium.dtype import bfloat16
from tritium.kernels.declare.reduction import ReductionOp
from tritium.kernels.declare.simple_op import SimpleOp
from tritium.kernels.gpu.record import FakeArray, FakeRun, record
from tritium.kernels.op import Req, Spec, registered
from tritium.kernels.params import REQUIRED

TARGETS = (80, 90, 100)
FLOATS = ("float32", "float16", "bfloat16", "float64")
INTEGERS = ("int32", "int64", "int8", "uint8")
DTYPES = {n: bfloat16 if n == "bfloat16" else np.dtype(n) for n in (*FLOATS, *INTEGERS)}
ODD = 1_000_003  # divides by nothing

WEIGHT = (64, 48)
_UPDATE = {"lrs": (0.1, 0.2), "wds": (0.0, 0.1), "num_weights": 2}
_LAMB = {"learning_rates": (0.1, 0.2), "wds": (0.0, 0.1), "step_count": (1, 2), "num_tensors": 2}
#: Uses of operators whose line in TABLE is empty, as (input shapes, parameters).
MORE = {
    "batch_take": [([(4, 5), Integers((4,), 5)], {})],
    "_linalg_potri": [([(2, 5, 5)], {})],
    "_linalg_trsm": [([(2, 5, 5), (2, 4, 5)], {"rightside": True}), ([(3, 3), (3, 2)], {"transpose": True, "lower": False})],
    "IdentityAttachKLSparseReg": [([(4, 5), (5,)], {})],
    "multi_sgd_mom_update": [([WEIGHT] * 6, {**_UPDATE, "num_args": 6})],
    "multi_mp_sgd_update": [([WEIGHT] * 6, {**_UPDATE, "num_args": 6})],
    "multi_mp_sgd_mom_update": [([WEIGHT] * 8, {**_UPDATE, "num_args": 8})],
    "preloaded_multi_sgd_update": [([*[WEIGHT] * 4, (2,), (2,)], {"num_weights": 2, "num_args": 6})],
    "preloaded_multi_sgd_mom_update": [([*[WEIGHT] * 6, (2,), (2,)], {"num_weights": 2, "num_args": 8})],
    "preloaded_multi_mp_sgd_update": [([*[WEIGHT] * 6, (2,), (2,)], {"num_weights": 2, "num_args": 8})],
    "preloaded_multi_mp_sgd_mom_update": [([*[WEIGHT] * 8, (2,), (2,)], {"num_weights": 2, "num_args": 10})],
    "_multi_adamw_update": [([*[WEIGHT] * 8, (1,)], {**_UPDATE, "etas": (1, 0.5), "num_args": 9})],
    "_multi_mp_adamw_update": [([*[WEIGHT] * 10, (1,)], {**_UPDATE, "etas": (1, 0.5), "num_args": 11})],
    "_multi_lamb_update": [([WEIGHT] * 8, {**_LAMB, "num_args": 8})],
    "_multi_mp_lamb_update": [([WEIGHT] * 10, {**_LAMB, "num_args": 10})],
    "_contrib_group_adagrad_update": [([WEIGHT, WEIGHT, (64, 1)], {"lr": 0.1})],
    "reset_arrays": [([WEIGHT, (5,)], {"num_arrays": 2, "num_args": 2})],
    "_random_pdf_dirichlet": [([(2, 4, 3), (2, 3)], {"is_log": True})],
    **{f"_random_pdf_{n}": [([(2, 4)] + [(2,)] * count, {"is_log": True})] for n, count in (
        ("uniform", 2), ("normal", 2), ("gamma", 2), ("exponential", 1), ("poisson", 1), ("negative_binomial", 2),
        ("generalized_negative_binomial", 2))},
    **{f"_random_{n}": [([], {"shape": (300,)})] for n in DISTRIBUTIONS},
    **{f"_sample_{n}": [([(3,)] * (1 if n in ("exponential", "poisson") else 2), {"shape": (20,)})] for n in DISTRIBUTIONS},
}
#: Parameters that declared operators cannot do without.
NEEDED = {"clip": [{"a_min": -1, "a_max": 1.5}], "Activation": [{"act_type": t} for t in ("relu", "softrelu")]}


def operators():
    """Every registered operator once, those of tests aside."""
    return [o for o in dict.fromkeys(registered().values()) if not o.name.startswith("_test_")]


def uses(op, length=ODD):
    """[(input shapes, parameters)] of an operator; elementwise ones on `length` elements."""
    if isinstance(op, ReductionOp):
        return [([(4096, 1000)], {}), ([(512, 1000)], {"axis": (1,)}), ([(512, 1000)], {"axis": (0,)})]
    if isinstance(op, SimpleOp) and op.name not in TABLE:
        found = []
        for given in NEEDED.get(op.name, [{d.name: "1" for d in op.params if d.default is REQUIRED}]):
            p = op.parse(given)
            found.append(([(length,)] * (len(op.arguments(p)) + len(op.auxiliaries(p))), given))
        return found
    return [(case.shapes, case.params) for case in TABLE.get(op.name, ())] or MORE.get(op.name, [])


def specs_of(op, p, inputs, dtype):
    shapes = [i.shape if isinstance(i, Integers) else i for i in inputs]
    shapes, out_shapes = op.infer_shape(p, shapes)
    first = [dtype] + [None] * (len(shapes) - 1) if shapes else []
    dtypes, out_dtypes = op.infer_dtype(p, first)
    made = [[Spec(tuple(s), np.dtype(d or dtype)) for s, d in zip(*pair)]
            for pair in ((shapes, dtypes), (out_shapes, out_dtypes))]
    return tuple(made[0]), tuple(made[1])


def _launch(op, p, ins, outs, req):
    arrays = [[FakeArray(s.shape, s.dtype) for s in group] for group in (ins, outs)]
    more = {"random": (1, 2)} if op.num_random(p, outs) else {}
    if p.scalars:
        more["scalars"] = p.scalars
    op.kernel(p, ins, outs, (req,) * len(outs), "gpu", True)(FakeRun(), *arrays, **more)


def on_host(op, p):
    """Return True if NumPy computes an operator on every device (kernels/declare/host_op.py), so that it has no kernel."""
    of = getattr(op, "property", None)
    return of is not None and any(c.__name__ == "HostOp" for c in type(of(p)).__mro__)


def jobs_of(op, inputs, params, dtype, target, *, backward=True, gradient=Req.ADD):
    """The jobs of one use: forward written, its derivative as `gradient` says. Raises MXNetError where the dtype does not go."""
    return recorded(op, inputs, params, dtype, target, backward=backward, gradient=gradient).jobs


def recorded(op, inputs, params, dtype, target, *, backward=True, gradient=Req.ADD):
    """The recorder of the launches of one use, as in jobs_of."""
    p = op.parse(params)
    ins, outs = specs_of(op, p, inputs, dtype)
    with record(target) as recorder:
        if on_host(op, p):
            return recorder
        _launch(op, p, ins, outs, Req.WRITE)
        derivative = op.gradient_of(p) if backward else None
        if derivative is not None:
            groups = {"dy": outs, "x": ins, "y": outs}
            needs = tuple(groups[kind][i] for kind, i in derivative.needs)
            _launch(derivative.op, p, needs, tuple(ins[i] for i in derivative.gives),
                    Req.WRITE if op.name == "slice" else gradient)
    return recorder
