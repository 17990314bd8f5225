"""Which of the units that no model changes a model links."""

import pytest

from smelt.codegen.c.backend import INCLUDE
from smelt.codegen.c.library import LIBRARY, library_units


def names(*texts: str) -> list[str]:
    return [unit.name for unit in library_units(texts)]


def test_only_what_is_called_is_linked() -> None:
    assert names("smelt_launch(&task0, f);") == []
    assert names("SMELT_POOL(&w);") == ["pool"]
    assert names("SMELT_DEPTHWISE(&w);") == ["depthwise"]
    assert names("SMELT_DEPTHWISE_WIDE(&w);") == ["depthwise", "depthwise_wide"]
    assert names("SMELT_CONVOLVE_DOTS(&w);") == ["tiles", "convolve_dots"]
    assert names("SMELT_WINOGRAD(&w);") == ["tiles", "winograd", "window"]
    assert names("SMELT_PRODUCT_PREFETCH(a);") == ["tiles", "gemm"]
    assert names("SMELT_CONVOLVE(&w);", "SMELT_PACK(b);") == ["tiles", "window", "gemm"]
    assert names("#include <smelt/gemm/gemm_unit.h>") == ["tiles", "gemm"]
    assert names("#include <smelt/functions/topk_unit.h>", "#include <smelt/gemm/no_such_unit.h>") == []


@pytest.mark.parametrize("entry", LIBRARY, ids=lambda entry: entry.name)
def test_a_unit_is_one_header_that_defines_what_it_says(entry) -> None:
    assert entry.unit.text == f"#include <smelt/{entry.room}/{entry.name}_unit.h>\n"
    header = (INCLUDE / "smelt" / entry.room / f"{entry.name}_unit.h").read_text(encoding="utf-8")
    for name in set(entry.defines) - {"SMELT_TILES_LINKED"}:
        assert any(line.startswith(("void ", "int ", "int64_t ")) and name in line for line in header.splitlines())
