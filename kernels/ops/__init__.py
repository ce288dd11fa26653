"""The operators, grouped in files of one idea. Importing this package registers them all: a new file needs no line here.

Files whose name begins with `triton_` hold GPU kernels and are imported by their operator when it first runs on a GPU.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    if not _module.name.startswith("triton_"):
        importlib.import_module(f"{__name__}.{_module.name}")
