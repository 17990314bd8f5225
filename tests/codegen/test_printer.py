"""Schedules as text: every kind of work, shared expressions once, and no name that disturbs a terminal."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from region_check import floats, generated

from smelt.base.config import Config
from smelt.codegen.c.region import CRegionCode
from smelt.pipeline import Options, compile_to

HEAD = '<ir_version: 9, opset_import: ["" : 20]> g '


def printed(text: str, **weights: np.ndarray) -> str:
    model = onnx.parser.parse_model(HEAD + text)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    texts: list[str] = []
    for code in generated(model).codes:
        assert isinstance(code, CRegionCode)
        (told,) = code.texts("r7").items()
        assert told[0] == "r7.schedule.txt"
        steps = re.findall(r"^step (\d+): ", told[1], re.MULTILINE)
        assert [int(step) for step in steps] == list(range(len(code.kernels)))
        texts.append(told[1])
    return "".join(texts)


def test_a_chain_of_rows_is_one_step_with_its_reductions_and_stores() -> None:
    text = printed("(float[n, 64] x) => (float[n, 64] y) { a = Exp(x) y = Softmax(a) }")
    assert text.splitlines()[0] == "step 0: loops"
    assert re.search(r"^  for i\d+ < d:n", text, re.MULTILINE) and re.search(r"^    for \S+ < 64", text, re.MULTILINE)
    top, total = (re.search(rf"t\d+ = {kind} of %\d+", text) for kind in ("top", "sum"))
    assert top is not None and total is not None
    assert text.splitlines()[-1].startswith("      out0[")


def test_shared_expressions_are_told_once() -> None:
    doubled = " ".join(f"a{n + 1} = Add(a{n}, a{n})" for n in range(40))
    text = printed(f"(float[n] a0) => (float[n] y) {{ {doubled} y = Neg(a40) }}")
    assert text.count(" = add(") <= 40 and len(text) < 4000


def test_every_kind_of_product_says_what_it_reads() -> None:
    text = printed(
        """(float[n, 24] x, float[24, k] r, float[b, 4, 20, 8] q, float[b, 4, 8, 30] s, float[b, 4, 9, 9] i)
        => (float[n, 32] y, float[n, k] z, float[b, 4, 20, 30] p, float[b, 6, 9, 9] c, int64[e, f] at) {
        y = MatMul(x, w) z = MatMul(x, r) p = MatMul(q, s) c = Conv<pads = [1, 1, 1, 1]>(i, v) at = NonZero(x) }""",
        w=floats(24, 32), v=floats(6, 4, 3, 3),
    )  # fmt: skip
    kinds = set(re.findall(r"^step \d+: ([a-z]* ?(?:GEMM|window|function|pack))", text, re.MULTILINE))
    assert kinds == {"GEMM", "unpacked GEMM", "batched GEMM", "window", "function", "pack"}
    assert "x weights packed ahead of time" in text


def test_two_products_in_one_task_are_producer_and_consumer() -> None:
    text = printed(
        """(float[2, 4, n, 16] q, float[2, 4, 16, n] k, float[2, 4, n, 16] v) => (float[2, 4, n, 16] y) {
        a = MatMul(q, k) w = Softmax(a) y = MatMul(w, v) }"""
    )
    assert "two products in one task" in text
    assert "  producer: batched GEMM" in text and "  consumer: batched GEMM" in text


def test_names_of_a_model_are_escaped(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(HEAD + "(float[n] x) => (float[n] y) { a = Exp(x) y = Neg(a) }")
    model.graph.node[1].name = "red \x1b[31m"
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n\x1b[1m"
    (code,) = generated(model).codes
    (text,) = code.texts("r0").values()
    assert "\x1b" not in text and "red \\x1b[31m" in text and "d:n\\x1b[1m" in text


def test_a_dump_has_the_schedule_of_each_entry(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(HEAD + "(float[n] x) => (float[n] y) { a = Exp(x) y = Neg(a) }")
    options = Options(force=True, levels=("v2",), verify=False, dump=tmp_path / "dump")
    compile_to(model, tmp_path / "out", options, Config.from_env().with_(log="quiet"))
    assert (tmp_path / "dump" / "30-sources" / "r0.schedule.txt").read_text().startswith("step 0: loops")
