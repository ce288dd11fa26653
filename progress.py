"""Progress of long work, by tqdm: a bar in a terminal, one output in a notebook, a plain line now and then in a pipe."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable
from html import escape
from types import TracebackType
from typing import Any, Self, TextIO, cast

from tqdm import tqdm

#: Seconds between two pictures of a bar, by where it is shown.
EVERY = {"terminal": 0.1, "notebook": 0.5, "pipe": 10.0}
DELAY = 0.3  # seconds before the first picture in a terminal: short work shows none


class _Bar(tqdm):
    """tqdm without its thread and without its lock of multiprocessing, which a fork would copy."""

    monitor_interval = 0


_Bar.set_lock(threading.RLock())


def shown_in(file: TextIO) -> str:
    """Return where a reader sees what is written to file: "terminal", "notebook" or "pipe"."""
    if _kernel() is not None:
        return "notebook"
    return "terminal" if file.isatty() else "pipe"


def _kernel() -> Any:
    """Return the shell of a notebook's kernel; None elsewhere."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell if hasattr(shell, "kernel") else None


def _columns() -> int:
    """Return the width of a line that does not reach the terminal's edge; a terminal may state 0 columns."""
    return max(20, shutil.get_terminal_size().columns - 1)


class Progress:
    """A count on its way to a total.

    total:  the count at the end; None if unknown.
    title:  the text in front.
    unit:   what is counted, such as "image". "B" is for bytes, written with prefixes.
    file:   where a terminal or pipe shows it: the standard error unless given.
    clock:  seconds.
    It is a context manager; leaving it takes the bar away. In a pipe nothing is written before EVERY["pipe"] seconds have passed.
    """

    def __init__(self, total: int | None = None, title: str = "", unit: str = "", *, file: TextIO | None = None,
                 clock: Callable[[], float] = time.monotonic):
        self.total, self.title, self.unit, self.done, self.note = total, title, unit, 0, ""
        self._file, self._clock = file or sys.stderr, clock
        self.place = shown_in(self._file)
        self._start = clock()
        self._last = self._start + (DELAY - EVERY["terminal"] if self.place == "terminal" else 0.0)
        self._handle: Any = None
        self._bar: _Bar | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def advance(self, by: int = 1, note: Callable[[], str] | None = None) -> None:
        """Count on by a number. note: returns the text behind, and is called only if the progress is shown now."""
        self.reach(self.done + by, note=note)

    def reach(self, done: int, total: int | None = None, note: Callable[[], str] | None = None) -> None:
        """Set the count, and the total if it is given."""
        self.done = done
        if total is not None:
            self.total = total
        now = self._clock()
        if now - self._last >= EVERY[self.place]:
            self._last = now
            if note is not None:
                self.note = note()
            self._show()

    def say(self, text: str) -> None:
        """Print a line to the standard output, above the bar."""
        if self._bar is not None:
            self._bar.clear()
        print(text, flush=True)
        if self._bar is not None:
            self._bar.refresh()

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
        elif self._handle is not None:
            self._handle.update({"text/plain": "", "text/html": ""}, raw=True)

    def text(self) -> str:
        """Return the progress as one line, without a bar."""
        return tqdm.format_meter(self.done, cast(int, self.total), max(self._clock() - self._start, 1e-9), prefix=self.title,
                                 unit=self.unit, unit_scale=self.unit == "B",
                                 postfix=self.note or None, ncols=0)

    def _show(self) -> None:
        if self.place == "terminal":
            if self._bar is None:
                self._bar = _Bar(total=self.total, unit=self.unit, unit_scale=self.unit == "B", leave=False, file=self._file,
                                 ncols=_columns(), nrows=24, mininterval=0, miniters=0, delay=1e-9)
                self._bar.start_t -= self._clock() - self._start
            self._bar.n, self._bar.total, self._bar.desc, self._bar.ncols = self.done, self.total, self.title, _columns()
            self._bar.set_postfix_str(self.note, refresh=False)
            self._bar.refresh()
        elif self.place == "notebook":
            self._show_in_notebook()
        else:
            print(self.text(), file=self._file, flush=True)

    def _show_in_notebook(self) -> None:
        share = f' value="{self.done}" max="{self.total}"' if self.total else ""
        picture = {"text/plain": self.text(), "text/html": f'<progress{share}></progress> <code>{escape(self.text())}</code>'}
        if self._handle is None:
            display = sys.modules["IPython"].display.display
            self._handle = display(picture, raw=True, display_id=True)
        else:
            self._handle.update(picture, raw=True)
