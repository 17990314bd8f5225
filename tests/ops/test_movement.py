"""Transposes, reshapes, joins, cuts, tiling, blocks: the ONNX suite, other versions, free sizes, what is refused."""

import cases
import numpy as np
import pytest
import shapes

OPS = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Concat", "Split", "Expand", "Tile")
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("case", [c for op in OPS for c in cases.backend_cases(op)], ids=lambda c: c.name)
def test_backend_case_is_right(case: cases.Case) -> None:
    cases.run_case(case)


@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.uint16, np.int64, np.bool_])
def test_transpose_of_any_type(dtype: type) -> None:
    cases.check_node("Transpose", [X.astype(dtype)], attrs={"perm": [1, 2, 0]})


@pytest.mark.parametrize("shape", [(0, -1), (4, 3, 2), (-1,), (2, -1, 2), (0, 0, 2, 2), (1, 24, 1), (2, 0, -1, 2)])
def test_reshape(shape: tuple[int, ...]) -> None:
    shapes.check_operands("Reshape", [X, ints(*shape)], [1])


def test_reshape_with_zero_allowed() -> None:
    empty = np.zeros((0, 3, 4), np.float32)
    shapes.check_operands("Reshape", [empty, ints(3, 4, 0)], [1], attrs={"allowzero": 1})


@pytest.mark.parametrize(("opset", "axis"), [(9, 0), (9, 2), (13, -1), (26, 3)])
def test_flatten(opset: int, axis: int) -> None:
    cases.check_node("Flatten", [X], opset=opset, attrs={"axis": axis})


@pytest.mark.parametrize("axes", [(0,), (-1, 0), (2,), (4, 0, 2)])
def test_squeeze_by_input(axes: tuple[int, ...]) -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 1, 3, 1)
    shapes.check_operands("Squeeze", [x, ints(*axes)], [1])


def test_squeeze_without_axes_when_sizes_are_known() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 1, 3)
    model = cases.node_model("Squeeze", [x])
    cases.compare(cases.evaluate(model, [x]), [x.reshape(2, 3)])
    assert "only at run time" in cases.refuses("Squeeze", [x], free=True)


@pytest.mark.parametrize(("op", "axes"), [("Squeeze", [0, 2]), ("Unsqueeze", [0, 3]), ("Unsqueeze", [1])])
def test_axes_as_attribute_before_13(op: str, axes: list[int]) -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 6, 1)
    cases.check_node(op, [x], opset=11, attrs={"axes": axes})


@pytest.mark.parametrize("axes", [(0,), (-1,), (3, 1), (-2, 0)])
def test_unsqueeze_by_input(axes: tuple[int, ...]) -> None:
    shapes.check_operands("Unsqueeze", [X, ints(*axes)], [1])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(axis: int) -> None:
    other = np.repeat(X, 2, axis)
    cases.check_node("Concat", [X, other, X], attrs={"axis": axis})


@pytest.mark.parametrize(("opset", "size"), [(11, 4), (13, 4)])
def test_split_into_equal_parts(opset: int, size: int) -> None:
    x = np.arange(3 * size, dtype=np.float32).reshape(3, size)
    cases.check_node("Split", [x], opset=opset, outputs=2, attrs={"axis": -1})


def test_split_by_attribute_before_13() -> None:
    cases.check_node("Split", [X], opset=11, outputs=2, attrs={"axis": 2, "split": [1, 3]})


def test_split_by_input() -> None:
    shapes.check_operands("Split", [X, ints(3, 0, 1)], [1], outputs=3, attrs={"axis": 2})


@pytest.mark.parametrize("size", [6, 7, 8])
def test_split_leaves_the_rest_to_the_last_part(size: int) -> None:
    x = np.arange(size, dtype=np.float32)
    cases.check_node("Split", [x], outputs=3, attrs={"num_outputs": 3})


@pytest.mark.parametrize("shape", [(2, 3, 4), (5, 2, 3, 4), (4,), (1,), (2, 1, 1, 4)])
def test_expand(shape: tuple[int, ...]) -> None:
    x = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    shapes.check_operands("Expand", [x, ints(*shape)], [1])


def test_tile() -> None:
    shapes.check_operands("Tile", [X, ints(2, 1, 3)], [1])


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode: str) -> None:
    x = np.arange(2 * 12 * 2 * 3, dtype=np.float32).reshape(2, 12, 2, 3)
    cases.check_node("DepthToSpace", [x], opset=13, attrs={"blocksize": 2, "mode": mode})


def test_space_to_depth() -> None:
    x = np.arange(2 * 3 * 4 * 6, dtype=np.float32).reshape(2, 3, 4, 6)
    cases.check_node("SpaceToDepth", [x], opset=13, attrs={"blocksize": 2})


@pytest.mark.parametrize(
    ("op", "inputs", "how", "reason"),
    [
        ("Transpose", [X], {"attrs": {"perm": [0, 0, 1]}}, "permutation"),
        ("Transpose", [X], {"attrs": {"perm": [0, 1]}}, "permutation"),
        ("Reshape", [X, ints(-2, 4)], {"constants": [1]}, "negative"),
        ("Reshape", [X, ints(-1, -1)], {"constants": [1]}, "one dimension"),
        ("Reshape", [X, ints(5, 5)], {"constants": [1]}, "number of elements"),
        ("Reshape", [X, ints(2, 3, 4, 0)], {"constants": [1]}, "does not have"),
        ("Squeeze", [X, ints(1)], {"constants": [1]}, "must be 1"),
        ("Squeeze", [X, ints(5)], {"constants": [1]}, "out of range"),
        ("Unsqueeze", [X, ints(0, 0)], {"constants": [1]}, "twice"),
        ("Unsqueeze", [X, ints(9)], {"constants": [1]}, "out of range"),
        ("Concat", [X, X[:, :2]], {"attrs": {"axis": 0}}, "agree"),
        ("Concat", [X, X], {"attrs": {"axis": 3}}, "out of range"),
        ("Split", [X, ints(1, 1)], {"constants": [1], "outputs": 2, "attrs": {"axis": 2}}, "add up"),
        ("Split", [X, ints(-1, 5)], {"constants": [1], "outputs": 2, "attrs": {"axis": 2}}, "negative"),
        ("Split", [X], {"outputs": 3, "opset": 13, "attrs": {"axis": 2}}, "add up"),
        ("Expand", [X, ints(2, 2, 4)], {"constants": [1]}, "broadcast"),
        ("Expand", [X, ints(-1, 3, 4)], {"constants": [1]}, "negative"),
        ("Tile", [X, ints(1, 2)], {"constants": [1]}, "repeat counts"),
        ("Tile", [X, ints(1, 2, -1)], {"constants": [1]}, "negative"),
        ("DepthToSpace", [X], {"attrs": {"blocksize": 2}}, "rank"),
        ("SpaceToDepth", [X[None]], {"attrs": {"blocksize": 0}}, "blocksize"),
    ],
)
def test_impossible_node_is_refused(op: str, inputs: list[np.ndarray], how: dict[str, object], reason: str) -> None:
    assert reason in cases.refuses(op, inputs, **how)


def test_run_time_shape_that_does_not_fit_fails_its_requirement() -> None:
    with pytest.raises(AssertionError, match="requirement fails"):
        cases.evaluate(cases.node_model("Reshape", [X, ints(5, 5)]), [X, ints(5, 5)])
