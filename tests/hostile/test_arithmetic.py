"""Division by zero and of the least integer by -1: stock ONNX Runtime may die of them, generated code must not."""

from __future__ import annotations

import numpy as np
import pytest
from build import model, node
from onnx import helper
from sandbox import Sandbox

SIGNED = [np.int64, np.int32, np.int16, np.int8]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
COUNT = 37  # whole vectors and a tail


def divided(dtype: type, op: str, constant: int | None = None, **attributes: int) -> tuple:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    constants = {} if constant is None else {"b": np.array([constant]).astype(dtype)}
    inputs = {"a": (kind, ["n"]), "b": (kind, ["n"])}
    if constant is not None:
        del inputs["b"]
    return model([node(op, "a b", "y", **attributes)], inputs, {"y": (kind, ["n"])}, constants), kind


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED], ids=lambda t: t.__name__)
@pytest.mark.parametrize(("op", "attributes"), [("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1})], ids=str)
def test_a_divisor_of_zero_is_an_error_as_in_stock(sandbox: Sandbox, dtype: type, op: str, attributes: dict) -> None:
    a = np.arange(COUNT).astype(dtype)
    zero = np.zeros(COUNT, dtype)
    proto, _ = divided(dtype, op, **attributes)
    answer = sandbox.submit(proto, {"a": a, "b": zero})
    assert answer.is_right() and answer.kernels == 1, str(answer)


@pytest.mark.parametrize("dtype", SIGNED, ids=lambda t: t.__name__)
@pytest.mark.parametrize("constant", [None, -1], ids=["given", "constant"])
@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_the_least_integer_by_minus_one_wraps(sandbox: Sandbox, dtype: type, constant: int | None, op: str) -> None:
    least = np.full(COUNT, np.iinfo(dtype).min, dtype)
    proto, _ = divided(dtype, op, constant)
    feeds = {"a": least} if constant is not None else {"a": least, "b": np.full(COUNT, -1, dtype)}
    wanted = least if op == "Div" else np.zeros(COUNT, dtype)
    answer = sandbox.submit(proto, feeds, expected=[[wanted]])
    assert answer.is_right() and answer.kernels == 1, str(answer)


@pytest.mark.parametrize("op", ["Div", "Mod"])
@pytest.mark.parametrize("divisor", [0, -1])
def test_such_constants_do_not_take_the_compiler_down(sandbox: Sandbox, op: str, divisor: int) -> None:
    """Both operands constant: constant folding meets them first."""
    dtype, count = np.int64, 3
    proto, kind = divided(dtype, op, divisor)
    constants = {"a": np.full(count, np.iinfo(dtype).min, dtype), "b": np.array([divisor], dtype)}
    proto = model(
        [node(op, "a b", "c"), node("Add", "c x", "y")], {"x": (kind, [count])}, {"y": (kind, [count])}, constants
    )
    wanted = constants["a"] if op == "Div" else np.zeros(count, dtype)
    expected = [[wanted]] if divisor else None
    answer = sandbox.submit(proto, {"x": np.zeros(count, dtype)}, expected=expected)
    assert answer.is_right() if divisor else answer.is_sound(), str(answer)  # stock takes no constant divisor of 0


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8], ids=lambda t: t.__name__)
def test_casts_of_numbers_out_of_range_are_defined(sandbox: Sandbox, dtype: type) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 2.9, -2.9] * 6, np.float32)
    proto = model([node("Cast", "x", "y", to=kind)], {"x": (1, ["n"])}, {"y": (kind, ["n"])})
    answer = sandbox.submit(proto, {"x": x})
    assert answer.status == "compiled" and answer.verdicts != ["failed"], str(answer)


@pytest.mark.parametrize("shift", [0, 63, 64, 200])
def test_shifts_by_more_than_the_width_are_defined(sandbox: Sandbox, shift: int) -> None:
    proto, _ = divided(np.uint64, "BitShift", shift, direction="LEFT")
    a = np.arange(1, COUNT + 1).astype(np.uint64)
    wanted = a << np.uint64(shift) if shift < 64 else np.zeros_like(a)
    answer = sandbox.submit(proto, {"a": a}, expected=[[wanted]])
    assert answer.is_right(), str(answer)
