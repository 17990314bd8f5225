"""`smelt doctor`: is this machine fit, and what mends it where it is not.

Input: the machine: Python, packages, compilers, CPU, cache folder. Output: one line per check, each problem with its
fix. Invariant: the exit code is 1 when something that compiling or running needs is broken; what is merely missing
and optional is a remark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

import typer

from smelt.cli import options as opt
from smelt.cli.output import failed, reporting

if TYPE_CHECKING:
    from smelt.base.config import Config

State = Literal["ok", "remark", "broken"]
_MARKS: Final[dict[State, str]] = {"ok": "ok", "remark": "--", "broken": "!!"}
_OLDEST_PYTHON: Final = (3, 11)
_OLDEST_ORT: Final = (1, 23)
_NEEDED: Final = ("numpy", "onnx", "onnx_ir", "onnxruntime", "jinja2", "rich")
_OPTIONAL: Final = {
    "ziglang": "a C compiler from pip, and cross-compilation",
    "torch": "the PyTorch frontend",
    "onnxscript": "conversions of rarer PyTorch ops",
    "openvino": "another runtime for `smelt bench` to time",
    "transformers": "the models of `python -m smelt.bench`",
}

ListErrors = Annotated[bool, typer.Option("--errors", help="List the error catalogue instead.")]


@dataclass(frozen=True)
class Finding:
    """One check. `fix` says what mends it; empty where nothing is to be done."""

    state: State
    what: str
    found: str
    fix: str = ""


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor_command)


def doctor_command(
    errors: ListErrors = False, as_json: opt.Json = False, verbose: opt.Verbose = 0, quiet: opt.Quiet = False
) -> None:
    """Check compilers, packages, CPU and cache; exit with 1 if something is broken."""
    if errors:
        from smelt.cli.explain_error import explain_error_command

        explain_error_command("", as_json, verbose)
        return
    with reporting(as_json, verbose, quiet) as out:
        findings = list(examine_machine())
        width = max(len(f.what) for f in findings)
        for finding in findings:
            line = f"{_MARKS[finding.state]}  {finding.what:<{width}}  {finding.found}"
            (out.result if finding.state == "broken" else out.lines)(line)
            if finding.fix:
                (out.result if finding.state == "broken" else out.lines)(f"    {'':<{width}}  fix: {finding.fix}")
        broken = [f for f in findings if f.state == "broken"]
        out.lines("", f"{len(broken)} broken" if broken else "all that smelt needs is here")
        out.facts(ok=not broken, findings=[asdict(f) for f in findings])
        if broken:
            failed(out)


def examine_machine() -> Iterator[Finding]:
    """Every check, in the order in which a run would need it."""
    from smelt.base.config import Config
    from smelt.base.errors import SmeltError

    yield _python()
    yield from _packages()
    try:
        config = Config.from_env()
    except SmeltError as error:
        yield Finding("broken", "configuration", error.message, error.hint)
        return
    yield Finding("ok", "configuration", _changed_knobs(config))
    yield from _compilers(config)
    yield from _cpu(config)
    yield _cache(config)
    yield from _sessions(config)


def _python() -> Finding:
    import platform
    import sys

    from smelt.base.version import __version__

    found = f"{platform.python_version()} on {sys.platform} {platform.machine()}, smelt {__version__}"
    if sys.version_info < _OLDEST_PYTHON:
        return Finding("broken", "python", found, "Use Python 3.11 or later.")
    if sys.platform != "linux":
        return Finding("remark", "python", found, "Only Linux is supported; artifacts may be cross-compiled for it.")
    return Finding("ok", "python", found)


def _packages() -> Iterator[Finding]:
    for name in _NEEDED:
        version = _version(name)
        if version is None:
            yield Finding("broken", name, "not installed", f"pip install {name}")
        elif name == "onnxruntime":
            yield _onnxruntime(version)
        else:
            yield Finding("ok", name, version)
    for name, use in _OPTIONAL.items():
        version = _version(name)
        yield Finding("ok", name, version) if version else Finding("remark", name, f"not installed; it gives {use}")


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return _module_version(package)


def _module_version(package: str) -> str | None:
    """Of a package that a distribution of another name brings: onnxruntime-gpu, say."""
    from importlib import import_module
    from importlib.util import find_spec

    if find_spec(package) is None:
        return None
    found = getattr(import_module(package), "__version__", None)
    return str(found) if found else None


def _onnxruntime(version: str) -> Finding:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < _OLDEST_ORT:
        return Finding("broken", "onnxruntime", version, "pip install --upgrade 'onnxruntime>=1.23'")
    try:
        import onnxruntime

        providers = cast("Any", onnxruntime).get_available_providers()
    except Exception as error:
        return Finding("broken", "onnxruntime", f"{version} does not load: {error}", "Install it again.")
    return Finding("ok", "onnxruntime", f"{version}, {', '.join(providers)}")


def _changed_knobs(config: Config) -> str:
    from smelt.base.config import KNOBS, Config

    plain = Config.from_env({})
    changed = [k.variable for k in KNOBS if getattr(config, k.field) != getattr(plain, k.field)]
    return f"set: {', '.join(changed)}" if changed else "all knobs at their defaults"


def _compilers(config: Config) -> Iterator[Finding]:
    import shlex

    from smelt.base.errors import NoCompilerError
    from smelt.base.target import TARGETS, host_arch
    from smelt.toolchain import find_compiler, list_compilers

    for candidate in list_compilers(config):
        if candidate.compiler is not None:
            found = f"{candidate.compiler.kind} {candidate.compiler.version}: {shlex.join(candidate.argv)}"
            yield Finding("ok", f"compiler {candidate.origin}", found)
        else:
            yield Finding("remark", f"compiler {candidate.origin}", f"refused: {candidate.reason}")
    try:
        chosen = find_compiler(config)
        yield Finding("ok", "compiler used", f"{chosen.kind} {chosen.version}")
    except NoCompilerError as error:
        yield Finding("broken", "compiler used", error.message, error.hint)
    for arch in dict.fromkeys(target.arch for target in TARGETS if target.arch != host_arch()):
        try:
            cross = find_compiler(config, arch)
            yield Finding("ok", f"cross to {arch}", f"{cross.kind} {cross.version}")
        except NoCompilerError as error:
            yield Finding("remark", f"cross to {arch}", error.message, "pip install ziglang")


def _cpu(config: Config) -> Iterator[Finding]:
    from smelt.base.cpus import usable_cpus
    from smelt.base.errors import SmeltError
    from smelt.base.features import features_of
    from smelt.base.target import BUILDS, host_arch, host_build, host_features, runs_on_host, select_targets

    build = host_build()
    if build is None:
        yield Finding(
            "broken", "CPU level", f"none for {host_arch()}", "Kernels exist for x86-64-v2 and ARMv8 or later."
        )
        return
    able = [build.name for build in BUILDS if runs_on_host(build)]
    level = build.target
    yield Finding("ok", "CPU level", f"{level.name} ({level.march}), build {build.name}; runs {', '.join(able)}")
    yield Finding("ok", "CPU features", ", ".join(sorted(features_of(host_features()))) or "unknown")
    try:
        yield Finding("ok", "levels built", ", ".join(t.name for t in select_targets(None, config.levels)))
    except SmeltError as error:
        yield Finding("broken", "levels built", error.message, error.hint)
    cpus = usable_cpus()
    chosen = f"{config.threads} (SMELT_THREADS)" if config.threads else f"{cpus.count} ({cpus.why})"
    yield Finding("ok", "threads", f"a session uses {chosen}")


def _sessions(config: Config) -> Iterator[Finding]:
    """Whether programs of this environment have the hook, and what became of their models."""
    from smelt.frontends.session.autoload import armed
    from smelt.frontends.session.store import Store

    if config.hook == "off":
        yield Finding("ok", "session hook", "off; on by `smelt exec`, smelt.install() or SMELT_HOOK=on")
    elif armed():
        waits = f"waits up to {config.hook_limit_s:g} s for its model to be compiled"
        how = "starts on stock while its model is compiled" if config.hook == "background" else waits
        skipped = f"; not for {', '.join(config.hook_skip)}" if config.hook_skip else ""
        yield Finding("ok", "session hook", f"SMELT_HOOK={config.hook}: every session {how}{skipped}")
    else:
        found = f"SMELT_HOOK={config.hook}, but this Python starts without it"
        yield Finding("remark", "session hook", found, "Start by `smelt exec`, or install the package as a wheel.")
    if (config.cache_dir / "session").is_dir():
        made, failures = Store(config).kept()
        yield Finding("ok", "session models", f"{made} compiled, {len(failures)} left to stock")
        for reason in dict.fromkeys(failures):
            yield Finding("remark", "session models", reason)


def _cache(config: Config) -> Finding:
    from smelt.base.errors import SmeltError
    from smelt.report.readable import in_bytes
    from smelt.toolchain import Cache

    try:
        cache = Cache(config.cache_dir)
        usage = cache.usage()
        with cache.work() as folder:
            (folder / "probe").write_bytes(b"x")
    except (SmeltError, OSError) as error:
        fix = error.hint if isinstance(error, SmeltError) else "Set SMELT_CACHE_DIR to a folder of your own."
        message = error.message if isinstance(error, SmeltError) else str(error)
        return Finding("broken", "cache", message, fix)
    return Finding("ok", "cache", f"{cache.root}: {usage.entries} libraries, {in_bytes(usage.total_bytes)}")
