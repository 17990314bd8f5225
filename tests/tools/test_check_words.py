"""The check of the project's words: what it finds, what it lets pass, and that the sources pass."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("check_words", ROOT / "tools" / "check_words.py")
assert _SPEC is not None and _SPEC.loader is not None
check_words = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = check_words
_SPEC.loader.exec_module(check_words)


def found(folder: Path, name: str, text: str) -> list[str]:
    path = folder / "src" / "smelt" / "codegen" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return [line.split(": ")[1] for line in check_words.complaints(folder / "src")]


def test_identifiers_are_cut_into_words() -> None:
    assert check_words.words_of("SMELT_GEMM_KC") == ["smelt", "gemm", "kc"]
    assert check_words.words_of("FusedMLPWriter") == ["fused", "mlp", "writer"]


@pytest.mark.parametrize(
    "name", ["channelwise", "few_rows", "SMELT_CHANNELWISE_WIDE", "RowChainWriter", "_twin", "farRows"]
)
def test_a_homemade_word_in_an_identifier_is_found(tmp_path: Path, name: str) -> None:
    assert found(tmp_path, "a.py", f"{name} = 1\n") == [name]
    assert found(tmp_path, "a.h", f"int {name};\n") == [name, name]  # the Python file is still there


def test_a_homemade_word_in_a_files_name_is_found(tmp_path: Path) -> None:
    assert found(tmp_path, "row_chain.py", "") == ["row_chain"]


def test_comments_texts_and_names_of_others_pass(tmp_path: Path) -> None:
    assert found(tmp_path, "a.py", '"""Twins."""\nx = "leader"  # settle\ny = tensor.is_floating_point()\n') == []
    assert found(tmp_path, "b.c", '/* twins\n */ char *x = "leader"; // settle\n') == []


def test_a_word_holds_only_where_it_is_banned(tmp_path: Path) -> None:
    assert check_words.banned_in("chain", "/src/smelt/bench/micro.py") is None
    assert check_words.banned_in("chain", "/src/smelt/codegen/schedule.py") is not None


def test_the_sources_use_the_fields_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_words.main([]) == 0, capsys.readouterr().out
