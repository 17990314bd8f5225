"""Known models as integers, made offline by onnxruntime.quantization from their float32 files.

Input: a name of the suite, as `resnet-50 qdq`. Output: an ONNX file in the cache folder beside the float32 one, whose
feeds it shares. Invariant: static files are calibrated on seeded random inputs, per channel, uint8 activations and int8
weights, as QuantizeLinear and DequantizeLinear; a file is complete or absent.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal, cast

import numpy as np

from smelt.base import Config
from smelt.bench import zoo

Array = np.ndarray[Any, Any]
Form = Literal["qdq", "dynamic", "w4"]

_FORMAT: Final = 1  # changes when what is written for one model changes
_CALIBRATED_ON: Final = 4  # inputs


@dataclass(frozen=True)
class QuantizedModel:
    """A model of the zoo and how it is quantized."""

    model: str
    form: Form

    @property
    def name(self) -> str:
        return f"{self.model} {self.form}"

    @property
    def about(self) -> str:
        return {"qdq": "static int8 (QDQ)", "dynamic": "dynamic int8", "w4": "weights of 4 bits in blocks"}[self.form]


_ALL: Final = (
    QuantizedModel("resnet-50", "qdq"),
    QuantizedModel("mobilenet-v2", "qdq"),
    QuantizedModel("vit", "qdq"),
    QuantizedModel("distilbert", "qdq"),
    QuantizedModel("bert-base", "qdq"),
    QuantizedModel("distilbert", "dynamic"),
    QuantizedModel("bert-base", "dynamic"),
    QuantizedModel("gpt2", "dynamic"),
    QuantizedModel("distilbert", "w4"),
    QuantizedModel("bert-base", "w4"),
    QuantizedModel("gpt2", "w4"),
    QuantizedModel("llama", "w4"),
)
BFLOAT16: Final = ("distilbert", "bert-base", "resnet-50", "vit", "llama")  # models of the suite bf16
QUANTIZED: Final[dict[str, QuantizedModel]] = {one.name: one for one in _ALL}


def quantized(entry: QuantizedModel, config: Config, scale: zoo.Scale = "full") -> Path:
    """The quantized file, written now unless it is in the cache."""
    wide = zoo.export(entry.model, config, scale)
    folder = wide.parent.with_name(f"{wide.parent.name}-{entry.form}-{_FORMAT}-{version('onnxruntime')}")
    path = folder / "model.onnx"
    if not path.is_file():
        work = Path(tempfile.mkdtemp(prefix=".quantize-", dir=folder.parent))
        try:
            (work / "out").mkdir()
            _write(entry, wide, work, scale)
            zoo.place_folder(work / "out", folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return path


def _write(entry: QuantizedModel, wide: Path, work: Path, scale: zoo.Scale) -> None:
    import onnxruntime.quantization as library

    tools = cast("Any", library)
    if entry.form == "w4":
        _write_blocks(wide, work / "out" / "model.onnx")
        return
    _prepare(wide, work / "prepared.onnx")
    types = {"weight_type": tools.QuantType.QInt8, "per_channel": True}
    source, target = str(work / "prepared.onnx"), str(work / "out" / "model.onnx")
    if entry.form == "dynamic":
        tools.quantize_dynamic(source, target, **types)
        return
    inputs = [zoo.feeds(entry.model, 1, 128, scale, seed=1 + place) for place in range(_CALIBRATED_ON)]
    reader = _Reader(inputs, tools.CalibrationDataReader)
    tools.quantize_static(
        source,
        target,
        reader.made,
        quant_format=tools.QuantFormat.QDQ,
        activation_type=tools.QuantType.QUInt8,
        **types,
    )


def _write_blocks(wide: Path, to: Path) -> None:
    """MatMulNBits, as `--precision w4` makes them."""
    from smelt.ir.load import load_model
    from smelt.ir.save import save_model
    from smelt.passes import narrow

    model = load_model(wide)
    narrow(model, "w4", "exact")
    save_model(model, to, data_name="model.data")


def _prepare(wide: Path, to: Path) -> None:
    """One file, with what folds folded (BatchNormalization into convolutions), as the library asks for."""
    import onnx
    import onnxruntime

    whole = to.with_name("whole.onnx")
    onnx.save(onnx.load(str(wide)), str(whole))
    runtime = cast("Any", onnxruntime)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(to)
    runtime.InferenceSession(str(whole), options, providers=["CPUExecutionProvider"])


def _next_of(left: Iterator[Mapping[str, Array]]) -> Callable[[Any], Mapping[str, Array] | None]:
    def get_next(_: Any) -> Mapping[str, Array] | None:
        return next(left, None)

    return get_next


class _Reader:
    """The inputs as the library reads them: its base class is known only when it is imported."""

    def __init__(self, inputs: list[dict[str, Array]], base: type[Any]) -> None:
        left: Iterator[Mapping[str, Array]] = iter(inputs)
        self.made = type("Inputs", (base,), {"get_next": _next_of(left)})()
