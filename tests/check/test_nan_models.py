"""Stock ONNX Runtime with maxima that keep NaN gives what the standard's reference gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from smelt.check.nan_models import keeping_nan
from smelt.runtime import session_for

_AXES = [numpy_helper.from_array(np.array([1, 3]), "axes")]
POOL = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}
CASES = [
    ("MaxPool", 17, POOL, []),
    ("MaxPool", 12, {**POOL, "ceil_mode": 1, "dilations": [1, 2]}, []),
    ("GlobalMaxPool", 17, {}, []),
    ("ReduceMax", 17, {"axes": [1, 3], "keepdims": 0}, []),
    ("ReduceMax", 18, {"keepdims": 1}, _AXES),
    ("ReduceMin", 18, {"keepdims": 0}, _AXES),
]


def saved(folder: Path, op: str, opset: int, attributes: dict[str, object], constants: list[onnx.TensorProto]) -> Path:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node(op, ["a", *(one.name for one in constants)], ["m"], **attributes),
        helper.make_node("Neg", ["m"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, 1, None) for name in ("x", "m", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, folder / "plain.onnx")
    return folder / "plain.onnx"


def fed() -> np.ndarray:
    x = np.random.default_rng(0).standard_normal((2, 3, 7, 9)).astype(np.float32)
    x[0, 1, 2:4, 3:5], x[1, 0, 0, 0], x[1, 2, 6, 8] = np.nan, np.inf, -np.inf
    return x


@pytest.mark.parametrize(("op", "opset", "attributes", "constants"), CASES)
def test_maxima_keep_nan_as_the_reference_does(op, opset, attributes, constants, tmp_path: Path) -> None:
    plain = saved(tmp_path, op, opset, attributes, constants)
    x = fed()
    kept = keeping_nan(plain)
    assert kept is not None
    got = session_for(kept).run(None, {"x": x})
    kept.unlink()
    if op == "MaxPool":  # by windows, since the package's rule drops NaN too
        clean = session_for(plain).run(None, {"x": np.where(np.isnan(x), np.float32(0), x)})
        touched = session_for(plain).run(None, {"x": -np.where(np.isnan(x), np.float32(9), np.float32(0))})[0] > 8
        assert touched.any()
        assert np.isnan(got[0]).tolist() == touched.tolist()
        assert np.array_equal(got[0][~touched], clean[0][~touched])
    else:
        want = ReferenceEvaluator(onnx.load(plain)).run(None, {"x": x})
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(got, want, strict=True))
        assert np.isnan(got[0]).any()


def test_nothing_is_made_where_no_node_drops_nan(tmp_path: Path) -> None:
    assert keeping_nan(saved(tmp_path, "ReduceMean", 17, {"axes": [1]}, [])) is None
    assert keeping_nan(saved(tmp_path, "MaxPool", 8, {"kernel_shape": [2, 2]}, [])) is None
