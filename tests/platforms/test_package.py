"""The wheels hold all that runs, the sdist all that tests; environments with nothing but the wheels work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

ROOT = Path(__file__).parents[2]
KEPT = ("src", "tests", "docs", "examples", "bench", "packages")
OLDEST = "1.23.2"  # of ONNX Runtime
PROVIDER = Path("packages") / "onnxruntime-ep-smelt"
pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]
Say = Callable[..., str]


def clean_environment(**more: str) -> dict[str, str]:
    """That of a user who never heard of smelt."""
    return {name: text for name, text in os.environ.items() if not name.startswith(("SMELT", "PYTHON"))} | more


def interpreter(release: str) -> str:
    """A Python of that release, by its name or among those of pyenv."""
    found = [shutil.which(f"python{release}"), *Path.home().glob(f".pyenv/versions/{release}.*/bin/python")]
    for path in filter(None, found):
        asked = subprocess.run(
            [path, "-c", "import sys; print(sys.version)"], capture_output=True, text=True, check=False
        )
        if asked.stdout.startswith(f"{release}."):
            return str(path)
    pytest.skip(f"there is no Python {release} here")


def made_environment(place: Path, *packages: str, python: str = sys.executable) -> Path:
    subprocess.run([python, "-m", "venv", str(place)], check=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", *packages]
    done = subprocess.run(pip, env=clean_environment(), check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs a package index: {done.stderr[-300:]}")
    return place / "bin"


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_environment(tmp_path_factory.mktemp("tools") / "environment", "build", "twine")


@pytest.fixture(scope="module")
def distributions(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """By `python -m build`, from a copy, so that nothing is left in the sources."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info", "results", "build", "*.so", "prebuilt")
    for name in KEPT:
        shutil.copytree(ROOT / name, tree / name, ignore=unwanted)
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, tree)
    for source in (tree, tree / PROVIDER):
        command = [str(tools / "python"), "-m", "build", "--outdir", str(out), str(source)]
        done = subprocess.run(command, env=clean_environment(), check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
    return sorted(out.iterdir())


@pytest.fixture(scope="module")
def built(distributions: list[Path]) -> dict[str, Path]:
    return {path.suffix: path for path in distributions if path.name.startswith("onnx_smelt-")}


@pytest.fixture(scope="module")
def provider(distributions: list[Path]) -> Path:
    return next(
        path for path in distributions if path.name.startswith("onnxruntime_ep_smelt-") and path.suffix == ".whl"
    )


def test_the_index_would_take_what_is_built(tools: Path, distributions: list[Path]):
    assert len(distributions) == 4
    command = [str(tools / "twine"), "check", "--strict", *map(str, distributions)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def below(folder: str, suffixes: tuple[str, ...]) -> set[str]:
    found = (path for path in (ROOT / folder).rglob("*") if path.suffix in suffixes and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in found if "egg-info" not in path.as_posix()}


def test_the_wheel_has_every_module_header_and_template(built: dict[str, Path]):
    with zipfile.ZipFile(built[".whl"]) as wheel:
        names = set(wheel.namelist())
        metadata = wheel.read(next(name for name in names if name.endswith("METADATA"))).decode()
    wanted = {name.removeprefix("src/") for name in below("src", (".py", ".h", ".c", ".j2", ".js", ".css", ".typed"))}
    assert wanted <= names and "smelt_hook.pth" in names
    assert not any(name.startswith(("tests/", "bench/")) for name in names)
    assert metadata.splitlines()[1] == "Name: onnx-smelt"


def test_the_sdist_has_all_tests_and_pages(built: dict[str, Path]):
    with tarfile.open(built[".gz"]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    for folder in ("tests", "docs", "examples", "src"):
        assert below(folder, (".py", ".md", ".h", ".c")) <= names


MODEL = (
    "import onnx; from onnx import helper as h, TensorProto as t;"
    "x, y = (h.make_tensor_value_info(n, t.FLOAT, ['n', 64]) for n in 'xy');"
    "g = h.make_graph([h.make_node('Softmax', ['x'], ['s']), h.make_node('Erf', ['s'], ['y'])], 'g', [x], [y]);"
    "onnx.save(h.make_model(g, opset_imports=[h.make_opsetid('', 17)], ir_version=8), 'm.onnx')"
)


def speaker(folder: Path) -> Say:
    """Runs a command in `folder` as its user would, and gives what it prints."""

    def say(*command: object, **more: str) -> str:
        environment = clean_environment(SMELT_CACHE_DIR=str(folder / "cache"), **more)
        ran = subprocess.run(
            list(map(str, command)), env=environment, capture_output=True, text=True, check=False, cwd=folder
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return say


def first_commands(programs: Path, folder: Path) -> Say:
    """What the README begins with."""
    say = speaker(folder)
    assert "smelt" in say(programs / "smelt", "--version")
    say(programs / "smelt", "doctor")
    say(programs / "python", "-c", MODEL)
    say(programs / "smelt", "compile", "m.onnx", "-o", "out", "--force")
    say(programs / "smelt", "verify", "out", "--against", "m.onnx")
    say(programs / "smelt", "explain", "m.onnx", "--html", "why.html")
    return say


@pytest.mark.parametrize("release", ["3.11", "3.12", "3.13", "3.14"])
def test_an_empty_environment_runs_the_first_commands(
    built: dict[str, Path], provider: Path, tmp_path: Path, release: str
):
    wheels = (str(built[".whl"]), str(provider))
    programs = made_environment(tmp_path / "environment", *wheels, python=interpreter(release))
    say = first_commands(programs, tmp_path)
    assert "waits up to" in say(programs / "smelt", "doctor", SMELT_HOOK="on")  # by smelt_hook.pth
    code = (
        "import onnxruntime as ort, onnxruntime_ep_smelt as ep; from pathlib import Path;"
        "ort.register_execution_provider_library('smelt', ep.get_library_path());"
        "print(sum(d.ep_name == ep.get_ep_name() for d in ort.get_ep_devices()))"
    )
    assert int(say(programs / "python", "-c", code)) >= 1


SESSIONS = """
import sys, numpy as np, onnxruntime as ort
if sys.argv[2] == "drop-in":
    from smelt import InferenceSession
else:
    from onnxruntime import InferenceSession
session = InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
x = np.linspace(-3, 3, 4 * 64, dtype=np.float32).reshape(4, 64)
print(ort.__version__, "smelt_" in open("/proc/self/maps").read(), *session.run(None, {"x": x})[0].ravel())
"""


@pytest.mark.parametrize("release", [OLDEST, ort.__version__])
def test_sessions_on_releases_of_onnxruntime(built: dict[str, Path], tmp_path: Path, release: str):
    """With nothing but onnxruntime and the wheel: the drop-in class and the hook answer as stock does."""
    programs = made_environment(tmp_path / "environment", str(built[".whl"]), f"onnxruntime=={release}")
    say = speaker(tmp_path)
    (tmp_path / "app.py").write_text(SESSIONS)
    say(programs / "python", "-c", MODEL)
    quick = {"SMELT_TIMING": "0", "SMELT_HOOK_LIMIT": "300"}
    command = (programs / "python", "app.py", "m.onnx")
    stock = say(*command, "stock").split()
    ways = [say(*command, "drop-in", **quick), say(*command, "hook", SMELT_HOOK="on", **quick)]
    ways.append(say(programs / "smelt", "exec", "--", *command, "hook", **quick))
    assert stock[:2] == [release, "False"]
    for answer in map(str.split, ways):
        assert answer[:2] == [release, "True"]
        np.testing.assert_allclose(
            np.array(answer[2:], np.float32), np.array(stock[2:], np.float32), rtol=1e-5, atol=1e-6
        )


def test_the_compiler_from_the_index_is_enough(built: dict[str, Path], tmp_path: Path):
    programs = made_environment(tmp_path / "environment", f"{built['.whl']}[zig]")
    (tmp_path / "bin").mkdir()  # no cc, gcc or clang by name
    say = speaker(tmp_path)
    found = say(programs / "smelt", "doctor", PATH=str(tmp_path / "bin"), CC="")
    assert "zig" in found
    say(programs / "python", "-c", MODEL)
    say(programs / "smelt", "compile", "m.onnx", "-o", "out", "--no-timing", PATH=str(tmp_path / "bin"), CC="")
    assert list((tmp_path / "out").glob("*.so"))


@pytest.mark.parametrize("extra", ["torch", "all"])
def test_with_torch_a_module_is_compiled(built: dict[str, Path], tmp_path: Path, extra: str):
    torch = pytest.importorskip("torch")
    release = torch.__version__.partition("+")[0]
    programs = made_environment(tmp_path / "environment", f"torch=={release}", f"{built['.whl']}[{extra}]")
    code = (
        "import torch, smelt; torch.manual_seed(0);"
        "m = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16)).eval();"
        "x = torch.randn(3, 8); fast = smelt.compile(m);"
        "torch.testing.assert_close(fast(x), m(x), rtol=1e-5, atol=1e-5);"
        "torch.testing.assert_close(torch.compile(m, backend='smelt')(x), m(x), rtol=1e-5, atol=1e-5)"
    )
    speaker(tmp_path)(programs / "python", "-c", code)


def test_pipx_runs_the_wheel(built: dict[str, Path], tmp_path: Path):
    pipx = made_environment(tmp_path / "environment", "pipx") / "pipx"
    say = speaker(tmp_path)
    say(sys.executable, "-c", MODEL)
    command = ("run", "--spec", built[".whl"], "onnx-smelt", "compile", "m.onnx", "-o", "out", "--force")
    say(pipx, *command, PIPX_HOME=str(tmp_path / "pipx"), PIPX_DEFAULT_PYTHON=sys.executable)
    assert (tmp_path / "out" / "manifest.json").is_file()
