"""pytest, and what failed once more, alone: `python .ci/pytest_twice.py OPTIONS` takes pytest's options and paths.

A test that fails beside the others and passes alone is unstable: its name goes to the file $UNSTABLE (one a line), and the
run counts as passed. Everything else that is wrong is a failure, and nothing is run again to talk it away: a file that cannot
be collected, a process that dies, a run that is cut short, a test that is not run the second time.

This file is also the plugin (-p pytest_twice) that records the outcome of a run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

OUTCOME = "PYTEST_TWICE_OUTCOME"  # environment variable: the file the plugin writes


# ---- the plugin -------------------------------------------------------------------------------------------------------
class Outcome:
    """Names of tests, and what else went wrong."""

    def __init__(self, path: str):
        self.path = path
        self.passed: dict[str, None] = {}
        self.failed: dict[str, None] = {}
        self.broken: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when not in ("setup", "call", "teardown"):
            self.broken.append(f"{report.nodeid}: its process died")
        elif report.failed:
            self.failed[report.nodeid] = None
        elif report.when == "call" and report.passed:
            self.passed[report.nodeid] = None

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.broken.append(f"{report.nodeid}: cannot be collected")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if error:
            self.broken.append(f"a process of the tests died: {error}")

    def pytest_sessionfinish(self, session: Any, exitstatus: int) -> None:
        if session.shouldstop or session.shouldfail:
            self.broken.append(f"cut short: {session.shouldstop or session.shouldfail}")
        said = {"status": int(exitstatus), "passed": [n for n in self.passed if n not in self.failed],
                "failed": list(self.failed), "broken": self.broken}
        Path(self.path).write_text(json.dumps(said))


def pytest_configure(config: Any) -> None:
    if OUTCOME in os.environ and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcome(os.environ.pop(OUTCOME)))  # no pytest that a test starts writes there


# ---- the two runs -----------------------------------------------------------------------------------------------------
def run(options: list[str]) -> dict[str, Any]:
    """Run pytest once and return its outcome; `status` is never 0 if something was wrong."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "outcome")
        paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        status = subprocess.call([sys.executable, "-m", "pytest", "-p", "pytest_twice", *options],
                                 env={**os.environ, OUTCOME: str(path), "PYTHONPATH": os.pathsep.join(paths)})
        said = json.loads(path.read_text()) if path.exists() else {
            "status": 1, "passed": [], "failed": [], "broken": ["pytest ended before it was done"]}
    return {**said, "status": status or said["status"]}


def main(options: list[str]) -> int:
    """The exit status: 0 if all tests passed, at the latest alone."""
    first = run([*options, "--cache-clear"])
    unstable = first["failed"]
    if first["status"] != pytest.ExitCode.TESTS_FAILED or first["broken"] or not unstable:
        return _told(first)
    print(f"\nOnce more, alone: {', '.join(unstable)}", flush=True)
    again = run([*options, "-n", "0", "--last-failed", "--last-failed-no-failures", "none"])
    if again["status"] or again["broken"] or not set(unstable) <= set(again["passed"]):
        return _told(again) or 1
    with open(os.environ.get("UNSTABLE", os.devnull), "a", encoding="utf-8") as names:
        names.writelines(f"{name}\n" for name in unstable)
    return 0


def _told(said: dict[str, Any]) -> int:
    for what in said["broken"]:
        print(f"BROKEN {what}", flush=True)
    return said["status"] or (1 if said["broken"] else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
