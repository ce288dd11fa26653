"""Active configurations: the block sizes that a kernel asks for when it is made or run.

They are the kernel's defaults unless the user chose otherwise: results of `tritium tune` take part only after `use(...)`, or with
TRITIUM_TUNED=1 in the environment. TRITIUM_TUNED=estimate also takes a GPU's configurations that were compiled and ranked but
never timed. Other block sizes may round sums differently in their last bits; equal block sizes give equal bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ... import environment
from .key import Config, Key

Lookup = Callable[[Key], "Mapping[str, int] | None"]
Parallel = Callable[[Callable[[int], object], int], None]


@dataclass(frozen=True)
class _Active:
    """lookup: tuned results by key. forced: configurations by key or template.

    observer: called with (key, default) of each choice.
    """

    lookup: Lookup | None = None
    forced: Mapping[Key | str, Mapping[str, int]] = field(default_factory=dict)
    observer: Callable[[Key, Config], object] | None = None


_active: _Active | None = None  # of the process, since workers ask, too; None until the environment was read


def _current() -> _Active:
    global _active
    if _active is None:
        _active = _Active()
        mode = environment.TUNED.get()
        if mode:
            from .gpu_device import gpu_device  # sqlite is an optional part of Python, needed only here
            from .store import lookup_for

            use(lookup_for(device=gpu_device(), estimates=mode == "estimate"))
    return _active


def active() -> bool:
    """Return True if `choice` may give anything but the default. Hot paths ask before they build a Key."""
    current = _current()
    return current.lookup is not None or bool(current.forced) or current.observer is not None


def choice(key: Key, default: Config) -> Config:
    """Return the configuration for key: default, with other values where tuning found better ones."""
    current = _current()
    if current.observer is not None:
        current.observer(key, default)
    config = current.forced.get(key, current.forced.get(key.template))
    if config is None and current.lookup is not None:
        config = current.lookup(key)
    return default if config is None else {**default, **{n: v for n, v in config.items() if n in default}}


def use(lookup: Lookup | None) -> None:
    """Give kernels made from now on the configurations that lookup(key) returns; None: their defaults."""
    global _active
    _active = replace(_active or _Active(), lookup=lookup and functools.cache(lookup))


@contextmanager
def _changed(**changes: Any) -> Iterator[None]:
    global _active
    before = _current()
    _active = replace(before, **changes)
    try:
        yield
    finally:
        _active = before


def forced(what: Key | str, config: Mapping[str, int]) -> AbstractContextManager[None]:
    """`with forced("cpu tile", {"tile": 8192}):` gives config to every kernel of that template, or of one key."""
    return _changed(forced={**_current().forced, what: config})


def observed(observer: Callable[[Key, Config], object]) -> AbstractContextManager[None]:
    """`with observed(f):` calls f(key, default) for every choice: how the tuner learns what a kernel asks for."""
    return _changed(observer=observer)


def limited(parallel: Parallel, threads: int) -> Parallel:
    """Return a run context's `parallel`, spread over at most `threads` threads; 0 means no limit.

    Consecutive calls go to one thread.
    """
    if threads < 1:
        return parallel

    def few(fn: Callable[[int], object], n: int) -> None:
        groups = min(threads, n)

        def group(g: int) -> None:
            for i in range(g * n // groups, (g + 1) * n // groups):
                fn(i)

        if groups > 1:
            parallel(group, groups)
        elif n:
            group(0)

    return few
