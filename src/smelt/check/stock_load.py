"""Whether stock ONNX Runtime loads a model: in a process of its own, since the model is not trusted.

Input: a model that was parsed. Output: what ONNX Runtime says against it, or nothing. Invariant: the process has limits
on time and memory, and is gone when the answer is there.
"""

from __future__ import annotations

import sys
from pathlib import Path

from smelt.base.config import Config
from smelt.check.watch import Limits, run_worker
from smelt.check.worker import begin
from smelt.ir.verbatim import Verbatim
from smelt.toolchain import Cache


def stock_error(model: Verbatim, cache: Cache, config: Config) -> str:
    """Why stock ONNX Runtime does not load the model; empty where it does."""
    limits = Limits(config.verify_timeout_s, config.verify_timeout_s, config.verify_memory_bytes)
    with cache.work() as folder:
        path = model.save(folder / "model.onnx", "model.data").model_path
        ran = run_worker({"model": str(path)}, folder, limits, module="smelt.check.stock_load")
    told = next((str(event["failed"]) for event in ran.events if "failed" in event), "")
    return told or (f"stock ONNX Runtime {ran.failure}" if ran.failure else "")


def _main(job_file: Path) -> None:
    job, report = begin(job_file)
    from smelt.runtime import SessionSettings, session_for

    try:
        session_for(Path(job["model"]), None, SessionSettings(threads=1, optimization="disable", log_severity=4))
    except Exception as error:  # onnxruntime raises many kinds
        report(failed=" ".join(str(error).split())[:500])


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
