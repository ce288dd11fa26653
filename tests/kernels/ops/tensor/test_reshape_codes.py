"""reshape codes, as the operator and the method read them. Oracle: what MXNet 1.9.1 answered to random codes, reverse too.

codes.json: [shape, codes, reverse, its answer, or null where it refuses]. Codes with -1 behind a -2 or -4 are not among
them: there MXNet puts the size it works out in the place of the code, which is another place of the result.
"""

import json
import math
import random
from pathlib import Path

import pytest
import tritium as mx
from tritium.errors import ShapeError
from tritium.kernels.ops.tensor.reshape import reshape_codes

RECORDED = json.loads((Path(__file__).parents[3] / "golden" / "reshape" / "codes.json").read_text())


def answer(reads, *given):
    """A shape as a list; None where it is refused."""
    try:
        return list(reads(*given))
    except ShapeError:
        return None


def operator(shape, codes, reverse):
    return mx.nd.Reshape(mx.nd.zeros(shape), shape=codes, reverse=reverse).shape


def method(shape, codes, reverse):
    return mx.nd.zeros(shape).reshape(codes, reverse=reverse).shape


@pytest.mark.parametrize("reads", [operator, method])
def test_as_mxnet(reads):
    for shape, codes, reverse, want in RECORDED:
        assert answer(reads, tuple(shape), tuple(codes), reverse) == want, (shape, codes, reverse)


def test_the_operator_and_the_method_agree_on_any_codes():
    """Also where MXNet's answer is no guide; and what comes out holds the same elements."""
    draw = random.Random(5)
    for _ in range(1500):
        shape = tuple(draw.choice((0, 1, 2, 3, 4, 6)) for _ in range(draw.randint(1, 4)))
        codes = tuple(draw.choice((0, -1, -2, -3, -4, 1, 2, 3, 4, 6)) for _ in range(draw.randint(1, 5)))
        reverse = draw.random() < 0.5
        one, other = (answer(reads, shape, codes, reverse) for reads in (operator, method))
        assert one == other and (one is None or math.prod(one) == math.prod(shape)), (shape, codes, reverse)


@pytest.mark.parametrize("shape, codes, reverse, want", [
    ((2, 3, 4), (4, 0, 2), False, (4, 3, 2)),
    ((2, 3, 4), (2, 0, 0), False, (2, 3, 4)),
    ((2, 3, 4), (6, 1, -1), False, (6, 1, 4)),
    ((2, 3, 4), (-1,), False, (24,)),
    ((2, 3, 4), (-2,), False, (2, 3, 4)),
    ((2, 3, 4), (2, -2), False, (2, 3, 4)),
    ((2, 3, 4), (-2, 1, 1), False, (2, 3, 4, 1, 1)),
    ((2, 3, 4), (-3, 4), False, (6, 4)),
    ((2, 3, 4, 5), (-3, -3), False, (6, 20)),
    ((2, 3, 4), (0, -3), False, (2, 12)),
    ((2, 3, 4), (-3, -2), False, (6, 4)),
    ((2, 3, 4), (-4, 1, 2, -2), False, (1, 2, 3, 4)),
    ((2, 3, 4), (2, -4, -1, 3, -2), False, (2, 1, 3, 4)),
    ((10, 5, 4), (-1, 0), False, (40, 5)),
    ((10, 5, 4), (-1, 0), True, (50, 4)),
    ((8, 3, 3, 3, 4, 4), (-4, 0, 2, -1, 0, 0), True, None),
    ((2, 3, 4), (-1, 0), True, (6, 4)),
    ((), (-1,), False, (1,)),
    ((0, 3), (-1, 3), False, (0, 3)),
    ((2, 12), (0, 3, -1, -4), True, (2, 3, 4)),
    ((-1, 12), (0, -4, 3, -1), False, (-1, 3, 4)),
    ((2, -1), (0, -4, 3, -1), False, (2, 3, -1)),
])
def test_codes(shape, codes, reverse, want):
    if want is None:
        with pytest.raises(ShapeError):
            reshape_codes("reshape", shape, codes, reverse)
    else:
        assert reshape_codes("reshape", shape, codes, reverse) == want


@pytest.mark.parametrize("shape, codes, reverse, reason", [
    ((2, 3), (4,), False, "6 elements are not 4"),
    ((2, 3), (-1, -1), False, "only one size can be -1"),
    ((2, 3), (0, 0, 0), False, "code 0 has no axis left"),
    ((2, 3), (-4, 4, 2, 3), False, "-4 cannot split 2 into 4 and 2"),
    ((2, 3), (3, -4, 2), False, "-4 needs two sizes"),
    ((2, 3), (-7,), False, "-7 is not a reshape code"),
    ((2, 3), (-1, 12), False, "6 elements are not divisible by 12"),
    ((4,), (-4, 2, 2), True, "from the right: -4 needs two sizes before it"),
    ((6,), (-4, -2, -3), False, "-4 cannot split 6 into -2 and -3"),
])
def test_errors_say_which_code(shape, codes, reverse, reason):
    with pytest.raises(ShapeError, match=f"reshape: .*{reason}"):
        reshape_codes("reshape", shape, codes, reverse)


def test_sizes_that_leave_a_rest_are_refused_when_run():
    """MXNet's inference gives (1, 4) here."""
    for reads in (operator, method):
        with pytest.raises(ShapeError, match=r"6 elements.* \(1, 4\).* Choose sizes whose product is 6"):
            reads((2, 3), (-1, 4), False)
