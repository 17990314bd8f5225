"""GatherBlockQuantized over the weight of a product: bits, blocks and zero points; one memory for both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import smelt
from smelt.ir.kernel.bit_fields import pack_bits
from smelt.runtime import Executable

TOKENS = 40000  # so many that the reshaped table is no small constant, which would be folded
BLOCKS = 3
LEVELS = ("v2", "v3", "v4")


def tied(bits: int = 4, block: int = 32, zeros: bool = False, halves: bool = True) -> onnx.ModelProto:
    """An embedding and the product of the logits that read the same weights, as genai writes it."""
    rng = np.random.default_rng([bits, block])
    scales = rng.uniform(0.1, 1, (TOKENS, BLOCKS)).astype(np.float16 if halves else np.float32)
    width = block * bits // 8
    held = {
        "w": rng.integers(0, 256, (TOKENS, BLOCKS, width)).astype(np.uint8),
        "s": scales.astype(np.float32),
        "shape": np.array([TOKENS, BLOCKS * width]),
        "z": pack_bits(rng.integers(0, 1 << bits, (TOKENS, BLOCKS)).astype(np.uint8), bits),
    }
    more = ["z"] if zeros else []
    blocks = {"bits": bits, "block_size": block}
    rows = {"gather_axis": 0, "quantize_axis": 1, **blocks}
    sizes = {"K": BLOCKS * block, "N": TOKENS, **blocks}
    nodes = [
        helper.make_node("Reshape", ["w", "shape"], ["table"]),
        helper.make_node("GatherBlockQuantized", ["table", "ids", "s", *more], ["h"], domain="com.microsoft", **rows),
        helper.make_node("MatMulNBits", ["h", "w", "s", *more], ["y"], domain="com.microsoft", **sizes),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["b", "n"])
    h = helper.make_tensor_value_info("h", TensorProto.FLOAT, ["b", "n", BLOCKS * block])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", "n", TOKENS])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    tensors = [numpy_helper.from_array(array, name) for name, array in held.items() if name != "z" or zeros]
    return helper.make_model(helper.make_graph(nodes, "g", [ids], [h, y], tensors), opset_imports=opsets, ir_version=10)


FORMS = [(4, 32, False, True), (4, 16, True, False), (8, 16, False, True), (8, 64, True, True), (4, 128, False, False)]


@pytest.mark.parametrize(("bits", "block", "zeros", "halves"), FORMS)
def test_rows_are_those_of_stock(bits: int, block: int, zeros: bool, halves: bool) -> None:
    model = tied(bits, block, zeros, halves)
    stock: Any = onnxruntime.InferenceSession(model.SerializeToString())
    ids = np.array([[0, TOKENS - 1, -TOKENS, 12, 17, *range(40)]])
    (wanted,) = stock.run(["h"], {"ids": ids})
    for level in LEVELS:
        with smelt.compile(model, levels=level, timing=False, force=True, verify=False) as compiled:
            assert not compiled.result.plan.fallbacks
            np.testing.assert_array_equal(compiled.run({"ids": ids})[0], wanted)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tied")
    onnx.save(tied(), made / "m.onnx")
    with smelt.compile(made / "m.onnx", made / "out", timing=False, force=True) as compiled:
        assert not compiled.result.plan.fallbacks
    return made


def test_tied_weights_are_held_once(folder: Path) -> None:
    feeds = {"ids": np.array([[0, TOKENS - 1, -TOKENS, 12]])}
    got = Executable.open(folder / "out").run(feeds)[1]
    wanted = onnxruntime.InferenceSession(folder / "m.onnx").run(["y"], feeds)[0]
    np.testing.assert_allclose(got, np.asarray(wanted), rtol=1e-4, atol=1e-4)
    held = onnx.load(folder / "out" / "model.onnx").graph.initializer
    bytes_of = [int(np.prod(one.dims)) for one in held if one.data_type == TensorProto.UINT8]
    assert bytes_of == [-(-TOKENS // 16) * 16 * BLOCKS * 16]


def test_an_index_outside_is_an_error(folder: Path) -> None:
    for index in (TOKENS, -TOKENS - 1):
        with pytest.raises(Exception, match=str(TOKENS)):
            Executable.open(folder / "out").run({"ids": np.array([[index]])})
