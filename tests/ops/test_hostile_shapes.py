"""Models made to exhaust or break the analysis: it ends soon, and says what it could not tell."""

import time
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from smelt.ops import Facts, analyze


def facts_of(nodes: list[onnx.NodeProto], inputs: dict[str, list[Any]], constants: dict[str, np.ndarray]) -> Facts:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, 1, s) for n, s in inputs.items()],
        [helper.make_empty_tensor_value_info(nodes[-1].output[0])],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    began = time.perf_counter()
    facts = analyze(ir.serde.deserialize_model(model))
    assert time.perf_counter() - began < 20
    return facts


def node(op: str, inputs: str, output: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], **attrs)


def test_sizes_that_square_themselves() -> None:
    nodes = [node("Shape", "x", "s0")]
    for k in range(60):
        nodes += [node("Add", f"s{k} one", f"p{k}"), node("Mul", f"s{k} p{k}", f"s{k + 1}")]
    nodes.append(node("ConstantOfShape", "s60", "y"))
    facts_of(nodes, {"x": ["a", "b"]}, {"one": np.array([1], np.int64)})


def test_choices_that_double_at_every_step() -> None:
    nodes = [node("Shape", "x", "s0")]
    for k in range(60):
        nodes += [
            node("Greater", f"s{k} limit", f"c{k}"),
            node("Add", f"s{k} limit", f"p{k}"),
            node("Mul", f"s{k} s{k}", f"q{k}"),
            node("Where", f"c{k} p{k} q{k}", f"s{k + 1}"),
        ]
    nodes.append(node("ConstantOfShape", "s60", "y"))
    facts_of(nodes, {"x": ["a"]}, {"limit": np.array([7], np.int64)})


def test_a_product_of_many_sums() -> None:
    nodes: list[onnx.NodeProto] = []
    inputs: dict[str, list[Any]] = {}
    for axis in range(8):
        parts = [f"x{axis}_{k}" for k in range(40)]
        inputs |= {name: [f"d{axis}_{k}" if a == axis else 1 for a in range(8)] for k, name in enumerate(parts)}
        nodes.append(helper.make_node("Concat", parts, [f"c{axis}"], axis=axis))
    nodes += [node("Add", f"{'c0' if k == 0 else f't{k}'} c{k + 1}", f"t{k + 1}") for k in range(7)]
    facts = facts_of([*nodes, node("Reshape", "t7 flat", "y")], inputs, {"flat": np.array([-1], np.int64)})
    assert any("complex" in reason or "involved" in reason for reason in facts.unsupported.values())


def test_sizes_beyond_64_bits_are_not_facts() -> None:
    constants = {"huge": np.array([2**62, 2**62], np.int64), "again": np.array([2**62, 2**62], np.int64)}
    facts = facts_of([node("Expand", "x huge", "e"), node("Tile", "e again", "y")], {"x": [1, 1]}, constants)
    assert "y" not in {v.name for v in facts.by_value}


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Transpose", {"perm": 1.5}), ("Transpose", {"perm": "ab"}), ("Flatten", {"axis": [1, 2]}),
        ("Flatten", {"axis": "x"}), ("Gather", {"axis": [0.5]}), ("Concat", {"axis": 2**63 - 1}), ("Concat", {}),
        ("DepthToSpace", {"blocksize": [2]}), ("Constant", {"value": 3}), ("Constant", {"value_ints": 1.0}),
        ("Resize", {"mode": 3}), ("Conv", {"strides": 0}), ("MaxPool", {"kernel_shape": "x"}),
        ("Einsum", {"equation": 1}), ("If", {"then_branch": 1}), ("Trilu", {"upper": "yes"}),
    ],
)  # fmt: skip
def test_attribute_of_the_wrong_type_is_a_refusal(op: str, attrs: dict[str, Any]) -> None:
    facts = facts_of([node(op, "x x", "y", **attrs)], {"x": [2, 3, 4, 4]}, {})
    assert facts.unsupported
