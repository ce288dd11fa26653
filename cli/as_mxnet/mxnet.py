"""`import mxnet` in a process of `tritium run`, and in the Python processes that it starts: this folder is on PYTHONPATH."""

import sys
from pathlib import Path

del sys.modules[__name__]  # Tritium takes this name
try:
    import tritium
except ModuleNotFoundError as e:
    if e.name != "tritium":
        raise
    sys.path.append(str(Path(__file__).resolve().parents[3]))
    import tritium

from tritium.train.compat.numpy_aliases import put_back  # noqa: E402

put_back()
tritium.install_as_mxnet()
import mxnet  # noqa: E402, F401  # fills sys.modules, where the statement that led here finds Tritium
