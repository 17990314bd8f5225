"""The documentation site: it builds strictly, shows its picture, and fits a phone."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DARK, LIGHT = 0, 1
GENERATED = {"reference/cli.md", "reference/python.md", "reference/environment.md"}


@pytest.fixture(scope="module")
def hooks() -> Any:
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "site" / "hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_navigation_has_every_page_and_no_other(hooks):
    listed = set(re.findall(r"[\w/]+\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert listed <= pages | GENERATED
    nav = hooks.on_config(SimpleNamespace(nav=[{"Home": sorted(listed - {"faq.md"})}])).nav
    assert "faq.md" in nav[-1]["More"]


def test_the_picture_shows_both_tables(hooks):
    picture = hooks.results_picture()
    assert picture.count('class="bar"') >= 30 and picture.count("<svg") == 2
    assert "distilbert" in picture and "UNet block" in picture and "magika" in picture


def test_reference_pages_come_from_the_code(hooks):
    commands = hooks.command_page()
    assert "## `smelt compile" in commands and "`--shapes`" in commands and "smelt cache clear" in commands
    assert "`SMELT_CACHE_DIR`" in hooks.environment_page()


@pytest.mark.full
def test_the_python_page_comes_from_the_code(hooks):
    pytest.importorskip("torch")
    page = hooks.python_page()
    assert "## `smelt.compile`" in page and "## `smelt.InferenceSession`" in page


def test_files_that_are_no_pages_are_named(hooks):
    text = hooks.on_page_markdown("see [this](../examples/provider.py) and [that](../README.md)")
    assert text == "see this (`examples/provider.py` of the repository) and [that](index.md)"
    text = hooks.on_page_markdown("[`examples/provider.py`](../examples/provider.py) runs")
    assert text == "`examples/provider.py` of the repository runs"


def test_signatures_are_shown_as_they_are_written(hooks):
    from smelt.frontends.batch.entry import batch

    assert hooks._signature(hooks._cell) == "(text: str) -> str"
    lines = hooks._signature(batch).splitlines()
    assert lines[1] == "    model: Any," and "    *," in lines and lines[-1] == ") -> Report"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site as `make docs` builds it, by whichever environment has mkdocs-material."""
    for python in (Path(sys.executable), ROOT / ".venv-docs" / "bin" / "python"):
        found = python.exists() and subprocess.run([python, "-c", "import material"], capture_output=True, check=False)
        if found and found.returncode == 0:
            folder = tmp_path_factory.mktemp("site")
            command = [python, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[-3000:]
            return folder
    pytest.skip("mkdocs-material is not installed: `make docs` does it")


@pytest.mark.full
def test_the_site_builds_strictly(site):
    assert 'class="smelt-results"' in (site / "index.html").read_text(encoding="utf-8")
    for page in GENERATED:
        assert (site / page).with_suffix(".html").exists()


@pytest.mark.full
@pytest.mark.parametrize("page", ["index.html", "provider.html", "reference/cli.html"])
@pytest.mark.parametrize(("size", "scheme"), [("390,844", LIGHT), ("1280,900", DARK)])
def test_a_page_is_shown_and_fits(site, tmp_path, page, size, scheme):
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("there is no Chromium")
    probe = site / f"probe-{page.replace('/', '-')}"
    beyond = "document.documentElement.scrollWidth - innerWidth"  # a window is not narrower than 500 without a display
    script = f"<script>addEventListener('load', () => document.title = 'beyond ' + ({beyond}))</script>"
    probe.write_text((site / page).read_text(encoding="utf-8").replace("</body>", script + "</body>"), encoding="utf-8")
    if "/" in page:  # its own links are relative to its folder
        probe = probe.rename(site / page.replace("cli", "probe"))
    common = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={size}"]
    common.append(f"--blink-settings=preferredColorScheme={scheme}")
    dump = [*common, "--virtual-time-budget=20000", "--dump-dom", probe.as_uri()]
    dom = subprocess.run(dump, capture_output=True, text=True, timeout=120, check=True).stdout
    found = re.search(r"<title>beyond (-?\d+)</title>", dom)
    assert found is not None and int(found.group(1)) <= 0, "the page scrolls sideways"
    picture = tmp_path / "page.png"
    subprocess.run([*common, f"--screenshot={picture}", probe.as_uri()], capture_output=True, timeout=120, check=True)
    assert picture.stat().st_size > 15_000, "nothing was drawn"
