"""The provider on other releases of ONNX Runtime, in many processes at once, and when its compiler hangs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from provider_program import CHILD, PACKAGE, ROOT, Program, rows, setup_module_of_package

pytestmark = pytest.mark.full
RELEASES = ("1.23.2", "1.25.1", "1.28.0")
TOLERANCE = 1e-5


def installed(folder: Path, *packages: str) -> Path:
    """A throw-away environment."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    done = subprocess.run(
        [folder / "bin" / "pip", "install", "-q", *packages], capture_output=True, text=True, check=False
    )
    if "No matching distribution" in done.stderr:
        pytest.skip(f"{packages[0]} has no wheel for this Python")
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / "bin" / "python"


def value(name: str, *dims: object) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


def branching(path: Path, *, implicit: bool) -> Path:
    """An If whose branches read a weight and a value of the main graph, or an input that nothing else reads."""
    read = "z" if implicit else "a"
    then = helper.make_graph([helper.make_node("Mul", [read, "w"], ["t"])], "then", [], [value("t", "n", 512)])
    other = helper.make_graph([helper.make_node("Add", [read, "w"], ["e"])], "else", [], [value("e", "n", 512)])
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Greater", ["m", "limit"], ["c"]),
        helper.make_node("If", ["c"], ["b"], then_branch=then, else_branch=other),
        helper.make_node("Tanh", ["b"], ["d"]),
        helper.make_node("Softmax", ["d"], ["y"]),
    ]
    weights = [np.linspace(-1, 1, 512, dtype=np.float32), np.float32(3.4)]
    held = [numpy_helper.from_array(array, name) for array, name in zip(weights, ("w", "limit"), strict=True)]
    inputs = [value("x", "n", 512), *([value("z", "n", 512)] if implicit else [])]
    graph = helper.make_graph(nodes, "branching", inputs, [value("y", "n", 512)], held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def data_dependent(path: Path) -> Path:
    """One output's shape follows from the data; one input is read by nobody."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Softmax", ["a"], ["y"]),
        helper.make_node("Greater", ["y", "limit"], ["g"]),
        helper.make_node("NonZero", ["g"], ["k"]),
    ]
    held = [numpy_helper.from_array(np.linspace(-1, 1, 512, dtype=np.float32), "w")]
    held.append(numpy_helper.from_array(np.float32(0.002), "limit"))
    outputs = [value("y", "n", 512), helper.make_tensor_value_info("k", TensorProto.INT64, [2, "count"])]
    graph = helper.make_graph(nodes, "data", [value("x", "n", 512), value("unused", "n")], outputs, held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def with_function(path: Path) -> Path:
    model = rows()
    body = [helper.make_node("Mul", ["p", "q"], ["s"]), helper.make_node("Sigmoid", ["s"], ["o"])]
    gate = helper.make_function("local", "Gate", ["p", "q"], ["o"], body, [helper.make_opsetid("", 17)])
    model.functions.append(gate)
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.graph.node[0].op_type, model.graph.node[0].domain = "Gate", "local"
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("release", [*RELEASES, ort.__version__])
def test_releases_of_onnxruntime(library: Path, tmp_path: Path, release: str) -> None:
    tmp_path.chmod(0o755)
    python = installed(tmp_path / "venv", f"onnxruntime=={release}", "numpy")
    program = Program(library, tmp_path / "cache", tmp_path, [str(python)])
    onnx.save(rows(), tmp_path / "rows.onnx")
    (tmp_path / "out").mkdir(mode=0o755)
    to = str(tmp_path / "out" / "rows_ctx.onnx")
    models = {
        "rows": str(tmp_path / "rows.onnx"),
        "branching": str(branching(tmp_path / "branching.onnx", implicit=False)),
        "implicit": str(branching(tmp_path / "implicit.onnx", implicit=True)),
        "data": str(data_dependent(tmp_path / "data.onnx")),
        "function": str(with_function(tmp_path / "function.onnx")),
    }
    steps = [{"do": "run", "model": model} for model in models.values()]
    again = {"config": {"session.disable_model_compile": "1"}, "options": {"python": "/nowhere/python"}}
    steps.append({"do": "compile", "model": models["rows"], "to": to})
    steps.append({"do": "run", "model": to, "stock": models["rows"], **again})
    answers, log = program(*steps)
    runs = dict(zip([*models, "context"], [a for a in answers if isinstance(a, dict)], strict=True))
    for name, answer in runs.items():
        assert answer["error"] < TOLERANCE and answer["same_shapes"], (name, answer, log)
        wanted = name != "implicit" or int(release.split(".")[1]) >= 27
        assert answer["claimed"] == wanted, (name, answer, log)


def test_an_environment_with_only_the_built_wheel_finds_its_own_interpreter(tmp_path: Path) -> None:
    """The wheel in an environment that has a compiler: nothing has to be said."""
    tmp_path.chmod(0o755)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", str(PACKAGE)]
    subprocess.run([*build, "-w", str(tmp_path)], check=True, capture_output=True)
    wheel = next(tmp_path.glob("*.whl"))
    assert wheel.name.split("-")[2:4] == ["py3", "none"]
    python = installed(tmp_path / "venv", str(wheel))
    paths = next((tmp_path / "venv" / "lib").glob("python3*")) / "site-packages" / "here.pth"
    paths.write_text("\n".join([str(ROOT / "src"), *(path for path in sys.path if path.endswith("-packages"))]))
    onnx.save(rows(), tmp_path / "rows.onnx")
    found = subprocess.run(
        [python, "-c", "import onnxruntime_ep_smelt as ep; print(ep.get_library_path())"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    program = Program(Path(found), tmp_path / "cache", tmp_path, [str(python)])
    options = {"cache_dir": str(program.cache), "time_limit": "250"}
    answers, log = program({"do": "run", "model": str(tmp_path / "rows.onnx"), "options": options})
    assert answers[0]["claimed"] and answers[0]["error"] < TOLERANCE, (answers, log)


def started(program: Program, step: dict[str, object], **variables: str) -> subprocess.Popen[str]:
    filled = {"options": program.options(), "profile": str(program.folder / f"p{time.monotonic_ns()}"), **step}
    task = json.dumps({"library": str(program.library), "steps": [filled]})
    return subprocess.Popen(
        [*program.python, str(CHILD), task],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=program.environment(**variables),
    )  # fmt: skip


def test_of_many_processes_one_compiles(program: Program, tmp_path: Path) -> None:
    onnx.save(rows(seed=7), tmp_path / "m.onnx")
    before = len(list((program.cache / "session").glob("*/artifact"))) if program.cache.exists() else 0
    processes = [started(program, {"do": "run", "model": str(tmp_path / "m.onnx")}) for _ in range(8)]
    for process in processes:
        out, log = process.communicate(timeout=280)
        answer = json.loads(out.splitlines()[-1])["answers"][0]
        assert answer["claimed"] and answer["error"] < TOLERANCE, (answer, log)
    assert len(list((program.cache / "session").glob("*/artifact"))) == before + 1
    assert not list((program.cache / "tmp").iterdir())


def hanging_compiler(folder: Path) -> Path:
    """A C compiler that never ends, and has a child that does not either."""
    script = folder / "cc"
    script.write_text(
        "#!/bin/sh\ncase $1 in --version) echo 'gcc (x) 12.2.0'; exit 0;; esac\nsleep 1234 & sleep 1234\n"
    )
    script.chmod(0o755)
    return script


def sleepers() -> list[str]:
    listed = subprocess.run(["ps", "-eo", "args"], check=True, capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if line.startswith("sleep 1234")]


def test_a_compilation_that_hangs_ends_with_its_children(program: Program, tmp_path: Path) -> None:
    onnx.save(rows(seed=8), tmp_path / "m.onnx")
    step = {"do": "run", "model": str(tmp_path / "m.onnx"), "options": program.options(time_limit="20")}
    begun = time.monotonic()
    process = started(program, step, CC=str(hanging_compiler(tmp_path)), SMELT_COMPILE_TIMEOUT="600")
    out, log = process.communicate(timeout=120)
    answer = json.loads(out.splitlines()[-1])["answers"][0]
    assert not answer["claimed"] and answer["error"] == 0.0, log
    assert "it was not compiled within 20 s" in log
    assert time.monotonic() - begun < 60, "the second session did not wait again"
    assert not sleepers()
    assert not list((program.cache / "tmp").iterdir())
    # An attempt that ran out of time says nothing of a longer one.
    answers, log = program({"do": "run", "model": str(tmp_path / "m.onnx")})
    assert answers[0]["claimed"], log


def test_in_the_background_later_sessions_are_fast(program: Program, tmp_path: Path) -> None:
    onnx.save(rows(seed=9), tmp_path / "m.onnx")
    step = {"do": "run", "model": str(tmp_path / "m.onnx"), "options": program.options(compile="background")}
    answers, log = program(step)
    assert answers[0]["error"] < TOLERANCE
    assert "compiled in the background" in log
    until = time.monotonic() + 200
    while not (claimed := program(step)[0][0]["claimed"]) and time.monotonic() < until:
        time.sleep(2)
    assert claimed
    time.sleep(1)
    assert not list((program.cache / "tmp").iterdir())


def test_a_process_that_is_killed_leaves_nothing_that_is_taken(program: Program, tmp_path: Path) -> None:
    onnx.save(rows(seed=10), tmp_path / "m.onnx")
    process = started(program, {"do": "run", "model": str(tmp_path / "m.onnx")})
    until = time.monotonic() + 60
    while not list((program.cache / "tmp").glob("ep-*/job.json")) and time.monotonic() < until:
        time.sleep(0.05)
    process.kill()
    process.wait()
    answers, log = program({"do": "run", "model": str(tmp_path / "m.onnx")})
    assert answers[0]["claimed"] and answers[0]["error"] < TOLERANCE, log


@pytest.mark.parametrize(("source", "compilers"), [("provider.c", ("cc",)), ("provider.cpp", ("c++", "g++"))])
def test_the_examples_in_other_languages(program: Program, tmp_path: Path, source: str, compilers) -> None:
    found = next((path for name in compilers if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"there is no {compilers[0]}")
    runtime = next(Path(ort.__file__).parent.glob("capi/libonnxruntime.so.*"), None)
    if runtime is None:
        pytest.skip("the wheel of onnxruntime has no shared library")
    onnx.save(rows(), tmp_path / "m.onnx")
    code = ROOT / "examples" / "provider_c" / source
    subprocess.run([found, str(code), "-o", str(tmp_path / "provider"), "-ldl"], check=True)
    arguments = [f"{key}={text}" for key, text in program.options().items()]
    done = subprocess.run(
        [tmp_path / "provider", runtime, program.library, tmp_path / "m.onnx", "x", "y", "2", "512", *arguments],
        capture_output=True, text=True, check=False, env=program.environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    x = (np.float32(0.01) * np.arange(1024, dtype=np.float32)).reshape(2, 512)
    stock = ort.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x})[0].ravel()[:4]
    assert np.allclose([float(number) for number in done.stdout.split()], stock, rtol=1e-4)
    assert "runs on stock" not in done.stderr


def test_a_library_built_by_zig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ziglang")
    target = f"{os.uname().machine}-linux-gnu.2.28"
    monkeypatch.setenv("CC", f"{sys.executable} -m ziglang cc -target {target} -g0")
    setup_module_of_package().compile_library(tmp_path / "lib.so")
    names = subprocess.run(
        ["nm", "-D", "--defined-only", tmp_path / "lib.so"], check=True, capture_output=True, text=True
    )
    exported = {line.split()[-1] for line in names.stdout.splitlines()}
    assert exported == {"CreateEpFactories", "ReleaseEpFactory"}
