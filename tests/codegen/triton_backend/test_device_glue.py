"""Operators of a GPU under an ONNX Runtime of callbacks: which device a call is for, where its scratch comes from."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from mock_driver import COMPILE, Mock, mock_library
from tests.codegen.c.fake_ort import INT, OUT, POINTER, SIZE, FakeRuntime

ROOT = Path(__file__).parents[3]
INCLUDES = [f"-I{ROOT}/src/smelt/codegen/{place}/include" for place in ("triton", "c")]
STREAM = 0x5712
# Twice its input, by way of scratch; the device that it is called for is in the first element.
TEXT = """
#include <smelt/base/kernel.h>
#define SMELT_DOMAIN "smelt.toy"
#define SMELT_DEVICE_CODE
#include <smelt/device/launch_unit.h>
static int32_t on_cpu(smelt_env *env) { return env->code; }
static int32_t on_device(smelt_env *env) {
  smelt_device device;
  if (smelt_device_here(env, &device)) return env->code;
  float *held = env->scratch(env, 4 * env->in_dims[0][0]), *made;
  if (!held || !(made = env->output(env, 0, 1, env->in_dims[0]))) return env->code ? env->code : SMELT_E_MEMORY;
  for (int64_t i = 0; i < env->in_dims[0][0]; i++) held[i] = 2 * ((const float *)env->in[0])[i];
  for (int64_t i = 0; i < env->in_dims[0][0]; i++) made[i] = i ? held[i] : (float)device.ordinal;
  return env->code;
}
static const int32_t types[] = {1};
static const uint8_t on_host[] = {0};
static const smelt_entry smelt_entries[] = {
  {"r0", 1, 1, types, types, {[0 ... SMELT_LEVELS - 1] = on_cpu}, NULL}
};
static const smelt_device_entry smelt_device_entries[] = {{on_device, on_host}};
#include <smelt/ort/ort_glue.h>
"""


class GpuRuntime(FakeRuntime):
    """With tensors in the memory of a GPU, a stream, and scratch that belongs to it."""

    def __init__(self, version: bytes = b"1.23.0", stream: int | None = STREAM, memory: bytes = b"Cuda") -> None:
        self.stream, self.name, self.device = stream, memory, 0
        self.took: list[str] = []
        super().__init__(version=version)

    def _fill(self) -> None:
        super()._fill()
        self._slot(193, self._may_fail(self._queue), POINTER, OUT)
        self._slot(194, self._may_fail(self._memory_of), POINTER, OUT)
        self._slot(71, self._may_fail(self._name), POINTER, OUT)
        self._slot(72, self._may_fail(self._id), POINTER, ctypes.POINTER(INT))
        self._slot(277, self._may_fail(self._scratch), POINTER, POINTER, SIZE, OUT)

    def _queue(self, context: int, out: object) -> None:
        out[0] = self.stream

    def _memory_of(self, value: int, out: object) -> None:
        out[0] = 7

    def _name(self, memory: int, out: object) -> None:
        out[0] = ctypes.cast(ctypes.c_char_p(self.name), POINTER).value

    def _id(self, memory: int, out: object) -> None:
        out[0] = self.device

    def _scratch(self, context: int, memory: int, size: int, out: object) -> None:
        self.took.append("stream")
        super()._alloc(1, size, out)

    def _alloc(self, allocator: int, size: int, out: object) -> None:
        self.took.append("allocator")
        super()._alloc(allocator, size, out)

    def run(self, device: int, fail_at: int = -1) -> str | None:
        self.device, self.took = device, []
        self.ops["r0"] = self.by_provider["r0", "CUDAExecutionProvider"]
        return self.compute("r0", [np.arange(100, dtype=np.float32)], fail_at)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("glue")
    (folder / "glue.c").write_text(TEXT)
    made = folder / "glue.so"
    subprocess.run(
        [*COMPILE, "-Wno-unused-function", "-Wno-unused-parameter", "-shared", "-fPIC", *INCLUDES,
         str(folder / "glue.c"), "-o", str(made), "-lpthread", "-ldl"], check=True,
    )  # fmt: skip
    return made


@pytest.fixture
def mock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mock:
    made = Mock(mock_library(tmp_path))
    monkeypatch.setenv("SMELT_CUDA_LIBRARY", str(made.path))
    return made


@pytest.fixture
def library(built: Path, mock: Mock, tmp_path: Path) -> Iterator[ctypes.CDLL]:
    """Of its own: the driver that it has found it keeps."""
    copy = tmp_path / "glue.so"
    copy.write_bytes(built.read_bytes())
    yield ctypes.CDLL(str(copy))


@pytest.mark.parametrize(
    ("version", "stream", "source"),
    [(b"1.23.0", STREAM, "stream"), (b"1.17.0", STREAM, "allocator"), (b"1.23.0", None, "allocator")],
)
def test_scratch_belongs_to_the_stream_where_the_runtime_can(
    library: ctypes.CDLL, version: bytes, stream: int | None, source: str
):
    fake = GpuRuntime(version, stream)
    assert fake.register(library) is None
    assert fake.run(0) is None
    assert fake.took == [source]
    np.testing.assert_array_equal(fake.outputs[0][1:], 2 * np.arange(1, 100))
    assert not fake.wrong and not any(fake.lent.values())


def test_a_call_is_for_the_device_of_its_tensors(library: ctypes.CDLL, mock: Mock):
    fake = GpuRuntime()
    fake.register(library)
    mock.set(devices=4)
    for device in (0, 3, 1, 3):
        assert fake.run(device) is None
        assert fake.outputs[0][0] == device
    assert mock.calls("cuDevicePrimaryCtxRetain") == ["cuDevicePrimaryCtxRetain 3", "cuDevicePrimaryCtxRetain 1"]
    assert len(mock.calls("cuCtxSetCurrent")) == 6  # there and back


def test_memory_of_a_cpu_says_nothing_of_the_device(library: ctypes.CDLL, mock: Mock):
    fake = GpuRuntime(memory=b"Cpu")
    fake.register(library)
    mock.set(device=2)
    assert fake.run(1) is None
    assert fake.outputs[0][0] == 2


def test_every_failure_of_the_runtime_is_told_and_nothing_is_kept(library: ctypes.CDLL, mock: Mock):
    fake = GpuRuntime()
    fake.register(library)
    assert fake.run(3) is None
    count = fake.calls
    for place in range(count):
        said = fake.run(3, place)
        assert said is not None and "planted failure" in said, place
        assert not fake.wrong and not any(fake.lent.values()), place
        assert mock.library.mock_device() == 0  # the thread's device is what it was


def test_a_device_that_cannot_be_made_current_is_an_error(library: ctypes.CDLL, mock: Mock):
    fake = GpuRuntime()
    fake.register(library)
    mock.fail("cuDevicePrimaryCtxRetain", 2)
    said = fake.run(2)
    assert said is not None and "cuDevicePrimaryCtxRetain" in said and "out of memory" in said
    mock.fail("", 0)
    assert fake.run(2) is None
