"""The memory that this process may use: the machine's, or less if its control group or a limit of its own says so."""

from __future__ import annotations

import os
from pathlib import Path

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

_UNKNOWN = 1 << 33  # bytes, if the system does not say


def allowed(proc: str = "/proc/self/cgroup", mounted: str = "/sys/fs/cgroup") -> int:
    """Return the least of the machine's memory, its control groups' limits (versions 1 and 2) and the address space, in bytes.

    proc, mounted:  where Linux describes control groups.
    """
    try:
        least = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        least = _UNKNOWN
    if resource is not None:
        for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
            soft = resource.getrlimit(limit)[0]
            if soft != resource.RLIM_INFINITY:
                least = min(least, soft)
    return min([least, *_of_groups(Path(proc), Path(mounted))])


def _of_groups(proc: Path, mounted: Path) -> list[int]:
    """Return the limits of the process's control groups and of the groups around them."""
    try:
        lines = proc.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    limits = []
    for line in lines:
        _, kinds, path = (line.split(":", 2) + ["", ""])[:3]
        if kinds == "":  # version 2
            top, name = mounted, "memory.max"
        elif "memory" in kinds.split(","):
            top, name = mounted / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = top / path.strip("/")
        for place in (group, *group.parents):
            if place != top and top not in place.parents:
                break
            try:
                text = (place / name).read_text().strip()
            except OSError:  # in a container the path may be the host's, and its own group is mounted at the top
                continue
            if text.isascii() and text.isdigit():  # "max" means no limit
                limits.append(int(text))
    return limits
