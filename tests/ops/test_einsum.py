"""Einsum: products, sums, diagonals, broadcasts, by its lowering and in generated C."""

from __future__ import annotations

import numpy as np
import pytest
from cases import backend_cases, check_node, compare, node_model, refuses, run_case
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import Batch

SIZES = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 6}


def floats(*shape: int, dtype=np.float32) -> np.ndarray:
    return np.random.default_rng([7, *shape]).standard_normal(shape).astype(dtype)


EQUATIONS = {
    "ab->ba": [(2, 3)],
    "ab->": [(2, 3)],
    "ab->b": [(2, 3)],
    "aa->a": [(4, 4)],
    "aab->ba": [(4, 4, 3)],
    "ab,bc": [(2, 3), (3, 4)],
    "ab,bc->ca": [(2, 3), (3, 4)],
    "ab,cb->ac": [(2, 3), (4, 3)],
    "abc,cd->abd": [(2, 3, 4), (4, 5)],
    "abc,dc->abd": [(2, 3, 4), (5, 4)],
    "abcd,aecd->abe": [(2, 3, 4, 5), (2, 6, 4, 5)],
    "bnid,bnjd->bnij": [(2, 3, 4, 5), (2, 3, 6, 5)],
    "bnij,bnjd->bind": [(2, 3, 4, 6), (2, 3, 6, 5)],
    "bsh,hnd->bsnd": [(2, 3, 4), (4, 5, 6)],
    "bsnd,ndh->bsh": [(2, 3, 5, 6), (5, 6, 4)],
    "a,b->ab": [(2,), (3,)],
    "ab,ab->ab": [(2, 3), (2, 3)],
    "ab,ab->a": [(2, 3), (2, 3)],
    "ab,ab": [(2, 3), (2, 3)],
    "...ab,...bc->...ac": [(7, 2, 3), (3, 4)],
    "...ab,bc->...ac": [(2, 7, 2, 3), (3, 4)],
    "a...,a...->...": [(2, 3, 1), (2, 1, 4)],
    "ab,b,b->a": [(2, 3), (3,), (3,)],
    "ab,bc,cd->ad": [(2, 3), (3, 4), (4, 5)],
    "ab,bc->ac": [(2, 1), (3, 4)],
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_every_form_agrees_with_numpy_and_onnx_runtime(equation: str):
    arrays = [floats(*shape) for shape in EQUATIONS[equation]]
    if equation == "ab,bc->ac":  # a label of size 1 broadcasts
        expected = [np.einsum(equation, np.repeat(arrays[0], 3, 1), arrays[1])]
        check_node("Einsum", arrays, attrs={"equation": equation}, expected=expected, against=(), free=False)
    else:
        expected = [np.asarray(np.einsum(equation, *arrays))]
        check_node("Einsum", arrays, attrs={"equation": equation}, expected=expected, against=("ort",))


def test_generated_code_agrees_with_numpy():
    batch, wanted = Batch(opset=17), []
    for equation, shapes in EQUATIONS.items():
        for dtype in (np.float32, np.float64):
            for constants in ((), (1,))[: len(shapes)]:
                arrays = [floats(*shape, dtype=dtype) for shape in shapes]
                model = node_model("Einsum", arrays, opset=17, constants=constants, attrs={"equation": equation})
                batch.add(model, [a for i, a in enumerate(arrays) if i not in constants])
                broadcast = [np.repeat(a, 3, 1) if a.shape == (2, 1) else a for a in arrays]
                wanted.append([np.asarray(np.einsum(equation, *broadcast))])
    for made, right in zip(batch.run("v3"), wanted, strict=True):
        compare(made, right)


@st.composite
def contractions(draw: st.DrawFn) -> tuple[str, list[str]]:
    terms = draw(st.lists(st.lists(st.sampled_from("abcde"), max_size=4), min_size=1, max_size=3))
    used = sorted({label for term in terms for label in term})
    kept = draw(st.lists(st.sampled_from(used), unique=True)) if used else []
    texts = ["".join(term) for term in terms]
    return ",".join(texts) + "->" + "".join(kept), texts


@settings(max_examples=60, deadline=None)
@given(contractions())
def test_random_equations_agree_with_numpy(made: tuple[str, list[str]]):
    equation, terms = made
    arrays = [floats(*(SIZES[label] for label in term)) for term in terms]
    expected = [np.asarray(np.einsum(equation, *arrays))]
    check_node("Einsum", arrays, attrs={"equation": equation}, expected=expected, against=(), tolerance=1e-4)


@pytest.mark.parametrize("case", backend_cases("Einsum", opsets=range(12, 29)), ids=lambda case: case.name)
def test_cases_of_the_onnx_suite(case):
    run_case(case)


def test_what_makes_no_sense_is_unsupported():
    pair = [floats(2, 3), floats(3, 4)]
    assert "number of operands" in refuses("Einsum", pair, attrs={"equation": "ab->a"})
    assert "rank" in refuses("Einsum", pair, attrs={"equation": "abc,bc->a"})
    assert "in no operand" in refuses("Einsum", pair, attrs={"equation": "ab,bc->z"})
    assert "agree" in refuses("Einsum", [floats(2, 3), floats(5, 4)], attrs={"equation": "ab,bc->ac"})
