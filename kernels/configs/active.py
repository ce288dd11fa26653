"""Choices in use: the block sizes a kernel asks for when it runs or is made. Its own defaults, unless someone asked for more.

Nothing is tuned or read silently: results of `tritium tune` take part only after `use(...)`, or with TRITIUM_TUNED=1 in
the environment (TRITIUM_TUNED=estimate also takes a GPU's configurations that were compiled and ranked but never timed).
Another block size may round sums differently in their last bits; with one choice the bits are the same every time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .key import Config, Key

Lookup = Callable[[Key], "Mapping[str, int] | None"]

_lookup: Lookup | None = None
_forced: Mapping[str, Mapping[str, int]] = {}
_found: dict[Key, Mapping[str, int] | None] = {}
_asked: Callable[[Key, Config], object] | None = None
_read_environment = False


def active() -> bool:
    """Whether anything but defaults can come back; what a hot path looks at before it makes a Key."""
    if not _read_environment:
        _from_environment()
    return _lookup is not None or bool(_forced) or _asked is not None


def choice(key: Key, default: Config) -> Config:
    """The configuration for key: every name of default, with other values where tuning found better ones."""
    if _asked is not None:
        _asked(key, default)
    given = _forced.get(key.template)
    if given is None and _lookup is not None:
        if key not in _found:
            _found[key] = _lookup(key)
        given = _found[key]
    return default if given is None else {**default, **{n: v for n, v in given.items() if n in default}}


def use(lookup: Lookup | None) -> None:
    """From now on kernels ask lookup(key); None: defaults again. Kernels that were already made keep their blocks."""
    global _lookup, _read_environment
    _lookup, _read_environment = lookup, True
    _found.clear()


@contextmanager
def forced(template: str, config: Mapping[str, int]) -> Iterator[None]:
    """`with forced("cpu tile", {"tile": 8192}):` kernels of that template get config, whatever their key."""
    global _forced
    before = _forced
    _forced = {**before, template: config}
    try:
        yield
    finally:
        _forced = before


@contextmanager
def asked(tell: Callable[[Key, Config], object]) -> Iterator[None]:
    """Call tell(key, default) for every choice made inside: how the tuner sees what a kernel asks for."""
    global _asked
    before, _asked = _asked, tell
    try:
        yield
    finally:
        _asked = before


def _from_environment() -> None:
    global _read_environment
    _read_environment = True
    mode = os.environ.get("TRITIUM_TUNED", "0").lower()
    if mode not in ("", "0", "off", "false"):
        from .gpu_device import gpu_device  # sqlite is optional in a Python, and wanted only here
        from .store import lookup_for

        use(lookup_for(device=gpu_device(), estimates=mode == "estimate"))


class Limited:
    """A RunContext that spreads work over at most so many threads."""

    def __init__(self, run: Any, threads: int):
        self._run, self._threads = run, threads

    def parallel(self, fn: Callable[[int], Any], n: int) -> None:
        """Call fn(0) ... fn(n - 1); consecutive calls go to one thread."""
        groups = min(self._threads, n)

        def group(g: int) -> None:
            for i in range(g * n // groups, (g + 1) * n // groups):
                fn(i)

        if groups < 2:
            group(0) if n else None
        else:
            self._run.parallel(group, groups)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)


def limited(run: Any, threads: int) -> Any:
    """run, spread over at most threads threads; 0 is no limit."""
    return run if threads < 1 or run is None else Limited(run, threads)
