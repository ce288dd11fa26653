"""The operators: a folder for each kind, a file for each idea. Importing this package registers them all.

A new file needs no line here: every module below this package is imported.

Files whose name begins with `triton_` hold GPU kernels and are imported by their operator when it first runs on a GPU.
"""

import importlib
import pkgutil

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    if not _module.name.rpartition(".")[2].startswith("triton_"):
        importlib.import_module(_module.name)
