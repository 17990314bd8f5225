"""Errors teach: code, node and remedy are in the text, and every code is explained."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from smelt.base import CATALOGUE, CompileError, ConfigError, LoadError, SmeltError, explain

SOURCES = Path(__file__).parents[2] / "src" / "smelt"


def test_text_holds_code_node_and_hint():
    error = LoadError("SM-LOAD-003", "data of 'w' lies outside", node="/layer/MatMul", hint="move it")
    assert str(error).splitlines() == [
        "SM-LOAD-003: data of 'w' lies outside",
        "  node: /layer/MatMul",
        "  try:  move it",
    ]


def test_hint_defaults_to_the_general_fix():
    assert SmeltError("SM-TOOL-001", "none").hint == CATALOGUE["SM-TOOL-001"].fix


def test_error_survives_a_process_border():
    error = CompileError("SM-TOOL-004", "failed", command=("cc", "-c"), stderr="boom", node="n", hint="h")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is CompileError
    assert (str(copy), copy.command, copy.stderr, copy.args) == (str(error), ("cc", "-c"), "boom", error.args)


def test_every_code_in_the_sources_is_in_the_catalogue():
    used = {
        code
        for path in SOURCES.rglob("*.py")
        if path.name != "_catalogue.py"
        for code in re.findall(r"SM-[A-Z]+-\d{3}", path.read_text(encoding="utf-8"))
    }
    assert used
    assert used <= set(CATALOGUE)


def test_catalogue_entries_are_complete():
    for code, entry in CATALOGUE.items():
        assert re.fullmatch(r"SM-[A-Z]+-\d{3}", code)
        assert entry.title and not entry.title.endswith(".")
        assert entry.explanation.endswith(".") and entry.fix.endswith(".")


def test_explain_takes_any_case_and_refuses_unknown_codes():
    assert explain("sm-tool-001").code == "SM-TOOL-001"
    with pytest.raises(ConfigError, match="SM-NOPE-001"):
        explain("SM-NOPE-001")
