"""The node suite against Triton's kernels: what runs is right, what is left is listed with its reason."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from left import (
    FAMILIES,
    FUNCTION,
    LEFT,
    OUTSIDE,
    POOL,
    PRODUCT,
    WHOLE_IN_C,
    family,
    family_table,
    measure,
    share_left,
    table,
)
from simulate import captured
from suite_run import cases, run_case

PAGE = Path(__file__).parents[3] / "docs" / "gpu.md"
SHARES = 24
NODES = {
    ("MatMul", PRODUCT): "(float[n,8] x, float[8,4] w) => (float[n,4] y) { y = MatMul(x, w) }",
    ("MaxPool", POOL): "(float[n,2,8] x) => (float[n,2,7] y) { y = MaxPool<kernel_shape=[2]>(x) }",
    ("ScatterElements", FUNCTION): "(float[n,4] x, int64[n,2] i, float[n,2] u) => (float[n,4] y) "
    "{ y = ScatterElements<axis=1>(x, i, u) }",
    ("Compress", FUNCTION): "(float[n,4] x, bool[n] c) => (float[m,4] y) { y = Compress<axis=0>(x, c) }",
    ("NonZero", FUNCTION): "(float[n] x) => (int64[1,m] y) { y = NonZero(x) }",
}


@pytest.mark.parametrize(
    ("head", "rows"),
    [("| op | cases | reason |", table()), ("| family | computed by | cases | left |", family_table())],
    ids=["by op", "by family"],
)
def test_the_page_shows_the_list(head: str, rows: list[str]):
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = lines.index(head) + 2
    assert lines[start : lines.index("", start)] == rows


def test_the_lists_count_the_same_cases():
    both = [*FAMILIES.values(), *OUTSIDE.values()]
    assert sum(count for count, _ in both) == WHOLE_IN_C
    assert sum(left for _, left in both) == sum(LEFT.values())
    assert all(count == left for count, left in OUTSIDE.values())


@pytest.mark.parametrize(
    ("ops", "left", "name"),
    [
        (["Add"], [], "element-wise"),
        (["Shape", "Softmax", "Mul"], [], "softmax and normalizations"),
        (["MatMul", "Softmax"], [("MatMul", PRODUCT)], "matrix products"),
        (["Attention"], [("Attention", PRODUCT)], "attention"),
        (["ScatterND"], [("ScatterND", FUNCTION)], "data movement and shapes"),
        (["TopK"], [("TopK", FUNCTION)], "functions in C"),
    ],
)
def test_a_case_is_of_one_family(ops: list[str], left: list[tuple[str, str]], name: str):
    assert family(ops, left) == name


def test_less_than_a_twentieth_of_the_families_is_left():
    assert share_left() < 0.05


@pytest.mark.parametrize(("op", "reason"), NODES)
def test_a_node_is_left_for_the_reason_of_the_list(op: str, reason: str):
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {NODES[op, reason]}')
    [fallback] = captured(model).plan.fallbacks
    assert (fallback.node.op_type, fallback.reason) == (op, reason)
    assert (op, reason) in LEFT


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_list_is_what_is_left():
    whole, left, families = measure()
    assert dict(left) == LEFT
    assert families == FAMILIES | OUTSIDE
    assert whole == WHOLE_IN_C


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("share", range(SHARES))
def test_what_is_taken_is_right(share: int):
    found = {name: run_case(name) for name in list(cases())[share::SHARES]}
    assert not {name: said for name, said in found.items() if said != "pass" and not said.startswith("left: ")}
    assert "pass" in found.values()
