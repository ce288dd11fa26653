"""Kernels in C of arrays that differ from run to run, as those of imperative calls do."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..kernel import Bind, Kernel, KernelFunction
from ..op import Specs
from .c_team import Phases


def places_of(arrays: Sequence[Any]) -> list[int] | None:
    """Return the addresses of dense NumPy arrays, 0 for None; None if one is not dense."""
    try:
        return [0 if a is None else _addressof(_from_buffer(a)) for a in arrays]  # four times as fast as a.ctypes.data
    except (TypeError, ValueError):  # read-only, bfloat16, empty, or not dense
        dense = all(a is None or a.flags.c_contiguous for a in arrays)
        return [0 if a is None else a.ctypes.data for a in arrays] if dense else None


_addressof, _from_buffer = ctypes.addressof, ctypes.c_char.from_buffer


class Places:
    """Where the arrays of a C function may lie.

    ins, stored: the layouts of its inputs, and of the arrays that it writes.
    """

    def __init__(self, ins: Specs, stored: Specs):
        specs = [*ins, *stored]
        sizes = [(s.nbytes, s.dtype.itemsize) for s in specs]
        self._items = [item for _, item in sizes]
        self._pairs = [(k, i, sizes[k][0], sizes[i][0], i < len(ins) and sizes[i] == sizes[k])
                       for k in range(len(ins), len(specs)) for i in range(k)]

    def fit(self, places: Sequence[int]) -> bool:
        """Return whether each array lies at a multiple of its items' size, and each written one apart from all others or
        exactly on an input of its size."""
        bits = 0
        for at in places:
            bits |= at
        if bits & 7 and any(at % item for at, item in zip(places, self._items)):
            return False
        for k, i, size, other, may_share in self._pairs:
            at, there = places[k], places[i]
            if there < at + size and at < there + other and not (may_share and at == there):
                return False
        return True


class Ready:
    """A call of C functions without arrays.

    call:       runs them.
    addresses:  of the first one; those of the arrays, so many, come first.
    further:    (addresses, index, number of the array) where an address is wanted as well.
    """

    __slots__ = ("_pack", "call", "further")

    def __init__(self, call: Phases, addresses: Any, arrays: int, further: Sequence[tuple[Any, int, int]] = ()):
        self.call, self.further = call, further
        self._pack = partial(struct.Struct(f"{arrays}P").pack_into, addresses, 0)

    def place(self, places: Sequence[int]) -> None:
        """Set the addresses of the arrays."""
        self._pack(*places)
        for addresses, i, k in self.further:
            addresses[i] = places[k]


class MovingKernel(Kernel):
    """A kernel that keeps calls which are ready but for the addresses of the arrays; so runs may overlap.

    make:     returns a call; None if the functions could not be compiled.
    bind:     see Kernel. other: runs on arrays that C does not take.
    targets:  the numbers of the outputs that are written; states: {such an output: the input that is written instead}.
    """

    __slots__ = ("_make", "_other", "_pick", "_places", "_ready")

    def __init__(self, make: Callable[[], Ready | None], bind: Bind, other: KernelFunction, ins: Specs, outs: Specs,
                 targets: Sequence[int], states: dict[int, int]):
        super().__init__(self._run, bind)
        self._make, self._other, self._ready = make, other, list[Ready]()
        self._places = Places(ins, [ins[states[t]] if t in states else outs[t] for t in targets])
        pick = [*range(len(ins)), *(states[t] if t in states else len(ins) + t for t in targets)]
        self._pick = None if pick == list(range(len(ins) + len(outs))) else pick

    def _run(self, run: Any, inputs: Sequence[Any], outputs: Sequence[Any], scalars: Sequence[float] = ()) -> None:
        places = places_of((*inputs, *outputs))
        if self.at is None:
            first = self._make()
            if first is not None:
                self._ready.append(first)
                self.at = self._run_at
        if self.at is not None and places is not None and self._run_at(run, places, scalars, False):
            return
        if scalars:
            self._other(run, inputs, outputs, scalars=scalars)
        else:
            self._other(run, inputs, outputs)

    def _run_at(self, run: Any, places: Sequence[int], scalars: Sequence[float] = (), apart: bool = False) -> bool:
        """See Kernel.at."""
        if self._pick is not None:
            places = [places[i] for i in self._pick]
        if not apart and not self._places.fit(places):
            return False
        ready = self._ready
        try:
            one = ready.pop()
        except IndexError:  # other runs have them all
            one = self._make()  # type: ignore[assignment]
        one.place(places)
        one.call(run, scalars)
        ready.append(one)
        return True
