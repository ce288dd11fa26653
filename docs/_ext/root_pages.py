"""A Sphinx extension: pages of the repository's root (CONTRIBUTING, SECURITY, CHANGELOG) as pages of the site, and links to them.

On the site a link to another file of the repository, such as `../perf/README.md`, is only its text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

PAGES = {"CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md"}
_LINK = re.compile(r"(?<!!)\[((?:[^\]\[`]|`[^`]*`)*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def relinked(text: str, folder: Path, site: Path) -> str:
    """Return a page's text with the links that lead from a file in folder, to pages in the folder site."""
    root = site.parent

    def link(found: re.Match[str]) -> str:
        target = (folder / found[2]).resolve()
        name = target.relative_to(root).as_posix() if target.is_relative_to(root) else ""
        if name in PAGES:
            target = site / "project" / PAGES[name]
        elif not target.is_relative_to(site):
            return found[1]
        up = "/".join([".."] * len(here.relative_to(site).parts) + [target.relative_to(site).as_posix()])
        return f"[{found[1]}]({up}{found[3] or ''})"

    here = site / "project" if folder == root else folder
    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
    return "".join(part if i % 2 else _LINK.sub(link, part) for i, part in enumerate(parts))


def write_pages(app: Sphinx) -> None:
    """Write the pages of the root to docs/project/."""
    site = Path(app.srcdir)
    for name, page in PAGES.items():
        text = relinked((site.parent / name).read_text(encoding="utf-8"), site.parent, site)
        path = site / "project" / page
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")


def relink(app: Sphinx, name: str, source: list[str]) -> None:
    """Change the links of a page that is read."""
    if not name.startswith(("reference/", "project/")):
        folder = Path(app.env.doc2path(name)).parent
        source[0] = relinked(source[0], folder, Path(app.srcdir))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the two steps."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", relink)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
