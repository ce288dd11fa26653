"""Run by test_layers_compile.py in a process of its own, where Triton compiles: every launch of the layers' GPU kernels
is recorded instead of made, and compiled for sm_90: of every so many names (the first argument) one, which the name decides.
Prints one line of JSON a kernel."""

import json
import sys
import zlib

import numpy as np
import torch
from tritium.kernels import op as ops
from tritium.kernels.declare import operator_property as props
from tritium.kernels.gpu.compile import build
from tritium.kernels.gpu.record import record
from tritium.kernels.gpu.source import KernelSource
from tritium.kernels.op import Req, Spec

CASES = [
    ("FullyConnected", [(33, 20), (7, 20), (7,)], {"num_hidden": 7}),
    ("Convolution", [(2, 3, 8, 8), (4, 3, 3, 3), (4,)], {"kernel": (3, 3), "num_filter": 4}),
    ("Pooling", [(2, 3, 8, 8)], {"kernel": (2, 2), "stride": (2, 2)}),
    ("Pooling", [(2, 3, 8, 8)], {"kernel": (3, 3), "pool_type": "avg", "count_include_pad": False}),
    ("Pooling", [(2, 3, 8, 8)], {"kernel": (3, 3), "pool_type": "lp", "p_value": 3}),
    ("Pooling", [(2, 3, 8, 8)], {"global_pool": True, "pool_type": "max"}),
    ("UpSampling", [(2, 3, 8, 8)], {"scale": 2, "sample_type": "nearest", "num_args": 1}),
    ("UpSampling", [(2, 3, 8, 8)], {"scale": 3, "sample_type": "nearest", "num_args": 1}),
    ("softmax", [(40, 50)], {"axis": 0}), ("log_softmax", [(40, 50)], {}),
    ("SoftmaxOutput", [(40, 10), (40,)], {"normalization": "valid", "use_ignore": True}),
    ("LogisticRegressionOutput", [(4, 5), (4, 5)], {}), ("MAERegressionOutput", [(4, 5), (4, 5)], {}),
    ("MakeLoss", [(4, 5)], {"normalization": "valid"}), ("transpose", [(3, 4, 5)], {"axes": (1, 0, 2)}),
    ("slice", [(5, 6)], {"begin": (4,), "end": (0,), "step": (-1,)}), ("Cast", [(7,)], {"dtype": "int32"}),
    ("BatchNorm", [(4, 3, 5), (3,), (3,), (3,), (3,)], {"fix_gamma": False}), ("Dropout", [(40, 50)], {}),
    ("Dropout", [(40, 50)], {"axes": (1,)}),
    ("take", [(6, 4), (5,)], {"mode": "wrap"}), ("_random_uniform", [], {"shape": (99,)}),
    ("LRN", [(2, 7, 3, 3)], {"nsize": 3}), ("SVMOutput", [(4, 5), (4,)], {}), ("softmax_cross_entropy", [(4, 5), (4,)], {}),
    ("LayerNorm", [(4, 33), (33,), (33,)], {}), ("LayerNorm", [(4, 5, 6), (5,), (5,)], {"axis": 1, "output_mean_var": True}),
    ("GroupNorm", [(2, 4, 9), (2,), (2,)], {"num_groups": 2}), ("L2Normalization", [(2, 4, 9)], {"mode": "channel"}),
    ("moments", [(2, 4, 9)], {"axes": (0, 2)}), ("LeakyReLU", [(2, 4, 9), (4,)], {"act_type": "prelu"}),
    ("LeakyReLU", [(2, 4, 9)], {"act_type": "rrelu"}), ("IdentityAttachKLSparseReg", [(4, 5), (5,)], {}),
    ("Deconvolution", [(2, 3, 5, 5), (3, 2, 3, 3), (2,)], {"kernel": (3, 3), "num_filter": 2, "no_bias": False}),
    ("multi_sum_sq", [(4, 5), (7,)], {"num_arrays": 2}), ("all_finite", [(99,)], {}), ("_shuffle", [(999, 2)], {}),
    ("_sample_multinomial", [(4, 5)], {"get_prob": True, "shape": (6,)}), ("_random_gamma", [], {"shape": (99,)}),
    ("_random_poisson", [], {"shape": (99,)}), ("_random_normal", [], {"shape": (99,)}),
    ("_random_randint", [], {"shape": (99,), "low": 0, "high": 9}),
    ("argmax", [(40, 50)], {"axis": 1}), ("SequenceMask", [(5, 4, 6), (4,)], {"use_sequence_length": True}),
    ("one_hot", [(5,)], {"depth": 3}), ("_eye", [], {"N": 4, "M": 3}),
]


class Run:
    stream = None

    def workspace(self, shape, dtype):
        return torch.empty(shape, dtype=getattr(torch, np.dtype(dtype).name))


def tensors(specs):
    return [torch.zeros(s.shape, dtype=getattr(torch, s.dtype.name)) for s in specs]


def visit(name, shapes, params, dtype):
    op = ops.get(name)
    p = op.parse(params)
    ins, outs = op.infer_shape(p, shapes)
    in_types, out_types = op.infer_dtype(p, [np.dtype(dtype), *[None] * (len(shapes) - 1)] if shapes else [])
    ins, outs = (tuple(Spec(tuple(s), d or np.dtype(dtype)) for s, d in zip(*z)) for z in ((ins, in_types), (outs, out_types)))
    extra = {"random": (1, 2)} if op.num_random(p, outs) else {}
    ops.compiled(op, p, ins, outs, (Req.WRITE,) * len(outs), "gpu", True)(Run(), tensors(ins), tensors(outs), **extra)
    g = op.gradient_of(p)
    if g is not None:
        groups = {"dy": outs, "x": ins, "y": outs}
        needs, gives = tuple(groups[k][i] for k, i in g.needs), tuple(ins[i] for i in g.gives)
        req = Req.WRITE if name == "slice" else Req.ADD  # written with holes, so filled first; the others accumulate
        ops.compiled(g.op, p, needs, gives, (req,) * len(gives), "gpu", True)(Run(), tensors(needs), tensors(gives))


def main(one_in, *dtypes):
    with record(90) as recorder:
        for name, shapes, params in CASES:
            for dtype in dtypes if shapes else ["float32"]:
                visit(name, shapes, params, dtype)
    assert props.gpu_module.cache_info().currsize == 8, props.gpu_module.cache_info()
    modules = {k.source: ".".join(module.__name__.split(".")[3:]) for module in list(sys.modules.values())
               if module.__name__.startswith("tritium.kernels.ops.") and ".triton_" in module.__name__
               for k in vars(module).values() if isinstance(k, KernelSource) and k.fn.__module__ == module.__name__}
    jobs = recorder.jobs
    compiled = dict(build([job for job in jobs if zlib.crc32(job.name.encode()) % int(one_in) == 0]))
    for job in jobs:
        print(json.dumps({"kernel": job.name, "module": modules.get(job.source, "")}))
    errors = [str(outcome) for outcome in compiled.values() if isinstance(outcome, Exception)]
    print(json.dumps({"compiled": len(compiled), "errors": errors}))


main(*sys.argv[1:])
