"""GatherBlockQuantized against stock and against its formula."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import smelt

MICROSOFT = "com.microsoft"
ROWS, DEPTH = 23, 96


def _model(
    bits: int, block: int, zeros: bool, scales: tuple[int, ...] | None = None
) -> tuple[onnx.ModelProto, np.ndarray]:
    """The node over a constant table, and the table in float64."""
    rng, each, blocks = np.random.default_rng(bits), 8 // bits, -(-DEPTH // block)
    numbers = rng.integers(0, 1 << bits, (ROWS, DEPTH))
    points = rng.integers(0, 1 << bits, (ROWS, blocks)) if zeros else np.full((ROWS, blocks), 1 << (bits - 1))
    factors = rng.uniform(0.01, 0.1, (ROWS, blocks)).astype(np.float32)
    table = (numbers - np.repeat(points, block, 1)[:, :DEPTH]) * np.repeat(factors, block, 1)[:, :DEPTH].astype(
        np.float64
    )

    def packed(values: np.ndarray) -> np.ndarray:
        if each == 1:
            return values.astype(np.uint8)
        values = np.pad(values, ((0, 0), (0, values.shape[1] % 2)))
        return (values[:, ::2] | values[:, 1::2] << 4).astype(np.uint8)

    arrays = {"data": packed(numbers), "scales": factors if scales is None else np.ones(scales, np.float32)}
    if zeros:
        arrays["zeros"] = packed(points)
    node = helper.make_node(
        "GatherBlockQuantized", ["data", "at", *list(arrays)[1:]], ["y"], domain=MICROSOFT, bits=bits, block_size=block,
        gather_axis=0, quantize_axis=1,
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("at", TensorProto.INT64, ["a", "b"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in arrays.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), table


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("bits", "block"), [(4, 16), (4, 32), (4, 64), (8, 32), (8, 128)])
def test_rows_of_a_table_in_blocks(bits: int, block: int, zeros: bool) -> None:
    model, table = _model(bits, block, zeros)
    stock = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        assert not compiled.result.plan.fallbacks
        for shape in ((1, 1), (3, 5), (0, 2)):
            at = np.random.default_rng(0).integers(-ROWS, ROWS, shape)
            (got,) = compiled.run({"at": at})
            np.testing.assert_allclose(got, table[at], rtol=1e-6)
            np.testing.assert_array_equal(got, stock.run(None, {"at": at})[0])
        with pytest.raises(Exception, match=r"range|bounds|index"):
            compiled.run({"at": np.full((1, 1), ROWS)})


@pytest.mark.parametrize("scales", [(ROWS, 7), (ROWS - 1, 3), (3,)])
def test_scales_of_a_wrong_shape_are_refused_as_in_stock(scales: tuple[int, ...]) -> None:
    model, _ = _model(4, 32, False, scales)
    with pytest.raises(smelt.SmeltError, match="GatherBlockQuantized"):
        smelt.compile(model, force=True, verify=False, threads=1)
