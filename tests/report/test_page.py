from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.report.conftest import HOSTILE

from smelt.report import Times, format_html


class Tags(HTMLParser):
    """Every start tag with its attributes, as a browser would see them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def script_texts(page: str) -> list[str]:
    return re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)


@pytest.fixture
def hostile_page(make_report) -> str:
    return format_html(make_report(HOSTILE, title=HOSTILE[0]))


def test_hostile_names_add_no_element_and_no_handler(hostile_page: str, make_report):
    plain = Tags(format_html(make_report(tuple(f"n{i}" for i in range(len(HOSTILE))))))
    hostile = Tags(hostile_page)
    assert [tag for tag, _ in hostile.seen] == [tag for tag, _ in plain.seen]
    assert not any(name.startswith("on") for _, attributes in hostile.seen for name in attributes)


def test_the_data_survive_and_hold_no_markup(hostile_page: str):
    data, _ = script_texts(hostile_page)
    assert not set("<>&") & set(data)
    names = [node[1] for node in json.loads(data)["nodes"]]
    assert names[0] == HOSTILE[0]
    assert names[4] == HOSTILE[4]


def test_nothing_invisible_or_reversed_reaches_the_page(hostile_page: str):
    assert all(character.isprintable() or character == "\n" for character in hostile_page)


def test_templates_are_not_evaluated_in_names(hostile_page: str):
    assert "49{% raw %}" not in hostile_page


def test_only_the_pages_own_script_may_run(hostile_page: str):
    _, script = script_texts(hostile_page)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(a["content"] for tag, a in Tags(hostile_page).seen if tag == "meta" and "http-equiv" in a)
    assert f"script-src 'sha256-{digest}'" in (policy or "")
    assert "default-src 'none'" in (policy or "")


def test_the_page_loads_nothing(hostile_page: str):
    for tag, attributes in Tags(hostile_page).seen:
        assert "src" not in attributes, tag
        assert tag not in {"link", "iframe", "object", "embed", "img"}
        assert not (attributes.get("href") or "#").startswith(("http", "//", "javascript"))
    assert "url(" not in hostile_page
    assert "@import" not in hostile_page


def test_two_thousand_nodes_make_a_page_of_moderate_size(make_report):
    names = tuple(f"/model/encoder/layer.{i // 40}/attention/self/node_{i}" for i in range(2000))
    assert len(format_html(make_report(names)).encode()) < 1_500_000


def test_times_are_shown_when_there_are_any(make_report):
    times = Times({0: 3000.0}, (("MatMul", "m", 1000.0),), whole_us=5000.0, stock_us=7500.0)
    names = ("a", "b", "c")
    assert "1.50x" in format_html(make_report(names, times=times))
    assert "stock ONNX Runtime" not in format_html(make_report(names))


def test_a_model_without_regions_has_a_page(make_report):
    report = make_report(("a",))
    assert "runs the whole model" in format_html(type(report)("t", report.ops, (), ()))


@pytest.mark.full
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_draws_hostile_names_as_text(hostile_page: str, tmp_path: Path):
    (tmp_path / "page.html").write_text(hostile_page, encoding="utf-8")
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
        f"--user-data-dir={tmp_path}/profile", "--virtual-time-budget=3000", "--dump-dom", "--enable-logging=stderr",
        f"file://{tmp_path / 'page.html'}#region=0",
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert "CONSOLE" not in ran.stderr, ran.stderr
    assert "<h3>Region 0</h3>" in ran.stdout
    assert "<h3></script>" not in ran.stdout
