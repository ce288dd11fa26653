"""Threads in C that share the pieces of C functions, without the interpreter: handing work over takes about a microsecond.

A list of phases runs in one call. The caller takes part, and could finish alone: helpers take pieces where some are left. After
its work a helper watches for more for a short while before it sleeps. Several callers may run phases at the same time.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from . import c_compile
from .c_math import PREAMBLE

FOLLOWED = 1 << 15  # elements of a piece of what follows a product or convolution
KEPT = 1 << 14  # elements of scratch memory up to which it is kept between runs

_TEXT = """
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define MOST_HELPERS 256
#define WATCHED 50000  /* nanoseconds that a helper, or a caller, watches before it sleeps */

/* One function for the pieces from `begin` to `end` of a phase; ranges: begin and end of each piece, or null for piece and
   piece + 1. more: another function follows for the same pieces. */
typedef struct {
    void (*function)(void *const *, int64_t, int64_t);
    void *const *arrays;
    const int64_t *ranges;
    int64_t begin, end, more;
} team_step;

typedef struct { const team_step *steps; int64_t pieces; } team_phase;

typedef struct team_job {
    const team_step *steps;
    int64_t pieces;
    _Atomic int64_t next;
    _Atomic int64_t helpers;
    struct team_job *following;
} team_job;

static pthread_mutex_t team_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t team_wake = PTHREAD_COND_INITIALIZER, team_ended = PTHREAD_COND_INITIALIZER;
static team_job *team_jobs;
static _Atomic int64_t team_published;
static int64_t team_size, team_asleep, team_waiting;

static inline void team_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t team_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void team_piece(const team_step *s, int64_t k)
{
    while (k >= s->end) s++;
    for (;; s++) {
        const int64_t i = k - s->begin;
        if (s->ranges) s->function(s->arrays, s->ranges[2 * i], s->ranges[2 * i + 1]);
        else s->function(s->arrays, i, i + 1);
        if (!s->more) return;
    }
}

static void team_pieces(team_job *job)
{
    for (int64_t k; (k = atomic_fetch_add(&job->next, 1)) < job->pieces;) team_piece(job->steps, k);
}

static void *team_helper(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&team_lock);
    for (;;) {
        team_job *job = team_jobs;
        while (job && atomic_load(&job->next) >= job->pieces) job = job->following;
        if (job) {
            atomic_fetch_add(&job->helpers, 1);
            pthread_mutex_unlock(&team_lock);
            team_pieces(job);
            pthread_mutex_lock(&team_lock);
            if (atomic_fetch_sub(&job->helpers, 1) == 1 && team_waiting) pthread_cond_broadcast(&team_ended);
            continue;
        }
        const int64_t seen = atomic_load(&team_published), until = team_now() + WATCHED;
        pthread_mutex_unlock(&team_lock);
        while (atomic_load(&team_published) == seen && team_now() < until) for (int i = 0; i < 32; i++) team_pause();
        pthread_mutex_lock(&team_lock);
        if (atomic_load(&team_published) == seen) {
            team_asleep++;
            pthread_cond_wait(&team_wake, &team_lock);
            team_asleep--;
        }
    }
    return 0;
}

static void team_start(int64_t helpers)
{
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    while (team_size < helpers && team_size < MOST_HELPERS) {
        pthread_t thread;
        if (pthread_create(&thread, &detached, team_helper, 0)) break;  /* fewer helpers: the caller does the rest */
        team_size++;
    }
    pthread_attr_destroy(&detached);
}

static void team_run(const team_phase *phase, int64_t threads)
{
    team_job job = {phase->steps, phase->pieces, 0, 0, 0};
    if (phase->pieces == 1 || threads < 2) {
        for (int64_t k = 0; k < phase->pieces; k++) team_piece(phase->steps, k);
        return;
    }
    pthread_mutex_lock(&team_lock);
    if (team_size < threads - 1) team_start(threads - 1);
    job.following = team_jobs;
    team_jobs = &job;
    atomic_fetch_add(&team_published, 1);
    if (team_asleep) pthread_cond_broadcast(&team_wake);
    pthread_mutex_unlock(&team_lock);

    team_pieces(&job);

    pthread_mutex_lock(&team_lock);
    team_job **at = &team_jobs;
    while (*at != &job) at = &(*at)->following;
    *at = job.following;
    pthread_mutex_unlock(&team_lock);
    const int64_t until = team_now() + WATCHED;
    while (atomic_load(&job.helpers) && team_now() < until) for (int i = 0; i < 32; i++) team_pause();
    if (atomic_load(&job.helpers)) {
        pthread_mutex_lock(&team_lock);
        team_waiting++;
        while (atomic_load(&job.helpers)) pthread_cond_wait(&team_ended, &team_lock);
        team_waiting--;
        pthread_mutex_unlock(&team_lock);
    }
}

/* arrays: phases [count], one after the other, with so many threads. */
void team_phases(void *const *arrays, int64_t count, int64_t threads)
{
    for (int64_t i = 0; i < count; i++) team_run((const team_phase *)arrays + i, threads);
}

/* Forget the helpers: a forked child has none. */
void team_reset(void *const *arrays, int64_t begin, int64_t end)
{
    (void)arrays; (void)begin; (void)end;
    const pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    team_lock = lock;
    team_wake = team_ended = condition;
    team_jobs = 0;
    team_size = team_asleep = team_waiting = 0;
}
"""

@functools.cache
def _functions() -> dict[str, c_compile.Loaded] | None:
    found = c_compile.library(PREAMBLE + _TEXT, ("team_phases", "team_reset"))
    if found is not None and hasattr(os, "register_at_fork"):
        reset, nothing = found["team_reset"].short, int64s()
        os.register_at_fork(after_in_child=lambda: reset(nothing, 0, 0))
    return found


def int64s(*values: int) -> Any:
    """Return numbers as C reads them."""
    return (ctypes.c_int64 * max(1, len(values)))(*values)


class Step:
    """A C function for some pieces of a phase, and the function that follows it for each piece.

    ranges:  begin and end for each piece, two numbers each; None: f(arrays, i, i + 1) for piece i.
    held:    the arrays and numbers that lie at the addresses: addresses alone keep nothing alive.
    """

    __slots__ = ("addresses", "function", "held", "pieces", "ranges", "then")

    def __init__(self, function: c_compile.Loaded, addresses: Any, pieces: int, ranges: Any = None, then: Step | None = None,
                 held: Any = None):
        self.function, self.addresses, self.pieces, self.ranges, self.then = function, addresses, pieces, ranges, then
        self.held = held

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
    held:    the arrays at the other addresses.
    """

    function: c_compile.Loaded
    addresses: Any
    places: Sequence[int]
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
        code: Any = self.function.free
        return ctypes.cast(code, ctypes.c_void_p).value or 0, ctypes.addressof(self.addresses)

    def step(self, size: int) -> Step:
        """Return the step of all elements."""
        return step_of_elements(self.function, self.addresses, size, FOLLOWED, self.held)

    def step_after(self, ranges: Sequence[tuple[int, int]]) -> Step:
        """Return the step that follows each piece of another one, given the elements of each piece."""
        return Step(self.function, self.addresses, len(ranges), int64s(*(n for r in ranges for n in r)), held=self.held)


class Phases:
    """Phases of C functions, each of independent steps. Arrays of addresses may be changed between two runs.

    threads:  at most so many take part; 0: all.
    scratch:  taken before each run; what is small is kept.
    """

    __slots__ = ("_held", "_phases", "_run", "_scratch", "_table", "threads")

    def __init__(self, phases: Sequence[Sequence[Step]], threads: int = 0, *, scratch: Sequence[Scratch] = ()):
        self._phases, self.threads = [list(p) for p in phases if p], threads
        self._scratch = [s for s in scratch if s.elements > KEPT]
        kept = [s.take(None) for s in scratch if s.elements <= KEPT]
        tables = [_table(p) for p in self._phases]
        pieces = [sum(s.pieces for s in p) for p in self._phases]
        self._table = (ctypes.c_int64 * (2 * len(tables) or 1))(
            *(n for t, count in zip(tables, pieces) for n in (ctypes.addressof(t), count)))
        self._held = tables, kept
        found = _functions()
        self._run = None if found is None else found["team_phases"].free

    def __call__(self, run: Any, scalars: Sequence[float] = ()) -> None:
        """Run the phases on the threads of a run context; a context without `threads` gets the pieces by its `parallel`."""
        threads = 1 if run is None else getattr(run, "threads", 0)
        taken = [s.take(run) for s in self._scratch]  # noqa: F841  # alive while it runs
        if threads and self._run is not None:
            self._run(self._table, len(self._phases), min(threads, self.threads or threads))
            return
        for steps in self._phases:
            pieces = [(s, i) for s in steps for i in range(s.pieces)]
            if len(pieces) == 1 or run is None:
                for step, i in pieces:
                    step.run(i)
            else:
                run.parallel(lambda k, pieces=pieces: pieces[k][0].run(pieces[k][1]), len(pieces))


def _table(steps: Sequence[Step]) -> Any:
    """Return the steps of a phase as C reads them."""
    numbers: list[int] = []
    begin = 0
    for step in steps:
        one: Step | None = step
        while one is not None:
            code: Any = one.function.free
            numbers += [ctypes.cast(code, ctypes.c_void_p).value or 0,
                        0 if one.addresses is None else ctypes.addressof(one.addresses),
                        0 if one.ranges is None else ctypes.addressof(one.ranges), begin, begin + step.pieces,
                        one.then is not None]
            one = one.then
        begin += step.pieces
    return (ctypes.c_int64 * len(numbers))(*numbers)
