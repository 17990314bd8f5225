"""`smelt bench` end to end, on a model that takes microseconds."""

from __future__ import annotations

import json

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


@pytest.mark.parametrize(
    "arguments",
    [[], ["--suite", "macro"], ["--model", "no-such"], ["--suite", "micro", "--peers", "nobody"], ["no-such.onnx"]],
    ids=["nothing", "suite", "model", "peer", "file"],
)
def test_wrong_usage_exits_with_two_and_says_what_is_known(arguments: list[str], model: str):
    code, text = bench(*arguments)
    assert code == 2
    assert "try:" in text or "error" in text
