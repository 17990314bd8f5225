"""The verifier notices each way in which a pass could break a model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from smelt.base.errors import SmeltError
from smelt.ir.verifier import verify_model


def make() -> ir.Model:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([4]))
    w = ir.Value(
        name="w", type=ir.TensorType(ir.DataType.FLOAT), const_value=ir.Tensor(np.ones(4, np.float32), name="w")
    )
    a = ir.Node("", "Add", [x, w], outputs=[ir.Value(name="a")], name="first")
    body_node = ir.Node("", "Relu", [a.outputs[0]], outputs=[ir.Value(name="b")], name="inner")
    body = ir.Graph([], [body_node.outputs[0]], nodes=[body_node], name="body")
    branch = ir.Node("", "If", [x], [ir.AttrGraph("then_branch", body)], outputs=[ir.Value(name="y")], name="branch")
    graph = ir.Graph([x], [branch.outputs[0]], nodes=[a, branch], initializers=[w], name="g", opset_imports={"": 18})
    return ir.Model(graph, ir_version=9)


def swap_order(model: ir.Model) -> None:
    model.graph.append(model.graph[0])


def dangle(model: ir.Model) -> None:
    model.graph[0].replace_input_with(0, ir.Value(name="nowhere"))


def duplicate(model: ir.Model) -> None:
    model.graph[0].outputs[0].name = "x"


def leak_body(model: ir.Model) -> None:
    inner = model.graph[1].attributes["then_branch"].as_graph()[0].outputs[0]
    model.graph[0].replace_input_with(0, inner)


def mistype(model: ir.Model) -> None:
    model.graph.initializers["w"].dtype = ir.DataType.INT64


def remove_producer(model: ir.Model) -> None:
    model.graph.remove(model.graph[0])


def test_a_sound_model_passes() -> None:
    verify_model(make())


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (swap_order, "SM-MODEL-003"),
        (dangle, "SM-MODEL-002"),
        (duplicate, "SM-MODEL-001"),
        (leak_body, "SM-MODEL-002"),
        (mistype, "SM-MODEL-004"),
        (remove_producer, "SM-MODEL-002"),
    ],
)
def test_damage_is_noticed(damage: Callable[[ir.Model], None], code: str) -> None:
    model = make()
    damage(model)
    with pytest.raises(SmeltError) as caught:
        verify_model(model)
    assert caught.value.code == code
