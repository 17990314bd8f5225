from __future__ import annotations

import json
from pathlib import Path

import pytest

from smelt.base.errors import CodegenError, ModelError
from smelt.cli.output import reporting


def test_bad_input_says_what_to_try_and_its_code_without_a_traceback(call, tmp_path: Path):
    ran = call("inspect", tmp_path / "missing.onnx")
    assert ran.code == 2
    assert ran.out == ""
    assert "error: cannot open" in ran.err
    assert "  try:  Check the path" in ran.err
    assert "  code: SM-LOAD-001" in ran.err
    assert "Traceback" not in ran.err


def test_very_verbose_shows_the_traceback(call, tmp_path: Path):
    assert "Traceback" in call("inspect", tmp_path / "missing.onnx", "-vv").err


def test_with_json_an_error_is_a_document(call, tmp_path: Path):
    ran = call("inspect", tmp_path / "missing.onnx", "--json")
    assert ran.code == 2
    assert json.loads(ran.out)["error"]["code"] == "SM-LOAD-001"


@pytest.mark.parametrize(
    "arguments",
    [
        ("compile", "{model}", "--dims", "n"),
        ("compile", "{model}", "--dims", "nobody=3"),
        ("compile", "{model}", "--levels", "v99"),
        ("compile", "{model}", "--skip-pass", "no-such-pass"),
        ("run", "{model}", "--shapes", "x"),
        ("run", "{model}", "--shapes", "x:2,9", "--stock"),
        ("run", "{model}", "--shapes", "nobody:2", "--stock"),
        ("run", "{model}", "--input", "x=missing.npy", "--stock"),
        ("explain-error", "SM-NOPE-001"),
        ("cache", "clear", "--older-than", "soon"),
        ("cache", "info", "ffff"),
        ("optimize", "{model}", "-o", "{model}"),
        ("lighten", "{model}", "-o", "{model}"),
    ],
    ids=lambda arguments: " ".join(arguments).replace("{model}", "m"),
)
def test_what_cannot_be_used_is_exit_code_two(call, model_path: Path, arguments: tuple[str, ...]):
    ran = call(*(str(model_path) if a == "{model}" else a for a in arguments))
    assert ran.code == 2, ran
    assert "try:" in ran.err
    assert "Traceback" not in ran.err


def test_a_folder_that_is_no_artifact_is_not_replaced(call, model_path: Path, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    ran = call("compile", model_path, "-o", tmp_path / "mine", "--no-verify")
    assert ran.code == 2
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "all of it"


def ended_with(error: Exception, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    import typer

    with pytest.raises(typer.Exit) as ended, reporting():
        raise error
    return ended.value.exit_code, capsys.readouterr().err


def test_the_node_is_named(capsys: pytest.CaptureFixture[str]):
    code, text = ended_with(ModelError("SM-MODEL-001", "wrong", node="layer\x1b[0m/1", hint="Mend it."), capsys)
    assert code == 2
    assert text.startswith("error: wrong\n  node: layer\\x1b[0m/1\n  try:  Mend it.\n  code: SM-MODEL-001")


def test_a_failure_is_exit_code_one(capsys: pytest.CaptureFixture[str]):
    assert ended_with(CodegenError("SM-CODEGEN-001", "no"), capsys)[0] == 1


def test_a_fault_of_our_own_says_so(capsys: pytest.CaptureFixture[str]):
    code, text = ended_with(ZeroDivisionError("oops"), capsys)
    assert code == 1
    assert "internal error: ZeroDivisionError: oops" in text
