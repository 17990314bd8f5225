"""Softmax: cases of the ONNX suite, and the matrix form before opset 13."""

import cases
import numpy as np
import pytest


@pytest.mark.parametrize("case", cases.backend_cases("Softmax"), ids=lambda c: c.name)
def test_backend_case_is_right(case: cases.Case) -> None:
    cases.run_case(case)


def test_matrix_form_before_13() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    cases.check_node("Softmax", [x], opset=11, attrs={"axis": 1}, against=("ort",))
