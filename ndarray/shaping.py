"""MXNet's reshape codes: 0 copies a size, -1 infers it, -2 copies the rest, -3 merges two, -4 splits one in two."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ShapeError


def reshaped(shape: tuple[int, ...], codes: Sequence[int], *, reverse: bool = False) -> tuple[int, ...]:
    """The shape that codes make of shape.

    reverse:  read both from the right.
    Raises: ShapeError stating both.
    """
    given = tuple(int(c) for c in codes)
    if reverse:
        turned, splits = list(given[::-1]), [i for i, c in enumerate(given[::-1]) if c == -4]
        for i in splits:  # "-4, a, b" reads "b, a, -4" backwards: put it in front again, its two sizes turned
            if i < 2:
                raise _wrong(shape, given, "-4 wants two sizes after it")
            turned[i - 2 : i + 1] = [-4, turned[i - 2], turned[i - 1]]
        return _walk(shape[::-1], turned, shape, given)[::-1]
    return _walk(shape, given, shape, given)


def _walk(shape: tuple[int, ...], codes: Sequence[int], spoken: tuple[int, ...], given: tuple[int, ...]
          ) -> tuple[int, ...]:
    out: list[int] = []
    at, i, infer = 0, 0, -1

    def source(code: int) -> int:
        nonlocal at
        if at >= len(shape):
            raise _wrong(spoken, given, f"code {code} has no axis left to read")
        at += 1
        return shape[at - 1]

    while i < len(codes):
        code = codes[i]
        i += 1
        if code == 0:
            out.append(source(0))
        elif code == -1:
            if infer >= 0:
                raise _wrong(spoken, given, "only one size can be -1")
            infer = len(out)
            out.append(1)
            at += 1
        elif code == -2:
            out.extend(shape[at:])
            at = len(shape)
        elif code == -3:
            out.append(source(-3) * source(-3))
        elif code == -4:
            whole = source(-4)
            if i + 2 > len(codes):
                raise _wrong(spoken, given, "-4 wants two sizes after it")
            a, b = codes[i], codes[i + 1]
            i += 2
            if a == -1 and b > 0:
                a = whole // b
            elif b == -1 and a > 0:
                b = whole // a
            if a < 0 or b < 0 or a * b != whole:
                raise _wrong(spoken, given, f"-4 cannot split {whole} into {codes[i - 2]} and {codes[i - 1]}")
            out += [a, b]
        elif code > 0:
            out.append(code)
            at += 1
        else:
            raise _wrong(spoken, given, f"{code} is no code")
    total, rest = _product(spoken), _product(out)
    if infer >= 0:
        if rest == 0 or total % rest:
            raise _wrong(spoken, given, f"{total} elements do not divide by {rest}")
        out[infer] = total // rest
    elif rest != total:
        raise _wrong(spoken, given, f"{total} elements are not {rest}")
    return tuple(out)


def _product(shape: Sequence[int]) -> int:
    n = 1
    for d in shape:
        n *= d
    return n


def _wrong(shape: tuple[int, ...], codes: tuple[int, ...], why: str) -> ShapeError:
    return ShapeError(f"reshape: {shape} does not reshape to {codes}: {why}. "
                      f"Codes: 0 copy, -1 infer, -2 the rest, -3 merge two, -4 split into the next two.")
