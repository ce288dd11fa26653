"""reshape codes. Oracle: cases read off MXNet 1.9.1."""

import pytest
from tritium.errors import ShapeError
from tritium.ndarray.shaping import reshaped


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
])
def test_codes(shape, codes, reverse, want):
    if want is None:
        with pytest.raises(ShapeError):
            reshaped(shape, codes, reverse=reverse)
    else:
        assert reshaped(shape, codes, reverse=reverse) == want


@pytest.mark.parametrize("shape, codes, reason", [
    ((2, 3), (4,), "6 elements are not 4"),
    ((2, 3), (-1, -1), "only one size can be -1"),
    ((2, 3), (0, 0, 0), "code 0 has no axis left"),
    ((2, 3), (-4, 4, 2, 3), "-4 cannot split 2 into 4 and 2"),
    ((2, 3), (3, -4, 2), "-4 wants two sizes"),
    ((2, 3), (-7,), "-7 is no code"),
    ((2, 3), (-1, 4), "6 elements do not divide by 4"),
])
def test_errors_say_which_code(shape, codes, reason):
    with pytest.raises(ShapeError, match=f"reshape: .*{reason}"):
        reshaped(shape, codes)
