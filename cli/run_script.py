"""Run a script as Python runs it. `tritium run` starts this file in a new process, which has imported nothing of Tritium.

    python run_script.py [-m] SCRIPT [ARGS]...

An error is reported from the script on, without the frames of this file and of runpy.
"""

import os
import runpy
import sys
import types


def run_file(path: str) -> None:
    """Run the file at path as the module `__main__`."""
    main = types.ModuleType("__main__")
    main.__file__ = path
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    exec(code, main.__dict__)


def run_module(name: str) -> None:
    """Run a module by its name, as `python -m` does."""
    sys.path[0] = ""
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def run(arguments: list[str]) -> None:
    """Run the script. An error that it does not catch is printed and ends the process with status 1, an interrupt with 130."""
    is_module = arguments[0] == "-m"
    sys.argv = arguments[is_module:]
    try:
        (run_module if is_module else run_file)(sys.argv[0])
    except Exception as e:
        fail(e, 1)
    except KeyboardInterrupt as e:
        fail(e, 130)


def fail(error: BaseException, status: int) -> None:
    """Report an error from the script's first frame on, and end the process."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>", runpy.__file__):
        frames = frames.tb_next
    sys.excepthook(type(error), error.with_traceback(frames), frames)
    sys.exit(status)


if __name__ == "__main__":
    run(sys.argv[1:])
