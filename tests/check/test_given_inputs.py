"""What the user gives is taken as it is, or refused with what the model takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from smelt.base.config import Config
from smelt.base.errors import InputError
from smelt.check.given_inputs import check_shapes, given_calls
from smelt.pipeline import Options, compile_to

A, B = np.ones((2, 3), np.float32), np.array([4], np.int64)


@pytest.fixture
def model() -> ir.Model:
    inputs = [
        helper.make_tensor_value_info("a", TensorProto.FLOAT, ["n", 3]),
        helper.make_tensor_value_info("b", TensorProto.INT64, [1]),
    ]
    nodes = [helper.make_node("Expand", ["a", "b"], ["y"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    return ir.from_proto(helper.make_model(helper.make_graph(nodes, "g", inputs, outputs)))


def same(call, **expected) -> bool:
    return call.keys() == expected.keys() and all(np.array_equal(call[name], array) for name, array in expected.items())


def test_an_archive_by_name_by_position_and_a_folder_of_calls(model: ir.Model, tmp_path: Path):
    np.savez(tmp_path / "one.npz", a=A, b=B)
    np.savez(tmp_path / "two.npz", A, B)
    for file in ("one.npz", "two.npz"):
        (call,) = given_calls(model, tmp_path / file)
        assert same(call, a=A, b=B)
    assert len(given_calls(model, tmp_path)) == 2


def test_npy_files_named_after_inputs_are_one_call(model: ir.Model, tmp_path: Path):
    np.save(tmp_path / "a.npy", A)
    np.save(tmp_path / "b.npy", B)
    (call,) = given_calls(model, str(tmp_path))
    assert same(call, a=A, b=B)
    with pytest.raises(InputError, match="a: float"):
        given_calls(model, tmp_path / "a.npy")


def test_onnx_test_data_is_taken_by_position(model: ir.Model, tmp_path: Path):
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    for place, array in enumerate((A, B)):
        (folder / f"input_{place}.pb").write_bytes(onnx.numpy_helper.from_array(array).SerializeToString())
    (call,) = given_calls(model, tmp_path)
    assert same(call, a=A, b=B)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({"c": A}, "no input 'c'"),
        ({"a": A[0]}, r"shape \[3\]"),
        ({"a": np.ones((2, 4), np.float32)}, r"shape \[2, 4\]"),
        ({"a": A.astype(np.float64)}, "given as float64"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_the_model_takes(model: ir.Model, call, said):
    with pytest.raises(InputError, match=said) as caught:
        given_calls(model, call)
    assert "a: float[n,3]; b: int64[1]" in str(caught.value)


def test_a_wrong_type_is_converted_in_the_words_of_numpy(model: ir.Model):
    with pytest.raises(InputError) as caught:
        given_calls(model, {"a": A.astype(np.float64)})
    assert "astype('float32')" in str(caught.value)


def test_files_that_cannot_be_read_are_named(model: ir.Model, tmp_path: Path):
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    np.savez(tmp_path / "objects.npz", a=np.array([{}], object))
    for file in ("bad.npz", "objects.npz", "missing.npz"):
        with pytest.raises(InputError, match=file):
            given_calls(model, tmp_path / file)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no"):
        given_calls(model, tmp_path / "empty")


def test_a_shape_that_fits_into_no_memory_is_refused(model: ir.Model):
    with pytest.raises(InputError, match="fits into no memory"):
        check_shapes(model, {"a": (10**18, 3)})


@pytest.mark.parametrize("keep", [False, True])
def test_inputs_that_stock_refuses_are_an_error(tmp_path: Path, config: Config, keep: bool):
    """Of sizes that contradict each other: nothing could be verified on them."""
    text = '<ir_version: 9, opset_import: ["" : 18]> g (float[A] x, float[A] y) => (float[A] z) { z = Add(x, y) }'
    calls = {"x": np.ones(2, np.float32), "y": np.ones(3, np.float32)}
    options = Options(force=True, levels=("v2",), inputs=calls, keep=keep)
    said = r"not accepted by stock ONNX Runtime: 'A' is 2 in input 'x' \[2\] and 3 in input 'y' \[3\]"
    with pytest.raises(InputError, match=said):
        compile_to(onnx.parser.parse_model(text), tmp_path / "out", options, config)
    assert (tmp_path / "out").exists() is keep


def test_shapes_are_checked_too(model: ir.Model):
    check_shapes(model, {"a": (7, 3)})
    for shapes in ({"a": (7, 4)}, {"a": (7,)}, {"z": (1,)}):
        with pytest.raises(InputError, match="a: float"):
            check_shapes(model, shapes)
