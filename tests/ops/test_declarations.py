"""What partitioning, the numerics contract and the roofline know of an op is in its declaration."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from smelt.check.contract import op_class
from smelt.ir.records import Region
from smelt.ops import Shapes, cost_of, declarations
from smelt.partition.cost import pays

PRODUCTS = [declared for declared in declarations() if declared.kind == "product"]


def node(op: str, domain: str = "", outputs: int = 1, **attributes: object) -> ir.Node:
    return ir.node(op, [ir.Value(name="x")], attributes, domain=domain, num_outputs=outputs)


@pytest.mark.parametrize("declared", PRODUCTS, ids=lambda d: f"{d.domain}.{d.name}-{d.since}")
def test_a_product_is_one_for_everybody(declared) -> None:
    alone = node(declared.name, declared.domain)
    assert declared.work is not None
    assert cost_of(alone) == "heavy" and op_class([declared.name]) == "product"
    assert pays(Region(0, (alone,), (), ())).ok


def test_a_cheap_node_alone_does_not_pay_and_a_node_may_decide_it() -> None:
    assert not pays(Region(0, (node("Add"),), (), ())).ok
    assert [cost_of(node("MaxPool", outputs=n)) for n in (1, 2)] == ["cheap", "heavy"]
    assert [cost_of(node("Resize", mode=m)) for m in ("linear", "cubic")] == ["cheap", "heavy"]
    assert [cost_of(node(op)) for op in ("Reshape", "Gather", "Softmax", "Unheard")] == [
        "view",
        "move",
        "heavy",
        "cheap",
    ]


def test_flops_follow_from_shapes_or_elements() -> None:
    declared = {(d.domain, d.name): d for d in declarations()}
    product = declared["", "MatMul"].work
    assert product is not None and product(Shapes([[5, 7], [7, 3]], [[5, 3]], {})) == 2 * 5 * 7 * 3
    image, weights, scalar, result = [1, 6, 9, 9], [4, 3, 3, 3], [], [1, 4, 7, 7]
    for name, shapes in (
        ("Conv", [image, weights]),
        ("QLinearConv", [image, scalar, scalar, weights, scalar, scalar, scalar, scalar]),
    ):
        convolution = declared["", name].work
        assert convolution is not None and convolution(Shapes(shapes, [result], {})) == 2 * 4 * 49 * 27
    assert declared["", "Exp"].flops == 16 and declared["", "Add"].flops == 1 and declared["", "Cast"].flops == 0
