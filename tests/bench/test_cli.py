"""`smelt bench` end to end, on a model that takes microseconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from smelt.base import Config
from smelt.bench import micro_case
from smelt.cli.app import make_app


def bench(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(make_app(), ["bench", *arguments])
    return result.exit_code, result.output


@pytest.fixture
def model(config: Config, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SMELT_CACHE_DIR", str(config.cache_dir))
    monkeypatch.setenv("SMELT_LOG", "quiet")
    return str(micro_case("softmax", config).model)


def test_a_file_is_timed_at_the_shapes_asked_for(model: str):
    shapes = ["--shapes", "x:2,16,16", "--shapes", "mask:1,16,16"]
    quick = ["--threads", "1", "--rounds", "2", "--seconds", "0.002"]
    code, text = bench(model, *shapes, *quick, "--peers", "ort,ort", "--json")
    assert code == 0, text
    facts = json.loads(text)
    assert [row["peer"] for row in facts["rows"]] == ["ort", "ort#2"]
    assert "x 2x16x16" in facts["rows"][0]["about"]
    assert facts["machine"]


def test_results_are_plotted_kept_and_taken_up_again(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shapes = ["--shapes", "x:2,16,16", "--shapes", "mask:1,16,16"]
    quick = ["--threads", "1", "--rounds", "2", "--seconds", "0.002", "--peers", "ort", "--quiet"]
    files = ["--plot", str(tmp_path / "out.html"), "--resume", str(tmp_path / "kept.json")]
    assert bench(model, *shapes, *quick, *files)[0] == 0
    assert "<svg" in (tmp_path / "out.html").read_text()
    monkeypatch.setattr("smelt.bench.case_bench.CaseBench.rows", lambda *_: pytest.fail("timed again"))
    assert bench(model, *shapes, *quick, *files)[0] == 0


@pytest.mark.parametrize("option", [["--seq", "128"], ["--batch", "8"], ["--scale", "tiny"], ["--decode"]])
def test_sizes_of_known_models_are_refused_for_a_file(model: str, option: list[str]):
    """Figures at other sizes than the asked ones would be believed."""
    code, text = bench(model, *option, "--peers", "ort")
    assert code == 2 and option[0] in text and "--shapes" in text
    code, text = bench("--model", "distilbert", "--scale", "tiny", "--shapes", "x:1,2")
    assert code == 2 and "--seq" in text


def test_a_plot_that_cannot_be_written_is_refused_first(model: str):
    code, text = bench(model, "--plot", "out.gif")
    assert code == 2 and ".html" in text


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--suite", "macro"],
        ["--model", "no-such"],
        ["--suite", "micro", "--peers", "nobody"],
        ["no-such.onnx"],
        ["--model", "gpt2", "--seq", "x"],
        ["--model", "bert-base", "--decode"],
    ],
    ids=["nothing", "suite", "model", "peer", "file", "size", "decoder"],
)
def test_wrong_usage_exits_with_two_and_says_what_is_known(arguments: list[str], model: str):
    code, text = bench(*arguments)
    assert code == 2
    assert "try:" in text or "error" in text
