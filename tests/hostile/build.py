"""Small models by short spellings.

Input: nodes and declared values. Output: a ModelProto. Invariant: nothing is checked, so that
broken models can be made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F, I64, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Declared = Mapping[str, tuple[int, Sequence[Any] | None]]


def node(op: str, inputs: str | Sequence[str], outputs: str | Sequence[str], **attributes: Any) -> onnx.NodeProto:
    """Inputs and outputs as one text with spaces between the names, or as lists where names are strange."""
    return helper.make_node(
        op,
        inputs.split() if isinstance(inputs, str) else list(inputs),
        outputs.split() if isinstance(outputs, str) else list(outputs),
        **attributes,
    )


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Declared,
    outputs: Declared,
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 18,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, *declared) for name, declared in inputs.items()],
        [helper.make_tensor_value_info(name, *declared) for name, declared in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=list(functions))
