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


def test_generated_names_options_and_settings_count_where_they_are_texts(tmp_path: Path) -> None:
    text = 'x = f"smelt_launch_chain({y});"\n# "few-rows"\nz = ("few-rows", "--far-rows", "the twins", "sha-1")\n'
    assert found(tmp_path, "a.py", text) == ["smelt_launch_chain", "few-rows", "--far-rows"]
    several = 'x = """\nSMELT_TWINS(a)\n"""\n'
    (path,) = [line.split(": ")[0] for line in complaints(tmp_path, "b.py", several) if "SMELT_TWINS" in line]
    assert path.endswith("b.py:2")


def complaints(folder: Path, name: str, text: str) -> list[str]:
    found(folder, name, text)
    return list(check_words.complaints(folder / "src"))


GLOSSARY = """channelwise|channels_last|planar|planes|gathered_windows|turned|lying|laid_out|twins|chain|leader|follower
two_layers|chain_blocks|reach|shut|open_mask|vacant|parts_of_operand|few_rows|finish|ask_for|wish|past_caches|own_rows|far_rows
keep_to_rows|in_order|bands|strips|part_of_k|settle|peel|strangers|left_node|given_back|meaning|refusal
floating|sink|as_lies"""


@pytest.mark.parametrize("name", GLOSSARY.replace("\n", "|").split("|"))
def test_every_word_of_the_glossary_is_known(name: str) -> None:
    """Where kernels are made; `channels_last` itself is torch's name."""
    asked = "is_channels_last" if name == "channels_last" else name
    assert check_words.banned_in(asked, "/src/smelt/codegen/c/a.h") is not None


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("Rows are laid out twice; `few rows` and twins.", ["laid out", "few rows", "twins"]),
        ("A few rows at a time, `channels_last`, chains of nodes, in order of preference, a twin-engine", []),
        ("The operand is read as it lies, past the caches", ["as it lies", "past the caches"]),
    ],
)
def test_a_homemade_phrase_in_a_page_is_found(tmp_path: Path, text: str, phrases: list[str]) -> None:
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    for name in ("README.md", "docs/deep/a.md"):
        (tmp_path / name).write_text(f"# A page\n\n{text}\n", encoding="utf-8")
    told = [line.split(": ") for line in check_words.prose_complaints(tmp_path)]
    assert sorted(line[1].strip("'") for line in told) == sorted(2 * phrases)
    assert all(line[0].endswith(".md:3") for line in told)


def layouts(folder: Path, name: str, text: str) -> list[str]:
    path = folder / "src" / "smelt" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return [line.split("'")[1] for line in check_words.layout_complaints(folder / "src")]


def test_layouts_are_not_spoken_of_where_only_what_is_computed_is_told(tmp_path: Path) -> None:
    text = "x = 1  # Winograd, in panels that stay in L2\naccuracy_level = cache = key_value_cache = 0\n"
    assert layouts(tmp_path, "ops/a.py", text) == ["Winograd", "panels", "L2"]
    assert len(layouts(tmp_path, "ir/kernel/b.py", "avx512 = cache_size")) == 5
    assert len(layouts(tmp_path, "codegen/c.py", text)) == len(layouts(tmp_path, "ir/records.py", text)) == 5


def test_the_sources_use_the_fields_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_words.main([]) == 0, capsys.readouterr().out


def test_a_test_that_searches_generated_text_is_found(tmp_path: Path) -> None:
    name = "smelt" + "_topk"  # in one piece this file would be found too
    lines = [
        f'assert "{name}" in unit.text',
        f"text = repr(made.result.generated.{'source'})",
        f'assert name == "{name}"',
    ]
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("\n".join(lines), encoding="utf-8")
    found_at = [line.split(":")[1] for line in check_words.search_complaints(tmp_path)]
    assert found_at == ["1", "2"]
