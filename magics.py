"""Commands of a notebook, after `%load_ext tritium`: `%%simple_op` declares an operator, `%tritium_profile` times layers.

IPython imports this module through `load_ipython_extension` in the root's `__init__.py`; nothing else does.
"""

from __future__ import annotations

import ast
import os
import tempfile
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_cell_magic, magics_class

from . import kernels, ndarray
from .atomic_file import write_atomic
from .engine.profiler import api
from .engine.profiler.layers import LayerTimes
from .kernels.ir import lang
from .kernels.op import Op

#: Names that a cell of %%simple_op has without importing them. Those of the notebook come first.
_NAMES = {n: v for n, v in vars(lang).items() if callable(v) and not n.startswith("_")} | {
    n: getattr(kernels, n) for n in ("Array", "Axes", "Float", "Ints", "Range", "Scalar")}


@magics_class
class TritiumMagics(Magics):
    """The commands."""

    shell: Any

    @cell_magic
    def simple_op(self, line: str, cell: str) -> Op:
        """Declare an operator by the function in the cell, and show it.

        Functions of `tritium.lang` and the kinds of arguments need no import: `exp`, `where`, `Float`, `Scalar`. Further
        functions, such as `@swish.gradient`, may follow. Options are those of the decorator: `%%simple_op name="my_swish"`.
        """
        source = self.shell.transform_cell(cell)
        tree = ast.parse(source)
        bodies = [s for s in tree.body if isinstance(s, ast.FunctionDef) and not s.decorator_list]
        if not bodies:
            raise UsageError("%%simple_op: the cell has no function. Write the formula: def twice(x: Float): return 2 * x")
        first = bodies[0]
        call = ast.parse(f"_simple_op({line.split('#')[0].strip()})", mode="eval").body
        first.decorator_list = [ast.copy_location(call, first)]
        for part in ast.walk(call):
            ast.copy_location(part, first)
        name = self.shell.compile.cache(source)  # so that errors and `inspect` show the lines of the cell
        own = self.shell.user_ns
        names = {**_NAMES, **own, "_simple_op": kernels.simple_op}
        before = dict(names)
        exec(compile(ast.fix_missing_locations(tree), name, "exec"), names)
        own.update({n: v for n, v in names.items() if before.get(n, self) is not v and n not in ("_simple_op", "__builtins__")})
        return own[first.name]

    @line_cell_magic
    def tritium_profile(self, line: str, cell: str | None = None) -> LayerTimes:
        """Run a statement, or a cell, and show the time of each layer, that of the most time first.

        `%tritium_profile module.forward(batch)`, or `%%tritium_profile [FILE]` above a cell. FILE: where to write the trace for
        https://ui.perfetto.dev.
        """
        if api.state() == "run":
            raise UsageError("%tritium_profile: the profiler runs already. Stop it: mx.profiler.set_state('stop')")
        statement, target = (line, "") if cell is None else (cell, line.strip())
        if not statement.strip():
            raise UsageError("%tritium_profile: nothing to run. Give a statement, or write %%tritium_profile above a cell.")
        kept = api._profiler.config["filename"]
        handle, trace = tempfile.mkstemp(suffix=".json")
        os.close(handle)
        ndarray.waitall()
        api.layers(reset=True)
        api.set_config(filename=trace)
        try:
            api.set_state("run")
            try:
                source = self.shell.transform_cell(statement)
                exec(compile(source, self.shell.compile.cache(source), "exec"), self.shell.user_ns)
                ndarray.waitall()
            finally:
                api.set_state("stop")
            if target:
                write_atomic(target, Path(trace).read_bytes())
            return api.layers(reset=True)
        finally:
            api.set_config(filename=kept)
            os.unlink(trace)
