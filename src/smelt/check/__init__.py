"""Loops over code generation, toolchain and runtime: verify, tune, and rebuild single regions for debugging.

What is heavy is imported when it is called: the examining process imports this package too, and needs little of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smelt.check.findings import Choice, Examination, Findings, Timed, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    import onnx_ir as ir

    from smelt.base.config import Config
    from smelt.base.progress import Progress
    from smelt.check.examination import Begun
    from smelt.check.race_ahead import RaceAhead
    from smelt.check.standalone_program import Standalone
    from smelt.check.weights_digest import WeightsDigest
    from smelt.ir.backend import Generated
    from smelt.ir.kernel import Function
    from smelt.ir.records import Library, Source


def examine(
    model: ir.Model, generated: Generated, library: Library, wanted: Examination, config: Config, progress: Progress,
    weights: WeightsDigest | None = None, begun: Begun | None = None,
) -> Findings:  # fmt: skip
    """The findings for every region of the model as it was partitioned. `weights` and `begun` may be under way."""
    from smelt.check import examination

    return examination.examine(model, generated, library, wanted, config, progress, weights, begun)


def begin_examination(config: Config) -> Begun:
    """Start the examining process, which loads what it needs while code is generated."""
    from smelt.check.examination import Begun
    from smelt.toolchain import Cache

    return Begun(Cache(config.cache_dir), config, early=True)


def check_launches(functions: Iterable[Function], config: Config) -> tuple[str, ...]:
    """A note for each function whose own code runs on a GPU, by an interpreter; a wrong one is an error."""
    from smelt.check import launch_check

    return launch_check.check_launches(functions, config)


def rehearse(model: ir.Model, generated: Generated) -> None:
    """What `examine` makes of a model before anything runs: constants packed, regions in place and alone."""
    from smelt.check.variants import Variants

    Variants(model, generated).alone()


def guard_speed(
    model: ir.Model, generated: Generated, library: Library, wanted: Examination, config: Config, progress: Progress,
    weights: WeightsDigest, ahead: RaceAhead, compiled_s: float,
) -> Findings:  # fmt: skip
    """The artifact timed against stock, for a while that depends on what the compilation took so far."""
    from smelt.check import speed_guard

    seconds = speed_guard.seconds_for(compiled_s)
    return speed_guard.guard_speed(model, generated, library, wanted, config, progress, weights, ahead, seconds)


def choose_settings(
    model: ir.Model, generated: Generated, build: Callable[[Source], Library], wanted: Examination, config: Config,
    progress: Progress,
) -> Choice:  # fmt: skip
    """The sizes that make the model fastest on this machine."""
    from smelt.check import search

    return search.search(model, generated, build, wanted, config, progress)


def start_digest(model: ir.Model) -> WeightsDigest:
    """Begin to hash the weights of a model that is to be examined."""
    from smelt.check.weights_digest import WeightsDigest

    return WeightsDigest(model)


def standalone(dump: Path, region: int, config: Config) -> Standalone:
    """A region of a dump as a program, with the call that it runs on."""
    from smelt.check import standalone_program

    return standalone_program.standalone(dump, region, config)


__all__ = [
    "Choice",
    "Examination",
    "Findings",
    "Timed",
    "Verdict",
    "begin_examination",
    "check_launches",
    "choose_settings",
    "examine",
    "guard_speed",
    "rehearse",
    "standalone",
    "start_digest",
]
