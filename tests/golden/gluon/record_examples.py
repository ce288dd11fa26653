"""Record what the programs of examples/gluon print under MXNet 1.9.1: `python record_examples.py` with MXNet's Python.

Writes examples.json.
"""

import contextlib
import io
import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples" / "gluon"


def main():
    sys.path.insert(0, str(EXAMPLES))
    printed = {}
    for path in sorted(EXAMPLES.glob("*.py")):
        if path.stem in ("formula", "mixed_precision", "onnx_round_trip"):  # the latter two do not run there
            continue
        text = re.sub(r"^(import|from) tritium\b", r"\1 mxnet", path.read_text(), flags=re.MULTILINE)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(text, str(path), "exec"), {"__name__": "__main__"})
        printed[path.stem] = out.getvalue().splitlines()
        print(f"== {path.stem}", *printed[path.stem], sep="\n")
    (HERE / "examples.json").write_text(json.dumps(printed, indent=1) + "\n")


if __name__ == "__main__":
    main()
