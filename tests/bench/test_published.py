"""The tables of the pages come from results."""

from __future__ import annotations

from pathlib import Path

from smelt.bench.outcome import Outcome, Row
from smelt.bench.paired import Ratio
from smelt.bench.published import PAGES, publish

ROOT = Path(__file__).parents[2]
AHEAD, UNSURE = Ratio(1.4, 1.3, 1.5, 9, certain=True), Ratio(1.02, 0.9, 1.1, 9)


def outcome(*rows: Row) -> Outcome:
    return Outcome("2 x Some CPU", (), rows)


def row(peer: str, case: str = "vit", ms: float = 2.0, **figures: object) -> Row:
    return Row(case, "", peer, 1, median_ms=ms, peak_mb=100.0, **figures)  # pyright: ignore[reportArgumentType]


def page(folder: Path, *names: str) -> Path:
    path = folder / "page.md"
    parts = [f"before {name}\n\n<!-- bench:{name} -->\nold {name}\n<!-- /bench:{name} -->\n" for name in names]
    path.write_text("".join([*parts, "after\n"]))
    return path


def test_what_lies_between_markers_is_written_from_results_and_nothing_else_changes(tmp_path: Path):
    path = page(tmp_path, "models", "decode")
    found = outcome(row("ort"), row("smelt", ms=1.4, ratio=AHEAD, vs_best=UNSURE, best="openvino"), row("openvino"))
    assert publish({"models": found}, [path]) == [f"{path}: models"]
    text = path.read_text()
    assert "| ViT-base | **1.40** [1.30, 1.50] | 1.02 [0.90, 1.10] openvino | 100 / 100 |" in text
    assert "2 x Some CPU" in text and "Peers: ort, smelt, openvino" in text
    assert "old models" not in text and "old decode" in text
    assert text.startswith("before models\n") and text.endswith("after\n")


def test_writing_twice_gives_the_same_page(tmp_path: Path):
    path = page(tmp_path, "models-times")
    found = outcome(row("ort"), row("smelt", ms=1.4, ratio=AHEAD))
    publish({"models": found}, [path])
    once = path.read_text()
    publish({"models": found}, [path])
    assert path.read_text() == once
    assert "| ViT-base | 1 | 2 | 1.4 | - |" in once


def test_a_peer_that_failed_is_a_gap_and_the_model_stays(tmp_path: Path):
    path = page(tmp_path, "decode")
    failed = Row("gpt2-decode s512", "", "openvino", 1, problem="no such op")
    ours = row("smelt", "gpt2-decode s512", tokens_per_s=30.0, ratio=AHEAD)
    publish({"decode": outcome(row("ort", "gpt2-decode s512", tokens_per_s=20.0), ours, failed)}, [path])
    assert "| gpt2-decode s512 | 1 | 20 | 30 | - | **1.40** [1.30, 1.50] |" in path.read_text()


def test_the_pages_of_this_repository_have_the_places_for_them(tmp_path: Path):
    found = outcome(row("ort"), row("smelt", ms=1.4, ratio=AHEAD))
    copies: list[Path] = []
    for name in PAGES:
        copies.append(tmp_path / name.name)
        copies[-1].write_text((ROOT / name).read_text())
    written = publish({"models": found, "micro": found, "sizes": found, "decode": found}, copies)
    assert {entry.rpartition(": ")[2] for entry in written} >= {"models", "micro", "models-times", "sizes", "decode"}
