"""GatherBlockQuantized: bits, blocks, zero points and indices against stock ONNX Runtime; tied to a product."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cases
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import smelt
from smelt.ir.kernel.bit_fields import pack_bits
from smelt.ops.gather_blocks import node_reference
from smelt.runtime import Executable

OP: dict[str, Any] = {"domain": "com.microsoft", "opset": 21, "constants": (0, 2, 3), "out_types": [np.float32]}
ROWS, BLOCKS = 37, 3
TOKENS = 40000  # so many that the reshaped table is no small constant, which would be folded


def table(bits: int, block: int, zeros: bool) -> list[Any]:
    rng = np.random.default_rng([bits, block])
    q = rng.integers(0, 1 << bits, (ROWS, BLOCKS * block)).astype(np.uint8)
    scales = rng.uniform(0.1, 1, (ROWS, BLOCKS)).astype(np.float32)
    points = pack_bits(rng.integers(0, 1 << bits, (ROWS, BLOCKS)).astype(np.uint8), bits) if zeros else None
    return [pack_bits(q, bits), scales, points]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("block", [16, 32, 128])
def test_rows_are_those_of_the_dequantized_table(bits: int, zeros: bool, block: int) -> None:
    data, scales, points = table(bits, block, zeros)
    for indices in (np.array([[0, 36, 5], [-1, -37, 17]]), np.arange(35, dtype=np.int32)[:, None]):
        given = [data, indices, scales, *([] if points is None else [points])]
        attrs = {"bits": bits, "block_size": block, "gather_axis": 0, "quantize_axis": 1}
        wanted = node_reference(*given, **attrs).astype(np.float32)
        how: dict[str, Any] = {"attrs": attrs, "free": (1,), **OP}
        cases.check_node("GatherBlockQuantized", given, expected=[wanted], against=("ort!",), **how)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"block_size": 24}, "blocks of 24"),
        ({"block_size": 64}, "are not 3 blocks of 64"),
        ({"gather_axis": 1, "quantize_axis": 0}, "along the first axis"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(change: dict[str, int], reason: str) -> None:
    data, scales, _ = table(4, 32, False)
    attrs = {"bits": 4, "block_size": 32, "gather_axis": 0, "quantize_axis": 1, **change}
    assert reason in cases.refuses("GatherBlockQuantized", [data, np.array([1]), scales], attrs=attrs, **OP)


def tied() -> onnx.ModelProto:
    """An embedding and the product of the logits that read the same weights, as genai writes it."""
    rng = np.random.default_rng(0)
    held = [
        numpy_helper.from_array(rng.integers(0, 256, (TOKENS, 2, 16)).astype(np.uint8), "w"),
        numpy_helper.from_array(rng.uniform(0.1, 1, (TOKENS, 2)).astype(np.float32), "s"),
        numpy_helper.from_array(np.array([TOKENS, 32]), "shape"),
    ]
    blocks = {"bits": 4, "block_size": 32}
    rows = {"gather_axis": 0, "quantize_axis": 1, **blocks}
    nodes = [
        helper.make_node("Reshape", ["w", "shape"], ["table"]),
        helper.make_node("GatherBlockQuantized", ["table", "ids", "s"], ["h"], domain="com.microsoft", **rows),
        helper.make_node("MatMulNBits", ["h", "w", "s"], ["y"], domain="com.microsoft", K=64, N=TOKENS, **blocks),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["b", "n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", "n", TOKENS])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", [ids], [y], held), opset_imports=opsets, ir_version=10)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Compiled whole, though so small a model is faster in stock."""
    onnx.save(tied(), tmp_path / "m.onnx")
    with smelt.compile(tmp_path / "m.onnx", tmp_path / "out", timing=False, force=True) as compiled:
        assert not compiled.result.plan.fallbacks
    return tmp_path


def test_tied_weights_are_held_once(folder: Path) -> None:
    feeds = {"ids": np.array([[0, TOKENS - 1, -TOKENS, 12]])}
    (got,) = Executable.open(folder / "out").run(feeds)
    (wanted,) = onnxruntime.InferenceSession(folder / "m.onnx").run(None, feeds)
    np.testing.assert_allclose(got, np.asarray(wanted), rtol=1e-4, atol=1e-4)
    held = onnx.load(folder / "out" / "model.onnx").graph.initializer
    bytes_of = [int(np.prod(one.dims)) for one in held if one.data_type == TensorProto.UINT8]
    assert bytes_of == [-(-TOKENS // 16) * 16 * 32]


def test_an_index_outside_is_an_error(folder: Path) -> None:
    for index in (TOKENS, -TOKENS - 1):
        with pytest.raises(Exception, match=str(TOKENS)):
            Executable.open(folder / "out").run({"ids": np.array([[index]])})
