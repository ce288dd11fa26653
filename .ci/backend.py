"""The build backend: setuptools, on a copy of the checkout, so that no build folder and no metadata is left in it.

In the copy the README's links to files become links to the repository, if `[project.urls]` names one, and plain text otherwise:
an index page has no files beside it. An editable installation is built in place, as it must be.
"""

import contextlib
import os
import re
import shutil
import tempfile
import tomllib
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  the hooks that need no copy

_LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "__pycache__", "*.egg-info", "build", "_build", "dist", "out",
                                   ".hypothesis", ".*_cache")

shutil.rmtree(Path(__file__).with_name("__pycache__"), ignore_errors=True)  # Python wrote it when it imported this file


def index_page(text, repository):
    """Return the README for an index page. repository: the address of the files' folder with a slash at its end, or ""."""
    link = r"\[([^\]]+)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)"
    return re.sub(link, lambda m: f"[{m[1]}]({repository}{m[2]}{m[3] or ''})" if repository else m[1], text)


@contextlib.contextmanager
def _copy():
    """Work in a copy of the current folder."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="tritium-build-") as folder:
        there = Path(folder) / "tritium"
        shutil.copytree(here, there, ignore=_LEFT_OUT, symlinks=True)
        urls = tomllib.loads((there / "pyproject.toml").read_text())["project"].get("urls", {})
        repository = urls["Repository"].rstrip("/") + "/blob/main/" if "Repository" in urls else ""
        readme = there / "README.md"
        readme.write_text(index_page(readme.read_text(encoding="utf-8"), repository), encoding="utf-8")
        os.chdir(there)
        try:
            yield
        finally:
            os.chdir(here)


def get_requires_for_build_wheel(config_settings=None):
    """Return what a build needs beyond `[build-system]`: nothing. setuptools' own answer leaves metadata in the checkout."""
    return []


get_requires_for_build_sdist = get_requires_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Build a wheel into wheel_directory, and return its name."""
    target = str(Path(wheel_directory).resolve())
    with _copy():
        return build_meta.build_wheel(target, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    """Build a source distribution into sdist_directory, and return its name."""
    target = str(Path(sdist_directory).resolve())
    with _copy():
        return build_meta.build_sdist(target, config_settings)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Write the wheel's metadata into metadata_directory, and return the name of their folder."""
    target = str(Path(metadata_directory).resolve())
    with _copy():
        return build_meta.prepare_metadata_for_build_wheel(target, config_settings)
