"""Activations with what comes before them -> ONNX Runtime's own nodes.

Input: a float32 model. Output: BiasGelu for Gelu(x + bias), FastGelu for its tanh form, QuickGelu for
x * sigmoid(alpha * x), SiLU among them. Invariant: the bias is a vector of the last axis; inner values have no other
reader.
"""

from __future__ import annotations

import onnx_ir as ir

from smelt.passes.rewriter.rules import Rewrite, Rule
from smelt.passes.rewriter.surgery import is_op, only_user, tensor_of

_CONTRIB = "com.microsoft"


def _bias_gelu(node: ir.Node, rewrite: Rewrite) -> ir.Value | None:
    """Gelu of a sum with a bias -> BiasGelu, or FastGelu for the tanh form"""
    source = node.inputs[0]
    add = source.producer() if source is not None else None
    if source is None or add is None or not is_op(add, "Add") or only_user(source) is not node:
        return None
    form = node.attributes.get("approximate")
    op_type = "FastGelu" if form is not None and form.as_string() == "tanh" else "BiasGelu"
    for x, bias in (add.inputs, reversed(add.inputs)):
        if x is not None and bias is not None and _is_bias(bias, x) and x.dtype == ir.DataType.FLOAT:
            return rewrite.op(op_type, x, bias, domain=_CONTRIB, like=node.outputs[0])
    return None


def _is_bias(bias: ir.Value, x: ir.Value) -> bool:
    if tensor_of(bias) is None or bias.shape is None or x.shape is None or x.shape.rank() < 2:
        return False
    return bias.shape.rank() == 1 and isinstance(bias.shape[0], int) and bias.shape[0] == x.shape[-1]


def _quick_gelu(node: ir.Node, rewrite: Rewrite) -> ir.Value | None:
    """x * sigmoid(alpha * x) -> QuickGelu"""
    for x, gate in (node.inputs, reversed(node.inputs)):
        sigmoid = gate.producer() if gate is not None else None
        if x is None or gate is None or sigmoid is None or not is_op(sigmoid, "Sigmoid") or only_user(gate) is not node:
            continue
        alpha = _alpha(sigmoid.inputs[0], x, rewrite)
        if alpha is not None and x.dtype == ir.DataType.FLOAT:
            return rewrite.op("QuickGelu", x, domain=_CONTRIB, like=node.outputs[0], alpha=alpha)
    return None


def _alpha(value: ir.Value | None, x: ir.Value, rewrite: Rewrite) -> float | None:
    """The factor, where the value is x times a constant."""
    if value is x:
        return 1.0
    scale = value.producer() if value is not None else None
    if scale is None or not is_op(scale, "Mul") or x not in scale.inputs:
        return None
    return next((n for v in scale.inputs if v is not x and (n := rewrite.number(v)) is not None), None)


ORT_ACTIVATIONS = (
    Rule("ort-bias-gelu", _bias_gelu, frozenset(("Gelu", "com.microsoft::Gelu")), ("ort",)),
    Rule("ort-quick-gelu", _quick_gelu, frozenset(("Mul",)), ("ort",)),
)
