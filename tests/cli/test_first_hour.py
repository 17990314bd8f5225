"""What a newcomer meets in the first hour: mistakes cost one short message, and texts are whole."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import smelt
from smelt.base.terminal import within
from smelt.cli import doctor
from smelt.report import table
from smelt.toolchain import Cache


@pytest.fixture
def reshaping(tmp_path: Path) -> Path:
    """x[n, 8] must have 40 elements, which its shape does not tell."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["r"]), helper.make_node("Tanh", ["r"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 8])
    shape = numpy_helper.from_array(np.array([5, 8]), "shape")
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], [shape]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, tmp_path / "reshaping.onnx")
    return tmp_path / "reshaping.onnx"


@pytest.mark.parametrize("how", [["--stock"], []])
def test_a_wrong_shape_is_said_once(call: Any, reshaping: Path, how: list[str]):
    ran = call("run", reshaping, "--shapes", "x:3,8", *how)
    assert ran.code == 2
    said, given = ran.err.splitlines()
    assert "ONNX Runtime says" in said and "[E:onnxruntime" not in said
    assert given == "  inputs given: x: float32[3,8]"
    assert call("run", reshaping, "--shapes", "x:5,8", *how).code == 0


@pytest.mark.parametrize("how", ["stock", "compiled", "artifact", "verify", "bench"])
def test_inputs_that_do_not_fit_each_other_are_named(call: Any, tmp_path: Path, how: str):
    """As token ids and a mask of another length."""
    ids, mask, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", "seq"]) for n in ("ids", "mask", "y"))
    graph = helper.make_graph([helper.make_node("Mul", ["ids", "mask"], ["y"])], "g", [ids, mask], [y])
    path, out = tmp_path / "m.onnx", tmp_path / "out"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    if how in ("artifact", "verify"):
        assert call("compile", path, "-o", out, "--force", "--no-timing").code == 0
    verbs = {"artifact": ("run", out), "verify": ("verify", out, "--against", path), "bench": ("bench", path)}
    arguments = verbs.get(how, ("run", path, *(["--stock"] if how == "stock" else [])))
    ran = call(*arguments, "--shapes", "ids:2,16", "--shapes", "mask:2,12")
    assert ran.code == 2
    assert "'seq' is 16 in input 'ids' [2,16] and 12 in input 'mask' [2,12]" in ran.err
    assert "SM-INPUT-006" in ran.err and "[E:onnxruntime" not in ran.err and "broadcast" not in ran.err


def test_help_is_not_cut(call: Any):
    for arguments in (["--help"], ["cache", "--help"]):
        text = call(*arguments).out.replace("[ARGS]...", "")
        assert "..." not in text and "…" not in text


def test_tables_fit_the_terminal():
    reason = "the sizes of its second input are known only at run time, so no loop nest can be written for it"
    with within(60):
        lines = table(("op", "count", "reason"), [("GatherElements", 12, reason), ("Loop", 1, "control flow")])
    assert max(map(len, lines)) <= 60
    assert " ".join(" ".join(line[25:].split()) for line in lines[2:-1]).split() == reason.split()
    wide = table(("op", "reason"), [("GatherElements", reason)])
    assert reason in wide[-1]


def test_doctor_says_what_is_missing_in_whole_sentences(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in doctor._OPTIONAL else "99.0")
    monkeypatch.setattr(doctor, "_onnxruntime", lambda version: doctor.Finding("ok", "onnxruntime", version))
    missing = [finding.found for finding in doctor._packages() if finding.state == "remark"]
    assert len(missing) == len(doctor._OPTIONAL)
    assert all(re.fullmatch(r"not installed; it gives [a-z].*", text) for text in missing), missing


def test_the_cache_tells_what_its_entries_are(call: Any, model_path: Path, tmp_path: Path):
    call("compile", model_path, "-o", tmp_path / "out")
    cache = Cache(Path(os.environ["SMELT_CACHE_DIR"]))
    with cache.work() as folder:
        (folder / "f").write_text("{}")
        cache.put("ab" * 32, folder / "f", {"kind": "findings"}, "")
    rows = call("cache", "ls").out.splitlines()[2:]
    assert any(row.endswith("findings of verification") for row in rows)
    assert all(re.search(r"library for v\d.* by (gcc|clang|zig) [\d.]+$|findings of|sizes that", row) for row in rows)


@pytest.mark.parametrize("place", ["/proc/nowhere/out", "file/out"])
def test_an_output_that_cannot_be_written_is_said_before_the_work(
    call: Any, model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("smelt.pipeline.load_model", lambda source: pytest.fail("it began to compile"))
    ran = call("compile", model_path, "-o", tmp_path / place)
    assert ran.code == 2 and "SM-ARTIFACT-005" in ran.err and str(tmp_path / place) in ran.err


def test_an_output_without_room_is_said_before_the_work(
    call: Any, model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(100, 99, 1))
    monkeypatch.setattr("smelt.pipeline.run_passes", lambda *_, **__: pytest.fail("it began to compile"))
    ran = call("compile", model_path, "-o", tmp_path / "out")
    assert ran.code == 2 and "SM-ARTIFACT-005" in ran.err and "free" in ran.err


def test_sigterm_leaves_nothing_behind(model_path: Path, tmp_path: Path):
    slow = tmp_path / "cc"
    slow.write_text('#!/bin/sh\ncase "$*" in *out.o*) exec sleep 60;; esac\nexec gcc "$@"\n')
    slow.chmod(0o755)
    folders = [tmp_path / name for name in ("cache", "temporary", "out")]
    for folder in folders[1:]:
        folder.mkdir()
    environment = {
        **os.environ, "SMELT_CACHE_DIR": str(folders[0]), "TMPDIR": str(folders[1]), "SMELT_CC": str(slow),
        "PYTHONPATH": str(Path(smelt.__file__).parents[1]),
    }  # fmt: skip
    command = [sys.executable, "-m", "smelt", "compile", str(model_path), "-o", str(folders[2] / "artifact")]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    began = time.monotonic()
    while not list(folders[0].glob("tmp/*/*")) and time.monotonic() < began + 60 and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (143, "stopped\n")
    assert [list(folder.iterdir()) for folder in (folders[0] / "tmp", *folders[1:])] == [[], [], []]


@pytest.mark.parametrize("page", ["README.md", "docs/deployment.md"])
def test_the_snippet_that_loads_an_artifact_takes_one_without_a_library(tmp_path: Path, page: str):
    text = (Path(__file__).parents[2] / page).read_text()
    found = re.search(r"^( *)import json, onnxruntime as ort\n.*?InferenceSession\([^\n]*\n", text, re.S | re.M)
    assert found is not None
    folder = tmp_path / "out"
    folder.mkdir()
    indent = found[1]
    code = "\n".join(line.removeprefix(indent) for line in found[0].splitlines())
    code = code.replace('"my_artifact"', repr(str(folder))).replace("out/", f"{folder}/")
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Identity", ["x"], ["y"])], "g",
            *([helper.make_tensor_value_info(name, TensorProto.FLOAT, [1])] for name in "xy"),
        ), opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    onnx.save(model, folder / "model.onnx")
    (folder / "manifest.json").write_text(json.dumps({"library": None}))
    scope: dict[str, Any] = {}
    exec(code, scope)
    assert scope["session"].run(None, {"x": np.ones(1, np.float32)})[0] == 1


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ("config.json", "smelt export"),
        ("onnx/model.onnx", "onnx/model.onnx"),
        ("manifest.json", "is an artifact"),
        ("a.txt", "Name an"),
    ],
)
def test_a_folder_in_place_of_a_model_is_told_from_a_file(call: Any, tmp_path: Path, content: str, hint: str):
    (tmp_path / "given" / content).parent.mkdir(parents=True)
    (tmp_path / "given" / content).write_text("{}")
    ran = call("compile", tmp_path / "given", "-o", tmp_path / "out")
    assert ran.code == 2 and "is a folder" in ran.err and hint in ran.err


def test_a_file_that_is_not_there_is_named_once(call: Any, tmp_path: Path):
    ran = call("compile", "absent.onnx", "-o", tmp_path / "out")
    assert ran.code == 2 and ran.err.count("absent.onnx") == 1 and "No such file" in ran.err
