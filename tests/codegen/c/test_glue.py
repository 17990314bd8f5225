"""Regions behind ONNX Runtime (ort_glue.h) and as a program of their own (host.h), with hand-written toy regions."""

import concurrent.futures
import ctypes
import gc
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from tests import host_compiler
from tests.host_compiler import HOST

import smelt
from smelt.runtime import Session, SessionSettings, session_for, write_call

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("fake_ort", HERE / "fake_ort.py")
fake_ort = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fake_ort)
FakeRuntime = fake_ort.FakeRuntime
INCLUDE = Path(smelt.__file__).parent / "codegen" / "c" / "include"
FLAGS = ["-std=gnu11", "-O2", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
FLAGS += ["-fPIC", "-fvisibility=hidden", "-g0"]
STRICT = ["-Wall", "-Wextra", "-Werror"]
X86_LEVELS = {"v2": ("x86-64-v2", 16), "v3": ("x86-64-v3", 32), "v4": ("x86-64-v4", 64)}
ZIG_ARM_LEVELS = {"armv8": ("generic", 16), "armv82": ("generic+v8_2a+fullfp16", 16)}
QUIET = SessionSettings(threads=2, log_severity=4)

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the toy library is built for x86-64")

FLOAT, INT32, INT64, UINT8 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8


def call(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=250, **options)


def must(*command: object) -> str:
    done = call(*command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kernel_objects(folder: Path, compiler: list[str], levels: dict[str, tuple[str, int]]) -> list[Path]:
    objects = []
    for level, (march, vector_bytes) in levels.items():
        out = folder / f"toy_{level}.o"
        spelled = host_compiler.march(march, "zig" if "ziglang" in compiler else compiler[0])
        defines = (spelled, f"-DSMELT_LEVEL={level}", f"-DSMELT_VL={vector_bytes}")
        must(*compiler, *FLAGS, *STRICT, *defines, f"-I{INCLUDE}", "-c", HERE / "glue_toy.c", "-o", out)
        objects.append(out)
    return objects


def build_library(folder: Path, compiler: str = HOST, *flags: str, name: str = "toy") -> Path:
    library = folder / f"{name}_{compiler}.so"
    glue = folder / f"glue_{name}.o"
    cc = host_compiler.command(compiler)
    must(*cc, *FLAGS, *STRICT, *flags, f"-I{INCLUDE}", "-c", HERE / "glue_toy_ort.c", "-o", glue)
    must(*cc, "-shared", "-nostdlib", "-o", library, glue, *kernel_objects(folder, cc, X86_LEVELS))
    return library


def model(op: str, inputs: list[tuple[str, int]], outputs: list[tuple[str, int]], present: int = 1000) -> bytes:
    node = helper.make_node(
        op, [name for name, _ in inputs[:present]], [name for name, _ in outputs], domain="smelt.toy"
    )
    return model_of([node], inputs[:present], outputs)


def model_of(nodes: list[onnx.NodeProto], inputs: list[tuple[str, int]], outputs: list[tuple[str, int]]) -> bytes:
    def declared(values: list[tuple[str, int]]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, dtype, None) for name, dtype in values]

    graph = helper.make_graph(nodes, "g", declared(inputs), declared(outputs))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("smelt.toy", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


A, B, Y = ("a", FLOAT), ("b", FLOAT), ("y", FLOAT)
MODELS = {
    "add": model("add", [A, B], [Y]),
    "optional": model("optional", [A, B], [Y]),
    "gather": model("gather", [A, ("b", INT64)], [Y]),
    "scratch": model("scratch", [("a", INT64)], [("y", INT64)]),
    "level": model("level", [], [("y", INT32)]),
    "zeros": model("zeros", [("a", INT64)], [("y", UINT8)]),
    "many": model("many", [(f"a{i}", FLOAT) for i in range(100)], [(f"y{i}", FLOAT) for i in range(100)]),
}


@pytest.fixture(scope="module", params=[*host_compiler.NAMES, f"{HOST}-old-shapes"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler, _, old = request.param.partition("-")
    flags = ["-DTOY_OLD_SHAPES"] if old else []
    return build_library(tmp_path_factory.mktemp(request.param), compiler, *flags)


@pytest.fixture(scope="module")
def one_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("one"))


def session(name: str, library: Path) -> Session:
    return session_for(MODELS[name], library, QUIET)


def error_of(live: Session, feeds: dict[str, np.ndarray]) -> str:
    with pytest.raises(Exception) as caught:
        live.run(None, feeds)
    return str(caught.value)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (7, 11), (1000, 13), (1,) * 40], ids=str)
def test_any_shape_is_added_in_parallel(library: Path, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape))
    a = np.arange(count, dtype=np.float32).reshape(shape)
    (y,) = session("add", library).run(None, {"a": a, "b": a})
    assert y.shape == shape
    np.testing.assert_array_equal(y, a + a)


def test_a_hundred_inputs_and_outputs(library: Path) -> None:
    feeds = {f"a{i}": np.full((i % 3, 2, 1), i, np.float32) for i in range(100)}
    for i, value in enumerate(session("many", library).run(None, feeds)):
        np.testing.assert_array_equal(value, feeds[f"a{99 - i}"])


def test_a_wrong_dimension_is_named(library: Path) -> None:
    text = error_of(session("add", library), {"a": np.ones((2, 5), np.float32), "b": np.ones((2, 7), np.float32)})
    assert "smelt region add: input 1 has shape [2,7]: axis 1 has size 7, expected 5" in text


def test_a_wrong_rank_is_named(library: Path) -> None:
    text = error_of(session("add", library), {"a": np.ones((2, 5), np.float32), "b": np.ones((), np.float32)})
    assert "smelt region add: input 1 has shape []: rank 0, expected 2" in text


def test_a_failure_inside_a_body_fails_the_call_and_the_next_call_works(library: Path) -> None:
    live = session("gather", library)
    a = np.arange(5, dtype=np.float32)
    bad = np.array([0, 1, 7] * 50, np.int64)
    assert "index 7 out of range for an axis of size 5" in error_of(live, {"a": a, "b": bad})
    np.testing.assert_array_equal(live.run(None, {"a": a, "b": np.array([4, 0])})[0], [4, 0])


def test_an_absent_optional_input_is_seen_as_absent(library: Path) -> None:
    a = np.ones(3, np.float32)
    trailing = model("optional", [A, B], [Y], present=1)
    np.testing.assert_array_equal(session_for(trailing, library, QUIET).run(None, {"a": a})[0], a)
    node = helper.make_node("optional", ["a", ""], ["y"], domain="smelt.toy")
    np.testing.assert_array_equal(session_for(model_of([node], [A], [Y]), library, QUIET).run(None, {"a": a})[0], a)
    np.testing.assert_array_equal(session("optional", library).run(None, {"a": a, "b": a})[0], a + a)
    empty = np.ones((0,), np.float32)  # present but empty is not absent
    assert session("optional", library).run(None, {"a": empty, "b": empty})[0].shape == (0,)


def test_an_empty_tensor_between_nodes_is_not_absent(library: Path) -> None:
    nodes = [
        helper.make_node("add", ["a", "a"], ["t"], domain="smelt.toy"),
        helper.make_node("add", ["t", "t"], ["y"], domain="smelt.toy"),
    ]
    (y,) = session_for(model_of(nodes, [A], [Y]), library, QUIET).run(None, {"a": np.ones((0, 3), np.float32)})
    assert y.shape == (0, 3)


def test_a_required_input_cannot_be_left_out(library: Path) -> None:
    with pytest.raises(Exception, match="add"):
        session_for(model("add", [A, B], [Y], present=1), library, QUIET)


def test_a_wrong_dtype_is_refused_when_the_session_is_made(library: Path) -> None:
    with pytest.raises(Exception, match="add"):
        session_for(model("add", [("a", INT64), B], [Y]), library, QUIET)


@pytest.mark.parametrize(
    "sizes",
    [[], [0], [1, 63, 64, 65], [8192], [8193], [4096, 4096, 4096], [0, 10, 1_000_000, 5, 3_000_000], [700] * 100],
    ids=str,
)
def test_scratch_blocks_are_aligned_and_apart(library: Path, sizes: list[int]) -> None:
    (good,) = session("scratch", library).run(None, {"a": np.array(sizes, np.int64)})
    assert good == len(sizes)


def test_impossible_scratch_is_an_error(library: Path) -> None:
    live = session("scratch", library)
    assert "overflows" in error_of(live, {"a": np.array([100, -1], np.int64)})
    assert "overflows" in error_of(live, {"a": np.array([2**63 - 1], np.int64)})
    huge = error_of(live, {"a": np.array([10_000, 2**60], np.int64)})
    assert re.search(r"memory|alloc", huge, re.IGNORECASE), huge
    assert live.run(None, {"a": np.array([5], np.int64)})[0] == 1


@pytest.mark.parametrize("dims", [[-1], [2**40, 2**40], [2**62], [3, -(2**63)]], ids=str)
def test_impossible_outputs_are_errors(library: Path, dims: list[int]) -> None:
    assert error_of(session("zeros", library), {"a": np.array(dims, np.int64)})


def test_an_output_may_be_empty_or_a_scalar(library: Path) -> None:
    live = session("zeros", library)
    for dims in ([], [0], [4, 0], [2, 3]):
        assert live.run(None, {"a": np.array(dims, np.int64)})[0].shape == tuple(dims)


def test_eight_threads_share_one_session(library: Path) -> None:
    live = session("add", library)
    gather = session("gather", library)

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(60):
            shape = tuple(random.integers(0, 60, size=2))
            a = random.random(shape, np.float32)
            np.testing.assert_array_equal(live.run(None, {"a": a, "b": a})[0], a + a)
            index = random.integers(0, 9, size=300)
            expect_error = bool(index.max() >= 8)
            data = np.arange(8, dtype=np.float32)
            if expect_error:
                assert "index 8 out of range" in error_of(gather, {"a": data, "b": index})
            else:
                np.testing.assert_array_equal(gather.run(None, {"a": data, "b": index})[0], data[index])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, seed) for seed in range(8)]:
            done.result()


def test_threads_that_register_at_once_share_one_domain(tmp_path: Path) -> None:
    fresh = ctypes.CDLL(str(build_library(tmp_path, HOST, name="fresh")))
    fake = FakeRuntime()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda _: fake.register(fresh), range(8)))
    assert statuses == [None] * 8
    assert fake.domains == [b"smelt.toy"]
    assert fake.added == [1001] * 8


def test_each_copy_of_the_runtime_gets_its_own_operators(tmp_path: Path) -> None:
    fresh = ctypes.CDLL(str(build_library(tmp_path, HOST, name="fresh")))
    fakes = [FakeRuntime() for _ in range(5)]
    assert [fake.register(fresh) for fake in fakes] == [None] * 4 + [mock.ANY]
    assert len(fakes[4].lent["status"]) == 1
    assert list(fakes[4].texts.values()) == ["smelt: too many copies of ONNX Runtime in one process"]
    assert fakes[0].register(fresh) is None
    assert fakes[0].domains == [b"smelt.toy"]


def test_a_runtime_that_is_too_old_is_told_so(tmp_path: Path) -> None:
    fresh = ctypes.CDLL(str(build_library(tmp_path, HOST, name="fresh")))
    old = FakeRuntime(newest=16, version=b"1.16.3")
    assert old.register(fresh)
    assert list(old.texts.values()) == ["smelt: needs ONNX Runtime 1.17 or newer, this is 1.16.3"]
    assert old.domains == []


def test_sessions_may_be_made_at_the_same_time(tmp_path: Path) -> None:
    fresh = build_library(tmp_path, HOST, name="fresh")
    a = np.ones(4, np.float32)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        lives = list(pool.map(lambda _: session("add", fresh), range(16)))
    for live in lives:
        np.testing.assert_array_equal(live.run(None, {"a": a, "b": a})[0], a + a)


def test_two_libraries_with_their_own_domains_share_a_session(tmp_path: Path, one_library: Path) -> None:
    other = build_library(tmp_path, HOST, '-DTOY_DOMAIN="smelt.other"', name="other")
    nodes = [
        helper.make_node("add", ["a", "b"], ["t"], domain="smelt.toy"),
        helper.make_node("add", ["t", "b"], ["y"], domain="smelt.other"),
    ]
    proto = onnx.load_from_string(model_of(nodes, [A, B], [Y]))
    proto.opset_import.append(helper.make_opsetid("smelt.other", 1))
    options = ort.SessionOptions()
    for library in (one_library, other):
        options.register_custom_ops_library(str(library))
    live = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(live.run(None, {"a": np.ones(2, np.float32), "b": np.ones(2, np.float32)})[0], [3, 3])


class HeapUse(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keep",
        )
    ]


def heap_bytes() -> int:
    gc.collect()
    read = ctypes.CDLL(None).mallinfo2
    read.restype = HeapUse
    use = read()
    return use.uordblks + use.hblkhd


def growth(work: Callable[[], None], calls: int = 3000) -> float:
    """Bytes per call that stay allocated, after a warm-up."""
    for _ in range(calls):
        work()
    before = heap_bytes()
    for _ in range(calls):
        work()
    return (heap_bytes() - before) / calls


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33")
def test_scratch_falls_back_to_the_real_runtime(library: Path) -> None:
    live = session("scratch", library)
    feeds = {"a": np.array([20_000, 20_000], np.int64)}
    assert growth(lambda: live.run(None, feeds)) < 16  # the least block of malloc is 32 bytes


CALLS: dict[str, list[np.ndarray | None]] = {
    "add": [np.ones((500, 3), np.float32)] * 2,
    "optional": [np.ones((0, 3), np.float32), None],
    "many": [np.full((1, 2, 1), i, np.float32) for i in range(100)],
    "scratch": [np.array([100, 20_000, 9000, 50_000], np.int64)],
}
BAD_CALLS: dict[str, tuple[list[np.ndarray | None], str]] = {
    "add": ([np.ones((2, 3), np.float32), np.ones((2, 4), np.float32)], "axis 1 has size 4, expected 3"),
    "gather": ([np.ones(5, np.float32), np.array([0, 9], np.int64)], "index 9 out of range"),
    "scratch": ([np.array([20_000, 9000, -1], np.int64)], "overflows"),
}


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> FakeRuntime:
    made = FakeRuntime(version=b"1.17.0")  # the release in which shapes are lent and must be given back
    assert made.register(ctypes.CDLL(str(build_library(tmp_path_factory.mktemp("fake"), HOST, name="fake")))) is None
    return made


def nothing_lent(fake: FakeRuntime) -> bool:
    return not any(fake.lent.values()) and not fake.wrong


@pytest.mark.parametrize("name", CALLS)
def test_whatever_call_fails_is_reported_and_everything_falls_back(fake: FakeRuntime, name: str) -> None:
    assert fake.compute(name, CALLS[name]) is None
    assert nothing_lent(fake)
    for position in range(fake.calls):
        assert fake.compute(name, CALLS[name], fail_at=position) == f"planted failure {position}"
        assert nothing_lent(fake), position


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_failed_region_gives_everything_back(fake: FakeRuntime, name: str) -> None:
    inputs, message = BAD_CALLS[name]
    assert message in (fake.compute(name, inputs) or "")
    assert nothing_lent(fake)
    for position in range(fake.calls):  # a second failure, e.g. of a free, is released and hides nothing
        assert fake.compute(name, inputs, fail_at=position)
        assert nothing_lent(fake), position


def detected_level() -> int:
    flags = set(re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[1].split())
    if not {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"} <= flags:
        return 0
    return 2 if {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= flags else 1


LEVEL_SCRIPT = """
import sys, onnxruntime as ort
options = ort.SessionOptions()
options.register_custom_ops_library(sys.argv[1])
print(ort.InferenceSession(sys.argv[2], options, providers=["CPUExecutionProvider"]).run(None, {})[0])
"""


def level_in_subprocess(library: Path, folder: Path, wish: str | None) -> subprocess.CompletedProcess[str]:
    path = folder / "level.onnx"
    path.write_bytes(MODELS["level"])
    environment = {key: value for key, value in os.environ.items() if key != "SMELT_LEVEL"}
    environment |= {"SMELT_LEVEL": wish} if wish is not None else {}
    return call(sys.executable, "-c", LEVEL_SCRIPT, library, path, env=environment)


@pytest.mark.parametrize(("wish", "cap"), [(None, 9), ("", 9), ("v2", 0), ("v3", 1), ("v4", 2)])
def test_the_best_level_of_this_cpu_runs_and_the_environment_can_only_lower_it(
    one_library: Path, tmp_path: Path, wish: str | None, cap: int
) -> None:
    done = level_in_subprocess(one_library, tmp_path, wish)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == min(detected_level(), cap)


def test_an_unknown_level_in_the_environment_is_an_error(one_library: Path, tmp_path: Path) -> None:
    done = level_in_subprocess(one_library, tmp_path, "v9")
    assert done.returncode != 0
    assert "SMELT_LEVEL names no level of this CPU family: v9" in done.stderr


def test_the_library_exports_one_name_and_needs_no_compiler_runtime(one_library: Path) -> None:
    names = [line.split() for line in must("nm", "-D", one_library).splitlines()]
    exported = [parts[-1] for parts in names if parts[-2] != "U" and parts[-2].isupper()]
    assert exported == ["RegisterCustomOps"]
    known = {"getenv", "memcpy", "memset", "memmove", "sched_getaffinity"}
    assert {parts[-1].split("@")[0] for parts in names if parts[-2] == "U"} <= known


# --- standalone host -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("host")
    program = folder / "toy"
    units = (HERE / "glue_toy_host.c", *kernel_objects(folder, host_compiler.command(), X86_LEVELS))
    must(*host_compiler.command(), *FLAGS, *STRICT, f"-I{INCLUDE}", "-o", program, *units, "-pthread")
    return program


def dump(folder: Path, inputs: list[np.ndarray | None], expected: list[np.ndarray]) -> Path:
    path = folder / "call.bin"
    write_call(path, inputs, expected)
    return path


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", [(), (0, 3), (5000, 3)], ids=str)
def test_the_host_runs_compares_and_times_a_region(
    host: Path, tmp_path: Path, threads: int, shape: tuple[int, ...]
) -> None:
    a = np.random.default_rng(0).random(shape, np.float32)
    path = dump(tmp_path, [a, a], [a + a])
    out = must(host, path, "--region", "add", "--threads", threads, "--runs", 50)
    assert "result: as expected" in out
    assert re.search(r"time: min [\d.]+ us, median [\d.]+ us over 50 runs", out)


def test_the_host_tells_a_wrong_value_from_rounding(host: Path, tmp_path: Path) -> None:
    a = np.linspace(1, 2, 1000, dtype=np.float32)
    assert call(host, dump(tmp_path, [a, a], [(a + a) * np.float32(1 + 2e-7)]), "--region", "add").returncode == 0
    wrong = (a + a).copy()
    wrong[500] += 0.01
    done = call(host, dump(tmp_path, [a, a], [wrong]), "--region", "add")
    assert done.returncode == 1
    assert "output 0: 1 of 1000 elements differ" in done.stdout


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_host_compares_special_values_exactly(host: Path, tmp_path: Path, value: float) -> None:
    a = np.array([1, value, 2], np.float32)
    zero = np.zeros(3, np.float32)
    assert call(host, dump(tmp_path, [a, zero], [a]), "--region", "add").returncode == 0
    finite = np.array([1, 3, 2], np.float32)
    assert call(host, dump(tmp_path, [a, zero], [finite]), "--region", "add").returncode == 1
    assert call(host, dump(tmp_path, [finite, zero], [a]), "--region", "add").returncode == 1


def test_the_host_takes_an_absent_input_and_a_level(host: Path, tmp_path: Path) -> None:
    a = np.ones(3, np.float32)
    out = must(host, dump(tmp_path, [a, None], [a]), "--region", "optional", "--level", "v2")
    assert "level v2" in out
    must(host, dump(tmp_path, [], [np.array(0, np.int32)]), "--region", "level", "--level", "v2")


def test_the_host_refuses_a_machine_that_it_cannot_read(host: Path, tmp_path: Path) -> None:
    made = call(host, tmp_path / "any.call", env={**os.environ, "SMELT_MACHINE": "threads=4,cores=2"})
    assert made.returncode == 2 and "cores=2" in made.stderr and "l1, l2, l3, processors, threads" in made.stderr


def test_the_host_names_a_region_failure(host: Path, tmp_path: Path) -> None:
    path = dump(tmp_path, [np.ones(5, np.float32), np.array([9], np.int64)], [np.ones(1, np.float32)])
    done = call(host, path, "--region", "gather")
    assert done.returncode == 2
    assert "smelt region gather: input 1 has shape [1]: index 9 out of range for an axis of size 5" in done.stderr


def test_the_host_refuses_damaged_files(host: Path, tmp_path: Path) -> None:
    path = dump(tmp_path, [np.ones(5, np.float32)] * 2, [np.ones(5, np.float32)])
    whole = path.read_bytes()
    cases = [whole[:cut] for cut in (0, 7, 12, 20, 40, 70, len(whole) - 1)] + [whole + b"\0", b"x" * 100]
    cases.append(whole[:24] + (2**62).to_bytes(8, "little") + whole[32:])
    for data in cases:
        path.write_bytes(data)
        assert call(host, path, "--region", "add").returncode == 2
    assert call(host, path.with_name("absent"), "--region", "add").returncode == 2
    assert call(host).returncode == 2


# --- other releases, languages and CPUs ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, content in MODELS.items():
        (folder / f"{name}.onnx").write_bytes(content)
    return folder


def test_the_probe_passes_on_the_installed_release(one_library: Path, model_folder: Path) -> None:
    answer = json.loads(must(sys.executable, HERE / "glue_probe.py", one_library, model_folder))
    assert answer == {"ort": ort.__version__, "level": detected_level()}


@pytest.mark.full
@pytest.mark.skipif(sys.version_info[:2] > (3, 12), reason="the oldest release has no wheel for this Python")
@pytest.mark.parametrize("release", ["1.17.3", "1.20.1", "1.22.1", "1.23.2"])
def test_the_probe_passes_on_other_releases(
    one_library: Path, model_folder: Path, tmp_path: Path, release: str
) -> None:
    numpy = "numpy<2" if release.startswith("1.17") else "numpy"
    must(sys.executable, "-m", "pip", "install", "-q", "--target", tmp_path, f"onnxruntime=={release}", numpy)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = call(sys.executable, "-S", HERE / "glue_probe.py", one_library, model_folder, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"ort": release, "level": detected_level()}


@pytest.mark.full
def test_a_c_program_runs_the_model(one_library: Path, model_folder: Path, tmp_path: Path) -> None:
    (shared,) = list((Path(ort.__file__).parent / "capi").glob("libonnxruntime.so*"))[:1]
    program = tmp_path / "program"
    must(*host_compiler.command(), *FLAGS, *STRICT, f"-I{INCLUDE}", HERE / "ort_program.c", "-o", program, "-ldl")
    assert must(program, shared, model_folder / "add.onnx", one_library).startswith("11 22 33 on ")


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="needs qemu-user")
def test_an_old_cpu_runs_the_lowest_level(one_library: Path, model_folder: Path) -> None:
    probe = (sys.executable, HERE / "glue_probe.py", one_library, model_folder)
    done = call("qemu-x86_64", "-cpu", "Nehalem", *probe)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["level"] == 0


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="needs qemu-user")
@pytest.mark.parametrize(("cpu", "level"), [("Nehalem", "v2"), ("Haswell", "v3")])
def test_the_host_under_another_x86_cpu(host: Path, tmp_path: Path, cpu: str, level: str) -> None:
    expected = list(X86_LEVELS).index(level)
    path = dump(tmp_path, [], [np.array(expected, np.int32)])
    assert f"level {level}" in must("qemu-x86_64", "-cpu", cpu, host, path, "--region", "level")


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("qemu-aarch64"), reason="needs qemu-user")
@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs the ziglang package")
def test_the_host_on_arm(tmp_path: Path) -> None:
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl"]
    program = tmp_path / "toy"
    objects = kernel_objects(tmp_path, zig, ZIG_ARM_LEVELS)
    must(*zig, "-static", *FLAGS, *STRICT, f"-I{INCLUDE}", "-o", program, HERE / "glue_toy_host.c", *objects)
    for cpu, level, number in (("cortex-a53", "armv8", 0), ("max", "armv82", 1)):
        path = dump(tmp_path, [], [np.array(number, np.int32)])
        assert f"level {level}" in must("qemu-aarch64", "-cpu", cpu, program, path, "--region", "level")
        a = np.random.default_rng(1).random((700, 3), np.float32)
        path = dump(tmp_path, [a, a], [a + a])
        out = must("qemu-aarch64", "-cpu", cpu, program, path, "--region", "add", "--threads", 2, "--runs", 3)
        assert "result: as expected" in out
