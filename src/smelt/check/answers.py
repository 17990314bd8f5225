"""What a model answers to some calls, in a process of its own, since it is not trusted.

Input: a model file or an artifact folder, calls, and perhaps layers whose weights are to be rounded one at a time.
Output: `Answers`: the floating-point outputs of each call, the seconds of one, and the noise that each layer alone
makes. Invariant: the process has limits on time and memory, and is gone when the answer is there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from smelt.base.config import Config
from smelt.check.feed_files import read_feeds, write_feeds
from smelt.check.watch import Limits, run_worker
from smelt.check.worker import begin

Array = np.ndarray[Any, Any]
Outputs = dict[str, Array]
_MODULE: Final = "smelt.check.answers"


@dataclass(frozen=True)
class LayerWeights:
    """A layer's weights: an initializer that a call may replace."""

    layer: str
    initializer: str
    columns_last: bool


@dataclass(frozen=True)
class Answers:
    """`noise` is, by layer, the power of noise over that of the outputs when its weights alone are rounded."""

    calls: tuple[Outputs, ...]
    seconds: float
    noise: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Asked:
    """`model` is a file, or the folder of an artifact."""

    model: Path
    calls: Sequence[Mapping[str, Array]]
    layers: Sequence[LayerWeights] = ()
    precision: str = ""


def ask(asked: Asked, folder: Path, config: Config) -> Answers | str:
    """The answers, or why there are none."""
    folder.mkdir(parents=True)
    for place, call in enumerate(asked.calls):
        write_feeds(folder / f"call{place}.npz", call)
    job = {
        "model": str(asked.model.absolute()), "calls": len(asked.calls), "precision": asked.precision,
        "layers": [asdict(layer) for layer in asked.layers],
    }  # fmt: skip
    limits = Limits(config.verify_timeout_s, config.verify_timeout_s, config.verify_memory_bytes)
    ran = run_worker(job, folder, limits, module=_MODULE)
    failed = next((str(event["failed"]) for event in ran.events if "failed" in event), "") or ran.failure
    if failed:
        return failed
    noise = {str(event["layer"]): float(event["noise"]) for event in ran.events if "layer" in event}
    seconds = next(float(event["seconds"]) for event in ran.events if "seconds" in event)
    calls = tuple(read_feeds(folder / f"answer{place}.npz") for place in range(len(asked.calls)))
    return Answers(calls, seconds, noise)


def powers(
    wanted: Sequence[Mapping[str, Array]], made: Sequence[Mapping[str, Array]]
) -> dict[str, tuple[float, float]]:
    """Power of signal and of noise of each output, over all calls; what is no number on either side is left out."""
    found: dict[str, tuple[float, float]] = {}
    for before, after in zip(wanted, made, strict=True):
        for name, plain in before.items():
            a, b = (np.asarray(x, np.float64) for x in (plain, after[name]))
            both = np.isfinite(a) & np.isfinite(b)
            signal, noise = float(np.square(a[both]).sum()), float(np.square(a[both] - b[both]).sum())
            old = found.get(name, (0.0, 0.0))
            found[name] = old[0] + signal, old[1] + noise
    return found


def decibels_of(signal: float, noise: float) -> float:
    """Infinite where nothing differs."""
    if noise == 0:
        return float("inf")
    return 10 * float(np.log10(signal / noise)) if signal > 0 else 0.0


def _main(job_file: Path) -> None:
    job, report = begin(job_file)
    try:
        _answer(job, job_file.parent, report)
    except Exception as error:  # onnxruntime raises many kinds
        report(failed=" ".join(str(error).split())[:500])


def _answer(job: Mapping[str, Any], folder: Path, report: Any) -> None:
    calls = [read_feeds(folder / f"call{place}.npz") for place in range(job["calls"])]
    session, names = _opened(Path(job["model"]))
    started, answers = time.perf_counter(), list[Outputs]()
    for place, call in enumerate(calls):
        report(at="call", index=place)
        answers.append(_outputs(session, names, call))
        write_feeds(folder / f"answer{place}.npz", answers[-1])
    report(seconds=(time.perf_counter() - started) / max(1, len(calls)))
    for entry in job["layers"]:
        layer = LayerWeights(**entry)
        report(at="layer")
        rounded = {layer.initializer: _rounded(Path(job["model"]), layer, job["precision"])}
        made = [_outputs(session, names, {**call, **rounded}) for call in calls]
        worst = max((noise / signal for signal, noise in powers(answers, made).values() if signal > 0), default=0.0)
        report(layer=layer.layer, noise=worst)


def _opened(model: Path) -> tuple[Any, list[str]]:
    """The session, and the names of its floating-point outputs."""
    from smelt.runtime import Executable, SessionSettings, session_for

    settings = SessionSettings(threads=1, log_severity=4)
    session = Executable.open(model, settings).session if model.is_dir() else session_for(model, None, settings)
    floats = ("tensor(float)", "tensor(double)", "tensor(float16)")
    return session, [output.name for output in session.get_outputs() if output.type in floats]


def _outputs(session: Any, names: Sequence[str], call: Mapping[str, Array]) -> Outputs:
    return dict(zip(names, (np.asarray(x, np.float32) for x in session.run(list(names), call)), strict=True))


def _rounded(model: Path, layer: LayerWeights, precision: str) -> Array:
    from smelt.passes import round_trip

    constant = _initializers(model)[layer.initializer].const_value
    assert constant is not None
    return round_trip(precision, np.asarray(constant.numpy()), layer.columns_last)


_LOADED: dict[Path, Any] = {}


def _initializers(model: Path) -> Any:
    from smelt.ir.proto import load_file

    if model not in _LOADED:
        _LOADED[model] = load_file(model)
    return _LOADED[model].graph.initializers


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
