"""Every knob in one place.

Input: the process environment, read here and in `environment.py`, nowhere else. Output: a frozen `Config`. Invariant:
a `Config` is complete and valid; a value that cannot be read is an error that names the variable, never a silent
default.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from smelt.base import environment
from smelt.base.environment import HOOK_LIMIT_S, LOG_LEVELS

TIMING = True  # the default; a test suite turns it off, since timing takes longer than all else on small models


@dataclass(frozen=True)
class Config:
    """The knobs. Each field names the variable that sets it in `KNOBS`."""

    cache_dir: Path
    cc: str | None = None
    cc_from: str = ""
    cflags: str = ""
    backend: str = ""
    levels: tuple[str, ...] = ()
    level: str = ""
    machine: str = ""
    jobs: int = 0
    compile_timeout_s: float = 300.0
    threads: int = 0
    force: bool = False
    verify: bool = True
    tune: bool = False
    timing: bool = True
    check_ir: bool = False
    strict: bool = False
    bounds: bool = False
    verify_timeout_s: float = 300.0
    verify_memory_bytes: int = 0
    dump_dir: Path | None = None
    exporter: Literal["smelt", "torch"] = "smelt"
    log: str = "info"
    color: bool = True
    hook: str = "off"
    hook_limit_s: float = HOOK_LIMIT_S
    hook_skip: tuple[str, ...] = ()
    kernels: tuple[Path, ...] = ()
    custom_ops: tuple[Path, ...] = ()
    device_stand_in: str = ""
    search_path: str = ""

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Config:
        return _read(os.environ if env is None else env)

    def with_(self, **changes: Any) -> Config:
        """The same configuration with some knobs changed; a change to None keeps the knob as it is."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})

    @property
    def quiet(self) -> bool:
        return self.log == "quiet"


@dataclass(frozen=True)
class Knob:
    """One environment variable, for `doctor` and the docs."""

    variable: str
    field: str
    about: str


KNOBS: Final[tuple[Knob, ...]] = (
    Knob("SMELT_CACHE_DIR", "cache_dir", "folder of compiled libraries"),
    Knob("SMELT_CC", "cc", "C compiler, with arguments if need be; before CC"),
    Knob("SMELT_CFLAGS", "cflags", "flags added to every compilation"),
    Knob("SMELT_BACKEND", "backend", "code generators to use, the preferred one first; default: c"),
    Knob("SMELT_LEVELS", "levels", "CPU levels to build, e.g. v2,v3; default: all of the architecture"),
    Knob("SMELT_LEVEL", "level", "CPU level that libraries run at, at most; default: the best that this machine has"),
    Knob(
        "SMELT_MACHINE",
        "machine",
        "what libraries take the machine for, e.g. l2=524288,threads=16 (l1, l2, l3, processors, threads)",
    ),
    Knob("SMELT_JOBS", "jobs", "compilers run at once; 0: one per CPU"),
    Knob("SMELT_COMPILE_TIMEOUT", "compile_timeout_s", "seconds after which a compiler is stopped"),
    Knob("SMELT_THREADS", "threads", "threads of a session; 0: as ONNX Runtime chooses"),
    Knob("SMELT_FORCE", "force", "take every node that has a kernel, paying or not"),
    Knob("SMELT_VERIFY", "verify", "verify each region and the whole model"),
    Knob("SMELT_TUNE", "tune", "time each region against the nodes it replaces"),
    Knob("SMELT_TIMING", "timing", "time the artifact against stock ONNX Runtime, and hand out none that is slower"),
    Knob("SMELT_CHECK_IR", "check_ir", "run the IR verifier at every stage boundary"),
    Knob("SMELT_STRICT", "strict", "raise an internal error where it happens; otherwise it costs a region"),
    Knob("SMELT_BOUNDS", "bounds", "build libraries that check every access to memory, with gcc's sanitizers"),
    Knob("SMELT_VERIFY_TIMEOUT", "verify_timeout_s", "seconds that verification may take"),
    Knob(
        "SMELT_VERIFY_MEMORY",
        "verify_memory_bytes",
        "bytes of memory that verification may use; 0: no limit of its own",
    ),
    Knob("ONNXRT_DUMP_PATH", "dump_dir", "folder that receives every model that torch.compile hands to ONNX Runtime"),
    Knob(
        "ONNXRT_CHANGE_REWRITER",
        "exporter",
        "0: PyTorch graphs are converted by torch's own exporter where it can; 1 or nothing: by smelt's",
    ),
    Knob(
        "SMELT_LOG",
        "log",
        "info or debug: lines of the loggers smelt.* on stderr; quiet: no bars, no warnings",
    ),
    Knob("NO_COLOR", "color", "set to anything: no colour"),
    Knob("SMELT_HOOK", "hook", "on or background: every ONNX Runtime session uses a compiled model; default off"),
    Knob("SMELT_HOOK_LIMIT", "hook_limit_s", "seconds that a session of the hook waits for its model to be compiled"),
    Knob("SMELT_KERNELS", "kernels", "Python files that register kernels of your own, separated by colons"),
    Knob("SMELT_CUSTOM_OPS", "custom_ops", "custom-op libraries of others that models need, separated by colons"),
    Knob("SMELT_HOOK_SKIP", "hook_skip", "patterns of model paths that the hook leaves to stock, separated by colons"),
    Knob(
        "SMELT_DEVICE_STAND_IN",
        "device_stand_in",
        "cuda or rocm: kernels of that GPU run under the CPU provider, on a driver for tests",
    ),
)


def _read(env: Mapping[str, str]) -> Config:
    variable = "SMELT_CC" if env.get("SMELT_CC", "").strip() else "CC"
    compiler = env.get(variable, "").strip() or None
    return Config(
        cache_dir=_cache_dir(env),
        cc=compiler,
        cc_from=variable if compiler else "",
        cflags=env.get("SMELT_CFLAGS", "").strip(),
        backend=env.get("SMELT_BACKEND", "").strip(),
        levels=tuple(name.strip() for name in env.get("SMELT_LEVELS", "").split(",") if name.strip()),
        level=env.get("SMELT_LEVEL", "").strip(),
        machine=env.get("SMELT_MACHINE", "").strip(),
        jobs=environment.integer(env, "SMELT_JOBS", 0),
        compile_timeout_s=environment.seconds(env, "SMELT_COMPILE_TIMEOUT", 300.0),
        threads=environment.threads(env),
        force=environment.boolean(env, "SMELT_FORCE", False),
        verify=environment.boolean(env, "SMELT_VERIFY", True),
        tune=environment.boolean(env, "SMELT_TUNE", False),
        timing=environment.boolean(env, "SMELT_TIMING", TIMING),
        check_ir=environment.boolean(env, "SMELT_CHECK_IR", False),
        strict=environment.boolean(env, "SMELT_STRICT", False),
        bounds=environment.boolean(env, "SMELT_BOUNDS", False),
        verify_timeout_s=environment.seconds(env, "SMELT_VERIFY_TIMEOUT", 300.0),
        verify_memory_bytes=environment.integer(env, "SMELT_VERIFY_MEMORY", 0),
        dump_dir=_folder(env, "ONNXRT_DUMP_PATH"),
        exporter="smelt" if environment.boolean(env, "ONNXRT_CHANGE_REWRITER", True) else "torch",
        log=environment.choice(env, "SMELT_LOG", "info", LOG_LEVELS),
        color=not env.get("NO_COLOR"),
        hook=environment.hook(env),
        hook_limit_s=environment.hook_limit_s(env),
        hook_skip=environment.hook_skip(env),
        kernels=_paths(env, "SMELT_KERNELS"),
        custom_ops=_paths(env, "SMELT_CUSTOM_OPS"),
        device_stand_in=env.get("SMELT_DEVICE_STAND_IN", "").strip(),
        search_path=env.get("PATH", os.defpath),
    )


def _cache_dir(env: Mapping[str, str]) -> Path:
    folder = environment.cache_folder(env)
    if folder:
        return Path(folder)
    import platformdirs

    return platformdirs.user_cache_path("smelt", appauthor=False)


def _folder(env: Mapping[str, str], variable: str) -> Path | None:
    named = env.get(variable, "").strip()
    return Path(named).expanduser().absolute() if named else None


def _paths(env: Mapping[str, str], variable: str) -> tuple[Path, ...]:
    return tuple(Path(path).expanduser().absolute() for path in env.get(variable, "").split(os.pathsep) if path)


def custom_op_libraries() -> tuple[Path, ...]:
    """Libraries of others that every session of this process and of those that it starts registers."""
    return _paths(os.environ, "SMELT_CUSTOM_OPS")


def add_custom_op_libraries(paths: Iterable[Path]) -> None:
    every = dict.fromkeys((*custom_op_libraries(), *(path.absolute() for path in paths)))
    if every:
        os.environ["SMELT_CUSTOM_OPS"] = os.pathsep.join(map(str, every))


def child_environment(changes: Mapping[str, str]) -> dict[str, str]:
    """The environment for a subprocess: this process's own with `changes`."""
    return {**os.environ, **changes}
