"""Packed constants become initializers of the model.

Input: a model and the code of its regions. Output: one new initializer per packed constant. Invariant: a constant is
packed once however many regions want it; the plain one is dropped by the caller once nothing uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import onnx_ir as ir

from smelt.ir.kernel.panels import arranged

from .c.pack import pack
from .c.region import Packed, RegionCode

_PREFIX: Final = "smelt.packed."


def attach_packed(model: ir.Model, codes: Sequence[RegionCode]) -> dict[Packed, ir.Value]:
    """Register the packed form of every constant that the regions ask for."""
    made: dict[Packed, ir.Value] = {}
    for code in codes:
        for wanted in code.inputs:
            if isinstance(wanted, Packed) and wanted not in made:
                made[wanted] = _packed_value(model, wanted, len(made))
    return made


def packed_names(model: ir.Model) -> frozenset[str]:
    """The initializers that `attach_packed` made."""
    return frozenset(name for name in model.graph.initializers if name.startswith(_PREFIX))


def _packed_value(model: ir.Model, wanted: Packed, number: int) -> ir.Value:
    constant = wanted.source.const_value
    assert constant is not None
    plain = np.asarray(constant.numpy())
    panels = pack(arranged(plain, wanted.layout))
    name = f"{_PREFIX}{number}"
    while name in model.graph.initializers:
        name += "_"
    value = ir.Value(name=name, shape=ir.Shape(panels.shape), type=ir.TensorType(ir.DataType.FLOAT))
    value.const_value = ir.tensor(panels, name=name)
    model.graph.register_initializer(value)
    return value
