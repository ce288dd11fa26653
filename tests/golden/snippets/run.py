"""Run snippets of MXNet programs, and record MXNet 1.9.1's output: run this file with MXNet's Python.

snippets.txt: snippets, each after a line `### title`. A statement that is an expression is printed. The names mx, np, nd, sym and
autograd are there. recorded.json: {title: output}.
"""

import ast
import contextlib
import io
import json
import os
import re
import tempfile


def load(path):
    """Return {title: code}."""
    with open(path, encoding="utf-8") as file:
        parts = re.split(r"^### (.*)\n", file.read(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def run(title, code, mx, np):
    """Return the output of a snippet."""
    names = {"mx": mx, "np": np, "nd": mx.nd, "sym": mx.sym, "autograd": mx.autograd, "__name__": "snippet"}
    np.random.seed(1)
    mx.random.seed(1)
    output = io.StringIO()
    with contextlib.redirect_stdout(output), mx.name.NameManager():
        for node in ast.parse(code, title).body:
            if isinstance(node, ast.Expr):
                value = eval(compile(ast.Expression(node.value), title, "eval"), names)
                if value is not None:
                    print(repr(value))
            else:
                exec(compile(ast.Module([node], []), title, "exec"), names)
        mx.nd.waitall()
    return output.getvalue()


if __name__ == "__main__":
    import mxnet
    import numpy

    folder = os.path.dirname(os.path.abspath(__file__))
    os.chdir(tempfile.mkdtemp())  # some write files
    found = {title: run(title, code, mxnet, numpy) for title, code in load(os.path.join(folder, "snippets.txt")).items()}
    with open(os.path.join(folder, "recorded.json"), "w", encoding="utf-8") as out:
        json.dump(found, out, indent=0)
        out.write("\n")
    os._exit(0)  # without MXNet's work at exit, which may crash
