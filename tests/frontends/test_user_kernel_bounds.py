"""A user's C that reads out of range: `SMELT_BOUNDS=1` refuses it by name and line. Its results alone are right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

# What is read behind the operand changes no result: verification cannot tell without the sanitizer.
ROW = """
void shifted(const float *x, float *y, int64_t n) {
  float before = 0;
  for (int64_t i = 0; i < n; i++) { y[i] = x[i] + before; before = x[i]; }
  const volatile float seen = x[%s];
  (void)seen;
}
"""
TENSOR = """
void shifted(const smelt_array *x, smelt_array *y) {
  const float *from = x->data;
  for (int64_t i = 0; i < x->size; i++) ((float *)y->data)[i] = from[i] + (i %% x->shape[1] ? from[i - 1] : 0);
  const volatile float seen = from[%s];
  (void)seen;
}
"""
READS = {"row": (ROW, "n - 1", "n"), "tensor": (TENSOR, "x->size - 1", "x->size"), "before": (ROW, "0", "-1")}
REFERENCE = """
def shifted(x):
    y = x.copy()
    y[..., 1:] += x[..., :-1]
    return y
"""


def compiled(folder: Path, text: str, bounds: bool) -> subprocess.CompletedProcess[str]:
    """`smelt compile` of Neg, the kernel, Tanh."""
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Shifted", ["n"], ["o"], domain="my.domain"),
        helper.make_node("Tanh", ["o"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 33]) for name in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "m.onnx")
    (folder / "mine.py").write_text(f"import smelt\n\n@smelt.kernel('my.domain::Shifted', {text!r}){REFERENCE}")
    command = [sys.executable, "-m", "smelt", "compile", "m.onnx", "-q", "--levels", "v2", "--kernels", "mine.py"]
    environment = os.environ | {"SMELT_BOUNDS": "1" if bounds else "0"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("form", READS)
def test_a_read_out_of_range_is_refused(form: str, tmp_path: Path) -> None:
    text, inside, outside = READS[form]
    right = compiled(tmp_path, text % inside, bounds=True)
    assert right.returncode == 0, right.stderr
    (tmp_path / "m.smelt").rename(tmp_path / "right")
    wrong = compiled(tmp_path, text % outside, bounds=True)
    assert wrong.returncode != 0
    assert "my.domain::Shifted" in wrong.stderr and "SM-KERNEL-003" in wrong.stderr
    line = 1 + next(place for place, said in enumerate(text.splitlines()) if "seen =" in said)
    assert f"AddressSanitizer: heap-buffer-overflow at my.domain::Shifted:{line}" in wrong.stderr
    assert not (tmp_path / "m.smelt").exists()


def test_results_alone_do_not_show_it(tmp_path: Path) -> None:
    text, _, outside = READS["row"]
    unseen = compiled(tmp_path, text % outside, bounds=False)
    assert unseen.returncode == 0, unseen.stderr
