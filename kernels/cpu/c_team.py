"""Threads in C that share the pieces of C functions, without the interpreter: handing work over takes about a microsecond.

A list of phases runs in one call. The caller takes part, and could finish alone: helpers take pieces where some are left. After
its work a helper watches for more for a short while before it sleeps. Several callers may run phases at the same time.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np

from . import c_compile
from .c_math import PREAMBLE
from .c_team_text import TEXT

KEPT = 1 << 14  # elements of scratch memory up to which it is kept between runs
KEPT_JOINED = 1 << 18  # the same of several kernels in one call
TOGETHER = 1 << 13  # elements of short functions that are one piece, about


#: What C reads of a NumPy array: its first field is the address of its elements, as in the text that NumPy's headers compile into
#: extensions (PyArray_DATA).
OBJECT = f"#define OBJECT_HEAD {object.__basicsize__}\n"
FILE = PREAMBLE + OBJECT + TEXT, ("team_run", "team_logged", "team_one", "team_given", "team_spread", "team_reset", "team_begin")


@functools.cache
def _functions() -> dict[str, c_compile.Loaded] | None:
    found = c_compile.library(*FILE)
    if found is not None:
        for function in found.values():
            for call in (function.free, function.short):
                call.argtypes = [ctypes.c_void_p]  # type: ignore[attr-defined]
        if hasattr(os, "register_at_fork"):
            reset: Any = found["team_reset"].short
            os.register_at_fork(after_in_child=lambda: reset(None))
    return found


def team() -> Callable[[int], None] | None:
    """Return the C function that runs phases, given the address of a record: where they lie, how many they are, on how many
    threads. One argument takes a quarter of the time of three. None if it could not be compiled."""
    found = _functions()
    return None if found is None else found["team_run"].free  # type: ignore[return-value]


def record_runner(short: bool) -> Callable[[bytes], int] | None:
    """Return the C function that runs functions on the arrays in a record, and returns the address of a new one; None if it could
    not be compiled. short: it keeps the interpreter's lock.
    """
    found = _functions()
    if found is None:
        return None
    function: Any = found["team_given"].short if short else found["team_given"].free
    function.restype = ctypes.c_int64
    return function


def record_spreader() -> Callable[[bytes], None] | None:
    """Return the C function that runs a function for many pieces on the arrays in a record; None if it could not be compiled."""
    found: dict[str, Any] | None = _functions()
    return None if found is None else found["team_spread"].free


def int64s(*values: int) -> Any:
    """Return numbers as C reads them."""
    return (ctypes.c_int64 * max(1, len(values)))(*values)


def address_of(function: c_compile.Loaded) -> int:
    """Return where a C function lies."""
    code: Any = function.free
    return ctypes.cast(code, ctypes.c_void_p).value or 0


class Step:
    """A C function for some pieces of a phase, and the function that follows it for each piece.

    ranges:  begin and end for each piece, two numbers each; None: f(arrays, i, i + 1) for piece i.
    held:    the arrays and numbers that lie at the addresses: addresses alone keep nothing alive.
    images:  the pieces are of so many images, in their order, equally many of each, and a piece uses no other one; 0: not so.
    """

    __slots__ = ("addresses", "function", "held", "images", "pieces", "ranges", "then")

    def __init__(self, function: c_compile.Loaded, addresses: Any, pieces: int, ranges: Any = None, then: Step | None = None,
                 held: Any = None, images: int = 0):
        self.function, self.addresses, self.pieces, self.ranges, self.then = function, addresses, pieces, ranges, then
        self.held, self.images = held, images

    def part(self, first: int, end: int) -> Step:
        """Return the step of the pieces from one to another."""
        each = range(first, end)
        ranges = [n for i in each for n in (i, i + 1)] if self.ranges is None else self.ranges[2 * first:2 * end]
        return Step(self.function, self.addresses, len(each), int64s(*ranges),
                    None if self.then is None else self.then.part(first, end), self)

    def run(self, i: int) -> None:
        """Compute piece i in this thread."""
        begin, end = (i, i + 1) if self.ranges is None else (self.ranges[2 * i], self.ranges[2 * i + 1])
        self.function.free(self.addresses, begin, end)
        if self.then is not None:
            self.then.run(i)


def step_of_elements(function: c_compile.Loaded, addresses: Any, size: int, piece: int, held: Any) -> Step:
    """Return the step of a function of elements, cut into pieces of at most `piece` elements."""
    starts = range(0, size, piece)
    return Step(function, addresses, len(starts), int64s(*(n for i in starts for n in (i, min(i + piece, size)))), held=held)


def aligned(run: Any, elements: int) -> Any:
    """Return float32 memory that begins at a whole vector: scratch memory of run, or, without one, memory that stays."""
    n = elements + 16
    array: Any = np.empty(n, np.float32) if run is None else run.workspace((n,), np.float32)
    return array[-array.ctypes.data % 64 // 4:][:elements]


class Scratch(NamedTuple):
    """Memory for the time of a run, in float32. places: (addresses, index) where its address is wanted."""

    elements: int
    places: Sequence[tuple[Any, int]]

    def take(self, run: Any) -> Any:
        """Allocate it, and write its address where that is wanted. Without run it stays."""
        memory = aligned(run, self.elements)
        for addresses, i in self.places:
            addresses[i] = memory.ctypes.data
        return memory


class Follower(NamedTuple):
    """A C function f(addresses, first, last) of elements that reads another function's result.

    places:  the indices in addresses where that of the result's element 0 is wanted.
    piece:   elements that are one piece.
    held:    the arrays at the other addresses.
    """

    function: c_compile.Loaded
    addresses: Any
    places: Sequence[int]
    piece: int
    held: Any

    def read(self, rows: Step, at: int, y: Any, size: int) -> list[Scratch]:
        """Let it read what `rows` writes to address `at`: y, or, if y is None, scratch memory, which is returned."""
        wanted = [(self.addresses, i) for i in self.places]
        if y is None:
            return [Scratch(size, [(rows.addresses, at), *wanted])]
        for addresses, i in wanted:
            addresses[i] = y.ctypes.data
        return []

    def entry(self) -> tuple[int, int]:
        """Return the addresses of the function and of its arrays, for a function that calls it."""
        return address_of(self.function), ctypes.addressof(self.addresses)

    def step(self, size: int) -> Step:
        """Return the step of all elements."""
        return step_of_elements(self.function, self.addresses, size, self.piece, self.held)

    def step_after(self, ranges: Sequence[tuple[int, int]]) -> Step:
        """Return the step that follows each piece of another one, given the elements of each piece."""
        return Step(self.function, self.addresses, len(ranges), int64s(*(n for r in ranges for n in r)), held=self.held)


class Phases:
    """Phases of C functions, each of independent steps. Arrays of addresses may be changed between two runs.

    threads:  at most so many take part; 0: all.
    scratch:  taken before each run; what is small is kept.
    numbers:  the run-time scalars of its functions, as C reads them; `hold` sets them.
    """

    __slots__ = ("_at", "_count", "_given", "_held", "_kept", "_left_out", "_memory", "_phases", "_record", "_record_at", "_run",
                 "_scratch", "_table_at", "_threads", "numbers")

    def __init__(self, phases: Sequence[Sequence[Step]], threads: int = 0, *, scratch: Sequence[Scratch] = (),
                 numbers: Any = None):
        self.numbers, self._given = numbers, ()
        self._set([(list(p), threads) for p in phases if p], [scratch] if scratch else [], KEPT)

    def _set(self, phases: list[tuple[list[Step], int]], scratch: list[Sequence[Scratch]], kept: int) -> None:
        self._phases, self._scratch, self._kept, self._count = phases, scratch, kept, len(phases)
        self._memory = max((sum(map(_room, each)) for each in scratch), default=0)
        self._record: Any = None  # what `team` gets: the phases, their number, the threads
        self._record_at = self._threads = self._left_out = 0
        self._at = 0  # the address of its scratch memory, as the functions know it
        self._held: list[Any] = []
        self._run: Any = team()

    @staticmethod
    def join(given: Sequence[Phases]) -> Phases:
        """Return one that runs these in turn, in one call. They share their scratch memory, and run in no other way.

        Their numbers are read as they are then.
        """
        if len(given) == 1:
            return given[0]
        joined = Phases.__new__(Phases)
        joined.numbers, joined._given = None, ()
        joined._set([p for one in given for p in one._phases], [s for one in given for s in one._scratch], KEPT_JOINED)
        return joined

    @staticmethod
    def together(given: Sequence[Phases]) -> Phases:
        """Return one that runs these, which are independent and have one phase each, in one call.

        Their numbers are read as they are then.
        Short functions share a phase, several of them a piece. Others have a phase each: so each thread finds in its own cache
        what it wrote of an array before, its first or its last part.
        """
        phases: list[list[Step]] = []
        short: list[Step] = []
        last, size = None, 0  # of the piece to which short functions are added
        for one in given:
            ((step,), _), = one._phases
            if not isinstance(one, Short) or step.pieces > 1:
                phases.append([step])
                continue
            if last is None or size >= TOGETHER:
                short.append(step)
                size = 0
            else:
                last.then = step
            last, size = step, size + one.size
        return Phases([*phases, short])

    def hold(self, scalars: Sequence[float]) -> None:
        """Set the run-time scalars of its functions."""
        if scalars is not self._given:
            self._given = scalars
            self.numbers[:] = scalars

    def _make_record(self) -> Any:
        """Return the record that the team's C functions read."""
        tables = [_table(steps) for steps, _ in self._phases]
        pieces = [sum(s.pieces for s in steps) for steps, _ in self._phases]
        table = int64s(*(n for t, count, (_, threads) in zip(tables, pieces, self._phases)
                         for n in (ctypes.addressof(t), threads << 32 | count)))
        self._held += tables, table
        self._table_at = ctypes.addressof(table)
        record = int64s(self._table_at + 16 * self._left_out, self._count - self._left_out, 0, 0)
        self._record_at = ctypes.addressof(record)
        if 0 < self._memory <= self._kept:
            self._held.append(self._take(None))
            self._memory = 0
        return record

    def _take(self, run: Any) -> Any:
        """Allocate scratch memory, and write its addresses where they are wanted."""
        memory = aligned(run, self._memory)
        at = memory.ctypes.data
        if at != self._at:
            self._at = at
            for each in self._scratch:
                here = at
                for scratch in each:
                    for addresses, i in scratch.places:
                        addresses[i] = here
                    here += 4 * _room(scratch)
        return memory

    def leave_out(self, phases: int) -> None:
        """Leave out the first phases in later runs."""
        self._left_out = phases
        if self._record is not None:
            self._record[0] = self._table_at + 16 * phases
            self._record[1] = self._count - phases

    def begin(self) -> None:
        """Let a helper begin while this thread goes on, if there is one and nothing must be made first.

        A call must follow: it takes part, and returns at the end. Until then nobody may write what the phases read.
        """
        found = _functions()
        if found is not None and self._threads > 1 and not self._memory:
            found["team_begin"].short(self._record_at)  # type: ignore[call-arg,arg-type]

    @property
    def begun(self) -> bool:
        """True from `begin` until the call that follows has ended, if a helper was there."""
        return self._record is not None and self._record[3] != 0

    def __call__(self, run: Any, scalars: Sequence[float] = ()) -> None:
        """Run the phases on the threads of a run context; a context without `threads` gets the pieces by its `parallel`."""
        if self._record is None:
            self._record = self._make_record()
        if scalars:
            self.hold(scalars)
        threads = 1 if run is None else getattr(run, "threads", 0)
        taken = self._take(run) if self._memory else None  # noqa: F841  # alive while it runs
        if threads and self._run is not None:
            if threads != self._threads:
                self._record[2] = self._threads = threads
            self._run(self._record_at)
            return
        for steps, _ in self._phases[self._left_out:]:
            pieces = [(s, i) for s in steps for i in range(s.pieces)]
            if len(pieces) == 1 or run is None:
                for step, i in pieces:
                    step.run(i)
            else:
                run.parallel(lambda k, pieces=pieces: pieces[k][0].run(pieces[k][1]), len(pieces))

    @property
    def count(self) -> int:
        """The number of its phases."""
        return self._count

    @property
    def names(self) -> list[str]:
        """The names of its C functions, in order."""
        return [getattr(s.function.free, "__name__", "") for steps, _ in self._phases for s in steps]

    def only(self) -> Step | None:
        """Return its step, if it has no other, and nothing is made or set before it runs."""
        alone = self._count == 1 and len(self._phases[0][0]) == 1 and not self._scratch and self.numbers is None
        return self._phases[0][0][0] if alone else None

    def in_turn(self) -> list[Step]:
        """Return its functions in order, if each has one piece, and nothing is made or set before they run; else []."""
        found: list[Step] = []
        for step in self.steps():
            one: Step | None = step
            while one is not None:
                found.append(one)
                one = one.then
        plain = not self._scratch and not self._left_out and self.numbers is None
        return found if plain and all(s.pieces == 1 for s in found) else []

    def of_images(self, first: int, end: int) -> Phases:
        """Return its step for some images, from one to another."""
        step = self.only()
        assert step is not None and step.images
        each = step.pieces // step.images
        return Phases([[step.part(first * each, end * each)]], self._phases[0][1])

    def steps(self) -> list[Step]:
        """Return the steps of all phases."""
        return [step for steps, _ in self._phases for step in steps]

    def logged(self, run: Any) -> list[Piece]:
        """Run the phases, and return when each piece ran; nothing where they do not run in C."""
        found, threads = _functions(), 1 if run is None else getattr(run, "threads", 0)
        if found is None or not threads or self.begun:
            self(run)
            return []
        if self._record is None:
            self._record = self._make_record()
        taken = self._take(run) if self._memory else None  # noqa: F841  # alive while it runs
        log = (ctypes.c_int64 * (2 + 4 * sum(s.pieces for steps, _ in self._phases for s in steps)))()
        now = perf_counter_ns()
        record = int64s(*self._record[:2], threads, ctypes.addressof(log))
        found["team_logged"].free(ctypes.addressof(record))  # type: ignore[call-arg,arg-type]
        ahead = now - log[1]
        return [Piece(phase + self._left_out, thread, begin + ahead, end + ahead)
                for phase, thread, begin, end in zip(*(log[2 + i:2 + 4 * log[0]:4] for i in range(4)))]


class Piece(NamedTuple):
    """When a piece of a phase ran, in nanoseconds of perf_counter, and in which thread: 0 is the caller, others are helpers."""

    phase: int
    thread: int
    begin: int
    end: int


def _room(scratch: Scratch) -> int:
    """Return its elements, in whole vectors."""
    return -(-scratch.elements // 16) * 16


class Short(Phases):
    """One C function for a size so small that the calling thread computes it, and keeps the interpreter's lock.

    In a call with others threads share its pieces, of so many elements.
    """

    __slots__ = ("_call", "_one", "_one_at", "size")

    def __init__(self, function: c_compile.Loaded, addresses: Any, size: int, piece: int, held: Any, numbers: Any = None):
        super().__init__([[step_of_elements(function, addresses, size, piece, held)]], numbers=numbers)
        found = _functions()
        self._call: Any = (lambda at: function.short(addresses, 0, size)) if found is None else found["team_one"].short
        self._one = int64s(address_of(function), ctypes.addressof(addresses), 0, size)
        self._one_at = ctypes.addressof(self._one)
        self.size = size

    def begin(self) -> None:
        """Do nothing: it is over before a helper comes."""

    def __call__(self, run: Any, scalars: Sequence[float] = ()) -> None:
        if scalars is not self._given and scalars:
            self.hold(scalars)
        self._call(self._one_at)


def _table(steps: Sequence[Step]) -> Any:
    """Return the steps of a phase as C reads them."""
    numbers: list[int] = []
    begin = 0
    for step in steps:
        one: Step | None = step
        while one is not None:
            numbers += [address_of(one.function),
                        0 if one.addresses is None else ctypes.addressof(one.addresses),
                        0 if one.ranges is None else ctypes.addressof(one.ranges), begin, begin + step.pieces,
                        one.then is not None]
            one = one.then
        begin += step.pieces
    return (ctypes.c_int64 * len(numbers))(*numbers)
