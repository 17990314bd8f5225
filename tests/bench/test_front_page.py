"""What the README shows first is what the tables say."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree

from smelt.bench.front_page import PAGES, PICTURE, panels, to_svg, with_summary, write_front_page

ROOT = Path(__file__).parents[2]
README = """# x
<!-- real:summary -->
old
<!-- /real:summary -->
<!-- bench:models -->

| model | 1 thread | 2 threads | 2 threads, against the best peer | peak MB, smelt / stock |
|---|---|---|---|---|
| distilbert | 1.10 [1.00, 1.20] | **1.39** [1.36, 1.40] | **9.16** [9.15, 9.18] inductor | 219 / 232 |
| a < b | 1.10 [1.00, 1.20] | 0.90 [0.80, 1.10] | - | - |

- a note
<!-- /bench:models -->
"""
REAL = """<!-- real -->

- pretrained: 3 of 3 right
- a machine

| model | size | 1 thread, to stock | 2 threads, to stock | 2 threads, to the best |
|---|---|---|---|---|
| p/one | x 1 | 5.00 [4.00, 6.00] | **2.00** [1.90, 2.10] | 1.00 [1.00, 1.00] ort |
|  | x 2 | 5.00 [4.00, 6.00] | **8.00** [7.90, 8.10] | 1.00 [1.00, 1.00] ort |
| q/two | x 1 | - | - | - |
| timm/three | x 1 | 5.00 [4.00, 6.00] | 3.00 [2.90, 3.10] | - |

<!-- /real -->
"""


def test_bars_are_speeds_at_the_most_threads():
    suite, packages = panels(README, REAL)
    assert [(one.name, one.value, one.low, one.high) for one in suite.speeds] == [
        ("distilbert", 1.39, 1.36, 1.40), ("a < b", 0.90, 0.80, 1.10),
    ]  # fmt: skip
    (one,) = packages.speeds  # timm has random weights, and what was not timed has no bar
    assert (one.name, one.low, one.high) == ("p", 2.0, 8.0) and abs(one.value - 4) < 1e-9


def test_a_picture_is_whole_and_names_are_escaped():
    root = ElementTree.fromstring(to_svg(panels(README, REAL)))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "a < b" in texts and "1.39" in texts and "\u2192 4.00" in texts
    width = float(root.attrib["viewBox"].split()[2])
    for bar in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert 0 < float(bar.attrib["x"]) + float(bar.attrib["width"]) < width


def test_the_readme_says_what_the_page_of_real_models_says():
    text = with_summary(README, REAL)
    assert "- pretrained: 3 of 3 right\n- a machine\n" in text and "old" not in text
    assert with_summary(text, REAL) == text


def test_the_front_page_of_this_repository_is_as_its_tables_say(tmp_path: Path):
    """Else: `python -m smelt.bench.front_page`."""
    for name in PAGES:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    write_front_page(tmp_path)
    for name in (PAGES[0], PICTURE):
        assert (tmp_path / name).read_bytes() == (ROOT / name).read_bytes()
