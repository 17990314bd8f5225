"""Programs that make ONNX Runtime sessions get compiled models, and stock wherever that cannot be."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import smelt
from smelt.base.config import Config
from smelt.frontends.session.compiled import Wanted, artifact_for
from smelt.frontends.session.store import Store

SRC = Path(smelt.__file__).parents[1]
X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(3, 8)


def mlp(seed: int = 0) -> onnx.ModelProto:
    rng = np.random.default_rng(seed)
    weights = [numpy_helper.from_array(rng.standard_normal((8, 8)).astype(np.float32), name) for name in ("w", "v")]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Gelu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in ("x", "y"))
    graph = helper.make_graph(nodes, "mlp", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    model.producer_name = "somebody"
    model.metadata_props.add(key="labels", value="a,b,c")
    return model


@pytest.fixture(scope="module")
def objects(tmp_path_factory) -> Path:
    """Kernels that no model changes, compiled once for all tests."""
    folder = tmp_path_factory.mktemp("objects") / "cache"
    config = Config.from_env({**os.environ, "SMELT_CACHE_DIR": str(folder), "SMELT_LEVELS": "v3"})
    smelt.compile(mlp(), config=config).close()
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch, objects) -> Path:
    folder = tmp_path / "cache"
    shutil.copytree(objects, folder)
    monkeypatch.setenv("SMELT_CACHE_DIR", str(folder))
    monkeypatch.setenv("SMELT_LEVELS", "v3")
    return folder


@pytest.fixture
def saved(tmp_path) -> Path:
    path = tmp_path / "mlp.onnx"
    onnx.save(mlp(), path)
    return path


@pytest.fixture
def hook():
    yield
    smelt.uninstall()


def stock(model: Path | bytes) -> np.ndarray:
    source = model if isinstance(model, bytes) else str(model)
    return ort.InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, {"x": X})[0]


def compiled(session: ort.InferenceSession) -> bool:
    """Whether a custom op of smelt is in the session's graph: its library was registered with the options."""
    return "smelt_" in Path("/proc/self/maps").read_text() and session._sess_options is not None


def left_over(cache: Path) -> list[Path]:
    return list((cache / "tmp").iterdir())


def test_options_load_an_artifact(cache, saved, tmp_path):
    with smelt.compile(saved, tmp_path / "out"):
        pass
    base = ort.SessionOptions()
    base.intra_op_num_threads = 1
    options = smelt.session_options(tmp_path / "out", base)
    assert options is base
    smelt.session_options(tmp_path / "out", base)  # once more does not register it twice
    session = ort.InferenceSession(str(tmp_path / "out" / "model.onnx"), options)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], stock(saved), rtol=1e-5, atol=1e-5)


def test_a_session_compiles_once_and_is_the_same_to_its_user(cache, saved):
    wanted = stock(saved)
    for _ in range(2):
        session = smelt.InferenceSession(saved, providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(["y"], {"x": X})[0], wanted, rtol=1e-5, atol=1e-5)
    assert isinstance(session, ort.InferenceSession)
    assert [i.name for i in session.get_inputs()] == ["x"] and session.get_inputs()[0].shape == ["n", 8]
    assert session.get_modelmeta().custom_metadata_map == {"labels": "a,b,c"}
    assert session.get_modelmeta().producer_name == "somebody"
    assert session._model_path == str(saved)
    assert compiled(session)
    assert len([p for p in (cache / "session").iterdir() if p.name != "known"]) == 1
    assert left_over(cache) == []


def test_bytes_and_artifacts_are_models_too(cache, saved, tmp_path):
    wanted = stock(saved)
    session = smelt.InferenceSession(saved.read_bytes())
    np.testing.assert_allclose(session.run(None, {"x": X})[0], wanted, rtol=1e-5, atol=1e-5)
    with smelt.compile(saved, tmp_path / "out"):
        pass
    for place in (tmp_path / "out", tmp_path / "out" / "model.onnx"):
        np.testing.assert_allclose(smelt.InferenceSession(place).run(None, {"x": X})[0], wanted, rtol=1e-5, atol=1e-5)


def test_a_model_that_changed_on_disk_is_another_model(cache, saved):
    smelt.InferenceSession(saved)
    onnx.save(mlp(seed=1), saved)
    np.testing.assert_allclose(smelt.InferenceSession(saved).run(None, {"x": X})[0], stock(saved), rtol=1e-5, atol=1e-5)


def test_external_data_count_as_the_model(cache, tmp_path):
    path = tmp_path / "big.onnx"
    for seed in (0, 1):
        onnx.save(mlp(seed), path, save_as_external_data=True, location="big.data", size_threshold=0)
        found = smelt.InferenceSession(path).run(None, {"x": X})[0]
        np.testing.assert_allclose(found, stock(path), rtol=1e-5, atol=1e-5)


def test_the_hook_reaches_subclasses_and_early_imports(cache, saved, hook):
    from onnxruntime import InferenceSession

    class Theirs(InferenceSession):
        def __init__(self, path):
            super().__init__(path, providers=["CPUExecutionProvider"])

    original, wanted = InferenceSession.__init__, stock(saved)
    smelt.install()
    for session in (InferenceSession(str(saved)), Theirs(str(saved))):
        np.testing.assert_allclose(session.run(None, {"x": X})[0], wanted, rtol=1e-5, atol=1e-5)
        assert session._sess_options is not None  # the library is registered there
    smelt.uninstall()
    assert InferenceSession.__init__ is original


def stock_reason(caplog) -> str:
    lines = [r.getMessage() for r in caplog.records if "stock ONNX Runtime" in r.getMessage()]
    assert len(lines) == 1, lines
    return lines[0]


def saving_options(tmp_path):
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    return options


def plain_options(tmp_path):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


@pytest.mark.parametrize(("make", "why"), [(saving_options, "saved"), (plain_options, "switched off")])
def test_what_asks_for_stock_gets_stock(cache, saved, tmp_path, caplog, make, why):
    session = smelt.InferenceSession(saved, make(tmp_path))
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], stock(saved))
    assert why in stock_reason(caplog)


def test_skipped_models_and_a_model_that_nobody_loads(cache, saved, tmp_path, hook, caplog):
    smelt.install(skip=("*mlp*",))
    ort.InferenceSession(str(saved))
    assert not (cache / "session").exists()
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(Exception, match=r"bad\.onnx|[Pp]rotobuf"):
        ort.InferenceSession(str(tmp_path / "bad.onnx"))
    with pytest.raises(Exception, match=r"exist"):
        ort.InferenceSession(str(tmp_path / "absent.onnx"))


def test_a_time_limit_means_stock_and_leaves_nothing(cache, saved, caplog):
    session = smelt.InferenceSession(saved, compile_limit_s=0.05)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], stock(saved))
    assert "not compiled within" in stock_reason(caplog)
    assert left_over(cache) == []
    caplog.clear()
    smelt.InferenceSession(saved)  # it is remembered: nobody waits twice
    assert "not compiled within" in stock_reason(caplog)


def test_a_cache_that_others_can_write_means_stock(cache, saved, caplog):
    cache.chmod(0o777)
    session = smelt.InferenceSession(saved)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], stock(saved))
    assert "SM-CACHE" in stock_reason(caplog)


def test_an_altered_library_means_stock(cache, saved, caplog):
    smelt.InferenceSession(saved)
    library = next((cache / "session").glob("*/artifact/*.so"))
    library.write_bytes(library.read_bytes() + b"x")
    session = smelt.InferenceSession(saved)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], stock(saved))
    assert "does not load" in stock_reason(caplog)


def test_the_background_compiles_for_later_sessions(cache, saved, caplog):
    config = Config.from_env()
    first = artifact_for(saved, Wanted(0.0), config)
    assert first.folder is None and "background" in first.reason
    later = artifact_for(saved, Wanted(120.0), config)
    assert later.folder is not None


PROGRAM = """
import sys, numpy as np
from onnxruntime import InferenceSession
session = InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(3, 8)
print("smelt_" in open("/proc/self/maps").read(), float(session.run(None, {"x": x})[0].sum()))
"""


def program(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(textwrap.dedent(PROGRAM))
    return path


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SRC)}


def test_exec_runs_a_program_unchanged(cache, saved, tmp_path):
    app = [sys.executable, str(program(tmp_path)), str(saved)]
    plain = subprocess.run(app, capture_output=True, text=True, env=environment(), check=True).stdout.split()
    command = [sys.executable, "-m", "smelt", "exec", "--limit", "100", "--", *app]
    hooked = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True).stdout.split()
    assert (plain[0], hooked[0]) == ("False", "True")
    np.testing.assert_allclose(float(hooked[1]), float(plain[1]), rtol=1e-4)


def test_exec_names_a_program_that_is_not_there():
    command = [sys.executable, "-m", "smelt", "exec", "--", "no-such-program"]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert ran.returncode == 2 and "no program 'no-such-program'" in ran.stderr


def test_one_of_many_processes_compiles(cache, saved, tmp_path):
    command = [sys.executable, "-m", "smelt", "exec", "--limit", "200", "--"]
    command += [sys.executable, str(program(tmp_path)), str(saved)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) for _ in range(4)]
    answers = [process.communicate(timeout=250)[0].split() for process in running]
    assert {answer[0] for answer in answers} == {"True"}
    assert len({answer[1] for answer in answers}) == 1
    store = Store(Config.from_env())
    assert len([p for p in store.root.iterdir() if p.name != "known"]) == 1
    assert left_over(cache) == []


def test_a_program_without_the_hook_logs_nothing(cache, saved, caplog):
    with caplog.at_level(logging.DEBUG, logger="smelt"):
        ort.InferenceSession(str(saved))
    assert [r for r in caplog.records if r.name.startswith("smelt")] == []
