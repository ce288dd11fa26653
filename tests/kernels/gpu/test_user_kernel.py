"""jit and launch: a user's own Triton kernel, as text, interpreted and compiled. Oracle: NumPy."""

import gc
import math
import os
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from tritium.errors import OperatorError, ParameterError, ShapeError
from tritium.kernels.declare.operator_property import TBlob
from tritium.kernels.gpu.compile import compile_all
from tritium.kernels.gpu.load import INTERPRET
from tritium.kernels.gpu.record import FakeArray, FakeRun, record
from tritium.kernels.gpu.user_kernel import jit, launch, launching, tl

pytestmark = pytest.mark.skipif(not INTERPRET, reason="needs TRITIUM_GPU=interpret")
torch = pytest.importorskip("torch")
HALF, NAMES = 0.5, {"a": 1}


class Run:
    """Stands in for the engine's RunContext on the interpreted GPU."""

    stream = None

    def workspace(self, shape, dtype):
        return torch.empty(shape)


@jit
def shifted(value, k: tl.constexpr):
    """A function that a kernel calls."""
    return value * k + HALF


@jit
def affine(x, y, n, factor, BLOCK: tl.constexpr, K: tl.constexpr = 3):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = shifted(tl.load(x + at, at < n, other=math.inf), K)
    tl.store(y + at, value * factor, at < n)


@pytest.fixture
def running():
    with launching(Run()):
        yield


def arrays(n=10):
    return torch.arange(float(n)), torch.full((n,), 7.0)


@pytest.mark.parametrize("call", [
    lambda x, y: launch(affine, 1, x, y, 10, 2.0, BLOCK=16),
    lambda x, y: launch(affine, (2,), TBlob(x, "gpu"), TBlob(y, "gpu"), 10, 2, 8),
    lambda x, y: launch(affine, lambda p: (-(-10 // p["BLOCK"]),), x, y, factor=np.float32(2), n=np.int64(10), BLOCK=np.int32(4)),
])
def test_parameters_by_position_or_name(call, running):
    x, y = arrays()
    call(x, y)
    np.testing.assert_array_equal(y.numpy(), (3 * np.arange(10.0) + 0.5) * 2)


def test_an_empty_grid_runs_nothing(running):
    x, y = arrays()
    launch(affine, (0,), x, y, 10, 2.0, BLOCK=16)
    assert y.tolist() == [7.0] * 10


def test_a_kernel_defined_inside_a_function_sees_its_numbers(running):
    extra, name = 4.0, "max"

    @jit
    def inner(x, y, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        value = tl.load(x + at)
        if name == "max":
            value = tl.maximum(value, extra)
        tl.store(y + at, value)

    x, y = arrays(8)
    launch(inner, 1, x, y, BLOCK=8)
    assert y.tolist() == [4.0, 4, 4, 4, 4, 5, 6, 7]


def test_names_may_be_imported_from_triton(running):
    import triton.language as language
    from triton.language import cdiv, constexpr, float32, load, store

    THREE = constexpr(3)

    @jit
    def mixed(x, y, n):
        store(y, load(x) * THREE + cdiv(n, THREE) + language.zeros([1], float32).sum(0) + min(n, 2))

    x, y = torch.ones(1), torch.zeros(1)
    launch(mixed, 1, x, y, 10)
    assert y.item() == 3 + 4 + 2


@pytest.mark.parametrize("kind", [tl.float64, np.float64, np.dtype("float64"), "triton"])
def test_a_dtype_may_be_a_constexpr(kind, running):
    @jit
    def cast(x, y, kind: tl.constexpr):
        tl.store(y, tl.load(x).to(kind) / 3)

    if kind == "triton":
        import triton.language

        kind = triton.language.float64
    x, y = torch.ones(1), torch.zeros(1, dtype=torch.float64)
    launch(cast, 1, x, y, kind=kind)
    assert y.item() == 1 / 3


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda x, y: launch(affine, 1, x.numpy(), y, 10, 2.0, BLOCK=16), OperatorError,
     r"^affine: x is in host memory, float32\[10\]\. A kernel reads a GPU's memory: launch it for target 'gpu', and compute with "
     r"NumPy for 'cpu'\.$"),
    (lambda x, y: launch(affine, 1, x, TBlob(y.numpy(), "cpu"), 10, 2.0, BLOCK=16), OperatorError,
     r"^affine: y is in host memory, float32\[10\]\."),
    (lambda x, y: launch(affine, 1, x, mx.nd.ones(10), 10, 2.0, BLOCK=16), OperatorError,
     r"^affine: y is an NDArray, float32\[10\]@cpu\(0\), which the engine orders\. Launch the kernel in an Operator"),
    (lambda x, y: launch(affine, 1, x, TBlob(None, "gpu"), 10, 2.0, BLOCK=16), OperatorError,
     r"^affine: y has no memory, because its write request is NULL\. Do not launch for it\.$"),
    (lambda x, y: launch(affine, 1, x, y, 10, BLOCK=16), ParameterError,
     r"^affine: factor is missing\. Its parameters: x, y, n, factor, BLOCK, K\.$"),
    (lambda x, y: launch(affine, 1, x, y, 10, 2.0, 16, 3, 4), ParameterError, r"^affine: takes 6 parameters \(x, y, .*7 were"),
    (lambda x, y: launch(affine, 1, x, y, 10, 2.0, SIZE=16), ParameterError, r"^affine: 'SIZE' is not one of its parameters: x"),
    (lambda x, y: launch(affine, 1, x, y, 10, 2.0, BLOCK=16, n=3), ParameterError, r"^affine: parameter 'n' is given twice\.$"),
    (lambda x, y: launch(affine, 1, x, 3, y, 2.0, BLOCK=16), ParameterError,
     r"^affine: n is an array behind a number\. Put the arrays first among the parameters\.$"),
    (lambda x, y: launch(affine, 1, x, y, "10", 2.0, BLOCK=16), ParameterError,
     r"^affine: n is of type str, neither an array nor a number\. Annotate it tl\.constexpr if it is fixed when"),
    (lambda x, y: launch(affine, 1, x, y, 10, 2.0, BLOCK=[16]), ParameterError,
     r"^affine: BLOCK is of type list\. A constexpr is a number, a string or a dtype\.$"),
    (lambda x, y: launch(affine, 1, x, y, 1 << 31, 2.0, BLOCK=16), ParameterError, r"^affine: n=2147483648 does not fit int32"),
    (lambda x, y: launch(affine, 1 << 31, x, y, 10, 2.0, BLOCK=16), ShapeError, "affine"),
    (lambda x, y: launch(3, 1, x, y), OperatorError, r"^jit: got int, not a function\. Decorate the function of a kernel"),
    (lambda x, y: affine[(1,)](x, y), TypeError, r"Write launch\(affine, grid, \.\.\.\)"),
    (lambda x, y: affine(x, y), TypeError, r"^affine: a kernel is launched, not called\. Write launch\(affine, grid, \.\.\.\)"),
])
def test_mistakes_of_a_launch_are_named(call, error, text, running):
    with pytest.raises(error, match=text):
        call(*arrays())


def test_a_launch_outside_of_an_operator_is_refused():
    with pytest.raises(OperatorError, match=r"^affine: launched outside of an operator, where its arrays may not be ready\. Call "
                                            r"launch in Operator\.forward or backward\.$"):
        launch(affine, 1, *arrays(), 10, 2.0, BLOCK=16)


@jit
def sees_a_dict(x, y):
    tl.store(y, NAMES["a"])


@jit
def sees_nothing(x, y):
    tl.store(y, missing)  # noqa: F821


@jit
def sees_no_attribute(x, y):
    tl.store(y, math.missing)


def other():
    @jit
    def shifted(value):
        return value

    return shifted


other_shifted = other()


@jit
def calls_two_of_a_name(x, y):
    tl.store(y, shifted(tl.load(x), 2) + other_shifted(tl.load(x)))


def constexpr_first(x, BLOCK: tl.constexpr, n):
    """Its parameters are out of order."""


@pytest.mark.parametrize(("call", "text"), [
    (lambda: launch(sees_a_dict, 1, *arrays()), r"^sees_a_dict: uses NAMES, of type dict, which a kernel cannot see\. Give it as "
                                                r"an argument, or make it a number or a function under jit\.$"),
    (lambda: launch(sees_nothing, 1, *arrays()), r"^sees_nothing: missing is not defined\.$"),
    (lambda: launch(sees_no_attribute, 1, *arrays()), r"^sees_no_attribute: math\.missing is not defined\.$"),
    (lambda: launch(calls_two_of_a_name, 1, *arrays()), r"^calls_two_of_a_name: calls two functions named shifted\. Rename one"),
    (lambda: jit(constexpr_first), r"^constexpr_first: n stands behind a constexpr\. Put arrays first, then numbers, then"),
    (lambda: launch(jit(eval(compile("lambda x, y: x", "<no file>", "eval"))), 1, *arrays()),
     r"its text cannot be read\. Write it in a file or in a notebook"),
])
def test_mistakes_of_a_kernel_are_named(call, text, running):
    with pytest.raises(OperatorError, match=text):
        call()


def test_text_does_not_depend_on_how_triton_is_called():
    language = tl

    @jit
    def affine(x, y, n, factor, BLOCK: "language.constexpr", K: language.constexpr = 3):
        at = language.program_id(0) * BLOCK + mx.operator.tl.arange(0, BLOCK)
        value = shifted(language.load(x + at, at < n, other=math.inf), K)
        language.store(y + at, value * factor, at < n)

    assert affine.source == globals()["affine"].source


def test_a_kernel_that_is_defined_again_and_again_is_forgotten():
    def define():
        @jit
        def local(x):
            tl.store(x, 1.0)

        return weakref.ref(local.fn)

    made = [define() for _ in range(3)]
    gc.collect()
    assert [ref() for ref in made] == [None] * 3


@pytest.mark.parametrize("target", [80, 90, 100])
def test_it_compiles(target):
    with record(target) as recorder, launching(FakeRun()):
        launch(affine, 4, FakeArray((4096,), "float16"), FakeArray((4096,), "float32"), 4096, 2.0, BLOCK=1024)
    assert len(recorder.jobs) == 1
    for outcome in compile_all(recorder.jobs, timeout=120):
        assert not isinstance(outcome, Exception), outcome
        assert outcome.spills == 0


PROGRAM = """
import triton, triton.language as T
import tritium as mx

@triton.jit
def twice(x, y, n, BLOCK: T.constexpr):
    at = T.program_id(0) * BLOCK + T.arange(0, BLOCK)
    value = T.load(x + at, at < n, other=0.0)
    T.store(y + at, value * 2 + value.sum(0) * 0 + T.cdiv(n, 100) - 1, at < n)

@mx.operator.register("twice")
class Twice(mx.operator.OperatorProperty):
    def create_operator(self, target, in_shapes, in_dtypes):
        class Launch(mx.operator.Operator):
            def forward(self, ctx, in_data, req, out_data, aux):
                mx.operator.launch(twice, 1, in_data[0], out_data[0], in_data[0].size, BLOCK=16)
        return Launch()

print(mx.nd.twice(mx.nd.array([1, 2, 3], mx.gpu(0))).tolist(), mx.nd.softmax(mx.nd.ones((1, 4), mx.gpu(0))).tolist())
"""


def test_triton_imported_and_used_before_tritium(tmp_path):
    """Triton decides when it is imported whether its library is interpreted; kernels decorated before are texts all the same."""
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"TRITIUM_GPU": "interpret"}
    package = Path(mx.__file__).parent.parent
    environment["PYTHONPATH"] = os.pathsep.join([str(package), *filter(None, [environment.get("PYTHONPATH")])])
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment, capture_output=True, text=True,
                          timeout=120)
    assert done.stdout.split("\n")[0] == "[2.0, 4.0, 6.0] [[0.25, 0.25, 0.25, 0.25]]", done.stderr
