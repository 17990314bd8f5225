"""The process that tries a part of a model: it may crash, and says before each step what it is about to do.

Input: the path of a job file (JSON). Output: events beside it, as of `smelt.check.worker`. Invariant: nothing outside
the job's folder and the cache is written.

    observe: the values in a model, as stock ONNX Runtime computes them
    try: compile a model without verification, run it, and compare it with the reference
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smelt.check.worker import Reporter, begin

if TYPE_CHECKING:
    from smelt.check.judge import Judge


def main(job_file: Path) -> None:
    job, report = begin(job_file)
    (_observe if job["mode"] == "observe" else _try)(job, job_file.parent, report)


def _observe(job: Mapping[str, Any], folder: Path, report: Reporter) -> None:
    from smelt.check.feed_files import read_feeds, write_feeds
    from smelt.runtime import SessionSettings, session_for

    report(at="observe")
    session = session_for(folder / job["model"], None, SessionSettings(optimization="disable", log_severity=4))
    names = [output.name for output in session.get_outputs()]
    feeds = read_feeds(folder / job["feeds"])
    values = dict(zip(names, session.run(None, feeds), strict=True))
    write_feeds(folder / job["values"], {**values, **feeds})
    report(done=True)


def _try(job: Mapping[str, Any], folder: Path, report: Reporter) -> None:
    from smelt.base.errors import SmeltError
    from smelt.check.feed_files import read_feeds
    from smelt.frontends import compile as compile_model

    path, feeds = folder / job["model"], read_feeds(folder / job["feeds"])
    report(at="reference")
    judge = _judge(path)
    stock = judge.stock(feeds)
    report(at="compile")
    try:
        compiled = compile_model(path, folder / "artifact", verify=False, **job["options"])
    except SmeltError as error:
        report(failure=f"error {error.code} in compilation", detail=str(error)[:500])
        return
    report(at="run")
    try:
        results = compiled.run(feeds)
    except Exception as error:
        report(failure="the compiled model refuses its inputs", detail=str(error)[:500])
        return
    problem = judge(feeds, results, stock).comparison.problem
    report(failure="wrong result" if problem else "", detail=problem)


def _judge(path: Path) -> Judge:
    from smelt.check.judge import Judge
    from smelt.check.op_types import op_types_of
    from smelt.ir.load import load_model
    from smelt.ir.walk import model_nodes

    return Judge(path, "model", op_types_of(model_nodes(load_model(path))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
