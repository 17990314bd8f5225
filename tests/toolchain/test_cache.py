"""The cache: safe to share between processes, refused when unsafe, rebuilt when altered, cleared by age and size."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from smelt.base import CacheError, Config, Target
from smelt.ir.records import Library, Source
from smelt.toolchain import Cache, Compiler, build, find_compiler

ROOT = Path(__file__).parents[2]
IS_ROOT = os.geteuid() == 0


@pytest.fixture
def rebuild(source: Source, targets: tuple[Target, ...], compiler: Compiler, config: Config) -> Callable[[], Library]:
    return lambda: build(source, targets, compiler, Cache(config.cache_dir), config)


def put(cache: Cache, text: str, used: float | None = None) -> str:
    """An entry with made-up content."""
    key = hashlib.sha256(text.encode()).hexdigest()
    with cache.work() as folder:
        (folder / "built").write_text(text)
        entry = cache.put(key, folder / "built", {})
    if used is not None:
        os.utime(entry.path.parent / "meta.json", (used, used))
    return key


# Safety


def test_the_folder_is_created_for_its_user_only(tmp_path: Path):
    old = os.umask(0)
    try:
        cache = Cache(tmp_path / "deep" / "cache")
    finally:
        os.umask(old)
    for folder in (cache.root, *(path for path in cache.root.iterdir() if path.is_dir())):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
@pytest.mark.parametrize("inner", ["", "lib", "obj"])
def test_a_folder_that_others_can_write_is_refused_with_the_remedy(tmp_path: Path, mode: int, inner: str):
    folder = Cache(tmp_path / "cache").root / inner
    folder.chmod(mode)
    with pytest.raises(CacheError) as caught:
        Cache(tmp_path / "cache")
    assert caught.value.code == "SM-CACHE-002"
    assert caught.value.hint == f"chmod go-w '{folder}'"
    subprocess.run(["chmod", "go-w", str(folder)], check=True)
    Cache(tmp_path / "cache")


@pytest.mark.skipif(not IS_ROOT, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path):
    os.chown(Cache(tmp_path / "cache").root, 12345, 12345)
    with pytest.raises(CacheError, match="12345") as caught:
        Cache(tmp_path / "cache")
    assert caught.value.code == "SM-CACHE-001"


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path):
    (tmp_path / "cache").write_text("")
    with pytest.raises(CacheError) as caught:
        Cache(tmp_path / "cache")
    assert caught.value.code == "SM-CACHE-003"


@pytest.mark.skipif(IS_ROOT, reason="root may write everywhere")
def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(CacheError) as caught:
        Cache(tmp_path / "cache")
    tmp_path.chmod(0o700)
    assert caught.value.code == "SM-CACHE-003"


# Entries


def altered_byte(library: Library) -> None:
    data = bytearray(library.path.read_bytes())
    data[-1] ^= 1
    library.path.chmod(0o700)
    library.path.write_bytes(data)


def truncated(library: Library) -> None:
    library.path.write_bytes(library.path.read_bytes()[:100])


def missing(library: Library) -> None:
    library.path.unlink()


def a_link(library: Library) -> None:
    elsewhere = library.path.parents[3] / "elsewhere.so"
    shutil.move(library.path, elsewhere)
    library.path.symlink_to(elsewhere)


def writable_by_others(library: Library) -> None:
    library.path.chmod(0o777)


def given_away(library: Library) -> None:
    os.chown(library.path, 12345, 12345)


def rewritten_meta(**changes: object) -> Callable[[Library], None]:
    def change(library: Library) -> None:
        path = library.path.parent / "meta.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def meta_text(text: str) -> Callable[[Library], None]:
    return lambda library: (library.path.parent / "meta.json").write_text(text) and None


DAMAGE = {
    "a byte altered": altered_byte,
    "truncated": truncated,
    "library missing": missing,
    "a symbolic link": a_link,
    "writable by others": writable_by_others,
    "meta empty": meta_text(""),
    "meta a list": meta_text("[]"),
    "meta not text": meta_text("\x00{"),
    "key of another": rewritten_meta(key="0" * 64),
    "path outside": rewritten_meta(file="../../../../../../lib/x86_64-linux-gnu/libc.so.6"),
    "digest a number": rewritten_meta(sha256=7),
    "another format": rewritten_meta(format=99),
}
if IS_ROOT:
    DAMAGE["owned by another"] = given_away


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_or_foreign_entry_is_rebuilt(rebuild: Callable[[], Library], damage: Callable[[Library], None]):
    first = rebuild()
    good = first.path.read_bytes()
    damage(first)
    second = rebuild()
    assert not second.cached
    assert second.path.read_bytes() == good and not second.path.is_symlink()
    assert rebuild().cached


def test_a_damaged_object_is_compiled_again(rebuild: Callable[[], Library], config: Config):
    good = rebuild().path.read_bytes()
    cache = Cache(config.cache_dir)
    for path in (cache.root / "obj").glob("*/*.o"):
        path.write_bytes(b"rubbish")
    shutil.rmtree(cache.root / "lib")
    assert rebuild().path.read_bytes() == good


def test_the_file_name_carries_the_digest_and_meta_is_json(rebuild: Callable[[], Library]):
    library = rebuild()
    assert library.path.name == f"smelt_{library.sha256[:16]}.so"
    meta = json.loads((library.path.parent / "meta.json").read_text())
    assert meta["sha256"] == library.sha256 and meta["targets"] == list(library.targets)


def test_a_moved_cache_still_hits(source: Source, targets: tuple[Target, ...], compiler: Compiler, config: Config):
    build(source, targets, compiler, Cache(config.cache_dir), config)
    moved = config.cache_dir.with_name("moved")
    config.cache_dir.rename(moved)
    library = build(source, targets, compiler, Cache(moved), config)
    assert library.cached and moved in library.path.parents


def test_a_cache_on_a_read_only_file_system_still_hits(rebuild: Callable[[], Library], config: Config):
    rebuild()
    folders = [config.cache_dir, *(path for path in config.cache_dir.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o500)
    try:
        assert rebuild().cached
    finally:
        for folder in folders:
            folder.chmod(0o700)


# Processes

# Children are forked after the imports, so that they start together and the test stays quick.
RACER = """
import json, os, sys, time
from pathlib import Path
from smelt.base import Config, levels_of, host_arch
from smelt.ir.records import Source, Unit
from smelt.toolchain import Cache, build, find_compiler
source = Source(tuple(Unit(*unit) for unit in json.loads(sys.argv[1])), ())
results, config = Path(sys.argv[3]), Config.from_env()
start = time.monotonic() + 0.5
children = []
for number in range(int(sys.argv[2])):
    pid = os.fork()
    if pid:
        children.append(pid)
        continue
    compiler = find_compiler(config)
    time.sleep(max(0.0, start - time.monotonic()))
    library = build(source, levels_of(host_arch()), compiler, Cache(config.cache_dir), config)
    (results / str(number)).write_text(json.dumps([str(library.path), library.sha256, library.cached]))
    os._exit(0)
codes = [os.waitpid(pid, 0)[1] for pid in children]
sys.exit(any(codes))
"""


def start_racers(count: int, source: Source, config: Config, results: Path) -> subprocess.Popen[str]:
    units = json.dumps([[unit.name, unit.text, unit.per_level] for unit in source.units])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
        "SMELT_CACHE_DIR": str(config.cache_dir),
        "SMELT_CC": config.cc or "",
    }
    results.mkdir()
    command = [sys.executable, "-c", RACER, units, str(count), str(results)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)


def test_sixteen_racing_processes_build_once_and_agree(
    source: Source, config: Config, make_compiler: Callable[[str], Path], tmp_path: Path
):
    log = tmp_path / "log"
    counting = make_compiler(f"os.write(os.open({str(log)!r}, 1025 | os.O_CREAT), b'x')\nreal(*sys.argv[1:])\n")
    racers = start_racers(16, source, config.with_(cc=str(counting)), tmp_path / "results")
    _, errors = racers.communicate(timeout=240)
    assert racers.returncode == 0, errors
    results = [json.loads(path.read_text()) for path in (tmp_path / "results").iterdir()]
    assert len(results) == 16
    assert len({(path, digest) for path, digest, _ in results}) == 1
    assert sum(not cached for _, _, cached in results) == 1
    cache = Cache(config.cache_dir)
    assert len(log.read_text()) == len(list((cache.root / "obj").glob("*/*.o"))) + 1
    assert len(cache.entries()) == 1 and not list((cache.root / "tmp").iterdir())


def test_a_builder_that_is_killed_leaves_the_way_free(
    source: Source,
    targets: tuple[Target, ...],
    config: Config,
    make_compiler: Callable[[str], Path],
    tmp_path: Path,
):
    started = tmp_path / "started"
    slow_once = make_compiler(
        f"if not os.path.exists({str(started)!r}):\n"
        f"    open({str(started)!r}, 'w').close()\n"
        "    time.sleep(5)\n"
        "real(*sys.argv[1:])\n"
    )
    named = config.with_(cc=str(slow_once), cc_from="SMELT_CC")
    victim = start_racers(1, source, named, tmp_path / "results")
    while not started.exists():
        assert victim.poll() is None
        time.sleep(0.01)
    os.killpg(victim.pid, signal.SIGKILL)
    victim.communicate()
    library = build(source, targets, find_compiler(named), Cache(config.cache_dir), named)
    assert not library.cached and library.path.exists()


def test_waiting_for_a_stuck_holder_ends(cache: Cache):
    with cache.lock("0" * 64, 1.0), pytest.raises(CacheError) as caught, Cache(cache.root).lock("0" * 64, 0.1):
        pass
    assert caught.value.code == "SM-CACHE-004"


# Care


def test_entries_are_listed_by_last_use_and_found_by_prefix(cache: Cache):
    old, new = put(cache, "old", 1000.0), put(cache, "new", 2000.0)
    assert [entry.key for entry in cache.entries()] == [new, old]
    cache.find(old)
    assert [entry.key for entry in cache.entries()] == [old, new]
    assert cache.entry(old).key == old
    for prefix in ("", "no-key"):
        with pytest.raises(CacheError) as caught:
            cache.entry(prefix)
        assert caught.value.code == "SM-CACHE-005"


def test_usage_counts_libraries_and_objects(rebuild: Callable[[], Library], config: Config):
    library = rebuild()
    usage = Cache(config.cache_dir).usage()
    assert usage.entries == 1
    assert usage.library_bytes > library.path.stat().st_size and usage.object_bytes > 0
    files = sum(path.stat().st_size for path in config.cache_dir.rglob("*") if path.is_file())
    assert usage.total_bytes == files


def test_clear_deletes_everything_and_the_next_build_works(rebuild: Callable[[], Library], config: Config):
    size = rebuild().path.stat().st_size
    cache = Cache(config.cache_dir)
    assert cache.clear() > size
    assert cache.entries() == () and cache.usage().object_bytes == 0
    assert not rebuild().cached


def test_clear_by_age_keeps_what_was_used_lately(cache: Cache):
    put(cache, "old", time.time() - 1000)
    new = put(cache, "new")
    assert cache.clear(older_than_s=500) > 0
    assert [entry.key for entry in cache.entries()] == [new]


def test_clear_by_size_drops_the_longest_unused_first(cache: Cache):
    keys = [put(cache, f"{index}" * 100, 1000.0 + index) for index in range(4)]
    cache.clear(max_bytes=200)
    assert [entry.key for entry in cache.entries()] == [keys[3], keys[2]]
    cache.clear(max_bytes=200)
    assert len(cache.entries()) == 2


def test_clear_keeps_an_entry_that_is_being_built(cache: Cache):
    key = put(cache, "busy")
    with cache.lock(key, 1.0):
        Cache(cache.root).clear()
        assert [entry.key for entry in cache.entries()] == [key]
    cache.clear()
    assert cache.entries() == ()


def test_clear_sweeps_what_killed_builds_left(cache: Cache):
    left = cache.root / "tmp" / "left"
    young = cache.root / "tmp" / "young"
    for folder in (left, young):
        folder.mkdir()
    os.utime(left, (1000, 1000))
    cache.clear(older_than_s=10**9)
    assert not left.exists() and young.exists()
