"""Host code of device kernels under stock ONNX Runtime, with a driver that writes down what it is asked for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from mock_driver import COMPILE, Mock, mock_library

import smelt
from smelt.base.errors import ConfigError, SmeltError
from smelt.check import search
from smelt.codegen.triton import binaries
from smelt.codegen.triton.backend import CudaBackend, TritonBackend, TritonRegionCode
from smelt.codegen.triton.kernel import TARGETS, TritonKernel

ROOT = Path(__file__).parents[3]
CHAIN = "(float[n,64] x, float[64] b) => (float[n,64] y) { a = Add(x, b) s = Sigmoid(a) c = Mul(a, s) y = Softmax(c) }"


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 21]> g {text}')


class Made:
    """An artifact, and the kernels in it."""

    def __init__(self, model: onnx.ModelProto, folder: Path) -> None:
        self.compiled = smelt.compile(model, backend="triton", force=True, levels="v2", output=folder, threads=1)
        self.folder, self.copies = folder, 0
        generated = self.compiled.result.generated
        assert not self.compiled.result.plan.fallbacks
        assert generated is not None
        codes = [code for code in generated.codes if isinstance(code, TritonRegionCode)]
        self.kernels: dict[str, TritonKernel] = {k.name: k for code in codes for k in code.device.kernels}

    def session(self) -> onnxruntime.InferenceSession:
        self.copies += 1
        return session_of(self.folder, self.copies)


def session_of(folder: Path, number: int = 0) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    library = next(folder.glob("smelt_*.so"))
    copy = folder.parent / f"copy{number}{folder.name}.so"  # what a library has read of the environment it keeps
    copy.write_bytes(library.read_bytes())
    options.register_custom_ops_library(str(copy))
    return onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def targets() -> Iterator[None]:
    """Two of the targets: what is tested here is the host's side."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TritonBackend, "targets", tuple(t for t in TARGETS if t.name in ("sm_80", "sm_90")))
        yield


@pytest.fixture(scope="module")
def chain(targets: None, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(parsed(CHAIN), tmp_path_factory.mktemp("chain") / "artifact")


@pytest.fixture
def mock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mock:
    made = Mock(mock_library(tmp_path))
    monkeypatch.setenv("SMELT_CUDA_LIBRARY", str(made.path))
    monkeypatch.setenv("SMELT_DEVICE_STAND_IN", "cuda")
    return made


def feeds(rows: int) -> dict[str, Any]:
    random = np.random.default_rng(rows)
    return {"x": random.standard_normal((rows, 64)).astype("f"), "b": random.standard_normal(64).astype("f")}


def expected(given: dict[str, Any]) -> np.ndarray:
    a = (given["x"] + given["b"]).astype("d")
    z = a / (1 + np.exp(-a))
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_the_artifact_runs_on_the_cpu_where_there_is_no_gpu(chain: Made):
    given = feeds(5)
    np.testing.assert_allclose(chain.session().run(None, given)[0], expected(given), rtol=2e-6)


@pytest.mark.parametrize("rows", [1, 5, 33, 0])
def test_launches_give_what_the_model_says(chain: Made, mock: Mock, rows: int):
    mock.interpret(chain.kernels)
    given = feeds(rows)
    out = chain.session().run(None, given)[0]
    assert not mock.errors, mock.errors
    np.testing.assert_allclose(out, expected(given), rtol=2e-6)
    assert len(mock.launches) == (1 if rows else 0)


def test_a_module_is_loaded_once_for_all_calls_and_threads(chain: Made, mock: Mock):
    session = chain.session()
    threads = [threading.Thread(target=lambda: [session.run(None, feeds(7)) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(mock.calls("cuModuleLoadData")) == 1
    assert len(mock.calls("cuLaunchKernel")) == 80


@pytest.fixture(scope="module")
def rocm_chain(tmp_path_factory: pytest.TempPathFactory) -> Made:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TritonBackend, "targets", tuple(t for t in TARGETS if t.kind == "hip"))
        return Made(parsed(CHAIN), tmp_path_factory.mktemp("rocm") / "artifact")


@pytest.fixture
def hip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mock:
    made = Mock(mock_library(tmp_path, "hip"))
    monkeypatch.setenv("SMELT_ROCM_LIBRARY", str(made.path))
    monkeypatch.setenv("SMELT_DEVICE_STAND_IN", "rocm")
    return made


@pytest.mark.parametrize(("arch", "warp"), [(942, 64), (1100, 32)])
def test_each_rocm_device_gets_its_own_binary_and_block(rocm_chain: Made, hip: Mock, arch: int, warp: int):
    hip.set(capability=arch)
    hip.interpret(rocm_chain.kernels)
    given = feeds(16)
    np.testing.assert_allclose(rocm_chain.session().run(None, given)[0], expected(given), rtol=2e-6)
    assert not hip.errors, hip.errors
    [launch] = hip.launches
    kernel = next(iter(rocm_chain.kernels.values()))
    assert launch[2] == warp * kernel.configs[0].warps


ROCM_FAILURES = [
    ("hipModuleLoadData", 2, "out of memory"),
    ("hipModuleLaunchKernel", 719, "unspecified launch failure"),
    ("hipModuleGetFunction", 500, "named symbol not found"),
    ("hipGetDevice", 100, "no ROCm-capable device"),
    ("hipInit", 100, "no ROCm-capable device"),
]


@pytest.mark.parametrize(("call", "code", "text"), ROCM_FAILURES)
def test_a_rocm_failure_has_the_drivers_text(rocm_chain: Made, hip: Mock, call: str, code: int, text: str):
    hip.set(capability=1100)
    session = rocm_chain.session()
    hip.fail(call, code)
    with pytest.raises(Exception, match=text):
        session.run(None, feeds(3))
    hip.fail("", 0)
    session.run(None, feeds(3))  # nothing stays broken


def test_a_rocm_device_of_another_architecture_is_an_error(rocm_chain: Made, hip: Mock):
    hip.set(capability=906)
    with pytest.raises(Exception, match="no kernel was built for its architecture"):
        rocm_chain.session().run(None, feeds(3))


INCLUDES = [f"-I{ROOT}/src/smelt/codegen/{place}/include" for place in ("triton", "c")]
WATCHED = {
    "sanitizers": (["-fsanitize=address,undefined", "-fno-sanitize-recover"], []),
    "threads": (["-fsanitize=thread"], []),
    "valgrind": ([], ["valgrind", "-q", "--error-exitcode=7", "--leak-check=full"]),
}


@pytest.mark.parametrize("watched", WATCHED)
@pytest.mark.parametrize(("kind", "device"), [("cuda", "cuda"), ("hip", "rocm")])
def test_the_hosts_code_is_clean_in_every_failure(watched: str, kind: str, device: str, tmp_path: Path):
    """Loads, launches, choices, failures, architectures, threads, unloading: `host_check.c`."""
    flags, tool = WATCHED[watched]
    if tool and shutil.which(tool[0]) is None:
        pytest.skip(f"{tool[0]} is not installed")
    program, source = tmp_path / "host_check", Path(__file__).parent / "host_check.c"
    subprocess.run([*COMPILE, *flags, *INCLUDES, str(source), "-o", str(program), "-lpthread", "-ldl"], check=True)
    done = subprocess.run(
        [*tool, str(program), str(mock_library(tmp_path, kind)), device], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


FAILURES = [
    ("cuLaunchKernel", 700, "an illegal memory access was encountered"),
    ("cuLaunchKernel", 719, "unspecified launch failure"),
    ("cuModuleLoadData", 2, "out of memory"),
    ("cuModuleLoadData", 209, "no kernel image is available"),
    ("cuModuleGetFunction", 500, "named symbol not found"),
    ("cuCtxGetCurrent", 4, "an error that the driver does not name"),
    ("cuDeviceGetAttribute", 100, "no CUDA-capable device"),
    ("cuInit", 100, "no CUDA-capable device"),
]


@pytest.mark.parametrize(("call", "code", "text"), FAILURES)
def test_a_failure_has_the_drivers_text_and_names_the_kernel(chain: Made, mock: Mock, call: str, code: int, text: str):
    session = chain.session()
    mock.fail(call, code)
    with pytest.raises(Exception, match=text) as found:
        session.run(None, feeds(3))
    assert "smelt region triton_r0" in str(found.value)
    if call in ("cuLaunchKernel", "cuModuleGetFunction"):
        assert f"{call}, kernel {next(iter(chain.kernels))}" in str(found.value)
    mock.library.mock_reset()
    session.run(None, feeds(3))  # nothing stays broken


def test_a_machine_without_a_driver_says_so(chain: Made, mock: Mock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SMELT_CUDA_LIBRARY", str(tmp_path / "libnothing.so"))
    with pytest.raises(Exception, match=r"the GPU driver cannot be loaded: .*libnothing.so"):
        chain.session().run(None, feeds(3))


def test_a_library_that_is_no_driver_says_what_is_missing(chain: Made, mock: Mock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SMELT_CUDA_LIBRARY", "libm.so.6")
    with pytest.raises(Exception, match="it has no cuInit"):
        chain.session().run(None, feeds(3))


@pytest.mark.parametrize(
    ("capability", "loaded"), [(80, "cubin 80"), (86, "cubin 80"), (90, "cubin 90"), (100, "ptx 0"), (121, "ptx 0")]
)
def test_each_device_gets_the_binary_that_it_runs(chain: Made, mock: Mock, capability: int, loaded: str):
    mock.set(capability)
    mock.interpret(chain.kernels)
    given = feeds(16)
    np.testing.assert_allclose(chain.session().run(None, given)[0], expected(given), rtol=2e-6)
    assert mock.calls("cuModuleLoadData") == [f"cuModuleLoadData {loaded}"]


def test_an_old_driver_and_an_old_device_are_errors(chain: Made, mock: Mock):
    mock.set(capability=121, old=1)
    with pytest.raises(Exception, match="unsupported toolchain"):
        chain.session().run(None, feeds(3))
    mock.set(capability=70)
    with pytest.raises(Exception, match="no kernel was built for its architecture"):
        chain.session().run(None, feeds(3))


def test_a_thread_without_a_context_gets_the_first_devices(chain: Made, mock: Mock):
    mock.set(context=0)
    chain.session().run(None, feeds(3))
    assert mock.calls("cuDevicePrimaryCtxRetain") == ["cuDevicePrimaryCtxRetain 0"]


def test_each_device_has_its_own_module(chain: Made, mock: Mock):
    session = chain.session()
    for device in (0, 1, 0, 1):
        mock.set(device=device)
        session.run(None, feeds(3))
    assert len(mock.calls("cuModuleLoadData")) == 2


def test_launch_arguments_are_those_of_the_binary(chain: Made, mock: Mock):
    chain.session().run(None, feeds(40))
    [line] = mock.calls("cuLaunchKernel")
    kernel = next(iter(chain.kernels.values()))
    config = kernel.configs[0]
    assert f"grid {-(-40 // config.rows)} threads {32 * config.warps} " in line
    assert line.endswith("stream (nil)")


def test_rows_of_another_size_are_an_error_before_anything_is_launched(chain: Made, mock: Mock):
    given = feeds(3) | {"b": np.zeros(63, np.float32)}
    with pytest.raises(Exception, match=r"63"):
        chain.session().run(None, given)
    assert not mock.calls("cuLaunchKernel")


MANY = (
    "(float[n,m] x, int64[2] shape) => (float[p,q] y, float[m] z) "
    "{ r = Reshape(x, shape) e = Exp(r) t = ReduceSum<keepdims=1>(e) y = Div(e, t) "
    "axes = Constant<value = int64[1] {0}>() z = ReduceMax<keepdims=0>(x, axes) }"
)


@pytest.fixture(scope="module")
def many(targets: None, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(parsed(MANY), tmp_path_factory.mktemp("many") / "artifact")


def test_shapes_read_from_an_input_stay_on_the_host_and_scratch_is_the_sessions(many: Made, mock: Mock):
    made = many
    mock.interpret(made.kernels)
    x = np.random.default_rng(0).standard_normal((6, 20)).astype("f")
    y, z = made.session().run(None, {"x": x, "shape": np.array([8, 15])})
    assert not mock.errors, mock.errors
    e = np.exp(x.astype("d")).reshape(8, 15)
    np.testing.assert_allclose(y, e / e.sum(), rtol=2e-6)
    np.testing.assert_array_equal(z, x.max(0))
    assert len(mock.launches) > 1


def test_modules_are_unloaded_with_the_library(
    chain: Made, mock: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In a process of its own: ONNX Runtime keeps libraries until it ends."""
    monkeypatch.setenv("MOCK_LOG", str(tmp_path / "log"))
    code = (
        "import onnxruntime as o, numpy as n, sys\n"
        "s = o.SessionOptions(); s.register_custom_ops_library(sys.argv[1])\n"
        "r = o.InferenceSession(sys.argv[2], s); r.run(None, {'x': n.zeros((3, 64), 'f'), 'b': n.zeros(64, 'f')})\n"
    )
    library, model = next(chain.folder.glob("smelt_*.so")), chain.folder / "model.onnx"
    subprocess.run([sys.executable, "-c", code, str(library), str(model)], check=True)
    log = (tmp_path / "log").read_text()
    assert log.count("cuModuleLoadData") == log.count("cuModuleUnload") == 1


def test_a_device_is_an_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(CudaBackend, "targets", TARGETS[:1])
    dump = tmp_path / "dump"
    with smelt.compile(parsed(CHAIN), device="cuda", levels="v2", output=tmp_path / "a", dump=dump, force=True) as made:
        manifest = made.result.artifact.manifest
    assert "triton" in json.dumps(manifest) and "a row in registers" in json.dumps(manifest)
    kinds = {path.suffix for path in (dump / "30-sources").iterdir()}
    assert {".c", ".py", ".ttir", ".ptx"} <= kinds


def config_of(made: smelt.CompiledModel) -> str:
    generated = made.result.generated
    assert generated is not None
    unit = next(u for u in generated.source.units if u.kernels and "smelt/device/launch.h" in u.text)
    return unit.text.splitlines()[0]


def test_a_configuration_is_a_setting_and_comes_first(mock: Mock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(CudaBackend, "targets", TARGETS[:1])
    monkeypatch.delenv("SMELT_DEVICE_STAND_IN")  # what verifies runs the CPU's kernel
    options: Any = {"device": "cuda", "levels": "v2", "force": True, "threads": 1}
    with smelt.compile(parsed(CHAIN), output=tmp_path / "a", **options) as made:
        [name] = [k.name for code in made.result.generated.codes for k in code.device.kernels]
        assert not config_of(made).startswith("#define")
    settings = {f"{name}.gpu-config": 2, "knothing.gpu-config": 1}
    with smelt.compile(parsed(CHAIN), output=tmp_path / "b", settings=settings, **options) as made:
        assert config_of(made) == f"#define SMELT_CONFIG_{name} 2"
        assert made.result.artifact.manifest["settings"] == {f"{name}.gpu-config": 2}
        monkeypatch.setenv("SMELT_DEVICE_STAND_IN", "cuda")
        session_of(tmp_path / "b").run(None, feeds(40))
    assert "grid 40 " in mock.calls("cuLaunchKernel")[0]  # a row each, where the first has 16


def test_tuning_times_each_configuration_on_the_device(mock: Mock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(CudaBackend, "targets", TARGETS[:1])
    log = tmp_path / "log"
    monkeypatch.setattr(search, "_FORMAT", str(tmp_path))  # no choice of an earlier run is remembered
    monkeypatch.setenv("MOCK_LOG", str(log))
    options: Any = {"device": "cuda", "levels": "v2", "force": True, "threads": 1, "verify": False}
    with smelt.compile(parsed(CHAIN), output=tmp_path / "a", tune=True, **options) as made:
        findings = made.result.findings
        assert findings is not None
        assert any("Tuned for this machine, 2 sizes were timed" in note for note in findings.notes)
    assert "cuLaunchKernel" in log.read_text()
    monkeypatch.delenv("SMELT_DEVICE_STAND_IN")
    with smelt.compile(parsed(CHAIN), output=tmp_path / "b", tune=True, **options) as made:
        assert made.result.findings is not None
        assert "Nothing was tuned: onnxruntime has no provider for cuda here." in made.result.findings.notes


def test_an_unknown_device_is_an_error():
    with pytest.raises(ConfigError, match="there is no device 'tpu'"):
        smelt.compile(parsed(CHAIN), device="tpu")


def test_without_triton_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(binaries, "triton_version", lambda: "")
    with pytest.raises(SmeltError, match=r"need Triton, which is not installed") as found:
        smelt.compile(parsed(CHAIN), device="cuda")
    assert "onnx-smelt[triton]" in found.value.hint


BLOCKED = """
import importlib.abc, sys, onnx, smelt
class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "triton" and sys.argv[2] == "raises":
            raise ModuleNotFoundError(name)
if sys.argv[2] == "none":
    sys.modules["triton"] = None
sys.meta_path.insert(0, Blocker())
try:
    smelt.compile(onnx.load(sys.argv[1]), sys.argv[3], device="cuda")
except smelt.SmeltError as error:
    print(error)
"""


@pytest.mark.parametrize("how", ["raises", "none"])
def test_an_interpreter_that_cannot_import_triton_names_the_extra(how: str, tmp_path: Path):
    onnx.save(parsed(CHAIN), tmp_path / "m.onnx")
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, str(tmp_path / "m.onnx"), how, str(tmp_path / "out")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "onnx-smelt[triton]" in done.stdout and not (tmp_path / "out").exists()


def test_a_kernel_that_a_target_refuses_costs_its_region(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(TritonBackend, "targets", TARGETS[:1])
    monkeypatch.setitem(binaries.MOST_SHARED, "sm_80", -1)
    with smelt.compile(parsed(CHAIN), backend="triton", levels="v2", output=tmp_path / "a", force=True) as made:
        reasons = {fallback.reason for fallback in made.result.plan.fallbacks}
        given = feeds(4)
        np.testing.assert_allclose(made.run(given)[0], expected(given), rtol=2e-6)
    assert len(reasons) == 1 and "bytes of shared memory, sm_80 has -1" in reasons.pop()
