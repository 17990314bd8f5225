"""The containers of Containerfile: built and run without a daemon, over a base that debootstrap makes.

Needs root, buildah and debootstrap of Debian, and the registries of Debian and PyPI.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

ROOT = Path(__file__).parents[2]
USER = 10001
pytestmark = [pytest.mark.full, pytest.mark.timeout(1400)]
# What a network may need to reach the registries: certificates and pip's settings of the host.
HOST_FILES = ("etc/ssl/certs/ca-certificates.crt", "etc/pip.conf")


class Engine:
    """buildah with storage of its own: no daemon, no kernel module, no namespaces."""

    def __init__(self, folder: Path) -> None:
        self.store = ["--root", str(folder / "store"), "--runroot", str(folder / "run"), "--storage-driver", "vfs"]

    def __call__(self, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = ["buildah", *self.store, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        return done

    def build(self, target: str) -> str:
        image = f"localhost/smelt-{target}"
        options = ("--isolation", "chroot", "--layers=false", "--build-arg", "BASE=localhost/smelt-base")
        self("bud", *options, "--target", target, "-t", image, ROOT)
        return image

    def run(self, container: str, work: Path, *command: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self("run", "--isolation", "chroot", "-v", f"{work}:/models", container, "--", *command, check=check)


def prepared_base(folder: Path) -> Path:
    base = folder / "base"
    mirror = "http://deb.debian.org/debian"
    command = ["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", str(base), mirror]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    for name in HOST_FILES:
        if Path("/", name).is_file():
            shutil.copyfile(Path("/", name), base / name)
    return base


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    for program in ("buildah", "debootstrap"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    if os.geteuid() != 0:
        pytest.skip("chroot isolation needs root")
    folder = tmp_path_factory.mktemp("containers")
    found = Engine(folder)
    container = found("from", "scratch").stdout.strip()
    found("add", "-q", container, prepared_base(folder), "/")
    found("commit", "-q", container, "localhost/smelt-base")
    found("rm", container)
    yield found
    found("rm", "--all", check=False)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder that the container's user may write, with a model."""
    nodes = [helper.make_node("Softmax", ["x"], ["a"]), helper.make_node("Tanh", ["a"], ["y"])]
    x, y = (helper.make_tensor_value_info(letter, TensorProto.FLOAT, ["n", 64]) for letter in "xy")
    model = helper.make_model(helper.make_graph(nodes, "m", [x], [y]), opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    folder = tmp_path / "work"
    folder.mkdir()
    onnx.save(model, folder / "m.onnx")
    np.savez(folder / "in.npz", x=np.ones((2, 64), np.float32))
    os.chown(folder, USER, USER)
    return folder


def test_a_user_without_rights_compiles_into_a_mounted_folder_and_the_slim_image_runs_it(engine: Engine, work: Path):
    compiler = engine("from", engine.build("compiler")).stdout.strip()
    assert engine.run(compiler, work, "id", "-u").stdout.strip() == str(USER)
    doctor = engine.run(compiler, work, "smelt", "doctor")  # what the health check runs
    assert "onnxruntime" in doctor.stdout
    engine.run(compiler, work, "smelt", "compile", "/models/m.onnx", "-o", "/models/out", "--no-timing", "--force")
    assert json.loads((work / "out" / "manifest.json").read_bytes())["library"] is not None
    assert (work / "out" / "model.onnx").stat().st_uid == USER
    config = json.loads(engine("inspect", "--type", "container", compiler).stdout)
    assert config["Docker"]["config"]["User"] == "smelt"
    engine("rm", compiler)

    runtime = engine("from", engine.build("runtime")).stdout.strip()
    assert engine.run(runtime, work, "python3", "-c", "import smelt", check=False).returncode != 0
    assert engine.run(runtime, work, "sh", "-c", "command -v gcc", check=False).returncode != 0
    program = "/opt/runtime/serve_artifact.py"
    engine.run(runtime, work, "python3", program, "--check")
    engine.run(runtime, work, "python3", program, "/models/out", "/models/in.npz", "/models/out.npz")
    with np.load(work / "out.npz") as answer:
        assert np.allclose(answer["y"], np.tanh(1 / 64), rtol=1e-5)
