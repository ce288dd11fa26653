"""The template kernels as compiler jobs: name -> (jobs, what each kernel must be made of). Launches are only recorded."""

import os
from contextlib import contextmanager

import numpy as np
from tritium.dtype import bfloat16
from tritium.kernels import op as ops
from tritium.kernels.gpu.epilogue import Epilogue
from tritium.kernels.gpu.record import FakeArray, FakeRun, record
from tritium.kernels.ir import lang as L
from tritium.kernels.ir.expr import load
from tritium.kernels.op import Req
from tritium.kernels.ops.linalg import triton_factor
from tritium.kernels.ops.linalg.triton_gemm import POINTER, SPECIALISED, TMA, Blocks, gemm
from tritium.kernels.ops.nn import triton_conv, triton_norm
from tritium.kernels.ops.nn.batch_norm_fused import NormaliseMoving
from tritium.kernels.ops.nn.conv_geometry import ConvolutionGeometry
from tritium.kernels.ops.optimizer import triton_multi
from tritium.kernels.ops.optimizer.mixed_precision import mixed
from tritium.kernels.ops.tensor import triton_index, triton_take

from support import operator_jobs
from support.operator_jobs import ODD, Integers

F32, F16 = np.dtype("float32"), np.dtype("float16")
TARGETS = (80, 90, 100)
TENSOR_CORES = {80: "mma.sync", 90: "wgmma.mma_async", 100: "tcgen05.mma"}
WRITE, RUN = [Req.WRITE] * 3, FakeRun()


class P:
    fix_gamma, eps, momentum = False, 1e-3, 0.9


@contextmanager
def float32_as(how):
    before = os.environ.get("TRITIUM_FLOAT32_MATMUL")
    os.environ["TRITIUM_FLOAT32_MATMUL"] = how
    try:
        yield
    finally:
        if before is None:
            del os.environ["TRITIUM_FLOAT32_MATMUL"]
        else:
            os.environ["TRITIUM_FLOAT32_MATMUL"] = before


def jobs_of(work, target):
    with record(target) as recorder:
        work()
    return recorder.jobs


def view(rows, columns, turned=False, batch=1):
    return (batch, rows, columns), (rows * columns, 1, rows) if turned else (rows * columns, columns, 1)


def rectifier(dtype):
    return Epilogue(L.maximum(load(0, np.dtype(dtype)), 0), (np.dtype(dtype),), (-1,))


def normalised(dtype):
    """A BatchNorm of inference with tanh behind it: reads four arrays of a number per channel."""
    ins = [np.dtype(dtype), *[F32] * 4]
    root = L.tanh(NormaliseMoving().trace(P, [load(i, d) for i, d in enumerate(ins)])[0])
    return Epilogue(root, tuple(ins), (-1, 0, 1, 2, 3))


def product(m, n, k, dtype, *, ta=False, tb=False, blocks=None, batch=1, how="ieee", add=False):
    a, b, c = (FakeArray((batch, *s), dtype) for s in ((m, k), (k, n), (m, n)))

    def work():
        with float32_as(how):
            gemm(RUN, a, view(m, k, ta, batch), b, view(k, n, tb, batch), c, view(m, n, batch=batch),
                 bias=FakeArray((n,), dtype), epilogue=rectifier(dtype), blocks=blocks, add=add)

    return work


def geometry(n, c, f, spatial, kernel, stride, pad, groups=1, last=True):
    out = tuple((s + 2 * p - k) // t + 1 for s, k, t, p in zip(spatial, kernel, stride, pad))
    return ConvolutionGeometry(n, c, f, groups, spatial, out, kernel, stride, (1,) * len(kernel), pad, last)


def convolution(n, c, f, spatial, kernel, stride=(1, 1), pad=(1, 1), groups=1, dtype=bfloat16, last=True, epilogue=None):
    g = geometry(n, c, f, spatial, kernel, stride, pad, groups, last)
    a = FakeArray((1,), dtype)
    others = [] if epilogue is None else [FakeArray((f,), F32)] * 4

    def work():
        triton_conv.forward(RUN, g, a, a, None, a, add=False, epilogue=epilogue, others=others)
        triton_conv.backward(RUN, g, a, a, a, [a, a], WRITE[:2])

    return work


def norm(rows, dtype=bfloat16):
    x, c = FakeArray((1,), dtype), FakeArray((rows[1],), "float32")

    def work():
        triton_norm.forward(RUN, rows, P, True, [x, c, c, c, c], [x, c, c], WRITE, other=x, relu=True)
        triton_norm.backward(RUN, rows, P, True, [x, x, c, c, c], [x, c, c], WRITE, y=x, d_other=x)

    return work


def embedding():
    x = FakeArray((1,), "float32")
    triton_take.put(RUN, (1, 50_000, 512), 4096, x, x, x, wrap=False, add=False)


def factor(dtype):
    x, y = FakeArray((64, 40, 40), dtype), FakeArray((64,), dtype)

    def work():
        triton_factor.cholesky(RUN, (64, 40), x, x, upper=True, add=False)
        triton_factor.determinants(RUN, (64, 40), x, [y], ("det",), (Req.WRITE,))

    return work


def indices():
    """Of an assignment to a[mask, indices]: a scan of the mask, flat indices, and rows put there."""
    x, at = FakeArray((1 << 20,), "float32"), FakeArray((4096,), "int64")
    triton_index.count(RUN, x, ODD, at)
    triton_index.positions(RUN, x, ODD, at, at)
    triton_index.add(RUN, at, at, at, 4096, 1000, 50)
    triton_index.put_last(RUN, (1, 50_000, 4096, 1, 512), x, at, x)


def update(rule, dtype=F32):
    """The update of many arrays; of float32 beside the weights, for half precision."""
    op = ops.get(rule) if dtype == F32 else mixed(ops.get(rule))
    ins = [dtype, *[F32] * (len(op.input_names) - 1)]
    places, numbers = FakeArray((99, 2), "int64"), FakeArray((9, 9), "float64")

    def work():
        made = triton_multi.many_update(op.name, op.expression(op.parse({"lr": 0.1}), ins), ins, None if dtype == F32 else dtype)
        made.launch(None, places, FakeArray((9,), "int64"), places, numbers)

    return work


ROWS, STEPS, LENGTHS = (4096, 1024), (128, 32, 512), Integers((32,), 128)
#: Families whose kernels operators launch: name -> (operator, input shapes, parameters), in bfloat16 for sm_90.
OPERATORS = {
    "flat tanh": ("tanh", [(ODD,)], {}), "flat gammaln": ("gammaln", [(ODD,)], {}), "fold rows": ("sum", [ROWS], {"axis": (1,)}),
    "fold columns": ("sum", [ROWS], {"axis": (0,)}), "row LayerNorm": ("LayerNorm", [ROWS, ROWS[1:], ROWS[1:]], {}),
    "copy transpose": ("transpose", [(64, 1024, 1024)], {"axes": (0, 2, 1)}),
    "copy Concat": ("Concat", [ROWS] * 2, {"num_args": 2}),
    "scan cumsum": ("_np_cumsum", [ROWS], {"axis": 1}), "scan columns": ("_np_cumsum", [ROWS], {"axis": 0}),
    "extreme argmax": ("argmax", [ROWS], {"axis": 1}), "order topk": ("topk", [(64, 512)], {"k": 8}),
    "pick SequenceReverse": ("SequenceReverse", [STEPS, LENGTHS], {"use_sequence_length": True}),
    "resample Pad": ("Pad", [(32, 64, 56, 56)], {"mode": "edge", "pad_width": (0, 0, 0, 0, 8, 8, 8, 8)}),
    "pool last": ("Pooling", [(32, 56, 56, 64)], {"kernel": (3, 3), "stride": (2, 2), "layout": "NHWC"}),
    "pool first": ("Pooling", [(32, 64, 56, 56)], {"kernel": (3, 3), "stride": (2, 2)}),
    "pool whole": ("Pooling", [(32, 64, 56, 56)], {"global_pool": True}),
    "copy UpSampling": ("UpSampling", [(32, 64, 56, 56)], {"scale": 2, "sample_type": "nearest", "num_args": 1}),
    "lrn": ("LRN", [(32, 64, 56, 56)], {"nsize": 5}), "place one_hot": ("one_hot", [Integers((4096,), 1000)], {"depth": 1000}),
    "random Dropout": ("Dropout", [ROWS], {}), "random normal": ("_random_normal", [], {"shape": ROWS}),
    "point BilinearSampler": ("BilinearSampler", [(32, 64, 56, 56), (32, 2, 56, 56)], {}),
    "region ROIPooling": ("ROIPooling", [(2, 256, 56, 56), (64, 5)], {"pooled_size": (7, 7), "spatial_scale": 0.25}),
    "draw multinomial": ("_sample_multinomial", [(4096, 64)], {"shape": (8,)}),
    "loss": ("SoftmaxOutput", [ROWS, Integers(ROWS[:1], 99)], {}),
    "index scatter_nd": ("scatter_nd", [(4096, 512), Integers((1, 4096), 4096)], {"shape": (4096, 512)}),
}


def cases():
    """{name: (target, jobs, {kernel name, or "": arguments of gate})}"""
    found = {}

    def add(name, work, targets=TARGETS, **gates):
        for target in targets:
            cores = {"instruction": TENSOR_CORES[target]}
            mine = {k: {**v, **cores} if v.get("instruction") == "any" else v for k, v in gates.items()}
            found[f"{name} sm_{target}"] = target, jobs_of(work, target), mine

    fast = {"instruction": "any", "async_copies": 4}
    for dtype in (bfloat16, F16):
        n = dtype.name
        add(f"gemm {n}", product(4096, 4096, 4096, dtype), gemm_tma={**fast, "tma": 4}, gemm_pointer=fast)
        add(f"gemm {n} tn", product(4096, 4096, 4096, dtype, ta=True), gemm_tma={**fast, "tma": 4}, gemm_pointer=fast)
        add(f"gemm {n} nt", product(4096, 4096, 4096, dtype, tb=True), gemm_tma={**fast, "tma": 4}, gemm_pointer=fast)
        add(f"gemm {n} split", product(256, 256, 8192, dtype), gemm_pointer=fast)
        add(f"gemm {n} batched", product(512, 512, 64, dtype, batch=64), gemm_pointer=fast)
        add(f"gemm {n} unaligned", product(1001, 999, 1003, dtype), gemm_pointer={"instruction": "any"})
        add(f"gemm {n} specialised", product(4096, 4096, 4096, dtype, blocks=Blocks(SPECIALISED, 128, 128, 64, 4, 3)), (90, 100),
            gemm_tma={"instruction": "any", "tma": 2, "specialised": True})
        add(f"gemv {n}", product(4096, 1, 4096, dtype), gemv={"tensor_ops": False})
    add("gemm bfloat16 specialised wide", product(4096, 4096, 4096, bfloat16, blocks=Blocks(SPECIALISED, 128, 256, 64, 4, 3)),
        (90,), gemm_tma={"instruction": "any", "tma": 3, "specialised": True})
    add("gemm bfloat16 tma 128", product(4096, 4096, 4096, bfloat16, blocks=Blocks(TMA, 128, 128, 64, 4, 3)), (90,),
        gemm_tma={**fast, "tma": 4})
    add("gemm bfloat16 pointer 128", product(4096, 4096, 4096, bfloat16, blocks=Blocks(POINTER, 128, 128, 32, 8, 3)),
        gemm_pointer=fast)
    add("gemm float32", product(2048, 2048, 2048, F32), gemm_pointer={"async_copies": 4})
    add("gemm tf32", product(4096, 4096, 4096, F32, how="tf32"), gemm_tma={**fast, "tma": 4}, gemm_pointer=fast)
    add("gemm tf32x3", product(4096, 4096, 4096, F32, how="tf32x3"), gemm_tma={"instruction": "any"})
    add("gemm bfloat16 add", product(4096, 4096, 4096, bfloat16, add=True), gemm_tma={**fast, "tma": 4}, gemm_pointer=fast)
    add("gemm float64", product(512, 512, 512, np.dtype("float64")))
    body = {"conv_gather": fast, "conv_weight": {"instruction": "any", "async_copies": 1}}
    add("conv 3x3 64", convolution(128, 64, 64, (56, 56), (3, 3)), **body)
    add("conv 3x3 512", convolution(128, 512, 512, (7, 7), (3, 3)), **body)
    add("conv 3x3 stride 2", convolution(128, 128, 128, (56, 56), (3, 3), (2, 2)), (90,), conv_weight=body["conv_weight"])
    add("conv 1x1", convolution(128, 256, 64, (56, 56), (1, 1), pad=(0, 0)), gemm_tma=fast, gemm_pointer=fast)
    add("conv grouped", convolution(32, 256, 256, (28, 28), (3, 3), groups=8), (90,), **body)
    add("conv depthwise", convolution(32, 128, 128, (56, 56), (3, 3), groups=128))
    add("conv channels first", convolution(128, 64, 64, (56, 56), (3, 3), last=False), (90,), **body)
    for name, last in (("last", True), ("first", False)):
        add(f"conv depth {name}", convolution(8, 64, 64, (16, 28, 28), (3, 3, 3), (1, 1, 1), (1, 1, 1), last=last), (90,), **body)
    add("conv depth 512", convolution(8, 512, 512, (4, 14, 14), (3, 3, 3), (1, 1, 1), (1, 1, 1)), (80, 100), **body)
    add("conv depth stride 2", convolution(8, 64, 64, (16, 28, 28), (3, 3, 3), (2, 2, 2), (1, 1, 1)), (90,),
        conv_weight=body["conv_weight"])
    add("conv depth depthwise", convolution(8, 128, 128, (16, 28, 28), (3, 3, 3), (1, 1, 1), (1, 1, 1), groups=128), (90,))
    add("conv stem", convolution(128, 3, 64, (224, 224), (7, 7), (2, 2), (3, 3), last=False), (90,))
    for name, kernel, groups in (("3x3", (3, 3), 1), ("1x1", (1, 1), 1), ("depthwise", (3, 3), 128)):
        add(f"epilogue conv {name}", convolution(32, 128, 128, (28, 28), kernel, pad=(kernel[0] // 2,) * 2, groups=groups,
                                                 epilogue=normalised(bfloat16)),
            **({} if groups > 1 else body), gemm_pointer=fast)
    add("epilogue conv stem", convolution(32, 3, 64, (224, 224), (7, 7), (2, 2), (3, 3), epilogue=normalised(bfloat16),
                                          last=False))
    add("norm last", norm((128 * 56 * 56, 64, 1)))
    add("norm first", norm((128, 64, 3136)))
    rows = [*((f"{n}", (4096, n), -1) for n in (1000, 1024, 10_000)), ("axis 1", (32, 21, 4096), 1),
            ("axis 1 long", (8, 1000, 64), 1)]
    for n, shape, axis in rows:
        for dtype, targets in ((bfloat16, TARGETS), (F32, (90,))):
            for target in targets:  # the derivative is written
                made = operator_jobs.jobs_of(ops.get("softmax"), [shape], {"axis": axis}, dtype, target, gradient=Req.WRITE)
                found[f"softmax {n}{'' if dtype == bfloat16 else ' float32'} sm_{target}"] = target, made, {}
    for name, size, more in (("64", 64, {}), ("64 causal", 64, {"causal": True}), ("128", 128, {})):
        for target in TARGETS:
            made = operator_jobs.jobs_of(ops.get("_contrib_attention"), [(8, 16, 2048, size)] * 3, more, bfloat16, target,
                                         gradient=Req.WRITE)
            found[f"attention {name} sm_{target}"] = target, made, {
                job.name: {"instruction": TENSOR_CORES[target]} for job in made}
    add("embedding", embedding)
    add("index key", indices)
    add("factor", factor(F32))
    add("factor float64", factor(np.dtype("float64")), (80,))
    for name, streams in (("sgd", 2), ("sgd_mom", 3), ("adam", 4)):  # beside them addresses and numbers are read
        wide = {"loads": streams, "stores": streams - 1, "narrow_loads": 16}
        add(f"update {name}", update(f"{name}_update"), **{f"k_{name}_update_many": wide})
    add("update sgd_mom bfloat16", update("sgd_mom_update", bfloat16))
    for name, (op, inputs, params) in OPERATORS.items():
        found[f"{name} sm_90"] = 90, operator_jobs.jobs_of(ops.get(op), inputs, params, bfloat16, 90), {}
    return found


#: What every change is checked against, some of every family; the rest is nightly.
SAMPLE = ("gemm bfloat16 sm_90", "gemm bfloat16 specialised sm_90", "gemm bfloat16 split sm_90", "gemm float32 sm_90",
          "gemv bfloat16 sm_90", "conv 3x3 64 sm_90", "epilogue conv 1x1 sm_90", "norm last sm_90", "softmax 1000 sm_90",
          "softmax axis 1 sm_90", "attention 64 sm_90", "embedding sm_90", "factor sm_90", "update adam sm_90",
          *(f"{name} sm_90" for name in OPERATORS))
