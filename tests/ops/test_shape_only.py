"""Shape rules of ops without a lowering, against the sizes that ONNX Runtime sees."""

from typing import Any

import cases
import numpy as np
import onnx
import pytest
import shapes
from onnx import helper, numpy_helper

R = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def check(op: str, inputs: list[np.ndarray | None], **how: Any) -> None:
    """Sizes known, then all sizes of the fed inputs free; the rule must say every output."""
    fed = {f"x{i}": a for i, a in enumerate(inputs) if a is not None and i not in how.get("constants", ())}
    for free in (False, True):
        model = cases.node_model(op, inputs, free=free, **{"opset": 21, **how})
        facts = shapes.compare_shapes(model, fed)
        known = {v.name for v in facts.by_value}
        assert {o.name for o in model.graph.output} <= known, f"free={free}"


MATMULS = [
    ((2, 3), (3, 4)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((3,), (3,)),
    ((5, 1, 2, 3), (4, 3, 2)),
    ((2, 3), (7, 3, 1)),
]


@pytest.mark.parametrize(("a", "b"), MATMULS)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    check("MatMul", [floats(*a), floats(*b)])
    check("MatMulInteger", [np.ones(a, np.uint8), np.ones(b, np.uint8)])


@pytest.mark.parametrize("attrs", [{}, {"transA": 1}, {"transB": 1}, {"transA": 1, "transBatchA": 1}])
def test_fused_matmul(attrs: dict[str, int]) -> None:
    a = floats(3, 2, 4, 4) if not attrs.get("transBatchA") else floats(4, 3, 2, 4)
    b = floats(3, 2, 4, 4) if not attrs.get("transBatchA") else floats(3, 2, 4, 5)
    check("FusedMatMul", [a, b], domain="com.microsoft", attrs=attrs)


@pytest.mark.parametrize("attrs", [{}, {"transA": 1}, {"transB": 1}])
def test_gemm(attrs: dict[str, int]) -> None:
    a = floats(3, 2) if attrs.get("transA") else floats(2, 3)
    b = floats(5, 3) if attrs.get("transB") else floats(3, 5)
    check("Gemm", [a, b], attrs=attrs)


@pytest.mark.parametrize(
    ("equation", "inputs"),
    [
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("...ij, ...kj -> ...ik", [(2, 5, 3, 4), (2, 5, 6, 4)]),
        ("ii->i", [(3, 3)]),
        ("bhqd,bhkd->bhqk", [(1, 2, 3, 4), (1, 2, 5, 4)]),
        ("ab->", [(2, 3)]),
    ],
)
def test_einsum(equation: str, inputs: list[tuple[int, ...]]) -> None:
    check("Einsum", [floats(*s) for s in inputs], attrs={"equation": equation})


WINDOWS: list[dict[str, Any]] = [
    {}, {"strides": [2, 3]}, {"pads": [1, 0, 2, 1]}, {"dilations": [2, 1]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, {"auto_pad": "SAME_LOWER"}, {"auto_pad": "VALID", "strides": [1, 2]},
    {"pads": [1, 1, 1, 1], "strides": [2, 2], "dilations": [2, 2]},
]  # fmt: skip


@pytest.mark.parametrize("attrs", WINDOWS)
def test_conv(attrs: dict[str, Any]) -> None:
    if "dilations" in attrs or not attrs.get("auto_pad", "").startswith("SAME"):
        check("Conv", [floats(2, 4, 9, 11), floats(6, 2, 3, 2)], attrs={**attrs, "group": 2})
    else:
        check("Conv", [floats(2, 4, 9, 11), floats(6, 4, 3, 2)], attrs=attrs)


@pytest.mark.parametrize("attrs", [*WINDOWS[:4], {"output_padding": [1, 1], "strides": [2, 2]}])
def test_conv_transpose(attrs: dict[str, Any]) -> None:
    check("ConvTranspose", [floats(2, 4, 5, 6), floats(4, 3, 3, 2)], attrs=attrs)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize(
    "attrs", [*WINDOWS[:3], *WINDOWS[4:7], {"pads": [1, 1, 1, 1], "strides": [2, 2]}, {"strides": [3, 3]}]
)
def test_pool(op: str, ceil: int, attrs: dict[str, Any]) -> None:
    pads = {} if op != "LpPool" or "auto_pad" not in attrs else {"auto_pad": "VALID"}
    if any(p > 1 for p in attrs.get("pads", [])):
        attrs = {**attrs, "pads": [1, 0, 1, 1]}
    for size in (7, 8, 9):
        check(op, [floats(1, 2, size, size + 1)], attrs={**attrs, **pads, "kernel_shape": [3, 2], "ceil_mode": ceil})


def test_global_pool() -> None:
    check("GlobalAveragePool", [floats(2, 3, 4, 5)])


def test_attention_with_flat_heads_and_a_cache() -> None:
    inputs = [floats(2, 3, 32), floats(2, 5, 16), floats(2, 5, 16), None, floats(2, 2, 4, 8), floats(2, 2, 4, 8)]
    check("Attention", inputs, opset=23, outputs=3, attrs={"q_num_heads": 4, "kv_num_heads": 2})


def test_attention_with_separate_heads() -> None:
    check("Attention", [floats(2, 4, 3, 8), floats(2, 4, 5, 8), floats(2, 4, 5, 6)], opset=23)


def test_multi_head_attention() -> None:
    inputs = [floats(2, 3, 16), floats(2, 5, 16), floats(2, 5, 16)]
    check("MultiHeadAttention", inputs, domain="com.microsoft", attrs={"num_heads": 4})


def test_packed_attention_with_present() -> None:
    inputs = [floats(2, 3, 16), floats(16, 48), floats(48), None, floats(2, 2, 4, 5, 4)]
    attrs = {"num_heads": 4, "unidirectional": 1}
    check("Attention", inputs, domain="com.microsoft", outputs=2, attrs=attrs)


def test_group_query_attention_grows_its_cache() -> None:
    past = floats(1, 2, 4, 8)
    inputs = [floats(1, 1, 32), floats(1, 1, 16), floats(1, 1, 16), past, past,
              np.array([[4]], np.int32), np.array(5, np.int32)]  # fmt: skip
    attrs = {"num_heads": 4, "kv_num_heads": 2}
    check("GroupQueryAttention", inputs, domain="com.microsoft", outputs=3, attrs=attrs)


@pytest.mark.parametrize("constants", [[1], []])
def test_top_k(constants: list[int]) -> None:
    check("TopK", [floats(2, 7), ints(3)], outputs=2, constants=constants) if constants else None
    model = cases.node_model("TopK", [floats(2, 7), ints(3)], outputs=2)
    facts = shapes.compare_shapes(model, {"x0": floats(2, 7), "x1": ints(3)}, {"x0": floats(2, 7), "x1": ints(5)})
    assert shapes.run_time_symbols(facts) == {"v1[0]"}


def test_sizes_decided_by_data_are_named_after_the_value() -> None:
    check("NonZero", [np.array([[1.0, 0.0, 2.0]], np.float32)])
    check("Unique", [floats(7)], outputs=4)
    check("Compress", [floats(2, 3), np.array([True, False, True])], attrs={"axis": 1})


@pytest.mark.parametrize("op", ["ScatterND", "ScatterElements"])
def test_scatter_keeps_the_shape(op: str) -> None:
    indices, updates = (
        (ints(1, 0).reshape(2, 1), floats(2, 3)) if op == "ScatterND" else (np.zeros((1, 3), np.int64), floats(1, 3))
    )
    check(op, [floats(4, 3), indices, updates], constants=[1])


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent(op: str, gates: int) -> None:
    inputs = [floats(5, 2, 3), floats(2, gates * 4, 3), floats(2, gates * 4, 4)]
    attrs = {"hidden_size": 4, "direction": "bidirectional"}
    check(op, inputs, outputs=3 if op == "LSTM" else 2, attrs=attrs)


# If


def choice(then: tuple[int, ...], other: tuple[int, ...], condition: bool | None = None) -> onnx.ModelProto:
    """If(c) then a constant of one shape, else one of another; c is an input unless given."""

    def branch(name: str, shape: tuple[int, ...]) -> onnx.GraphProto:
        value = helper.make_tensor_value_info(name, 1, None)
        node = helper.make_node("Expand", ["x", f"{name}_shape"], [name])
        return helper.make_graph([node], name, [], [value], [numpy_helper.from_array(ints(*shape), f"{name}_shape")])

    inputs = [helper.make_tensor_value_info("x", 1, [1])]
    constants = []
    if condition is None:
        inputs.append(helper.make_tensor_value_info("c", 9, []))
    else:
        constants.append(numpy_helper.from_array(np.array(condition), "c"))
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("t", then), else_branch=branch("e", other))
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def shape_of_y(model: onnx.ModelProto, **inputs: np.ndarray) -> tuple[int | None, ...] | None:
    facts = shapes.compare_shapes(model, {"x": floats(1), **inputs})
    found = {v.name: f.shape for v, f in facts.by_value.items()}.get("y")
    return None if found is None else tuple(s.const for s in found)


def test_branches_that_agree() -> None:
    assert shape_of_y(choice((2, 3), (2, 3)), c=np.array(True)) == (2, 3)


def test_branches_that_differ_stay_unknown() -> None:
    assert shape_of_y(choice((2, 3), (3,)), c=np.array(True)) is None


def test_the_branch_that_is_always_taken() -> None:
    assert shape_of_y(choice((2, 3), (3,), condition=False)) == (3,)


def test_an_operand_of_unknown_shape_is_not_taken_for_an_absent_one() -> None:
    q = floats(2, 3, 32)
    past = floats(2, 4, 4, 8)
    inputs = [q, q, q, None, past, past]
    model = cases.node_model("Attention", inputs, opset=23, outputs=3, attrs={"q_num_heads": 4, "kv_num_heads": 4})
    for value in model.graph.input:
        if value.name == "x4":
            value.type.tensor_type.ClearField("shape")
    facts = shapes.compare_shapes(model, {"x0": q, "x1": q, "x2": q, "x4": past, "x5": past})
    assert "y1" not in {v.name for v in facts.by_value}
