"""The check of the docs: links and commands that do not work are found, and those of the repository work."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("check_docs", ROOT / "tools" / "check_docs.py")
assert _SPEC is not None and _SPEC.loader is not None
check_docs = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = check_docs
_SPEC.loader.exec_module(check_docs)


def page(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("target", "works"),
    [
        ("page.md", True), ("#a-heading-with-code", True), ("page.md#a-heading-with-code", True),
        ("https://example.org/none", True), ("gone.md", False), ("#none", False), ("page.md#none", False),
    ],
)  # fmt: skip
def test_links(tmp_path: Path, target: str, works: bool) -> None:
    where = page(tmp_path, "# A heading, with `code`\n")
    assert (check_docs.broken_link(where, target) is None) == works


@pytest.mark.parametrize(
    ("text", "works"),
    [
        ("smelt compile model.onnx -o out/ --force", True), ("smelt cache warm --installed", True),
        ("smelt --version", True),
        ("smelt exec -- python app.py --its-own", True), ("smelt explain out/ | head", True),
        ("smelt compile model.onnx --no-such-option", False), ("smelt conpile model.onnx", False),
        ("smelt compile -o", False), ("make test", True), ('make bench ARGS="models --rounds 9"', True),
        ("make no-such-target", False), ("python bench/gemm.py --levels v4", True), ("python bench/gone.py", False),
        ("python -m smelt.bench", True), ("python -m smelt.gone", False), ("python app.py", True),
    ],
)  # fmt: skip
def test_commands(text: str, works: bool) -> None:
    assert (check_docs.broken_command(text) is None) == works


def test_commands_come_from_code_blocks_and_sentences(tmp_path: Path) -> None:
    where = page(
        tmp_path,
        "Say `smelt run out/` or\n\n    smelt run \\\n        out/  # why\n\n```sh\n$ make demo\n```\n\n"
        "```python\nsmelt run\n```\nand `smelt.run` is Python.\n",
    )
    assert [c.text for c in check_docs.commands(where)] == ["smelt run out/", "smelt run     out/  # why", "make demo"]


def test_the_docs_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_docs.main() == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "where"),
    [
        ("depthwise", "architecture.md"), ("NHWC", "architecture.md"), ("im2col", "architecture.md"),
        ("online softmax", "architecture.md"), ("GEMV", "architecture.md"), ("KV cache", "architecture.md"),
        ("KV cache", "tutorials/language_models.md"), ("depthwise", "performance_log.md"),
    ],
)  # fmt: skip
def test_a_reader_finds_the_fields_words(word: str, where: str) -> None:
    assert word.lower() in (ROOT / "docs" / where).read_text(encoding="utf-8").lower()
