"""Generated C computes what the lowering says: every element-wise op, every type, every CPU level of this machine."""

from __future__ import annotations

import itertools

import cases
import kernels
import numpy as np
import pytest
import test_elementwise as elementwise
from onnx import helper

from smelt.base.target import runs_on_host, select_targets

SHAPE = (3, 37)  # whole vectors and a tail at every level
LEVELS = [t.name for t in select_targets() if runs_on_host(t)]
REFUSED = {("Erf", t) for t in elementwise.TYPES.values() if not np.issubdtype(t, np.floating)}
# 1 + erf cancels at negative numbers: exact to an ULP of 1, not of the result.
ABSOLUTE = {"Gelu": {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-14}}


def node_cases() -> list[tuple[str, list[np.ndarray], dict, list[int]]]:
    """(op, inputs, attributes, constant inputs) of the newest version of each op, for each of its types."""
    found: list[tuple[str, list[np.ndarray], dict, list[int]]] = []
    for op, attrs in [(op, {}) for op in elementwise.UNARY]:
        found += [(op, [elementwise.sample(t, SHAPE)], attrs, []) for t in types(op)]
    two = [(op, {}) for op in elementwise.BINARY]
    two += [("Mod", {"fmod": 0}), ("Mod", {"fmod": 1}), ("BitShift", {"direction": "LEFT"})]
    for op, attrs in [*two, ("BitShift", {"direction": "RIGHT"})]:
        found += [
            (op, [elementwise.sample(t, SHAPE, 1), elementwise.sample(t, SHAPE[1:], 2)], attrs, []) for t in types(op)
        ]
    return found + casts() + powers()


def types(op: str) -> list[type]:
    return [t for t in elementwise.types(op, cases.LATEST) if (op, t) not in REFUSED]


def casts() -> list[tuple[str, list[np.ndarray], dict, list[int]]]:
    every = elementwise.TYPES.values()
    return [
        ("Cast", [elementwise.sample(s, SHAPE)], {"to": helper.np_dtype_to_tensor_dtype(np.dtype(t))}, [])
        for s, t in itertools.product(every, every)
    ]


def powers() -> list[tuple[str, list[np.ndarray], dict, list[int]]]:
    base, exponent = np.arange(1, 38) % 12, np.arange(1, 38) % 9
    mixed = itertools.product(elementwise.POWER_TYPES, elementwise.POWER_TYPES)
    constant = [np.array(e, np.float32) for e in (0, 1, 2, 3, 4, -1, 0.5, -0.5, 1.7)]
    return [("Pow", [base.astype(s), exponent.astype(t)], {}, []) for s, t in mixed] + [
        ("Pow", [elementwise.sample(np.float32, SHAPE), e], {}, [1]) for e in constant
    ]


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("level", LEVELS)
def test_kernels_compute_what_the_lowering_says(level: str) -> None:
    batch, wanted, labels = kernels.Batch(cases.LATEST), list[list[np.ndarray]](), list[str]()
    for op, inputs, attrs, constants in node_cases():
        model = cases.node_model(op, inputs, attrs=attrs, constants=constants, free=True)
        fed = [a for i, a in enumerate(inputs) if i not in constants]
        batch.add(model, fed)
        wanted.append(cases.evaluate(model, fed))
        labels.append(f"{op} {attrs} of {inputs[0].dtype}")
    wrong = [
        message
        for label, got, want in zip(labels, batch.run(level), wanted, strict=True)
        if (message := difference(label, got[0], want[0]))
    ]
    assert not wrong, "\n".join(wrong)


def difference(label: str, got: np.ndarray, want: np.ndarray) -> str:
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{label}: {got.dtype}{got.shape} is not {want.dtype}{want.shape}"
    if got.dtype.kind != "f":
        same = got == want
    else:
        relative = 2e-6 if got.dtype == np.float32 else 1e-13
        absolute = ABSOLUTE.get(label.split()[0], {}).get(got.dtype, 0.0)
        same = np.isclose(got, want, rtol=relative, atol=absolute + np.finfo(got.dtype).tiny, equal_nan=True)
    return "" if same.all() else f"{label}: {got[~same][:3]} is not {want[~same][:3]}"
