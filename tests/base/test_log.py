"""SMELT_LOG turns on lines of the loggers `smelt.*`; without it a program's own configuration decides."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import smelt

BUILD = """
import logging, sys
if "own" in sys.argv: logging.basicConfig(format="own %(name)s %(message)s", level=logging.INFO)
import numpy as np, onnx, smelt
from onnx import TensorProto, helper
x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy")
graph = helper.make_graph([helper.make_node("Tanh", ["x"], ["y"])], "g", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
smelt.compile(model, verify=False, force=True, levels="v2")
"""


def lines(level: str, tmp_path: Path, *arguments: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(smelt.__file__).parents[1]), "SMELT_LOG": level}
    environment["SMELT_CACHE_DIR"] = str(tmp_path / "cache")
    ran = subprocess.run(
        [sys.executable, "-c", BUILD, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout == ""
    return ran.stderr.splitlines()


def test_info_tells_what_is_compiled_and_debug_the_stages(tmp_path: Path):
    told = lines("info", tmp_path)
    assert len(told) == 2 and all(" smelt.pipeline: " in line for line in told)
    assert "compiling a model: 1 node" in told[0] and " nodes in kernels, " in told[1]
    debug = lines("debug", tmp_path)
    assert any("smelt.pipeline: passes: 0." in line for line in debug)
    assert any(line.split()[1] == "smelt.toolchain:" for line in debug)


@pytest.mark.parametrize("level", ["", "quiet"])
def test_nothing_is_told_unless_asked_for(level: str, tmp_path: Path):
    assert lines(level, tmp_path) == []


def test_a_program_with_handlers_of_its_own_gets_each_line_once(tmp_path: Path):
    for level in ("", "info"):
        told = [line for line in lines(level, tmp_path, "own") if "onnx_ir" not in line]
        assert len(told) == 2 and all(line.startswith("own smelt.pipeline ") for line in told)
