"""The cost of starting: importing tritium, and the first call of every operator, each in its own process.

    python perf/bench_first.py [--only NAME] [--limit-ms 20] [--length 1000] [--sample 20]

JSON lines: seconds of the import (its byte code is there, as after an installation) and what it loaded of the optional
packages; milliseconds of each first call, to the result, and of processor, in a child forked right after the import (what
one operator makes ready is there for no other), and of starting the engine, which the first of all waits for; last, those
above the limit. The operators' arrays are those of the tests (tests/support/operator_jobs.py).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a forked child starts BLAS's threads anew, and they spin: no fresh process has that

import common
import numpy as np

SCALARS = dict.fromkeys(("mp_lamb_update_phase2", "_adamw_update", "_mp_adamw_update"), 1)  # one of their arrays has one element
OPTIONAL = ("torch", "triton", "cv2", "PIL", "ray", "pyarrow", "pandas", "sklearn", "scipy", "matplotlib")
IMPORT = ("import json, sys, time; start = time.perf_counter(); import tritium; took = time.perf_counter() - start; "
          "print(json.dumps([took, sorted(m for m in {} if m in sys.modules)]))")


def measure_import(rounds: int = 5) -> dict[str, Any]:
    """Seconds that `import tritium` takes in a fresh interpreter, and the optional packages it loaded."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        found = [json.loads(subprocess.run([sys.executable, "-c", IMPORT.format(OPTIONAL)], capture_output=True, text=True,
                                           check=True, env=environment).stdout) for _ in range(rounds + 1)][1:]
    return common.emit("import", [took for took, _ in found], loaded=found[0][1])


def first_call(mx: Any, op: Any, inputs: list[np.ndarray], params: dict[str, Any]) -> dict[str, Any]:
    """Milliseconds of op's first call in a child of this process, or its error."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            start = time.perf_counter()
            mx.nd.waitall()
            engine = time.perf_counter() - start
            arrays = [mx.nd.array(x, dtype="int32" if op.name == "batch_take" and i else "float32") for i, x in enumerate(inputs)]
            start, before = time.perf_counter(), time.process_time()
            made = mx.ndarray.call_op(op, arrays, params)
            for o in made if isinstance(made, list) else [made]:
                o.wait_to_read()
            result: dict[str, Any] = {"ms": _ms(time.perf_counter() - start), "processor_ms": _ms(time.process_time() - before),
                                    "engine_ms": _ms(engine)}
        except BaseException as e:
            result = {"error": f"{type(e).__name__}: {e}"[:200]}
        os.write(writer, json.dumps(result).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        result = json.loads(answer.read() or b'{"error": "the process died"}')
    os.waitpid(child, 0)
    return result


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)


def cases(only: str | None, length: int) -> list[tuple[Any, list[np.ndarray], dict[str, Any]]]:
    """(operator, arrays, parameters): the smallest of the tests' uses of every operator that has one."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from support.operator_jobs import operators, uses
    from test_every_operator import data

    rng = np.random.default_rng(0)
    found = []
    for op in operators():
        if only in (None, op.name):
            made = [(op, data(inputs, rng), params) for inputs, params in uses(op, SCALARS.get(op.name, length))]
            found += sorted(made, key=lambda use: sum(x.size for x in use[1]))[:1]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="one operator")
    parser.add_argument("--limit-ms", type=float, default=20)
    parser.add_argument("--length", type=int, default=1000, help="elements of an elementwise operator's arrays")
    parser.add_argument("--repeat", type=int, default=3, help="children of each operator; the fastest counts")
    parser.add_argument("--sample", type=int, default=1, help="every so many of the operators only, and no import")
    given = parser.parse_args()
    common.say({"bench": "first", **common.machine()})
    if given.only is None and given.sample == 1:
        measure_import()
    import tritium as mx

    all_cases = cases(given.only, given.length)[::given.sample]
    gc.collect()  # the collection that the import leaves due belongs to no operator
    slow, failed, worst = {}, {}, 0.0
    for op, inputs, params in all_cases:
        results = [first_call(mx, op, inputs, params) for _ in range(given.repeat)]
        wrong = next((t["error"] for t in results if "error" in t), None)
        if wrong is not None:
            failed[op.name] = wrong
            continue
        best = {field: min(r[field] for r in results) for field in results[0]}
        ms = best["ms"]
        worst = max(worst, ms)
        common.say({"bench": "first call", "op": op.name, **best})
        if ms > given.limit_ms:
            slow[op.name] = ms
    common.say({"bench": "first calls", "operators": len(all_cases), "slowest_ms": worst, "limit_ms": given.limit_ms,
                "above": slow, "failed": failed})


if __name__ == "__main__":
    main()
