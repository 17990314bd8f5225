"""Which of the units that no model changes a model links."""

import numpy as np
import onnx_ir as ir
import pytest
from region_check import Graph, generated

from smelt.base.errors import CodegenError
from smelt.codegen.backends import _shared
from smelt.codegen.c.backend import INCLUDE
from smelt.codegen.c.library import LIBRARY, library_source, library_units, likely_source
from smelt.ir.records import Unit


def names(*links: str) -> list[str]:
    return [unit.name for unit in library_units(links)]


def test_only_what_is_called_is_linked() -> None:
    assert names() == []
    assert names("pool") == ["pool"]
    assert names("depthwise_patch") == ["depthwise", "depthwise_patch"]
    assert names("depthwise_lines_7_1") == ["depthwise_lines_7_1"]
    assert names("convolve_dots") == ["tiles", "convolve_dots"]
    assert names("winograd") == ["tiles", "winograd", "window"]
    assert names("window", "gemm") == ["tiles", "window", "gemm"]
    with pytest.raises(CodegenError, match="no unit 'winnow'") as found:
        names("winnow")
    assert "winograd" in found.value.hint


LINKED = {
    "(float[n,8,9,9] x) => (float[n,8,4,4] y) { y = MaxPool<kernel_shape=[3,3], strides=[2,2]>(x) }": [
        "pool",
        "launch_window",
    ],
    "(float[n,8] x, float[8,m] w) => (float[n,m] y) { y = MatMul(x, w) }": ["tiles", "gemm", "launch_gemm"],
    "(float[n,8] x) => (float[n,8] y) { y = Exp(x) }": [],
    "(float[5,2,8] x, float[1,12,8] w, float[1,12,3] r) => (float[5,1,2,3] y) { y = LSTM<hidden_size=3>(x, w, r) }": [
        "tiles"
    ],
}


@pytest.mark.parametrize("graph", LINKED)
def test_a_model_links_what_its_kernels_name(graph: str) -> None:
    units = generated(Graph(graph, []).model(21)).source.units
    library = {entry.name for entry in LIBRARY}
    assert [unit.name for unit in units if unit.name in library] == LINKED[graph]


DEPTHWISE = {
    "kernel_shape=[7,7], pads=[3,3,3,3]": ["depthwise_lines_7_1"],
    "kernel_shape=[5,5], strides=[2,2]": ["depthwise_lines_5_2"],
    "kernel_shape=[1,5], strides=[1,2]": ["depthwise_lines_5_2"],
    "kernel_shape=[5,5], strides=[3,3]": ["depthwise", "depthwise_patch"],
    "kernel_shape=[5,5], dilations=[2,2]": ["depthwise", "depthwise_patch"],
    "kernel_shape=[1,5], dilations=[1,2]": ["depthwise"],
    "kernel_shape=[3,3]": ["depthwise"],
}


@pytest.mark.parametrize("attributes", DEPTHWISE)
def test_a_library_has_the_form_of_a_depthwise_window_alone(attributes: str) -> None:
    kernel = attributes.split("[")[1].split("]")[0]
    conv = f"y = Conv<group=32, {attributes}>(x, w)"
    graph = f"(float[n,32,40,40] x, float[32,1,{kernel}] w) => (float[n,32,h,v] y) {{ {conv} }}"
    units = generated(Graph(graph, []).model(21)).source.units
    library = {entry.name for entry in LIBRARY}
    assert [unit.name for unit in units if unit.name in library] == [*DEPTHWISE[attributes], "launch_window"]


@pytest.mark.parametrize(
    ("graph", "units"),
    [
        ("(float[n,8] x, float[8,m] w) => (float[n,m] y) { y = MatMul(x, w) }", ["tiles", "gemm", "launch_gemm"]),
        ("(float[n,8,9] x) => (float[n,8,7] y) { y = MaxPool<kernel_shape=[3]>(x) }", ["pool", "launch_window"]),
        ("(float[n,8] x) => (float[n,8] y) { y = Exp(x) }", []),
        (
            "(float[n,32,9,9] x, float[32,1,7,7] w) => (float[n,32,3,3] y) { y = Conv<group=32>(x, w) }",
            ["depthwise_lines_7_1", "launch_window"],
        ),
        (
            "(float[n,32,9,9] x, float[32,32,3,3] w) => (float[n,32,7,7] y) { y = Conv(x, w) }",
            ["tiles", "winograd", "window", "launch_window"],
        ),
    ],
)
def test_likely_units_follow_from_declarations(graph: str, units: list[str]) -> None:
    model = ir.serde.deserialize_model(Graph(graph, []).model(21))
    assert [unit.name for unit in likely_source(model.graph).units] == units


def test_products_of_constant_bytes_are_functions_of_their_own() -> None:
    weights = ir.Value(name="w", const_value=ir.tensor(np.ones((8, 8), np.int8)), type=ir.TensorType(ir.DataType.INT8))
    node = ir.node("MatMulIntegerToFloat", [ir.Value(name="x"), weights], domain="com.microsoft")
    assert not likely_source([node]).units


# Small, or compiled anew for each element type or operation.
COMPILED_WHERE_USED = {
    "conv/col2im", "functions/compress", "functions/determinant", "functions/grid_sample",
    "functions/nonzero", "functions/places", "functions/scatter", "functions/topk", "functions/unique",
}  # fmt: skip


def test_an_installation_has_every_unit_that_takes_long_to_compile() -> None:
    headers = {str(path.relative_to(INCLUDE / "smelt")) for path in (INCLUDE / "smelt").glob("*/*_unit.h")}
    texts = [unit.text for unit in library_source().units]
    brought = {text.partition("#include <smelt/")[2].removesuffix(">\n") for text in texts}
    assert headers - brought == {f"{name}_unit.h" for name in COMPILED_WHERE_USED}


@pytest.mark.parametrize("entry", LIBRARY, ids=lambda entry: entry.name)
def test_a_unit_is_one_header_that_defines_what_it_says(entry) -> None:
    name = entry.header or entry.name
    defines = "".join(f"#define {name} {value}\n" for name, value in entry.numbers)
    assert entry.unit.text == f"{defines}#include <smelt/{entry.room}/{name}_unit.h>\n"
    header = (INCLUDE / "smelt" / entry.room / f"{name}_unit.h").read_text(encoding="utf-8")
    assert f"#define SMELT_{name.upper()}_UNIT" in header
    assert all(
        f"{number} " in header or f"{number})" in header or f"{number}," in header for number, _ in entry.numbers
    )


def test_a_function_that_two_backends_call_is_one_unit() -> None:
    units = [
        Unit("extern_1", "text", kernels=("a",)),
        Unit("regions0", "r"),
        Unit("extern_1", "text", kernels=("b", "a")),
    ]
    assert _shared(units) == (Unit("extern_1", "text", kernels=("a", "b")), Unit("regions0", "r"))
    assert len(_shared([Unit("extern_1", "text"), Unit("extern_1", "other")])) == 2
