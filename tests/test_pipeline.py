"""The order of things: every stage leaves a dump, and a compilation can be taken up from one."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from smelt.base.config import Config
from smelt.base.errors import ArtifactError
from smelt.base.target import host_arch, host_level, levels_of
from smelt.check import standalone
from smelt.pipeline import Options, compile_to, resume_from
from smelt.runtime import Executable

X = np.random.default_rng(5).standard_normal((3, 300), np.float32)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("cache")
    folder.chmod(0o700)
    return Config.from_env({"SMELT_STRICT": "1"}).with_(cache_dir=folder, log="quiet")


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    nodes = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Add", ["a", "w"], ["y"], name="last")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 300])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 300])
    weight = numpy_helper.from_array(np.linspace(0, 1, 300, dtype=np.float32), "w")
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def dumped(model: onnx.ModelProto, config: Config, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("dumped")
    options = Options(force=True, levels=("v2",), dump=folder / "dump")
    compile_to(model, folder / "out", options, config)
    return folder / "dump", folder / "out"


def test_every_stage_is_dumped(dumped):
    dump, out = dumped
    units = {unit["name"] for unit in json.loads((dump / "30-sources" / "source.json").read_text())["units"]}
    assert {path.stem for path in dump.glob("30-sources/*.c")} == units and "glue" in units
    names = {path.relative_to(dump).as_posix() for path in dump.rglob("*") if path.is_file() and path.suffix != ".c"}
    assert names == {
        "dump.json", "00-captured.txt", "00-captured.onnx", "10-model.txt", "10-model.onnx", "20-plan.json",
        "30-sources/r0.schedule.txt", "30-sources/source.json", "40-build.json", "45-calls/r0.call",
        "50-artifact.json", "60-findings.json",
    }  # fmt: skip
    assert "Exp" in (dump / "00-captured.txt").read_text()
    plan = json.loads((dump / "20-plan.json").read_text())
    assert [node["op_type"] for node in plan["regions"][0]["nodes"]] == ["Exp", "Add"]
    assert json.loads((dump / "50-artifact.json").read_text()) == json.loads((out / "manifest.json").read_text())
    assert json.loads((dump / "60-findings.json").read_text())["rejected"] == {}


def test_a_dumped_model_holds_no_large_tensor(dumped):
    model = onnx.load(dumped[0] / "10-model.onnx", load_external_data=False)
    assert all(not tensor.raw_data for tensor in model.graph.initializer if tensor.name == "w")


def test_a_folder_with_other_things_is_not_dumped_to(model, config, tmp_path: Path):
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "20-plan.json").write_text("mine")
    with pytest.raises(ArtifactError) as caught:
        compile_to(model, tmp_path / "out", Options(dump=tmp_path / "dump"), config)
    assert caught.value.code == "SM-ARTIFACT-004"
    assert (tmp_path / "dump" / "20-plan.json").read_text() == "mine" and not (tmp_path / "out").exists()


def test_edited_sources_are_built_into_a_copy_of_the_artifact(dumped, config: Config, tmp_path: Path):
    dump, out = dumped
    unit = dump / "30-sources" / "kernels0.c"
    original = unit.read_text()
    assert "exp_f32(" in original
    try:
        unit.write_text(original.replace("exp_f32(", "neg_f32("))
        resumed = resume_from(dump, out, tmp_path / "edited", config)
    finally:
        unit.write_text(original)
    weight = np.linspace(0, 1, 300, dtype=np.float32)
    assert np.allclose(Executable.open(resumed).run({"x": X})[0], weight - X, atol=1e-6)
    assert np.allclose(Executable.open(out).run({"x": X})[0], np.exp(X) + weight, rtol=1e-5)


def test_a_region_runs_as_a_program_of_its_own(dumped, config: Config):
    program = standalone(dumped[0], 0, config)
    answer = subprocess.run(program.command, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "result: as expected" in answer.stdout and "median" in answer.stdout


def test_a_program_of_a_wrong_kernel_says_so(dumped, config: Config):
    unit = dumped[0] / "30-sources" / "kernels0.c"
    original = unit.read_text()
    try:
        unit.write_text(original.replace("exp_f32(", "neg_f32("))
        program = standalone(dumped[0], 0, config)
    finally:
        unit.write_text(original)
    answer = subprocess.run(program.command, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 1 and "DIFFERENT" in answer.stdout


def test_a_region_that_the_dump_does_not_hold_is_an_error(dumped, config: Config, tmp_path: Path):
    with pytest.raises(ArtifactError):
        standalone(dumped[0], 77, config)
    with pytest.raises(ArtifactError):
        standalone(tmp_path, 0, config)


@pytest.mark.parametrize("capped", [False, True])
def test_what_this_process_alone_runs_is_built_for_its_own_level(
    model, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capped: bool
):
    every = tuple(level.name for level in levels_of(host_arch()))
    wish = every[0] if capped else ""  # any level may be asked for then
    monkeypatch.setenv("SMELT_LEVEL", wish)
    made = compile_to(model, tmp_path / "out", Options(force=True, ephemeral=True), replace(config, level=wish))
    own = host_level()
    assert made.library is not None and own is not None
    assert tuple(made.library.targets) == (every if capped else (own.name,))
    assert np.allclose(Executable.open(made.artifact).run({"x": X})[0][0, 0], np.exp(X[0, 0]), rtol=1e-5)


def test_onnxruntime_can_optimize_the_model_first(model, config: Config, tmp_path: Path):
    options = Options(force=True, levels=("v2",), preoptimize=True, verify=False)
    result = compile_to(model, tmp_path / "out", options, config)
    assert np.allclose(Executable.open(result.artifact).run({"x": X})[0][0, 0], np.exp(X[0, 0]), rtol=1e-5)


def test_without_a_compiler_the_artifact_is_the_stock_model_and_says_so(
    model, config: Config, tmp_path: Path, monkeypatch
):
    import smelt.pipeline
    from smelt.base.errors import NoCompilerError

    def none(*_):
        raise NoCompilerError("SM-TOOL-001", "no C compiler was found")

    monkeypatch.setattr(smelt.kernels, "find_compiler", none)
    result = compile_to(model, tmp_path / "out", Options(force=True), config)
    assert result.artifact.manifest["library"] is None and any("SM-TOOL-001" in note for note in result.notes)
    assert np.allclose(Executable.open(result.artifact).run({"x": X})[0][0, 0], np.exp(X[0, 0]), rtol=1e-5)


def test_a_model_in_memory_stays_as_it_is(model, config: Config, tmp_path: Path):
    given = ir.from_proto(model)
    before = ir.to_proto(given).SerializeToString(deterministic=True)
    compile_to(given, tmp_path / "out", Options(verify=False), config)
    assert ir.to_proto(given).SerializeToString(deterministic=True) == before


def test_a_proto_keeps_the_names_of_its_tensors(config: Config, tmp_path: Path):
    """Regions are examined as models of their own, whose constants have other names, also those gone in the end."""
    given = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        g (float[1, 2, 8, 8] x) => (float[a, b, c, d] y) <float[4] s = {1, 1, 2, 2}> { y = Resize(x, , s) }""")
    for source, name in ((given, "a"), (ir.from_proto(given), "b")):
        before = given.SerializeToString(deterministic=True)
        compile_to(source, tmp_path / name, Options(force=True), config.with_(cache_dir=_empty(tmp_path / f"{name}c")))
        assert given.SerializeToString(deterministic=True) == before


def _empty(folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    return folder
