"""An artifact folder made by hand: the toy regions of the glue's tests, a model and a manifest."""

import hashlib
import json
import platform
import subprocess
from pathlib import Path

import pytest
from onnx import TensorProto, helper
from tests import host_compiler

import smelt

TOY = Path(__file__).parents[1] / "codegen" / "c"
INCLUDE = Path(smelt.__file__).parent / "codegen" / "c" / "include"
LEVELS = {"v2": ("x86-64-v2", 16), "v3": ("x86-64-v3", 32), "v4": ("x86-64-v4", 64)}


@pytest.fixture(scope="session")
def toy_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if platform.machine() != "x86_64":
        pytest.skip("the toy library is built for x86-64")
    folder = tmp_path_factory.mktemp("toy")
    common = [*host_compiler.command(), "-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", f"-I{INCLUDE}"]
    objects = []
    for level, (march, vector_bytes) in LEVELS.items():
        objects.append(str(folder / f"{level}.o"))
        defines = [host_compiler.march(march), f"-DSMELT_LEVEL={level}", f"-DSMELT_VL={vector_bytes}"]
        subprocess.run([*common, *defines, "-c", str(TOY / "glue_toy.c"), "-o", objects[-1]], check=True)
    library = folder / "toy.so"
    subprocess.run([*common, "-shared", "-o", str(library), str(TOY / "glue_toy_ort.c"), *objects], check=True)
    return library


@pytest.fixture(scope="session")
def toy_model() -> bytes:
    """y = (a + b) + b with a: float [n, 3], b the same; the first addition in a toy region, the second fallback."""
    shape = ["n", 3]
    nodes = [
        helper.make_node("add", ["a", "b"], ["t"], name="in_region", domain="smelt.toy"),
        helper.make_node("Add", ["t", "b"], ["y"], name="left"),
    ]
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "aby"}
    graph = helper.make_graph(nodes, "g", [values["a"], values["b"]], [values["y"]])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("smelt.toy", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


@pytest.fixture
def artifact(tmp_path: Path, toy_library: Path, toy_model: bytes) -> Path:
    folder = tmp_path / "artifact"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    content = toy_library.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    library = folder / f"toy-{digest[:16]}.so"
    library.write_bytes(content)
    library.chmod(0o644)
    (folder / "model.onnx").write_bytes(toy_model)
    (folder / "manifest.json").write_text(json.dumps({"library": {"file": library.name, "sha256": digest}}))
    return folder
