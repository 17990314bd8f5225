"""Sizes that tuning may choose: where they are read, and that results stay right with any of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from region_check import assert_alike, stock

import smelt
from smelt import codegen
from smelt.check import Choice
from smelt.codegen import SETTINGS, settings_of, with_settings
from smelt.ir.records import Source, Unit

HEADERS = Path(codegen.__file__).parent / "c" / "include" / "smelt"
MODEL = """(float[40,96] x, float[2,3,70,16] q, float[2,3,70,16] k) => (float[40,200] y, float[2,3,70,16] z) {
             y = Gelu(p) kt = Transpose<perm=[0,1,3,2]>(k) s = MatMul(q, kt) w = Softmax(s) z = MatMul(w, k)
             p = MatMul(x, weights) }"""


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name)
def test_the_default_is_what_the_header_says(setting: codegen.Setting) -> None:
    text = "".join(path.read_text() for path in HEADERS.glob("*.h"))
    assert f"#ifndef {setting.macro}\n#define {setting.macro} {setting.default}" in text
    assert setting.default not in setting.others


def test_only_units_that_read_a_size_see_it() -> None:
    source = Source((Unit("gemm", "g"), Unit("regions0", "smelt_launch_chain("), Unit("kernels0", "k")), ())
    assert {s.name for s in settings_of(source)} == {"product-block", "product-rows", "product-grain", "chain-rows"}
    changed = {u.name: u.text for u in with_settings(source, {"product-block": 16384, "chain-rows": 28}).units}
    assert changed == {"gemm": "#define SMELT_GEMM_BLOCK 16384\ng", "regions0": "smelt_launch_chain(", "kernels0": "k"}


@pytest.mark.parametrize("place", [0, -1])
def test_results_are_right_with_other_sizes(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Choice({s.name: s.others[place] for s in SETTINGS})
    monkeypatch.setattr("smelt.pipeline.choose_settings", lambda *_: chosen)
    monkeypatch.setattr("smelt.check.examination.tune", lambda *_: smelt.pipeline.Findings())
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]> g {MODEL}')
    rng = np.random.default_rng(3)
    weights = onnx.numpy_helper.from_array(rng.standard_normal((96, 200)).astype(np.float32), "weights")
    model.graph.initializer.append(weights)
    shapes = [(40, 96), (2, 3, 70, 16), (2, 3, 70, 16)]
    inputs = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    with smelt.compile(model.SerializeToString(), force=True, levels="v3", tune=True) as compiled:
        found = compiled.run(dict(zip(("x", "q", "k"), inputs, strict=True)))
        assert compiled.result.artifact.manifest["settings"] == dict(chosen.settings)
        assert "Tuned for this machine" in " ".join(compiled.result.notes)
    assert_alike(found, stock(model, inputs), "other sizes", 2e-5, 2e-6)


def test_the_page_names_every_size() -> None:
    page = (Path(codegen.__file__).parents[3] / "docs" / "tuning.md").read_text()
    for s in SETTINGS:
        assert f"| `{s.name}` | {s.about} | {s.default} | {', '.join(map(str, s.others))} |" in page
