"""Kernels in C of arrays that differ from run to run, as those of imperative calls do."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ..kernel import Bind, BoundKernel, InTurn, Kernel, KernelFunction
from ..op import Spec, Specs
from .c_team import Phases, Short, Step, address_of, record_runner, record_spreader


def places_of(arrays: Sequence[Any]) -> list[int] | None:
    """Return the addresses of dense NumPy arrays, 0 for None; None if one is not dense."""
    try:
        return [0 if a is None else _addressof(_from_buffer(a)) for a in arrays]  # four times as fast as a.ctypes.data
    except (TypeError, ValueError):  # read-only, bfloat16, empty, or not dense
        dense = all(a is None or a.flags.c_contiguous for a in arrays)
        return [0 if a is None else a.ctypes.data for a in arrays] if dense else None


BY_RECORD = 1 << 14  # bytes of the arrays of a bound call up to which one thread runs it, with its arrays in a record
Move: TypeAlias = tuple[Any, int, int, int]  # table, place in it, number of the array, bytes from the array's beginning
FEW = 8  # arrays up to which each pair is compared
_addressof, _from_buffer = ctypes.addressof, ctypes.c_char.from_buffer


class Places:
    """Where the arrays of a C function may lie.

    specs:   the layouts of all arrays.
    used:    the numbers of those that it gets; written: of those among them that it writes.
    """

    def __init__(self, specs: Specs, used: Iterable[int], written: Iterable[int]):
        used, written = sorted(set(used)), set(written)
        self._arrays = [(i, *_sizes(specs[i]), i in written) for i in used]
        self._pairs = None if len(used) > FEW else [
            (k, i, specs[k].nbytes, specs[i].nbytes, i not in written and _sizes(specs[i]) == _sizes(specs[k]))
            for k in written for i in used if i != k]

    def fit(self, places: Sequence[int]) -> bool:
        """Return whether each array lies at a multiple of its items' size, and each written one apart from all others or
        exactly on one of its size that is only read."""
        bits = 0
        for at in places:
            bits |= at
        if bits & 7 and any(places[i] % item for i, _, item, _ in self._arrays):
            return False
        if self._pairs is None:
            return self._in_order(places)
        for k, i, size, other, may_share in self._pairs:
            at, there = places[k], places[i]
            if there < at + size and at < there + other and not (may_share and at == there):
                return False
        return True

    def _in_order(self, places: Sequence[int]) -> bool:
        """Return what `fit` does, by looking at neighbours; False also for arrays that are only read and overlap in part."""
        first, sizes, end, writers = -1, [0, 0], 0, 0
        for at, *its, is_written in sorted([(places[i], *more) for i, *more in self._arrays]):
            if at >= end:
                first, sizes, end, writers = at, its, at + its[0], is_written
            elif at != first or its != sizes or (writers and is_written):
                return False
            else:
                writers += is_written
        return True


def _sizes(spec: Spec) -> tuple[int, int]:
    """Return the bytes of an array, and of its elements."""
    return spec.nbytes, spec.dtype.itemsize


class Ready:
    """A call of C functions without arrays.

    call:       runs them.
    addresses:  of the first one; those of the arrays, so many, come first.
    further:    (addresses, index, number of the array) where an address is wanted as well; with a fourth number, that of the byte
                so far behind it.
    """

    __slots__ = ("_pack", "_places", "call", "further")

    def __init__(self, call: BoundKernel, addresses: Any, arrays: int, further: Iterable[tuple[Any, ...]] = ()):
        self.call = call
        self.further: list[Move] = [(*f, 0)[:4] for f in further]  # type: ignore[misc]
        self._pack = None if addresses is None else partial(struct.Struct(f"{arrays}P").pack_into, addresses, 0)
        self._places: Sequence[int] = ()

    def place(self, places: Sequence[int]) -> None:
        """Set the addresses of the arrays."""
        if places == self._places:
            return
        self._places = places
        if self._pack is not None:
            self._pack(*places)
        for addresses, i, k, distance in self.further:
            addresses[i] = places[k] + distance


def _first_field(a: np.ndarray) -> int:
    """Return what lies behind the head of a NumPy array."""
    return ctypes.c_size_t.from_address(id(a) + object.__basicsize__).value


#: Whether C finds the elements of a NumPy array: see `c_team.OBJECT`.
FINDS_ELEMENTS = sys.implementation.name == "cpython" and all(
    _first_field(a) == a.ctypes.data for a in (np.ones(3), np.ones((2, 0), "b")))
At: TypeAlias = Callable[..., bool]
Into: TypeAlias = Callable[[Sequence[int], np.ndarray], int]


def by_record(call: Phases, moves: Sequence[Move], count: int, fits: Callable[[Sequence[int]], bool], short: bool
           ) -> tuple[At, Into | None] | None:
    """Return `Kernel.at` and `Kernel.into` of a call whose functions have a piece each, and change nothing but arrays.

    Arrays are handed over with each call, so many threads may run it at once. None if it is not so simple.
    moves:  where an address of an array is wanted.
    count:  the number of the arrays, of which the last one is the only output if there is `into`.
    fits:   whether arrays may lie at addresses, if that is unknown.
    short:  the functions keep the interpreter's lock.
    """
    function, steps = record_runner(short), call.in_turn()
    tables = {id(step.addresses) for step in steps}
    if function is None or not steps or any(id(table) not in tables for table, _, _, _ in moves):
        return None
    own = sum(k == count - 1 for _, _, k, _ in moves)
    record = [own, 0, *[0] * own]
    holes: list[tuple[int, int, int]] = []  # in the record: the place, the number of the array, the bytes from its beginning
    for step in steps:
        begin, end = (0, 1) if step.ranges is None else step.ranges[:2]
        record += address_of(step.function), begin, end, len(step.addresses or ())
        holes += [(len(record) + i, k, distance) for table, i, k, distance in moves if table is step.addresses]
        record += [at or 0 for at in step.addresses or ()]
    record.append(0)
    if len(holes) != len(moves):  # functions share a table
        return None
    record[2:2 + own] = [at for at, k, _ in holes if k == count - 1]
    pack, first = struct.Struct(f"{len(record)}q").pack, holes[0][0] if holes else 0
    plain = holes == [(first + i, i, 0) for i in range(count)]
    before, after = record[2:first], record[first + count:]

    def run_on(arrays: Sequence[int], new: int) -> int:
        if plain:
            return function(pack(own, new, *before, *arrays, *after))
        filled = record.copy()
        filled[1] = new
        for at, i, distance in holes:
            filled[at] = arrays[i] + distance
        return function(pack(*filled))

    # held: addresses alone keep nothing alive
    def at(run: Any, places: Sequence[int], scalars: Sequence[float] = (), apart: bool = False, held: Any = call) -> bool:
        if len(places) != count or not (apart or fits(places)):
            return False
        run_on(places, 0)
        return True

    def into(places: Sequence[int], out: np.ndarray, held: Any = call) -> int:
        return run_on((*places, 0), id(out)) if len(places) == count - 1 else 0

    return at, into if FINDS_ELEMENTS and own else None


def by_record_on_threads(call: Phases, order: Sequence[int], count: int, fits: Callable[[Sequence[int]], bool], otherwise: At
                         ) -> At | None:
    """Return `Kernel.at` of a call of one function for many pieces, which changes nothing but arrays; None of others.

    order:      the numbers of the arrays, whose addresses come first. count, fits: as for `by_record`.
    otherwise:  runs it where a run context has no threads of the team.
    """
    function, step = record_spreader(), call.only()
    if function is None or step is None or step.then is not None:
        return None
    pack = struct.Struct(f"4q{len(step.addresses)}P").pack
    head = address_of(step.function), 0 if step.ranges is None else ctypes.addressof(step.ranges), step.pieces
    plain, rest = list(order) == list(range(count)), [at or 0 for at in step.addresses[len(order):]]

    # held: addresses alone keep nothing alive
    def at(run: Any, places: Sequence[int], scalars: Sequence[float] = (), apart: bool = False, held: Any = call) -> bool:
        threads = getattr(run, "threads", 0)
        if not threads:
            return otherwise(run, places, scalars, apart)
        if len(places) != count or not (apart or fits(places)):
            return False
        function(pack(*head, threads, *(places if plain else [places[i] for i in order]), *rest))
        return True

    return at


class MovingKernel(Kernel):
    """A kernel that keeps calls which are ready but for the addresses of the arrays; so runs may overlap.

    make:     returns a call; None if the functions could not be compiled.
    bind:     see Kernel. other: runs on arrays that C does not take.
    order:    the number of the array for each of the call's addresses: inputs first, then outputs.
    written:  the numbers of the arrays that are written.
    """

    __slots__ = ("_last", "_make", "_n", "_n_in", "_other", "_pick", "_places", "_ready")

    def __init__(self, make: Callable[[], Ready | None], bind: Bind | None, other: KernelFunction, ins: Specs, outs: Specs,
                 order: Sequence[int], written: Iterable[int]):
        super().__init__(self._run, bind)
        self._make, self._other, self._ready = make, other, list[Ready]()
        self._n_in, self._n = len(ins), len(ins) + len(outs)
        self._places = Places([*ins, *outs], order, written)
        self._pick = None if list(order) == list(range(len(ins) + len(outs))) else list(order)
        self._last: tuple[Sequence[int], Sequence[int]] = (), ()  # addresses that fit, and those of them that the call gets

    def _run(self, run: Any, inputs: Sequence[Any], outputs: Sequence[Any], scalars: Sequence[float] = ()) -> None:
        places = places_of((*inputs[:self._n_in], *outputs))  # a layer may hand over more than it reads
        if self.at is None:
            first = self._make()
            if first is not None:
                self._ready.append(first)
                self.at = self._run_at
                self._call_by_record(first)
        if self.at is not None and places is not None and self.at(run, places, scalars, False):
            return
        if scalars:
            self._other(run, inputs, outputs, scalars=scalars)
        else:
            self._other(run, inputs, outputs)

    def _call_by_record(self, first: Ready) -> None:
        """Let later runs do without `_ready`, if the call allows it."""
        order, call = self._pick or range(self._n), first.call
        if first.further or not isinstance(call, Phases) or type(call) not in (Phases, Short):
            return
        if isinstance(call, Short):
            table = call.steps()[0].addresses
            made = by_record(call, [(table, i, k, 0) for i, k in enumerate(order)], self._n, self._places.fit, True)
            if made is not None:
                self.at, self.into = made[0], made[1] if self._n == self._n_in + 1 else None
        else:
            self.at = by_record_on_threads(call, order, self._n, self._places.fit, self._run_at) or self.at

    def _run_at(self, run: Any, places: Sequence[int], scalars: Sequence[float] = (), apart: bool = False) -> bool:
        """See Kernel.at."""
        fitting, picked = self._last
        if places != fitting:
            if len(places) != self._n or not (apart or self._places.fit(places)):
                return False
            picked = places if self._pick is None else [places[i] for i in self._pick]
            self._last = places, picked
        ready = self._ready
        try:
            one = ready.pop()
        except IndexError:  # other runs have them all
            made = self._make()
            assert made is not None  # as the first time
            one = made
        one.place(picked)
        one.call(run, scalars)
        ready.append(one)
        return True


class ReboundKernel(Kernel):
    """A kernel that is bound to its arrays. What was bound is kept, where it is C alone, and moved to the arrays of later runs.

    each: as bind, for a run on arrays that may differ from run to run.
    reentrant: the functions write nothing but outputs, so several threads may run one call at once.
    """

    __slots__ = ("_each", "_moves", "_n_in", "_ready", "_reentrant", "_sizes")

    def __init__(self, bind: Bind, each: Bind | None = None, reentrant: bool = False, **more: Any):
        super().__init__(self._run, bind, **more)
        self._reentrant = reentrant
        self._each, self._ready, self._sizes, self._n_in, self._moves = each or bind, list[Ready](), list[int](), 0, True

    def _run(self, run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        arrays = (*inputs, *outputs)
        places = places_of(arrays) if self._moves else None
        if places is not None and self._ready and self._run_at(run, places):
            return
        sizes, n = [0 if a is None else a.nbytes for a in arrays], len(inputs)
        if places is None or not disjoint(places, sizes, n):
            self._each(inputs, outputs)(run)
            return
        # inputs that share memory are replaced in binding: else it is unknown which of them an address belongs to
        given = inputs if disjoint(places, sizes, 0) else [None if a is None else np.empty_like(a) for a in inputs]
        bound = self._each(given, outputs)
        ready = moved(bound, places_of((*given, *outputs)) or places, sizes)
        if ready is not None:
            ready.place(places)
        elif given is not inputs:
            bound = self._each(inputs, outputs)
        bound(run)
        self._moves = ready is not None
        if ready is not None:
            self._ready.append(ready)
            self._sizes, self._n_in, self.at, self.begin = sizes, n, self._run_at, self._begin_at
            made = None
            if self._reentrant and isinstance(ready.call, Phases) and sum(sizes) <= BY_RECORD and 0 not in sizes:
                fits = lambda places: 0 not in places and disjoint(places, sizes, n)
                made = by_record(ready.call, ready.further, len(sizes), fits, False)
            if made is not None:
                self.at, self.into, self.begin = made[0], made[1] if len(outputs) == 1 else None, None

    def _begin_at(self, places: Sequence[int]) -> Callable[[Any], None] | None:
        """See Kernel.begin."""
        one = self._take(places, False)
        if one is None:
            return None
        one.place(places)
        first = one.call.calls[0] if isinstance(one.call, InTurn) else one.call
        assert isinstance(first, Phases)
        first.begin()

        def end(run: Any) -> None:
            one.call(run)
            self._ready.append(one)

        return end

    def _take(self, places: Sequence[int], apart: bool) -> Ready | None:
        """Return a call for arrays at these addresses; None if they do not fit, or other runs have all."""
        sizes = self._sizes
        if len(places) != len(sizes) or places.count(0) != sizes.count(0) or not (apart or disjoint(places, sizes, self._n_in)):
            return None
        try:
            return self._ready.pop()
        except IndexError:
            return None

    def _run_at(self, run: Any, places: Sequence[int], scalars: Sequence[float] = (), apart: bool = False) -> bool:
        """See Kernel.at."""
        one = self._take(places, apart)
        if one is None:
            return False
        one.place(places)
        one.call(run)
        self._ready.append(one)
        return True


def disjoint(places: Sequence[int], sizes: Sequence[int], inputs: int) -> bool:
    """Return whether arrays of so many bytes share none. The first ones, only read, may share bytes among each other."""
    end, end_of_written = 0, 0
    for at, nbytes, is_written in sorted([(at, n, i >= inputs) for i, (at, n) in enumerate(zip(places, sizes)) if n]):
        if at < (end if is_written else end_of_written):
            return False
        end = max(end, at + nbytes)
        if is_written:
            end_of_written = at + nbytes
    return True


class _Fixed(Exception):
    """What was bound is not C alone, or it is unknown where it keeps addresses."""


def moved(bound: BoundKernel, places: Sequence[int], sizes: Sequence[int]) -> Ready | None:
    """Return a call that computes what bound does on arrays whose addresses are given later; None where that is not possible.

    Search the bound steps for every address that lies in one of the arrays, and make it relative to that array. Arrays share no
    byte. Every other address must lie in memory that the steps hold. The call keeps no reference to the arrays.
    """
    calls = bound.calls if isinstance(bound, InTurn) else [bound]
    found = _Memory(places, sizes)
    try:
        for one in calls:
            if type(one) not in (Phases, Short):
                return None
            for step in one.steps():
                found.look(step)
        return Ready(bound, None, 0, found.moves())
    except _Fixed:
        return None


class _Memory:
    """The memory that steps hold. arrays: (begin, end, number) of those that are to be moved."""

    def __init__(self, places: Sequence[int], sizes: Sequence[int]):
        self.arrays = [(at, at + nbytes, k) for k, (at, nbytes) in enumerate(zip(places, sizes)) if nbytes]
        self.tables: dict[int, Any] = {}
        self.held: list[tuple[int, int]] = []

    def look(self, x: Any) -> Any:
        """Note all that x holds. Return it without the arrays."""
        if isinstance(x, Step):
            x.addresses, x.ranges = self.look(x.addresses), self.look(x.ranges)
            x.held = self.look(x.held)
            self.look(x.then)
        elif isinstance(x, ctypes.Array):
            at = ctypes.addressof(x)
            self.tables[at] = x
            self.held.append((at, at + ctypes.sizeof(x)))
        elif isinstance(x, np.ndarray):
            at = x.ctypes.data
            if any(begin <= at < end for begin, end, _ in self.arrays):
                return None
            if not x.flags.c_contiguous or (x.dtype.kind in "iuO" and x.dtype.itemsize == 8):  # it might hold addresses
                raise _Fixed
            self.held.append((at, at + x.nbytes))
        elif isinstance(x, (tuple, list)):
            return tuple([self.look(each) for each in x])
        elif x is not None and not isinstance(x, (int, float, str)):
            raise _Fixed
        return x

    def moves(self) -> list[Move]:
        """Return (table, index, number of the array, distance) of each address in an array."""
        found = []
        for table in self.tables.values():
            for i, at in enumerate(table):
                if not isinstance(at, int) or not at:
                    continue
                k = next((k for k, (begin, end, _) in enumerate(self.arrays) if begin <= at < end), None)
                if k is not None:
                    found.append((table, i, self.arrays[k][2], at - self.arrays[k][0]))
                elif table._type_ is ctypes.c_void_p and not any(begin <= at < end for begin, end in self.held):
                    raise _Fixed
        return found
