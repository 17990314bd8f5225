"""The quantized models of the suite: what onnxruntime.quantization makes of the zoo's files."""

from __future__ import annotations

import onnx
import pytest

from smelt.base import Config
from smelt.bench import Pace, Plan, run_suite
from smelt.bench.cases import quantized_cases
from smelt.bench.quantized import QUANTIZED
from smelt.bench.zoo import ZOO

for package in ("torch", "transformers", "onnxscript"):
    pytest.importorskip(package)

QUICK = Pace(rounds=8, slice_s=0.004, warm_s=0.002)


def test_every_quantized_model_is_one_of_the_zoo() -> None:
    assert {one.model for one in QUANTIZED.values()} <= set(ZOO)


@pytest.mark.full
def test_static_and_dynamic_files_are_timed_beside_the_float_ones(config: Config) -> None:
    cases = quantized_cases(config, "tiny", only=["distilbert"])
    assert [case.name for case in cases] == ["distilbert qdq", "distilbert dynamic"]
    ops = [{node.op_type for node in onnx.load(str(case.model)).graph.node} for case in cases]
    assert {"QuantizeLinear", "DequantizeLinear"} <= ops[0]
    assert "MatMulInteger" in ops[1]
    outcome = run_suite(cases[:1], Plan(("ort", "smelt", "ort-fp32", "smelt-fp32"), (1,), QUICK), config)
    assert [row.problem for row in outcome.rows] == ["", "", "", ""]
    assert [row.peer for row in outcome.rows] == ["ort", "smelt", "ort-fp32", "smelt-fp32"]
    assert {row.bound for row in outcome.rows[2:]} <= {"FMA", "memory"}
    assert {row.bound for row in outcome.rows[:2]} <= {"8-bit", "memory"}


def test_a_file_without_a_float_original_has_no_such_peers(config: Config) -> None:
    from smelt.bench import micro_case

    outcome = run_suite([micro_case("softmax", config)], Plan(("ort", "ort-fp32"), (1,), QUICK), config)
    assert outcome.rows[1].problem == "the file was not made from a float32 one"
