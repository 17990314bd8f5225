"""Source becomes a library: every level, every compiler, failures that say what happened."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smelt.base import (
    CodegenError,
    CompileError,
    Config,
    ConfigError,
    Target,
    ToolchainError,
    host_arch,
    levels_of,
    runs_on_host,
)
from smelt.ir.records import Library, Source, Unit
from smelt.toolchain import Cache, Compiler, build, count_jobs, find_compiler, library_key, read_symbols

Make = Callable[[str], Path]
MakeSource = Callable[..., Source]


def call(library: Library, level: int, values: np.ndarray) -> int:
    function = ctypes.CDLL(str(library.path)).RegisterCustomOps
    function.restype = ctypes.c_int64
    function.argtypes = [ctypes.c_int64, ctypes.c_void_p]
    return function(level, values.ctypes.data)


def named(config: Config, text: str) -> Compiler:
    return find_compiler(config.with_(cc=text, cc_from="SMELT_CC"))


@pytest.mark.parametrize("kind", ["gcc", "clang", "zig"])
def test_each_compiler_builds_every_level_into_one_library(
    kind: str, source: Source, targets: tuple[Target, ...], cache: Cache, config: Config
):
    if kind != "zig" and shutil.which(kind) is None:
        pytest.skip(f"{kind} is not installed")
    library = build(source, targets, named(config, kind), cache, config)
    assert library.targets == tuple(target.name for target in targets)
    assert read_symbols(library.path).exported == ("RegisterCustomOps",)
    for target in targets:
        if runs_on_host(target):
            values = np.arange(16, dtype=np.float32)
            assert call(library, target.index, values) == target.vector_bytes
            lanes = target.vector_bytes // 4
            expected = np.arange(16, dtype=np.float32)
            expected[:lanes] = expected[:lanes] ** 2 + expected[:lanes]
            np.testing.assert_array_equal(values, expected)


def test_a_level_that_is_not_asked_for_is_not_built(
    source: Source, targets: tuple[Target, ...], compiler: Compiler, cache: Cache, config: Config
):
    library = build(source, targets[:1], compiler, cache, config)
    assert call(library, 0, np.zeros(16, np.float32)) == targets[0].vector_bytes
    assert call(library, 1, np.zeros(16, np.float32)) == 0


@pytest.mark.parametrize("arch", ["x86-64", "aarch64"])
def test_zig_builds_for_both_architectures(arch: str, make_source: MakeSource, cache: Cache, config: Config):
    library = build(make_source(arch=arch), levels_of(arch), named(config, "zig"), cache, config)
    machine = int.from_bytes(library.path.read_bytes()[18:20], "little")
    assert machine == {"x86-64": 62, "aarch64": 183}[arch]
    assert read_symbols(library.path).exported == ("RegisterCustomOps",)


@pytest.mark.parametrize("optimize", [0, 1, 2])
def test_zig_builds_what_is_not_optimized_without_a_sanitizer(optimize: int, cache: Cache, config: Config):
    body = "int RegisterCustomOps(int a, int *b) { return a / b[a] + (int)(1.5f * a); }\n"
    unit = Unit("plain", f'__attribute__((visibility("default"))) {body}', per_level=False, optimize=optimize)
    library = build(Source((unit,), ()), levels_of(host_arch()), named(config, "zig"), cache, config)
    assert ctypes.CDLL(str(library.path)).RegisterCustomOps is not None


@pytest.mark.skipif(shutil.which("qemu-aarch64") is None, reason="qemu-user is not installed")
@pytest.mark.full
def test_an_aarch64_program_runs_under_emulation(cache: Cache, config: Config):
    main = '#include <stdio.h>\nint main(void) { puts("made"); return 0; }\n'
    source = Source((Unit("main", main, per_level=False),), ())
    program = build(source, levels_of("aarch64"), named(config, "zig"), cache, config, program=True)
    command = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", str(program.path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if "ld-linux" in result.stderr:
        pytest.skip("no C library for aarch64 is installed")
    assert result.stdout == "made\n"


# zig compiles the C library's start-up code first, which takes a minute.
@pytest.mark.parametrize("kind", ["gcc", "clang", pytest.param("zig", marks=pytest.mark.full)])
def test_a_program_is_linked_against_the_c_library(
    kind: str, targets: tuple[Target, ...], cache: Cache, config: Config
):
    if kind != "zig" and shutil.which(kind) is None:
        pytest.skip(f"{kind} is not installed")
    main = '#include <stdio.h>\nint main(void) { puts("made"); return 7; }\n'
    source = Source((Unit("main", main, per_level=False),), ())
    program = build(source, targets, named(config, kind), cache, config, program=True)
    result = subprocess.run([str(program.path)], capture_output=True, text=True, timeout=60)
    assert (result.stdout, result.returncode) == ("made\n", 7)


@pytest.mark.parametrize("kind", ["gcc", "clang", pytest.param("zig", marks=pytest.mark.full)])
def test_helper_functions_of_the_compiler_are_linked_in(
    kind: str, targets: tuple[Target, ...], cache: Cache, config: Config
):
    if kind != "zig" and shutil.which(kind) is None:
        pytest.skip(f"{kind} is not installed")
    text = (
        "#include <stdint.h>\n"
        '__attribute__((visibility("default"))) int64_t RegisterCustomOps(int64_t n, void *x) {\n'
        "  (void)x; return (int64_t)(((__int128)n * n) / (n + 1));\n}\n"
    )
    library = build(Source((Unit("wide", text, False),), ()), targets, named(config, kind), cache, config)
    symbols = read_symbols(library.path)
    assert symbols.exported == ("RegisterCustomOps",)
    assert not [name for name in symbols.needed if name.startswith("__")]
    assert call(library, 1 << 40, np.zeros(1, np.float32)) == (1 << 80) // ((1 << 40) + 1)


def test_headers_are_found_and_are_part_of_the_key(
    tmp_path: Path, targets: tuple[Target, ...], compiler: Compiler, cache: Cache, config: Config
):
    headers = tmp_path / "include" / "smelt"
    headers.mkdir(parents=True)
    (headers / "answer.h").write_text("#define ANSWER 1\n")
    text = (
        "#include <smelt/answer.h>\n"
        '__attribute__((visibility("default"))) long RegisterCustomOps(long n, void *x) { return x ? ANSWER : n; }\n'
    )
    source = Source((Unit("k", text, False),), (), (tmp_path / "include",))
    one = build(source, targets, compiler, cache, config)
    (headers / "answer.h").write_text("#define ANSWER 2\n")
    two = build(source, targets, compiler, cache, config)
    assert (call(one, 0, np.zeros(1)), call(two, 0, np.zeros(1))) == (1, 2)
    assert one.key != two.key
    shutil.move(tmp_path / "include", tmp_path / "moved")
    moved = replace(source, include_dirs=(tmp_path / "moved",))
    assert library_key(moved, targets, compiler, config) == two.key


def test_the_key_depends_on_all_that_changes_the_library(
    make_source: MakeSource, targets: tuple[Target, ...], compiler: Compiler, config: Config
):
    source, other_text = make_source(), make_source(comment="/* changed */\n")
    keys = [
        library_key(source, targets, compiler, config),
        library_key(other_text, targets, compiler, config),
        library_key(replace(source, include_hash="other"), targets, compiler, config),
        library_key(source, targets[:1], compiler, config),
        library_key(source, targets, compiler, config.with_(cflags="-O1")),
        library_key(source, targets, replace(compiler, identity="another"), config),
        library_key(source, targets, compiler, config, program=True),
    ]
    assert len(set(keys)) == len(keys)
    assert library_key(source, targets, compiler, config.with_(threads=3, jobs=1)) == keys[0]


def test_a_second_build_is_a_hit_that_starts_no_compiler(
    source: Source, targets: tuple[Target, ...], cache: Cache, config: Config, make_compiler: Make, tmp_path: Path
):
    log = tmp_path / "log"
    counting = named(config, str(make_compiler(f"open({str(log)!r}, 'a').write('x')\nreal(*sys.argv[1:])\n")))
    first = build(source, targets, counting, cache, config)
    ran = log.read_text()
    second = build(source, targets, counting, cache, config)
    assert (first.cached, second.cached) == (False, True)
    assert first.path == second.path and first.sha256 == second.sha256
    assert log.read_text() == ran == "x" * count_jobs(source, targets)


def test_a_changed_unit_rebuilds_no_other(
    source: Source, targets: tuple[Target, ...], cache: Cache, config: Config, make_compiler: Make, tmp_path: Path
):
    log = tmp_path / "log"
    body = (
        f"open({str(log)!r}, 'a').write(' '.join(a for a in sys.argv if a.endswith('.c')) + ' ')\nreal(*sys.argv[1:])\n"
    )
    counting = named(config, str(make_compiler(body)))
    build(source, targets, counting, cache, config)
    log.write_text("")
    changed = Source((source.units[0], Unit("glue", source.units[1].text + "\n/* changed */\n", False)), ())
    build(changed, targets, counting, cache, config)
    assert log.read_text().split() == ["glue.c"]


def test_progress_counts_every_compilation_and_the_link(
    source: Source, targets: tuple[Target, ...], compiler: Compiler, cache: Cache, config: Config
):
    seen: list[str] = []
    build(source, targets, compiler, cache, config, step=lambda text="", advance=1: seen.append(text))
    assert len(seen) == count_jobs(source, targets)
    assert seen[-1] == "link" and "glue" in seen and f"k0 {targets[0].name}" in seen


def test_the_library_holds_no_path_of_the_machine_that_built_it(
    tmp_path: Path, targets: tuple[Target, ...], compiler: Compiler, cache: Cache, config: Config
):
    text = '__attribute__((visibility("default"))) const char *RegisterCustomOps(void) { return __FILE__; }\n'
    library = build(Source((Unit("where", text, False),), ()), targets, compiler, cache, config)
    for file in library.path.parent.iterdir():
        assert str(tmp_path).encode() not in file.read_bytes()


# Failures


def test_a_compile_error_carries_the_compilers_words_and_the_command(
    targets: tuple[Target, ...], compiler: Compiler, cache: Cache, config: Config
):
    source = Source((Unit("bad", "int f(void) { return no_such_name; }\n", False),), ())
    with pytest.raises(CompileError, match="no_such_name") as caught:
        build(source, targets, compiler, cache, config)
    assert caught.value.code == "SM-TOOL-004"
    assert "bad.c" in caught.value.command and "no_such_name" in caught.value.stderr
    assert cache.entries() == () and not list((cache.root / "tmp").iterdir())


def test_a_kernel_that_no_unit_defines_is_an_error_of_the_build(
    targets: tuple[Target, ...], compiler: Compiler, cache: Cache, config: Config
):
    text = 'void smelt_absent_v9(void);\n__attribute__((visibility("default"))) void f(void) { smelt_absent_v9(); }\n'
    source = Source((Unit("calls", text, False),), ())
    with pytest.raises(ToolchainError, match="smelt_absent_v9"):
        build(source, targets, compiler, cache, config)


def test_a_failed_build_can_be_repeated(
    source: Source, targets: tuple[Target, ...], compiler: Compiler, cache: Cache, config: Config
):
    with pytest.raises(CompileError):
        build(source, targets, compiler, cache, config.with_(cflags="-include no-such-file.h"))
    assert build(source, targets, compiler, cache, config).path.exists()


def test_a_compiler_that_hangs_is_stopped_with_its_children(
    source: Source, targets: tuple[Target, ...], cache: Cache, config: Config, make_compiler: Make, tmp_path: Path
):
    pids = tmp_path / "pids"
    body = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(pids)!r}, 'a').write(f'{{child.pid}}\\n')\n"
        "child.wait()\n"
    )
    hanging = named(config, str(make_compiler(body)))
    started = time.monotonic()
    with pytest.raises(CompileError, match="stopped after 1 s") as caught:
        build(source, targets, hanging, cache, config.with_(compile_timeout_s=1.0))
    assert caught.value.code == "SM-TOOL-005"
    assert time.monotonic() - started < 20
    time.sleep(0.2)
    for pid in pids.read_text().split():
        state = Path(f"/proc/{pid}/stat")
        assert not state.exists() or state.read_text().split(") ")[1][0] == "Z"


def test_the_first_failure_is_reported_and_stops_the_others(
    targets: tuple[Target, ...], cache: Cache, config: Config, make_compiler: Make
):
    body = "if 'slow.c' in sys.argv: time.sleep(60)\ntime.sleep(0.3); sys.stderr.write('cause'); sys.exit(3)\n"
    failing = named(config, str(make_compiler(body)))
    source = Source((Unit("slow", "", False), Unit("quick", "", False), Unit("late", "", False)), ())
    started = time.monotonic()
    with pytest.raises(CompileError, match="quick: the compiler ended with 3\ncause"):
        build(source, targets, failing, cache, config.with_(jobs=2))
    assert time.monotonic() - started < 30


def test_a_compiler_that_writes_nothing_is_a_failure(
    source: Source, targets: tuple[Target, ...], cache: Cache, config: Config, make_compiler: Make
):
    lazy = named(config, str(make_compiler("sys.exit(0)\n")))
    with pytest.raises(CompileError, match="wrote nothing"):
        build(source, targets, lazy, cache, config)


def test_a_library_without_an_entry_is_refused(
    make_source: MakeSource, targets: tuple[Target, ...], compiler: Compiler, cache: Cache, config: Config
):
    with pytest.raises(ToolchainError) as caught:
        build(make_source(marker="hidden"), targets, compiler, cache, config)
    assert caught.value.code == "SM-TOOL-006"
    assert cache.entries() == ()


def test_a_linker_that_writes_rubbish_is_refused(
    source: Source, targets: tuple[Target, ...], cache: Cache, config: Config, make_compiler: Make
):
    body = "if '-shared' in sys.argv: open('linked', 'w').write('rubbish'); sys.exit(0)\nreal(*sys.argv[1:])\n"
    with pytest.raises(ToolchainError, match="not a library"):
        build(source, targets, named(config, str(make_compiler(body))), cache, config)


@pytest.mark.parametrize("name", ["a b", "../k", "", "k;touch x", "-o", "k\n", "é"])
def test_a_unit_name_that_is_no_identifier_is_refused(
    name: str, targets: tuple[Target, ...], compiler: Compiler, cache: Cache, config: Config
):
    with pytest.raises(CodegenError):
        build(Source((Unit(name, ""),), ()), targets, compiler, cache, config)


def test_two_units_of_one_name_are_refused(
    targets: tuple[Target, ...], compiler: Compiler, cache: Cache, config: Config
):
    with pytest.raises(CodegenError):
        build(Source((Unit("k", ""), Unit("k", "", False)), ()), targets, compiler, cache, config)


def test_targets_of_no_or_two_architectures_are_refused(
    source: Source, compiler: Compiler, cache: Cache, config: Config
):
    for wrong in ((), (*levels_of("x86-64"), *levels_of("aarch64"))):
        with pytest.raises(ConfigError):
            build(source, wrong, compiler, cache, config)


def test_unbalanced_quotes_in_flags_are_an_error_of_the_knob(
    source: Source, targets: tuple[Target, ...], compiler: Compiler, cache: Cache, config: Config
):
    with pytest.raises(ConfigError, match="SMELT_CFLAGS"):
        build(source, targets, compiler, cache, config.with_(cflags="'-O1"))


def test_an_interrupted_build_leaves_nothing_behind(
    source: Source, targets: tuple[Target, ...], cache: Cache, config: Config, make_compiler: Make
):
    def interrupt(text: str = "", advance: int = 1) -> None:
        raise KeyboardInterrupt

    compiler = named(config, str(make_compiler("real(*sys.argv[1:])\n")))
    with pytest.raises(KeyboardInterrupt):
        build(source, targets, compiler, cache, config, step=interrupt)
    assert cache.entries() == () and not list((cache.root / "tmp").iterdir())


def test_an_interrupt_between_two_submissions_stops_what_was_begun(
    source: Source, targets: tuple[Target, ...], cache: Cache, config: Config, make_compiler: Make, tmp_path: Path
):
    begun = tmp_path / "begun"
    compiler = named(config, str(make_compiler(f"open({str(begun)!r}, 'w').close()\ntime.sleep(60)\n")))

    class Interrupted(ThreadPoolExecutor):
        def submit(self, *args: Any, **kwargs: Any) -> Any:
            super().submit(*args, **kwargs)
            while not begun.exists():
                time.sleep(0.01)
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[build.__module__], "ThreadPoolExecutor", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            build(source, targets, compiler, cache, config)
    assert time.monotonic() - started < 30
    assert not list((cache.root / "tmp").iterdir())


def test_threads_that_build_the_same_library_share_one_build(
    source: Source, targets: tuple[Target, ...], compiler: Compiler, cache: Cache, config: Config
):
    found: list[Library] = []

    def run() -> None:
        found.append(build(source, targets, compiler, Cache(cache.root), config))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({library.path for library in found}) == 1 and len(found) == 8
    assert sum(not library.cached for library in found) == 1
