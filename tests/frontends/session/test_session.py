"""Programs that make ONNX Runtime sessions get compiled models, and stock wherever that cannot be."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import smelt
from smelt.base.config import Config
from smelt.base.cpus import Cpus
from smelt.cli import doctor
from smelt.frontends.session import store
from smelt.frontends.session.compiled import artifact_for
from smelt.frontends.session.found import Wanted
from smelt.frontends.session.identity import digest_of
from smelt.frontends.session.store import Store
from smelt.toolchain import Cache

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


def test_bindings_run_options_and_values_work_as_in_stock(cache, saved):
    session = smelt.InferenceSession(saved)
    options = ort.RunOptions()
    options.logid = "mine"
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding, options)
    found = [binding.copy_outputs_to_cpu()[0], session.run(None, {"x": X}, options)[0]]
    found.append(session.run_with_ort_values(["y"], {"x": ort.OrtValue.ortvalue_from_numpy(X)})[0].numpy())
    assert compiled(session)
    for answer in found:
        np.testing.assert_allclose(answer, stock(saved), rtol=1e-5, atol=1e-5)


def test_bytes_and_artifacts_are_models_too(cache, saved, tmp_path):
    wanted = stock(saved)
    session = smelt.InferenceSession(saved.read_bytes())
    np.testing.assert_allclose(session.run(None, {"x": X})[0], wanted, rtol=1e-5, atol=1e-5)
    with smelt.compile(saved, tmp_path / "out"):
        pass
    for place in (tmp_path / "out", tmp_path / "out" / "model.onnx"):
        np.testing.assert_allclose(smelt.InferenceSession(place).run(None, {"x": X})[0], wanted, rtol=1e-5, atol=1e-5)


def test_a_call_that_feeds_a_weight_runs_on_stock(cache, tmp_path):
    model = mlp()
    model.graph.input.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 8]) for name in "wv")
    path = tmp_path / "listed.onnx"
    onnx.save(model, path)
    session = smelt.InferenceSession(path)
    assert compiled(session)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], stock(path), rtol=1e-4, atol=1e-5)
    other = np.eye(8, dtype=np.float32)
    (found,) = session.run(["y"], {"x": X, "v": other})
    expected = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": X, "v": other})[0]
    np.testing.assert_array_equal(found, expected)
    assert {argument.name for argument in session.get_overridable_initializers()} == {"w", "v"}
    np.testing.assert_allclose(session.run(None, {"x": X})[0], stock(path), rtol=1e-4, atol=1e-5)


def test_a_model_that_changed_on_disk_is_another_model(cache, saved):
    smelt.InferenceSession(saved)
    onnx.save(mlp(seed=1), saved)
    np.testing.assert_allclose(smelt.InferenceSession(saved).run(None, {"x": X})[0], stock(saved), rtol=1e-5, atol=1e-5)


def test_other_sources_of_smelt_take_no_old_artifact(cache, monkeypatch):
    first = Store(Config.from_env()).key("ab" * 32, {})
    assert Store(Config.from_env()).key("ab" * 32, {}) == first
    monkeypatch.setattr(store, "compiling_sources", lambda known: "other sources")
    assert Store(Config.from_env()).key("ab" * 32, {}) != first


def test_external_data_count_as_the_model(cache, tmp_path):
    path = tmp_path / "big.onnx"
    for seed in (0, 1):
        onnx.save(mlp(seed), path, save_as_external_data=True, location="big.data", size_threshold=0)
        found = smelt.InferenceSession(path).run(None, {"x": X})[0]
        np.testing.assert_allclose(found, stock(path), rtol=1e-5, atol=1e-5)


def test_external_data_that_come_later_or_through_links_count_too(tmp_path):
    """As a cache of downloads has them: links in a folder, the files themselves elsewhere and under other names."""
    (tmp_path / "memo").mkdir()
    seen = set()
    for seed in (0, 1):
        files, links = tmp_path / f"files{seed}", tmp_path / f"links{seed}"
        for folder in (files, links):
            folder.mkdir()
        onnx.save(mlp(seed), files / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
        (files / "m.data").rename(files / "other")
        (links / "m.onnx").symlink_to(files / "m.onnx")
        seen.add(digest_of(links / "m.onnx", tmp_path / "memo"))  # the same twice: no data yet
        (links / "m.data").symlink_to(files / "other")
        found = digest_of(links / "m.onnx", tmp_path / "memo")
        assert found == digest_of(links / "m.onnx", tmp_path / "memo")
        seen.add(found)
    assert len(seen) == 3


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
    begun = time.monotonic()
    smelt.InferenceSession(saved, compile_limit_s=0.05)  # it is remembered: nobody waits twice
    assert "not compiled within 0.05 s" in stock_reason(caplog) and time.monotonic() - begun < 5
    caplog.clear()
    smelt.InferenceSession(saved)  # but a longer limit is another attempt
    assert [r for r in caplog.records if "stock ONNX Runtime" in r.getMessage()] == []


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


def test_exec_tells_how_a_script_is_run(tmp_path):
    (tmp_path / "app.py").write_text("")
    command = [sys.executable, "-m", "smelt", "exec", "app.py", "now"]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False, cwd=tmp_path)
    assert ran.returncode == 2 and "`smelt exec -- python app.py now`?" in ran.stderr


def test_a_wrong_switch_is_said_once_and_means_stock(cache, saved, tmp_path):
    """In a virtual environment Python runs each .pth file twice."""
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(SRC / "smelt_hook.pth", site)
    twice = f"import site; [site.addsitedir({str(site)!r}) for _ in range(2)]"
    command = [sys.executable, "-c", f"{twice}; exec(open({str(program(tmp_path))!r}).read())", str(saved)]
    for name, value in (("SMELT_HOOK", "yes"), ("SMELT_HOOK_LIMIT", "long")):
        environ = {**environment(), "SMELT_HOOK": "on", name: value}
        ran = subprocess.run(command, capture_output=True, text=True, env=environ, check=True)
        assert ran.stdout.split()[0] == "False"
        assert ran.stderr.count(f"{name}={value!r} is not") == 1


def test_one_of_two_processes_compiles(cache, saved, tmp_path):
    command = [sys.executable, "-m", "smelt", "exec", "--limit", "200", "--"]
    command += [sys.executable, str(program(tmp_path)), str(saved)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) for _ in range(2)]
    answers = [process.communicate(timeout=250)[0].split() for process in running]
    assert {answer[0] for answer in answers} == {"True"}
    assert len({answer[1] for answer in answers}) == 1
    kept = Store(Config.from_env()).root
    assert len([p for p in kept.iterdir() if p.name != "known"]) == 1
    assert left_over(cache) == []


def test_a_program_without_the_hook_logs_nothing(cache, saved, caplog):
    with caplog.at_level(logging.DEBUG, logger="smelt"):
        ort.InferenceSession(str(saved))
    assert [r for r in caplog.records if r.name.startswith("smelt")] == []


def test_a_session_in_a_container_has_as_many_threads_as_its_quota(cache, saved, monkeypatch, caplog):
    limited = Cpus(2, 64, 64, 2.0)
    monkeypatch.setattr("smelt.frontends.session.session.usable_cpus", lambda: limited)
    monkeypatch.setattr("smelt.runtime.session.usable_cpus", lambda: limited)
    with caplog.at_level(logging.INFO, logger="smelt.session"):
        session = smelt.InferenceSession(saved)
        assert session.get_session_options().intra_op_num_threads == 2
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        assert smelt.InferenceSession(saved, options).get_session_options().intra_op_num_threads == 1
    told = [r.getMessage().partition("threads: ")[2] for r in caplog.records if "compiled kernels" in r.getMessage()]
    assert told == ["2 (the cgroup's quota is 2 of 64 CPUs)", "1 (its options)"]


def opted_out(tmp_path):
    options = ort.SessionOptions()
    options.add_session_config_entry("smelt.stock", "1")
    return options


EYE = ort.OrtValue.ortvalue_from_numpy(np.eye(8, dtype=np.float32))  # it must outlive its sessions


def replaced_weights(tmp_path):
    options = ort.SessionOptions()
    options.add_initializer("w", EYE)
    return options


@pytest.mark.parametrize(("make", "why"), [(opted_out, "smelt.stock"), (replaced_weights, "initializers are replaced")])
def test_sessions_that_opt_out_are_stocks(cache, saved, tmp_path, caplog, make, why):
    expected = ort.InferenceSession(str(saved), make(tmp_path)).run(None, {"x": X})[0]
    found = smelt.InferenceSession(saved, make(tmp_path)).run(None, {"x": X})[0]
    np.testing.assert_array_equal(found, expected)
    assert why in stock_reason(caplog)


def test_models_in_memory_can_be_skipped(cache, saved, hook):
    smelt.install(skip=("<memory>",))
    ort.InferenceSession(saved.read_bytes())
    assert not (cache / "session").exists()


def test_one_library_is_registered_once_wherever_it_lies(cache, saved, tmp_path):
    with smelt.compile(saved, tmp_path / "one"):
        pass
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    options = ort.SessionOptions()
    for name in ("one", "two"):
        smelt.session_options(tmp_path / name, options)
    session = ort.InferenceSession(str(tmp_path / "two" / "model.onnx"), options)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], stock(saved), rtol=1e-5, atol=1e-5)


FORKING = """
import os, sys, numpy as np, onnxruntime as ort, smelt
smelt.install(limit_s=200)
x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(3, 8)
def answer():
    session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    return "smelt_" in open("/proc/self/maps").read(), float(session.run(None, {"x": x})[0].sum())
children = []
for _ in range(2):
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, repr(answer()).encode())
        os._exit(0)
    children.append(read)
print(len({os.read(read, 100) for read in children} | {repr(answer()).encode()}), answer()[0])
"""


def test_a_fork_after_the_hook_has_it_too(cache, saved):
    ran = subprocess.run(
        [sys.executable, "-c", FORKING, str(saved)], capture_output=True, text=True, env=environment(), check=True
    )
    assert ran.stdout.split() == ["1", "True"]


def test_a_compiler_that_hangs_is_ended_with_the_limit(cache, saved, tmp_path, monkeypatch, caplog):
    shutil.rmtree(cache / "obj")  # so that there is something to compile
    shutil.rmtree(cache / "lib")
    marker = f"3{os.getpid()}"
    slow = tmp_path / "cc"
    slow.write_text(f'#!/bin/sh\ncase "$*" in *out.o*) sleep {marker};; esac\nexec gcc "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("SMELT_CC", str(slow))
    session = smelt.InferenceSession(saved, compile_limit_s=10)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], stock(saved))
    assert "not compiled within" in stock_reason(caplog)
    assert left_over(cache) == []
    sleeping = [p for p in Path("/proc").glob("[0-9]*/cmdline") if f"sleep\0{marker}" in reading(p)]
    assert sleeping == []


def reading(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def test_the_environment_alone_switches_the_hook_on(cache, saved, tmp_path):
    """As the installed package does by its .pth file, which Python runs at start."""
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(SRC / "smelt_hook.pth", site)
    start = f"import site; site.addsitedir({str(site)!r}); exec(open({str(program(tmp_path))!r}).read())"
    for value, compiled_kernels in (("on", "True"), ("off", "False"), ("", "False")):
        environ = {**environment(), "SMELT_HOOK": value, "SMELT_HOOK_LIMIT": "200"}
        command = [sys.executable, "-c", start, str(saved)]
        ran = subprocess.run(command, capture_output=True, text=True, env=environ, check=True)
        assert ran.stdout.split()[0] == compiled_kernels, ran.stderr


def test_a_program_that_never_imports_onnxruntime_does_not_pay_for_it(cache, tmp_path):
    """The hook is armed at the start of every process of a container: of shells' tools and package managers, too."""
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(SRC / "smelt_hook.pth", site)
    loaded = "print([name for name in ('onnxruntime', 'numpy', 'onnx_ir') if name in sys.modules])"
    armed = "print('smelt.frontends.session.autoload' in sys.modules)"
    start = f"import site, sys; site.addsitedir({str(site)!r}); {loaded}; {armed}"
    ran = subprocess.run(
        [sys.executable, "-c", start], capture_output=True, text=True, env={**environment(), "SMELT_HOOK": "on"}
    )
    assert ran.stdout.split() == ["[]", "True"], ran.stdout + ran.stderr


def test_a_program_that_asks_whether_onnxruntime_is_there_has_the_hook(cache, tmp_path):
    """As transformers and Optimum do, before anything imports it."""
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(SRC / "smelt_hook.pth", site)
    asked = "import importlib.util; assert all(importlib.util.find_spec('onnxruntime') for _ in range(3))"
    told = "print(installed(), sum('autoload' in type(finder).__module__ for finder in sys.meta_path))"
    hook = "from smelt.frontends.session.hook import installed"
    start = f"import site, sys; site.addsitedir({str(site)!r}); {asked}; import onnxruntime; {hook}; {told}"
    command = [sys.executable, "-c", start]
    ran = subprocess.run(command, capture_output=True, text=True, env={**environment(), "SMELT_HOOK": "on"})
    assert ran.stdout.split() == ["True", "0"], ran.stdout + ran.stderr


LOADED = """
import sys, numpy, onnxruntime
before = set(sys.modules)
import smelt
smelt.InferenceSession(sys.argv[1], compile_limit_s=200)
print(*sorted(set(sys.modules) - before))
"""
# What a checkout needs to tell its sources; an installed package has its RECORD.
OF_A_CHECKOUT = {"_blake2", "_hashlib", "errno", "fnmatch", "hashlib", "ipaddress", "ntpath", "pathlib", "urllib"}
OF_A_CHECKOUT |= {"urllib.parse", "smelt.base.sources"}


def test_a_start_from_the_cache_imports_next_to_nothing(cache, saved):
    """Opening a small model takes 10 ms; `dataclasses`, `json`, `logging` and `pathlib` took as long."""
    command, said = [sys.executable, "-c", LOADED, str(saved)], list[set[str]]()
    for _ in range(3):  # where the first took less than a second, the library is too new to be told by its times
        ran = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
        said.append({*ran.stdout.split()} - OF_A_CHECKOUT)
        time.sleep(1.0)
    own = {name for name in said[-1] if name.partition(".")[0] == "smelt"}
    assert "subprocess" in said[0]
    assert said[-1] - own <= {"encodings.ascii"}
    assert len(own) < 20 and "smelt.base.config" not in own


def test_doctor_tells_of_the_hook(cache, monkeypatch):
    assert "off; on by" in doctor_line("session hook")
    monkeypatch.setenv("SMELT_HOOK", "background")
    assert "starts without it" in doctor_line("session hook")
    monkeypatch.setattr("smelt.frontends.session.autoload.armed", lambda: True)
    assert "starts on stock" in doctor_line("session hook")
    Store(Config.from_env()).fail("ab" * 32, "too slow")
    assert "0 compiled, 1 left to stock" in doctor_line("session models")


def doctor_line(what: str) -> str:
    return next(f.found for f in doctor._sessions(Config.from_env()) if f.what == what)


@pytest.mark.full
@pytest.mark.parametrize("victim", ["builder", "program"])
def test_a_kill_at_any_time_leaves_nothing_that_a_later_start_takes(cache, saved, tmp_path, victim):
    rng, expected = np.random.default_rng(0), stock(saved)
    script = "import sys, smelt; smelt.InferenceSession(sys.argv[1])"
    for _ in range(12):
        process = subprocess.Popen([sys.executable, "-c", script, str(saved)], env=environment())
        time.sleep(float(rng.uniform(0.3, 6.0)))
        if victim == "program":
            process.kill()
        else:
            for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
        process.wait()
        for entry in (cache / "session").glob("*/artifact"):
            assert (entry / "manifest.json").is_file() and (entry / "model.onnx").is_file()
        for record in (cache / "session").glob("*/failed.json"):
            record.unlink()
        found = smelt.InferenceSession(saved).run(None, {"x": X})[0]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        for entry in (cache / "session").glob("[0-9a-f]*"):
            shutil.rmtree(entry)
    time.sleep(2)
    Cache(cache).clear()
    assert left_over(cache) == []


@pytest.mark.full
def test_sixteen_processes_start_at_once(cache, saved, tmp_path):
    command = [sys.executable, "-m", "smelt", "exec", "--limit", "250", "--"]
    command += [sys.executable, str(program(tmp_path)), str(saved)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) for _ in range(16)]
    answers = [process.communicate(timeout=280)[0].split() for process in running]
    assert {answer[0] for answer in answers} == {"True"} and len({answer[1] for answer in answers}) == 1
    assert len([p for p in (cache / "session").iterdir() if p.name != "known"]) == 1
    assert left_over(cache) == []
