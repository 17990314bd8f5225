"""Sizes that tuning may choose: where they are read, and that results stay right with any of them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from region_check import assert_alike, stock

import smelt
from smelt import codegen
from smelt.codegen import (
    GPU_CONFIG,
    KERNEL_SETTINGS,
    SETTINGS,
    kernel_settings_of,
    settings_of,
    unknown_settings,
    with_settings,
)
from smelt.codegen.machine_sizes import machine_sizes
from smelt.ir.records import Entry, KernelInfo, Source, Unit

CPU_SETTINGS = [setting for setting in KERNEL_SETTINGS if setting.name != GPU_CONFIG]  # triton_backend/ has the other
HEADERS = Path(codegen.__file__).parent / "c" / "include" / "smelt"
MODEL = """(float[n,96] x, float[2,3,70,16] q, float[2,3,70,16] k)
             => (float[n,200] y, float[2,3,70,16] z, float[n,96] a) {
             kt = Transpose<perm=[0,1,3,2]>(k) s = MatMul(q, kt) w = Softmax(s) z = MatMul(w, k)
             p = MatMul(x, weights) y = LayerNormalization(p, scale) r = Softmax(x) a = Exp(r) }"""


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name)
def test_the_default_is_what_the_header_says(setting: codegen.Setting) -> None:
    text = "".join(path.read_text() for path in HEADERS.rglob("*.h"))
    (said,) = re.findall(rf"#ifndef {setting.macro}\n#define {setting.macro} (\S+)", text)
    size = said.removeprefix("smelt_sizes.")
    assert setting.default == (int(said) if said.isdigit() else machine_sizes()[size])
    assert setting.default not in setting.others


@pytest.mark.parametrize("setting", CPU_SETTINGS, ids=lambda s: s.name)
def test_a_kernels_size_is_read_where_it_is_launched(setting: codegen.KernelSetting) -> None:
    text = "".join(path.read_text() for path in HEADERS.rglob("*.h"))
    assert f"int32_t {setting.field};" in text and f"task->cut.{setting.field}" in text
    assert 0 not in setting.others and len(set(setting.others)) == len(setting.others)


def launched(launcher: str, kernel: str) -> KernelInfo:
    return KernelInfo(kernel, "loops", (), "1 units", launcher=launcher)


def test_only_units_that_read_a_size_see_it() -> None:
    names = {"k_a": "smelt_launch_b2b_gemm", "k_b": "smelt_launch", "k_c": "smelt_launch_gemm"}
    entry = Entry("r0", (), (), tuple(launched(launcher, kernel) for kernel, launcher in names.items()))
    text = "\n".join(f"smelt_task {kernel} = {{.cut = SMELT_CUT_{kernel}}};" for kernel in names)
    units = (Unit("gemm", "g"), Unit("regions0", text, launches=tuple(names)), Unit("kernels0", "k", kernels=("k_a",)))
    source = Source(units, (entry,))
    assert {s.name for s in settings_of(source)} == {"product-block", "product-rows", "product-grain"}
    felt = {s.name: kernels for s, kernels in kernel_settings_of(source).items()}
    assert felt == {"attention-rows": ("k_a",), "loop-grain": ("k_b",), "task-rows": ("k_c",)}
    chosen = {
        "product-block": 16384,
        "product-rows": 144,
        "k_a.attention-rows": 14,
        "k_a.attention-span": 256,
        "k_z.loop-grain": 5,
    }
    changed = {u.name: u.text for u in with_settings(source, chosen).units}
    assert changed["gemm"] == "#define SMELT_GEMM_BLOCK 16384\ng" and changed["kernels0"] == "k"
    assert changed["regions0"].startswith(
        "#define SMELT_CUT_k_a {.attention_rows = 14, .attention_span = 256}\nsmelt_task"
    )
    assert unknown_settings(source, chosen) == ("k_a.attention-span", "k_z.loop-grain")


@pytest.fixture
def model() -> onnx.ModelProto:
    made = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]> g {MODEL}')
    rng = np.random.default_rng(3)
    for name, shape in (("weights", (96, 200)), ("scale", (200,))):
        array = rng.standard_normal(shape).astype(np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return made


def feeds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    shapes = {"x": (250, 96), "q": (2, 3, 70, 16), "k": (2, 3, 70, 16)}
    return {name: rng.standard_normal(s).astype(np.float32) for name, s in shapes.items()}


def compiled_with(model: onnx.ModelProto, settings: dict[str, int]) -> tuple[list[np.ndarray], dict[str, int], Source]:
    options = {"force": True, "levels": "v3", "settings": settings}
    with smelt.compile(model.SerializeToString(), **options) as compiled:
        source = compiled.result.generated.source
        return compiled.run(feeds()), compiled.result.artifact.manifest["settings"], source


@pytest.mark.parametrize("place", [0, 1, -1])
def test_results_are_right_with_other_sizes(place: int, model: onnx.ModelProto) -> None:
    plain, none, source = compiled_with(model, {})
    assert none == {}
    felt = kernel_settings_of(source)
    assert set(felt) == set(CPU_SETTINGS)
    chosen = {s.name: s.others[min(place, len(s.others) - 1)] for s in SETTINGS}
    chosen |= {s.of(k): s.others[min(place, len(s.others) - 1)] for s, kernels in felt.items() for k in kernels}
    found, used, _ = compiled_with(model, chosen)
    assert used == chosen
    assert_alike(found, plain, "other sizes", 2e-5, 2e-6)
    assert_alike(found, stock(model, list(feeds().values())), "other sizes", 2e-5, 2e-6)


def test_sizes_of_kernels_that_are_not_there_are_left_out_and_said(model: onnx.ModelProto) -> None:
    options = {"force": True, "levels": "v2", "settings": {"k_none.loop-grain": 5, "product-rows": 72}}
    with smelt.compile(model.SerializeToString(), **options) as compiled:
        assert compiled.result.artifact.manifest["settings"] == {"product-rows": 72}
        assert "1 of the 2 given sizes belong to kernels" in " ".join(compiled.result.notes)


def test_the_page_names_every_size() -> None:
    page = (Path(codegen.__file__).parents[3] / "docs" / "tuning.md").read_text()
    for s in (*SETTINGS, *KERNEL_SETTINGS):
        assert f"| `{s.name}` | {s.about} | {s.default} | {', '.join(map(str, s.others))} |" in page
