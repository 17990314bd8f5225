"""Calls that a lower precision is measured on, and static int8 by onnxruntime.quantization.

Input: a model, and what the user gives: a path, arrays by name, or a list of such calls; nothing stands for generated
inputs. Output: calls; a model with QuantizeLinear and DequantizeLinear. Invariant: every call has all inputs and no NaN
or infinity; the library runs in a process of its own, since it runs the model.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import onnx_ir as ir

from smelt.base.config import Config
from smelt.base.errors import InputError, PrecisionError
from smelt.check.answers import Answers, Asked, ask
from smelt.check.feed_files import read_feeds, write_feeds
from smelt.check.given_inputs import Given, given_calls, wanted_text
from smelt.check.inputs import ATTEMPTS, make_feeds
from smelt.check.watch import Limits, run_worker
from smelt.check.worker import begin

Array = np.ndarray[Any, Any]
Calls = list[dict[str, Array]]
GENERATED: Final = 4  # calls
_MODULE: Final = "smelt.check.calibration"
_OLDEST_OPSET: Final = 13  # scales for each channel


def read_calls(model: ir.Model, given: Given) -> Calls:
    """What the user gives, checked."""
    calls = given_calls(model, given)
    names = [v.name for v in model.graph.inputs if v.name and not v.is_initializer()]
    if not calls:
        raise PrecisionError(
            "SM-PRECISION-001", f"the calibration data hold no call; the model takes {wanted_text(model)}"
        )
    for place, call in enumerate(calls):
        missing = [name for name in names if name not in call]
        if missing:
            message = f"call {place} of the calibration data lacks {missing[0]!r}; the model takes {wanted_text(model)}"
            raise InputError("SM-INPUT-001", message)
        for name, array in call.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                what = "NaN" if np.isnan(array).any() else "an infinity"
                raise PrecisionError("SM-PRECISION-001", f"call {place} of the calibration data has {what} in {name!r}")
    return calls


def answered_calls(
    model: ir.Model, file: Path, given: Calls, shapes: Mapping[str, Sequence[int]], folder: Path, config: Config
) -> tuple[Calls, Answers | str]:
    """Calls with what the file answers to them: those that are given, else the first generated ones that it takes."""
    if given:
        return given, ask(Asked(file, given), folder / "wide", config)
    found: Answers | str = "no inputs could be generated"
    for attempt in range(ATTEMPTS):
        made = [make_feeds(model, "real", attempt, seed, shapes) for seed in range(GENERATED)]
        calls = [call for call in made if call is not None]
        if len(calls) < GENERATED:
            continue
        found = ask(Asked(file, calls), folder / f"wide{attempt}", config)
        if not isinstance(found, str):
            return calls, found
    return [], found


def quantize_static(file: Path, calls: Calls, keep: Collection[str], folder: Path, config: Config) -> Path:
    """The model as static int8, but for the layers to keep."""
    folder.mkdir(parents=True)
    for place, call in enumerate(calls):
        write_feeds(folder / f"call{place}.npz", call)
    job = {"model": str(file.absolute()), "calls": len(calls), "keep": sorted(keep)}
    limits = Limits(config.verify_timeout_s, config.verify_timeout_s, config.verify_memory_bytes)
    ran = run_worker(job, folder, limits, module=_MODULE)
    failed = next((str(event["failed"]) for event in ran.events if "failed" in event), "") or ran.failure
    if failed:
        raise PrecisionError("SM-PRECISION-002", f"onnxruntime.quantization cannot make int8 of the model: {failed}")
    return folder / "int8.onnx"


class _Reader:
    """The calls one by one, as the library asks for them."""

    def __init__(self, calls: Calls) -> None:
        self._left: Iterator[dict[str, Array]] = iter(calls)

    def get_next(self) -> dict[str, Array] | None:
        return next(self._left, None)


def _main(job_file: Path) -> None:
    job, report = begin(job_file)
    try:
        report(at="calibrate")
        _quantize(job, job_file.parent)
    except Exception as error:  # the library raises many kinds
        report(failed=" ".join(str(error).split())[:500])


def _quantize(job: Mapping[str, Any], folder: Path) -> None:
    import onnxruntime.quantization as library
    from onnxruntime.quantization import shape_inference

    tools, inference = cast("Any", library), cast("Any", shape_inference)
    calls = [read_feeds(folder / f"call{place}.npz") for place in range(job["calls"])]
    prepared = folder / "prepared.onnx"
    inference.quant_pre_process(str(job["model"]), str(prepared), skip_symbolic_shape=True, skip_optimization=True)
    tools.quantize_static(
        str(prepared), str(folder / "int8.onnx"), _Reader(calls), quant_format=tools.QuantFormat.QDQ, per_channel=True,
        op_types_to_quantize=["MatMul", "Gemm", "Conv", "Add", "MaxPool", "GlobalAveragePool"],
        activation_type=tools.QuantType.QUInt8, weight_type=tools.QuantType.QInt8, nodes_to_exclude=list(job["keep"]),
    )  # fmt: skip


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
