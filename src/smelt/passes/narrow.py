"""What a user asks for in place of float32: narrower weights, 8-bit activations.

Input: a model as it was loaded, the precision of its weights and the accuracy of its quantized products. Output: the
model that is compiled, and notes for its report. Invariant: nothing happens unless it is asked for; text that names
nothing is an error before anything is changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import onnx_ir as ir

from smelt.base.errors import ConfigError
from smelt.ir.narrowed import keep_wide
from smelt.ir.walk import model_nodes
from smelt.passes.narrow_weights import narrow_weights
from smelt.passes.quantize_dynamic import quantize_dynamic
from smelt.passes.quantize_weights import BLOCKS, Moments, Quantized, quantize_weights, summary


@dataclass(frozen=True)
class Precision:
    """What changes the model in place, and what a report says of the weights."""

    apply: Callable[[ir.Model], list[Quantized]]
    how: str
    what: str = "product"


def _blocks(bits: int) -> Precision:
    return Precision(partial(quantize_weights, bits=bits), f"in {bits} bits, blocks of {BLOCKS[bits]}")


PRECISIONS: Final[Mapping[str, Precision]] = {
    "w8": _blocks(8),
    "w4": _blocks(4),
    "int8-dynamic": Precision(quantize_dynamic, "in 8 bits, a scale for each column; activations in 8 bits"),
    "bf16": Precision(narrow_weights("bf16"), "in bfloat16", "product or convolution"),
    "fp16": Precision(narrow_weights("fp16"), "in float16", "product or convolution"),
}

WIDE: Final = ""  # float32
# What a layer goes back to, one after the other: the next type that loses less.
WIDER: Final[Mapping[str, tuple[str, ...]]] = {
    "w4": ("w8", WIDE), "w8": (WIDE,), "int8-dynamic": ("bf16", WIDE), "int8": ("bf16", WIDE), "bf16": (WIDE,),
    "fp16": (WIDE,),
}  # fmt: skip
_BITS: Final = {"w4": 4, "w8": 8}

LAYERS: Final = ("MatMul", "Gemm", "Conv", "ConvTranspose")
STATIC: Final = "int8"  # needs calibration data: see calibration.py
ACCURACIES: Final = ("exact", "fast")
PREPARED: Final = (
    "legacy-initializers", "inline-functions", "freeze-initializers", "constants-to-initializers", "infer-shapes",
)  # fmt: skip
_INT8_ACTIVATIONS: Final = 4


def check_narrow(precision: str, accuracy: str) -> None:
    if precision and precision not in (*PRECISIONS, STATIC):
        known = ", ".join((*PRECISIONS, STATIC))
        raise ConfigError("SM-CONFIG-001", f"there is no precision {precision!r}", hint=f"Known are {known}.")
    if accuracy not in ACCURACIES:
        raise ConfigError(
            "SM-CONFIG-001", f"there is no accuracy {accuracy!r}", hint=f"Known are {', '.join(ACCURACIES)}."
        )


def read_budget(given: str | float, precision: str) -> float:
    """`40dB`, `40` or a number; 0 is none."""
    text = str(given).strip().lower().removesuffix("db").strip()
    try:
        budget = float(text or 0)
    except ValueError:
        budget = math.nan
    if not math.isfinite(budget) or (text and budget <= 0 and text not in ("0", "0.0")):
        raise ConfigError("SM-CONFIG-001", f"budget {given!r} is no number of dB", hint="Such as 40dB.")
    if budget and not precision:
        raise ConfigError("SM-CONFIG-001", "a budget needs a precision", hint="Such as --precision w8.")
    return budget


def narrow(model: ir.Model, precision: str, accuracy: str, prepare: Callable[[ir.Model], object]) -> tuple[str, ...]:
    """Change the model in place; `prepare` runs the passes of `PREPARED`."""
    check_narrow(precision, accuracy)
    notes: list[str] = []
    if precision in PRECISIONS:
        prepare(model)
        notes += narrowed_notes(precision, narrow_layers(model, precision))
    if accuracy == "fast":
        notes.append(_fast(model))
    return tuple(notes)


def narrowed_notes(precision: str, done: Mapping[str, list[Quantized]]) -> list[str]:
    """What became of the weights, of each precision that layers have."""
    found = [rung for rung in (precision, *WIDER[precision]) if done.get(rung)] or [precision]
    return [summary(done[rung], rung, PRECISIONS[rung].how, PRECISIONS[rung].what) for rung in found if rung in done]


def narrow_layers(
    model: ir.Model, precision: str, assigned: Mapping[str, str] | None = None, moments: Moments | None = None
) -> dict[str, list[Quantized]]:
    """The layers of a prepared model, whose nodes have names of their own then: in the precision, or the one that is
    `assigned` to their name. `moments` are of their left operands: then weights of few bits have error feedback."""
    name_nodes(model)
    done: dict[str, list[Quantized]] = {}
    for rung in (precision, *WIDER[precision]):
        if rung not in PRECISIONS:
            continue
        for node in model_nodes(model):
            keep_wide(node, (assigned or {}).get(node.name or "", precision) != rung)
        if rung in _BITS:
            done[rung] = quantize_weights(model, _BITS[rung], moments)
        else:
            done[rung] = PRECISIONS[rung].apply(model)
    return done


def name_nodes(model: ir.Model) -> None:
    """Names for products and convolutions that have none, or share one: the same ones for the same model."""
    seen: set[str] = set()
    for place, node in enumerate(model_nodes(model)):
        if node.op_type in LAYERS and (not node.name or node.name in seen):
            node.name = f"{node.op_type}_{place}"
        seen.add(node.name or "")


def _fast(model: ir.Model) -> str:
    """8-bit activations in all products with block-quantized weights."""
    found = [node for node in model_nodes(model) if node.op_type == "MatMulNBits"]
    for node in found:
        node.attributes["accuracy_level"] = ir.AttrInt64("accuracy_level", _INT8_ACTIVATIONS)
    count = f"{len(found)} product" + ("" if len(found) == 1 else "s")
    return f"--accuracy fast: {count} with block-quantized weights quantize activations to 8 bits in blocks."
