"""The site is built with warnings as errors, and its inventory has every public name."""

import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
pytest.importorskip("furo")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from reference import public


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_site_builds_without_warnings(tmp_path):
    done = subprocess.run([sys.executable, "-m", "sphinx", "-E", "-q", "-W", "--keep-going", "-b", "html",
                           "-d", str(tmp_path / "trees"), str(ROOT / "docs"), str(tmp_path / "html")],
                          capture_output=True, text=True, env={**os.environ, "TRITIUM_GPU": "off"})
    assert done.returncode == 0, done.stderr[-4000:]
    raw = (tmp_path / "html" / "objects.inv").read_bytes()
    names = {line.split(" ")[0] for line in zlib.decompress(raw.split(b"\n", 4)[4]).decode().splitlines()}
    wanted = {e.home for entries in public.entries().values() for e in entries}
    wanted |= {f"{where}.{name}" for where, name in public.operator_names() if where == "mx.nd"}
    assert not wanted - names
    for page in (tmp_path / "html").rglob("*.html"):
        assert "system-message" not in page.read_text(encoding="utf-8"), page
