"""Record the parameter names of MXNet 1.9.1's functions, classes and methods: run it with MXNet's Python in this folder.

signatures.json: {"functions": {module: {name: names}}, "classes": {module: {class: {"": names of __init__, method: names}}}}.
"""

import inspect
import json

import mxnet as mx

FUNCTIONS = ["nd", "sym", "nd.contrib", "nd.linalg", "nd.image", "nd.random", "sym.random", "random", "image", "metric",
             "autograd", "callback", "viz", "init", "optimizer", "kv", "context", "engine", "profiler", "recordio", "model",
             "test_utils", "util"]
CLASSES = ["io", "image", "metric", "optimizer", "init", "lr_scheduler", "callback", "monitor", "mod", "rnn", "autograd",
           "profiler", "recordio", "operator", "model", "nd", "sym", "executor"]
KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def names(function):
    """Return the names of the parameters that a caller can give by keyword; None if Python cannot tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return [p.name for p in parameters if p.kind in KINDS and p.name not in ("self", "cls")]


def look_up(path):
    found = mx
    for part in path.split("."):
        found = getattr(found, part)
    return found


def of_mxnet(value):
    return str(getattr(value, "__module__", "")).startswith("mxnet")


functions, classes = {}, {}
for path in FUNCTIONS:
    module = look_up(path)
    functions[path] = {n: names(f) for n in sorted(dir(module)) if not n.startswith("_")
                       for f in [getattr(module, n)] if inspect.isfunction(f) and of_mxnet(f)}
for path in CLASSES:
    module = look_up(path)
    classes[path] = {n: {"": names(c.__init__), **{m: names(f) for m in sorted(dir(c)) if not m.startswith("_")
                                                   for f in [getattr(c, m)] if inspect.isfunction(f)}}
                     for n in sorted(dir(module)) if not n.startswith("_")
                     for c in [getattr(module, n)] if inspect.isclass(c) and c.__module__.startswith(module.__name__)}
with open("signatures.json", "w") as file:
    json.dump({"functions": functions, "classes": classes}, file, separators=(",", ":"), sort_keys=True)
    file.write("\n")
