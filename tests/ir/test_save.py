"""Saving: atomic, page-aligned, streamed, in the lowest IR version, and never a half-written file."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from smelt.ir.load import load_model
from smelt.ir.save import PAGE_BYTES, lowest_ir_version, save_model
from smelt.ir.verifier import verify_model


def build(count: int = 3, size: int = 1000, opset: int = 18, ir_version: int = 10) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    constants = {f"w{i}": rng.standard_normal(size).astype(np.float32) for i in range(count)}
    constants["small"] = np.ones(1, np.float32)
    names = ["x", *constants]
    nodes = [
        helper.make_node("Add", [f"v{i}" if i else "x", name], [f"v{i + 1}" if i < count else "y"])
        for i, name in enumerate(names[1:])
    ]
    io = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name in ("x", "y")]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", io[:1], io[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def run(path: Path, size: int = 1000) -> np.ndarray:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.arange(size, dtype=np.float32)})[0]


def test_saved_models_run_the_same_and_load_again(tmp_path: Path) -> None:
    (tmp_path / "in.onnx").write_bytes(build().SerializeToString())
    model = load_model(tmp_path / "in.onnx")
    saved = save_model(model, tmp_path / "out.onnx")
    verify_model(model)
    assert saved.data_path == tmp_path / "out.onnx.data"
    np.testing.assert_array_equal(run(tmp_path / "in.onnx"), run(saved.model_path))
    again = save_model(load_model(saved.model_path), tmp_path / "again.onnx", data_name="weights.bin")
    np.testing.assert_array_equal(run(tmp_path / "in.onnx"), run(again.model_path))
    assert (tmp_path / "weights.bin").read_bytes() == saved.data_path.read_bytes()


def test_large_tensors_start_on_pages_and_small_ones_stay_inside(tmp_path: Path) -> None:
    save_model(load_model(build()), tmp_path / "m.onnx")
    proto = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    where = {t.name: {e.key: e.value for e in t.external_data} for t in proto.graph.initializer}
    assert [int(where[f"w{i}"]["offset"]) for i in range(3)] == [0, PAGE_BYTES, 2 * PAGE_BYTES]
    assert all(where[f"w{i}"]["location"] == "m.onnx.data" for i in range(3))
    assert not where["small"]


def test_a_model_can_be_saved_over_itself(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    save_model(load_model(build()), path)
    before = run(path)
    save_model(load_model(path), path)
    np.testing.assert_array_equal(before, run(path))


def test_small_external_tensors_move_into_the_model(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    save_model(load_model(build()), tmp_path / "a" / "m.onnx", min_bytes=1)
    save_model(load_model(tmp_path / "a" / "m.onnx"), tmp_path / "b" / "m.onnx")
    np.testing.assert_array_equal(run(tmp_path / "a" / "m.onnx"), run(tmp_path / "b" / "m.onnx"))


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    model = load_model(build())

    def fail() -> ir.Tensor[np.ndarray]:
        raise RuntimeError("planted")

    value = model.graph.initializers["w1"]
    value.const_value = ir.LazyTensor(fail, dtype=ir.DataType.FLOAT, shape=ir.Shape([1000]), name="w1")
    with pytest.raises(RuntimeError, match="planted"):
        save_model(model, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_mapped_tensors_are_streamed(tmp_path: Path) -> None:
    size = 4_000_000
    save_model(load_model(build(3, size)), tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx")
    tracemalloc.start()
    save_model(model, tmp_path / "copy.onnx")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size * 4, f"{peak} bytes held while saving three tensors of {size * 4}"


@pytest.mark.parametrize(("opset", "declared", "lowest"), [(18, 10, 8), (18, 8, 8), (7, 9, 4), (21, 10, 10)])
def test_the_ir_version_is_the_lowest_that_fits(tmp_path: Path, opset: int, declared: int, lowest: int) -> None:
    model = load_model(build(opset=opset, ir_version=declared))
    assert lowest_ir_version(model) == lowest
    save_model(model, tmp_path / "m.onnx")
    proto = onnx.load(tmp_path / "m.onnx")
    assert (proto.ir_version, proto.opset_import[0].version) == (lowest, opset)


@pytest.mark.parametrize("name", ["../w.bin", "/tmp/w.bin", "a/b", "", "m.onnx"])
def test_the_data_file_lies_beside_the_model(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="beside the model"):
        save_model(load_model(build()), tmp_path / "m.onnx", data_name=name)
