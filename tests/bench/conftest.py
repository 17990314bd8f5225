from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from smelt.base import Config
from smelt.bench.outcome import Outcome, Row
from smelt.bench.paired import Ratio
from smelt.bench.roofline import Limits
from smelt.bench.work import Work


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config.from_env({"SMELT_CACHE_DIR": str(tmp_path / "cache"), "SMELT_LOG": "quiet", "SMELT_STRICT": "1"})


def measured(case: str, peer: str, ms: float, ratio: float | None = None, **more: object) -> Row:
    """A row as a run makes it; `ratio` has an interval of 2% to each side."""
    found = None if ratio is None else Ratio(ratio, ratio * 0.98, ratio * 1.02, 15, certain=True)
    facts = {
        "p50_ms": ms, "p90_ms": ms * 1.1, "p99_ms": ms * 1.3, "load_s": 0.5, "first_ms": 2 * ms, "peak_mb": 100.0,
        "error": None if ratio is None else 1e-7, "work": Work(1e9, 9e8, 4e8), "ratio": found,
    }  # fmt: skip
    return Row(case, "batch 1", peer, 2, median_ms=ms, **{**facts, **more})  # type: ignore[arg-type]


@pytest.fixture
def outcome() -> Callable[..., Outcome]:
    """Two models and three peers; smelt is ahead on the first and behind on the second."""

    def made(*rows: Row) -> Outcome:
        best = Ratio(1.25, 1.2, 1.3, 15, certain=True)
        behind = Ratio(0.8, 0.75, 0.85, 15, certain=True)
        usual = (
            measured("bert", "ort", 100.0),
            measured("bert", "smelt", 64.0, 1.6, best="openvino", vs_best=best, compile_s=4.0, coverage="9 of 9 nodes"),
            measured("bert", "openvino", 80.0, 1.25),
            measured("<resnet>", "ort", 50.0),
            measured("<resnet>", "smelt", 50.0, 0.9, best="openvino", vs_best=behind, compile_s=5.0, peak_mb=120.0),
            Row("<resnet>", "batch 1", "openvino", 2, problem="not installed: openvino"),
        )
        return Outcome("a machine", (Limits(2, 2e11, 2e10, 2e10, 1e11),), rows or usual)

    return made
