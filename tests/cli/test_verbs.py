from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from tests.cli.conftest import own_levels, small_model
from tests.report.conftest import HOSTILE

from smelt.check.inputs import fill, make_recipes
from smelt.check.judge import Judge
from smelt.cli.verify import _as_compiled
from smelt.ir.load import load_model
from smelt.runtime import read_manifest


@pytest.fixture(scope="module")
def compiled(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model, compiled and verified once."""
    import smelt
    from smelt.base import Config

    folder = tmp_path_factory.mktemp("compiled") / "out"
    config = Config.from_env().with_(cache_dir=cache_dir, verify=True)
    smelt.compile(small_model(), folder, config=config, levels=own_levels()).close()
    return folder


@pytest.fixture
def artifact(compiled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(compiled, tmp_path / "out"))


def test_quiet_compile_prints_the_folder_alone(call, model_path: Path, tmp_path: Path):
    assert call("compile", model_path, "-o", tmp_path / "out", "-q", "--no-verify").out == f"{tmp_path / 'out'}\n"


def test_compile_prints_ops_regions_stages_verdict_and_the_folder(
    call, model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SMELT_VERIFY", "1")
    ran = call("compile", model_path, "-o", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert "4 of 4 nodes in kernels (100.0%), 1 region" in ran.out
    for word in ("original", "in kernels", "fallback", "Tanh", "build", "verified: 1 region"):
        assert word in ran.out
    assert ran.out.endswith(f"{tmp_path / 'out'}\n")
    assert (tmp_path / "out" / "manifest.json").is_file()


LOOP = """<ir_version: 9, opset_import: ["" : 18]> g (float[3, 8] x, int64 trips) => (float[3, 8] y) {
    on = Constant<value = bool {1}>()
    y = Loop(trips, on, x) <body = b (int64 i, bool c, float[p, q] acc) => (bool d, float[p, q] next) {
        d = Identity(c)  t = Tanh(acc)  s = Mul(t, acc)  next = Add(s, x) }> }"""


def test_regions_in_the_body_of_a_loop_are_named_as_such(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SMELT_VERIFY", "1")
    onnx.save(onnx.parser.parse_model(LOOP), tmp_path / "loop.onnx")
    ran = call("compile", tmp_path / "loop.onnx", "-o", tmp_path / "out")
    assert "in Loop: Tanh, Mul, Add" in ran.out
    assert "verified: 1 region, worst error" in ran.out


def test_compile_writes_beside_the_model_by_default(call, model_path: Path):
    assert call("compile", model_path, "--no-verify").code == 0
    assert (model_path.parent / "small.smelt" / "model.onnx").is_file()


def test_compile_as_json_is_one_document(call, model_path: Path, tmp_path: Path):
    facts = json.loads(call("compile", model_path, "-o", tmp_path / "out", "--no-verify", "--json").out)
    assert facts["summary"]["in_kernels"] == 4
    assert facts["artifact"] == str(tmp_path / "out")
    assert {stage for stage, _ in facts["stages"]} >= {"load", "passes", "build", "save"}


def test_excluded_nodes_are_left_with_a_reason(call, model_path: Path, tmp_path: Path):
    arguments = ("compile", model_path, "-o", tmp_path / "out", "--exclude", "Tanh", "--force", "--no-verify", "--json")
    facts = json.loads(call(*arguments).out)
    assert facts["summary"]["fallbacks"] == 1
    assert facts["reasons"][0]["ops"] == [["Tanh", 1]]


def test_run_gives_the_same_as_stock_and_writes_files(call, artifact: Path, model_path: Path, tmp_path: Path):
    x = np.linspace(-3, 3, 40, dtype=np.float32).reshape(5, 8)
    np.save(tmp_path / "x.npy", x)
    ran = call("run", artifact, "--input", f"x={tmp_path / 'x.npy'}", "-o", tmp_path / "results")
    assert ran.code == 0, ran.err
    (expected,) = onnxruntime.InferenceSession(str(model_path)).run(None, {"x": x})
    np.testing.assert_allclose(np.load(tmp_path / "results" / "output_0.npy"), expected, rtol=1e-5)
    assert json.loads((tmp_path / "results" / "outputs.json").read_text()) == [{"name": "y", "file": "output_0.npy"}]


@pytest.mark.parametrize("extra", [(), ("--stock",)])
def test_run_takes_a_model(call, model_path: Path, extra: tuple[str, ...]):
    facts = json.loads(call("run", model_path, "--shapes", "x:3,8", "--json", *extra).out)
    assert facts["outputs"][0]["shape"] == "[3, 8]"


def test_verify_passes_for_its_own_model(call, artifact: Path, model_path: Path):
    ran = call("verify", artifact, "--against", model_path, "--runs", "2")
    assert ran.code == 0, ran.out + ran.err
    assert ran.out.endswith("verified\n")


def test_verify_says_what_compilation_said_on_the_same_inputs(call, artifact: Path, model_path: Path):
    facts = json.loads(call("verify", artifact, "--against", model_path, "--json").out)
    assert facts["right"] and not facts["notes"]
    compared = read_manifest(artifact)["verified"]["compared"]
    assert facts["runs"][0]["inputs"] == "as compiled"
    assert len(facts["runs"]) == 1 + len(compared["bindings"]) > 1


def test_verify_makes_the_same_inputs_whatever_the_order_of_the_manifest(tmp_path: Path, monkeypatch):
    """Names in a manifest are sorted, the inputs of this model are not."""
    path = tmp_path / "two.onnx"
    text = '<ir_version: 9, opset_import: ["" : 17]> g (float[4] z, float[4] a) => (float[4] y) { y = Sub(z, a) }'
    onnx.save(onnx.parser.parse_model(text), path)
    model = load_model(path)
    recipes = make_recipes(model, "small", 0)
    made = {name: recipes[name].plain() for name in sorted(recipes)}
    compared = {"made": made, "seed": 0, "given": {}, "dims": {}, "bindings": []}
    monkeypatch.setattr("smelt.runtime.read_manifest", lambda _: {"verified": {"compared": compared}})
    ((_, feeds, _),) = _as_compiled(tmp_path, model, Judge(path, "model", ["Sub"]), [])
    for name, array in fill(recipes).items():
        np.testing.assert_array_equal(feeds[name], array)


def test_verify_takes_inputs_and_tolerances_of_the_users_own(call, artifact: Path, model_path: Path, tmp_path: Path):
    np.savez(tmp_path / "data.npz", x=np.ones((3, 8), np.float32))
    given = ("verify", artifact, "--against", model_path, "--inputs", tmp_path / "data.npz", "--json")
    facts = json.loads(call(*given, "--rtol", "1e-3").out)
    assert [row["inputs"] for row in facts["runs"]] == ["call 1"] and facts["right"]
    ran = call(*given, "--rtol", "0", "--atol", "0")
    assert ran.code == 1, "float32 is not float64"


def test_compile_takes_inputs_and_shapes_and_says_what_the_model_wants(call, model_path: Path, tmp_path: Path):
    np.savez(tmp_path / "bad.npz", z=np.ones((3, 8), np.float32))
    ran = call("compile", model_path, "-o", tmp_path / "out", "--inputs", tmp_path / "bad.npz")
    assert ran.code == 2 and "no input 'z'" in ran.err and "x: float" in ran.err
    ran = call("compile", model_path, "-o", tmp_path / "out", "--shapes", "x:3,9")
    assert ran.code == 2 and "x: float" in ran.err


def test_verify_finds_another_models_results(call, artifact: Path, tmp_path: Path):
    onnx.save(small_model("Relu"), tmp_path / "other.onnx")
    ran = call("verify", artifact, "--against", tmp_path / "other.onnx", "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["right"] is False


def test_verify_refuses_an_altered_library(call, artifact: Path, model_path: Path):
    (library,) = artifact.glob("*.so")
    library.write_bytes(library.read_bytes() + b"x")
    ran = call("verify", artifact, "--against", model_path)
    assert (ran.code, "SM-ARTIFACT-002" in ran.err) == (2, True)


def test_explain_writes_text_and_a_page_and_leaves_nothing_else(call, model_path: Path, tmp_path: Path):
    before = set(model_path.parent.iterdir())
    ran = call("explain", model_path, "--no-verify", "--html", tmp_path / "page.html")
    assert ran.code == 0, ran.err
    assert "4 of 4 nodes in kernels" in ran.out
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "kernels0.c" in page
    assert set(model_path.parent.iterdir()) - before == {tmp_path / "page.html"}


def test_explain_profiles_regions_and_stock(call, model_path: Path):
    ran = call("explain", model_path, "--no-verify", "--profile", "--shapes", "x:64,8", "--json")
    facts = json.loads(ran.out)
    assert facts["times"]["shapes"] == "x:64,8"
    assert facts["regions"][0]["time_us"] > 0
    assert facts["regions"][0]["bound_us"] > 0
    kernels = facts["regions"][0]["kernels"]
    assert sum(kernel["time_us"] or 0.0 for kernel in kernels) > 0 and kernels[0]["bound_us"] > 0
    assert facts["summary"]["time_share"] == 1.0
    assert facts["times"]["stock"]


def test_explain_of_an_artifact_tells_its_manifest(call, artifact: Path, model_path: Path):
    ran = call("explain", artifact, "--profile", "--against", model_path)
    assert ran.code == 0, ran.err
    assert "4 of 4 nodes in kernels" in ran.out
    assert "verified: 1 region" in ran.out
    assert "stock model" in ran.out


def test_hostile_names_pass_through_every_verb_escaped(call, tmp_path: Path):
    path, page = tmp_path / "hostile.onnx", tmp_path / "page.html"
    onnx.save(small_model(names=(HOSTILE[0], HOSTILE[2], HOSTILE[3])), path)
    for arguments in (
        ("inspect", path),
        ("print", path),
        ("find", path, "*"),
        ("explain", path, "--no-verify", "--html", page, "-v"),
    ):
        ran = call(*arguments)
        assert ran.code == 0, ran.err
        assert all(line.isprintable() for line in ran.out.split("\n")), arguments[0]
    assert "<script>alert" not in page.read_text(encoding="utf-8")


def test_inspect_tells_interface_ops_and_sizes(call, model_path: Path):
    facts = json.loads(call("inspect", model_path, "--json").out)
    assert facts["inputs"] == ["x: float[n, 8]"]
    assert facts["ops"] == {"Add": 1, "Mul": 1, "Sigmoid": 1, "Tanh": 1}
    assert facts["parameters"] == [{"dtype": "float", "count": 1, "bytes": 4}]
    assert facts["opsets"] == {"ai.onnx": 17}


def test_inspect_counts_weights_that_are_constant_nodes(call, tmp_path: Path):
    held = onnx.numpy_helper.from_array(np.ones((3, 5), np.float32), "w")
    nodes = [onnx.helper.make_node("Constant", [], ["w"], value=held), onnx.helper.make_node("Add", ["x", "w"], ["y"])]
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3, 5]) for name in "xy")
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x], [y])), tmp_path / "m.onnx")
    facts = json.loads(call("inspect", tmp_path / "m.onnx", "--json").out)
    assert facts["parameters"] == [{"dtype": "float", "count": 15, "bytes": 60}]


def test_inspect_of_an_artifact_shows_the_manifest(call, artifact: Path):
    ran = call("inspect", artifact)
    assert ran.code == 0
    assert "nodes: 4 of 4 in kernels" in ran.out
    assert "digest right" in ran.out


def test_print_gives_one_line_per_node(call, model_path: Path):
    lines = call("print", model_path).out.splitlines()
    assert sum(" = " in line and "const" not in line for line in lines) == 4


def test_find_matches_as_select_does(call, model_path: Path):
    assert json.loads(call("find", model_path, "Tanh", "sca*", "--json").out)["count"] == 2
    assert json.loads(call("find", model_path, "b", "--values", "--json").out)["count"] == 2
    assert call("find", model_path, "nothing").code == 1


def test_optimize_writes_a_plain_model_that_gives_the_same(call, tmp_path: Path):
    model = small_model()
    model.graph.node.insert(0, onnx.helper.make_node("Identity", ["x"], ["same"]))
    model.graph.node[1].input[0] = "same"
    onnx.save(model, tmp_path / "in.onnx")
    facts = json.loads(call("optimize", tmp_path / "in.onnx", "-o", tmp_path / "out.onnx", "--json").out)
    assert (facts["before"].get("Identity"), facts["after"].get("Identity")) == (1, None)
    feeds = {"x": np.ones((2, 8), np.float32)}
    results = [
        onnxruntime.InferenceSession(str(tmp_path / name)).run(None, feeds)[0] for name in ("in.onnx", "out.onnx")
    ]
    np.testing.assert_allclose(*results, rtol=1e-6)


def test_weights_go_and_come_back(call, tmp_path: Path):
    weight = helper.make_tensor("w", TensorProto.FLOAT, [40, 40], [float(i % 7) for i in range(1600)])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 40])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 40])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    facts = json.loads(call("lighten", tmp_path / "m.onnx", "-o", tmp_path / "light.onnx", "--json").out)
    assert facts["tensors"] == ["w"] and facts["bytes"] < 1600
    assert not (tmp_path / "light.onnx.data").exists()
    given = ("--from", tmp_path / "m.onnx")
    assert call("unlighten", tmp_path / "light.onnx", "-o", tmp_path / "back.onnx", *given).code == 0
    (back,) = onnx.load(tmp_path / "back.onnx").graph.initializer
    assert np.array_equal(onnx.numpy_helper.to_array(back).ravel(), np.arange(1600) % 7)
    assert call("unlighten", tmp_path / "m.onnx", "-o", tmp_path / "no.onnx").code == 2


def test_optimize_takes_a_selector_and_tells_what_was_applied(call, tmp_path: Path):
    listed = call("optimize", "--list-patterns")
    assert listed.code == 0 and "recompose-gelu" in listed.out and "ort-attention" in listed.out
    model = small_model()
    model.graph.node.insert(0, onnx.helper.make_node("Identity", ["x"], ["same"]))
    model.graph.node[1].input[0] = "same"
    onnx.save(model, tmp_path / "in.onnx")
    words = ("optimize", tmp_path / "in.onnx", "-o", tmp_path / "out.onnx")
    facts = json.loads(call(*words, "--json", "--dump-patterns", tmp_path / "places").out)
    (row,) = [row for row in facts["passes"] if row["name"] == "eliminate-identity"]
    assert row["count"] == 1 and row["seconds"] > 0
    assert any("Identity" in path.read_text() for path in (tmp_path / "places").glob("*-eliminate-identity.txt"))
    facts = json.loads(call(*words, "--json", "--patterns", "default-eliminate-identity").out)
    assert facts["after"].get("Identity") == 1
    assert call(*words, "--patterns", "defaul").code == 2
    assert call(*words, "--patterns", "default", "--pass", "fold-constants").code == 2


def test_optimize_fixes_sizes(call, model_path: Path, tmp_path: Path):
    assert call("optimize", model_path, "-o", tmp_path / "out.onnx", "--dims", "n=4").code == 0
    shape = onnx.load(tmp_path / "out.onnx").graph.input[0].type.tensor_type.shape
    assert [dim.dim_value for dim in shape.dim] == [4, 8]


def test_the_cache_is_listed_shown_and_cleared(call, model_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SMELT_CACHE_DIR", str(tmp_path / "cache"))
    assert call("compile", model_path, "--no-verify").code == 0
    entries = json.loads(call("cache", "ls", "--json").out)["entries"]
    assert entries
    assert json.loads(call("cache", "info", entries[0]["key"][:12], "--json").out)["sha256"] == entries[0]["sha256"]
    assert json.loads(call("cache", "clear", "--older-than", "7d", "--json").out)["freed_bytes"] == 0
    assert call("cache", "clear").out.startswith("freed ")
    assert json.loads(call("cache", "info", "--json").out)["entries"] == 0


def test_an_error_code_is_explained(call):
    ran = call("explain-error", "sm-load-003")
    assert ran.out.startswith("SM-LOAD-003: External data is refused")
    assert len(json.loads(call("explain-error", "--json").out)["errors"]) > 20


def test_a_fit_machine_is_found_fit(call):
    ran = call("doctor")
    assert ran.code == 0, ran.out
    assert "compiler used" in ran.out
    assert "!!" not in ran.out


def test_a_broken_compiler_is_found_with_its_fix(call, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SMELT_CC", "/nonexistent/cc")
    ran = call("doctor", "-q")
    assert ran.code == 1
    assert "!!  compiler used" in ran.out
    assert "fix:" in ran.out


def test_an_unsafe_cache_is_found_with_its_fix(call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("SMELT_CACHE_DIR", str(tmp_path / "open"))
    findings = json.loads(call("doctor", "--json").out)["findings"]
    (cache,) = [finding for finding in findings if finding["what"] == "cache"]
    assert (cache["state"], "chmod" in cache["fix"]) == ("broken", True)


def test_a_knob_that_cannot_be_read_is_found(call, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SMELT_JOBS", "many")
    ran = call("doctor")
    assert (ran.code, "SMELT_JOBS" in ran.out) == (1, True)
