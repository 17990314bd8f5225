"""The check of sizes and imports: what it finds, and that the sources pass."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("check_sizes", ROOT / "tools" / "check_sizes.py")
assert _SPEC is not None and _SPEC.loader is not None
check_sizes = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = check_sizes
_SPEC.loader.exec_module(check_sizes)


def test_long_files_and_functions_are_found(tmp_path: Path) -> None:
    (tmp_path / "long.h").write_text("\n" * 600)
    (tmp_path / "functions.py").write_text("def long():\n" + "    pass\n" * 81 + "def short(): ...\n" * 20)
    assert [line.split(": ")[1] for line in check_sizes.long_files(tmp_path)] == ["600 lines; a file has less than 600"]
    (found,) = check_sizes.long_functions(tmp_path)
    assert "long has 82 lines" in found


def test_many_middling_functions_are_too_long_together(tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(("def middling():\n" + "    pass\n" * 24) * 3 + "def short(): ...\n" * 20)
    (found,) = check_sizes.long_functions(tmp_path)
    assert "up to 25 lines" in found


def test_modules_that_import_each_other_are_found_also_inside_functions(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "__init__.py").write_text("from .one import a\n")
    (tmp_path / "room" / "one.py").write_text("from . import two\na = 1\n")
    (tmp_path / "room" / "two.py").write_text("def f():\n    from room.one import a\n")
    (tmp_path / "room" / "three.py").write_text("if TYPE_CHECKING:\n    from room.four import b\n")
    (tmp_path / "room" / "four.py").write_text("import room.three\n")
    assert list(check_sizes.mutual_imports(tmp_path)) == ["room.one and room.two import each other"]


def test_the_sources_pass() -> None:
    assert check_sizes.main(ROOT / "src") == 0
