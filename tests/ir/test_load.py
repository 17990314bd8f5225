"""Loading: any input ends in a verified model or in a SmeltError, and nothing outside the folder is read."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from smelt.base.errors import ModelError, SmeltError
from smelt.ir.load import load_model
from smelt.ir.verifier import verify_model


def info(name: str, shape: list[object] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [4] if shape is None else shape)


def build(
    nodes: list[onnx.NodeProto],
    initializers: list[onnx.TensorProto] | None = None,
    inputs: list[str] | None = None,
    outputs: list[str] | None = None,
    opset: int = 18,
    ir_version: int = 9,
    functions: list[onnx.FunctionProto] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "g", [info(n) for n in inputs or ["x"]], [info(n) for n in outputs or ["y"]], initializers or []
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version, functions=functions or [])


def relu(source: str = "x", target: str = "y", name: str = "n") -> onnx.NodeProto:
    return helper.make_node("Relu", [source], [target], name=name)


def weighted(tensor: onnx.TensorProto) -> onnx.ModelProto:
    return build([helper.make_node("Add", ["x", "w"], ["y"])], [tensor])


def external(location: str, **fields: object) -> onnx.TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **fields}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def refused(source: object, code: str = "", **options: object) -> SmeltError:
    with pytest.raises(SmeltError) as caught:
        load_model(source, **options)  # type: ignore[arg-type]
    assert caught.value.code.startswith(code), str(caught.value)
    assert caught.value.hint
    return caught.value


@pytest.fixture
def place(tmp_path: Path) -> Callable[[onnx.TensorProto], Path]:
    folder = tmp_path / "model"
    folder.mkdir()
    np.arange(4, dtype=np.float32).tofile(folder / "w.bin")
    np.arange(4, dtype=np.float32).tofile(tmp_path / "secret.bin")

    def write(tensor: onnx.TensorProto) -> Path:
        path = folder / "model.onnx"
        path.write_bytes(weighted(tensor).SerializeToString())
        return path

    return write


def test_path_bytes_proto_and_ir_give_the_same_model(tmp_path: Path) -> None:
    proto = build([relu()])
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    for source in (path, str(path), path.read_bytes(), proto, ir.from_proto(proto)):
        model = load_model(source)
        assert [node.op_type for node in model.graph] == ["Relu"]


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"hello world" * 20, b"\x0a\xff\xff\xff\xff\x7f", b"\x3a\x00", os.urandom(500)]
)
def test_what_is_no_model_is_refused(data: bytes) -> None:
    refused(data, "SM-")


def test_truncated_files_never_crash() -> None:
    data = weighted(numpy_helper.from_array(np.zeros(4, np.float32), "w")).SerializeToString()
    for end in range(len(data)):
        try:
            load_model(data[:end])
        except SmeltError:
            continue


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6))
def test_mutated_bytes_never_crash(changes: list[tuple[int, int]]) -> None:
    data = bytearray(weighted(numpy_helper.from_array(np.zeros(4, np.float32), "w")).SerializeToString())
    for position, byte in changes:
        data[position % len(data)] = byte
    with contextlib.suppress(SmeltError):
        load_model(bytes(data))


def test_files_that_are_not_plain_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", ".", "missing.onnx", "nul\0byte", "/dev/null"):
        refused(str(tmp_path / name), "SM-LOAD-001")


def test_text_that_is_not_utf8_is_refused() -> None:
    data = build([relu(name="NAMEOFNODE")]).SerializeToString().replace(b"NAMEOFNODE", b"\xff\xfe" * 5)
    refused(data, "SM-LOAD-002")


@pytest.mark.parametrize(
    "name", ['"', "*/", "\n", "a\0b", "\\\n", "%n", "$(id)", "x" * 1_000_000, "int", "\u202e", "a.b", "a_b"]
)
def test_strange_names_load(name: str) -> None:
    model = load_model(build([relu("x", name, name), relu(name, "y", "n2")]))
    assert model.graph[0].outputs[0].name == name


def test_external_data_is_mapped_and_read(place: Callable[[onnx.TensorProto], Path]) -> None:
    model = load_model(place(external("w.bin", offset=0, length=16)))
    tensor = model.graph.initializers["w"].const_value
    assert isinstance(tensor, ir.ExternalTensor)
    np.testing.assert_array_equal(tensor.numpy(), np.arange(4, dtype=np.float32))
    assert tensor.tobytes() == np.arange(4, dtype=np.float32).tobytes()


@pytest.mark.parametrize(
    "location",
    [
        "/etc/passwd",
        "../secret.bin",
        "a/../../secret.bin",
        "..\\secret.bin",
        "C:w.bin",
        "",
        ".",
        "w.bin\0",
        "sub/..",
        "x" * 5000,
    ],
)
def test_locations_outside_the_folder_are_refused(place: Callable[[onnx.TensorProto], Path], location: str) -> None:
    refused(place(external(location)), "SM-LOAD-003")


def test_links_devices_and_folders_are_refused(place: Callable[[onnx.TensorProto], Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "soft").symlink_to(tmp_path / "secret.bin")
    (folder / "up").symlink_to(tmp_path)
    (folder / "round").symlink_to(folder / "round")
    (folder / "dir").mkdir()
    os.link(tmp_path / "secret.bin", folder / "hard")
    os.mkfifo(folder / "fifo")
    for location in ("soft", "round", "up/secret.bin", "dir", "hard", "fifo"):
        refused(place(external(location)), "SM-LOAD-003")


def test_links_inside_the_folder_are_followed(place: Callable[[onnx.TensorProto], Path], tmp_path: Path) -> None:
    (tmp_path / "model" / "inner").symlink_to("w.bin")
    (tmp_path / "alias").symlink_to("model")
    path = place(external("inner"))
    for model in (load_model(path), load_model(tmp_path / "alias" / path.name)):
        np.testing.assert_array_equal(model.graph.initializers["w"].const_value.numpy(), np.arange(4, dtype=np.float32))


@pytest.mark.parametrize("below", ["", "onnx"])
def test_the_layout_of_the_hugging_face_cache_is_read(tmp_path: Path, below: str) -> None:
    """Snapshots are links to blobs of the same repository, and to nothing else."""
    repository = tmp_path / "models--org--name"
    snapshot, blobs = repository / "snapshots" / "0a1b2c" / below, repository / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "aa").write_bytes(weighted(external("model.onnx_data")).SerializeToString())
    (blobs / "bb").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    up = "../" * (2 + bool(below))
    (snapshot / "model.onnx").symlink_to(f"{up}blobs/aa")
    (snapshot / "model.onnx_data").symlink_to(f"{up}blobs/bb")
    model = load_model(snapshot / "model.onnx")
    np.testing.assert_array_equal(model.graph.initializers["w"].const_value.numpy(), np.arange(4, dtype=np.float32))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_bytes(bytes(16))
    (snapshot / "model.onnx_data").unlink()
    (snapshot / "model.onnx_data").symlink_to(f"{up}refs/main")
    refused(snapshot / "model.onnx", "SM-LOAD-003")


@pytest.mark.parametrize(
    "fields",
    [
        {"offset": -1}, {"offset": "abc"}, {"offset": 1}, {"offset": 2**63}, {"offset": 2**64 - 8}, {"offset": "0x1"},
        {"offset": "٣"}, {"length": 8}, {"length": 17}, {"length": -16}, {"length": 2**70}, {"length": ""},
    ],
)  # fmt: skip
def test_offsets_and_lengths_must_fit_the_file(
    place: Callable[[onnx.TensorProto], Path], fields: dict[str, object]
) -> None:
    refused(place(external("w.bin", **fields)), "SM-LOAD-004")


def test_missing_files_and_missing_folders_are_refused(place: Callable[[onnx.TensorProto], Path]) -> None:
    refused(place(external("none.bin")), "SM-LOAD-004")
    refused(weighted(external("w.bin")), "SM-LOAD-003")
    refused(ir.from_proto(weighted(external("w.bin"))), "SM-LOAD-003")


def test_external_data_in_attributes_is_checked_too(place: Callable[[onnx.TensorProto], Path], tmp_path: Path) -> None:
    path = place(external("w.bin"))
    for location, sound in (("../secret.bin", False), ("w.bin", True)):
        constant = helper.make_node("Constant", [], ["c"], value=external(location))
        path.write_bytes(build([constant, helper.make_node("Add", ["x", "c"], ["y"])]).SerializeToString())
        if not sound:
            refused(path, "SM-LOAD-003")
        else:
            value = load_model(path).graph[0].attributes["value"].as_tensor()
            np.testing.assert_array_equal(value.numpy(), np.arange(4, dtype=np.float32))


@pytest.mark.parametrize("dims", [[-1], [2**40, 2**40], [5], [3], [1] * 500, [2**62, 4]])
def test_tensors_must_fit_their_shape(dims: list[int]) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, raw_data=b"\0" * 16)
    refused(weighted(tensor), "SM-MODEL-004")


@pytest.mark.parametrize("data_type", [0, 99, -3])
def test_unknown_element_types_are_refused(data_type: int) -> None:
    refused(weighted(TensorProto(name="w", data_type=data_type, dims=[4], raw_data=b"\0" * 16)), "SM-MODEL-004")


def test_typed_data_of_the_wrong_length_is_refused() -> None:
    refused(weighted(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], float_data=[1.0])), "SM-MODEL-004")


def test_cycles_are_refused_and_unsorted_graphs_are_sorted() -> None:
    refused(build([relu("b", "a"), relu("a", "b"), relu("b", "y")]), "SM-MODEL-003")
    model = load_model(build([relu("a", "y", "last"), relu("x", "a", "first")]))
    assert [node.name for node in model.graph] == ["first", "last"]


@pytest.mark.parametrize(
    ("proto", "code"),
    [
        (build([relu("x", "y"), relu("x", "y")]), "SM-MODEL-001"),
        (build([relu("x", "x")], outputs=["x"]), "SM-MODEL-001"),
        (build([relu()], inputs=["x", "x"]), "SM-MODEL-001"),
        (build([relu("nowhere", "y")]), "SM-MODEL-002"),
        (build([relu()], outputs=["nowhere"]), "SM-MODEL-002"),
        (build([relu()], opset=0), "SM-LOAD-006"),
        (build([relu()], opset=999), "SM-LOAD-006"),
        (build([relu()], ir_version=1), "SM-LOAD-006"),
        (build([relu()], ir_version=99), "SM-LOAD-006"),
    ],
)
def test_broken_graphs_are_refused(proto: onnx.ModelProto, code: str) -> None:
    refused(proto, code)


def test_unknown_ops_and_domains_are_left_to_the_runtime() -> None:
    model = load_model(build([helper.make_node("Whatever", ["x"], ["y"], domain="no.such")]))
    assert model.graph[0].domain == "no.such"


def nested_if(depth: int) -> onnx.ModelProto:
    node = relu("x", "o0", "leaf")
    for level in range(depth):
        body = helper.make_graph([node], f"b{level}", [], [info(f"o{level}")])
        node = helper.make_node("If", ["c"], [f"o{level + 1}"], then_branch=body, else_branch=body)
    last = helper.make_node("Identity", [f"o{depth}"], ["y"])
    return build([node, last], [numpy_helper.from_array(np.array(True), "c")])


def test_deep_control_flow_is_refused_and_shallow_loads() -> None:
    verify_model(load_model(nested_if(5)))
    deep = build([relu()])
    graph = deep.graph
    for level in range(5000):
        node = graph.node.add(op_type="Loop", input=["", "c"], output=[f"o{level}"])
        graph = node.attribute.add(name="body", type=onnx.AttributeProto.GRAPH).g
    refused(deep, "SM-LOAD-005")


def function(name: str, callee: str, calls: int) -> onnx.FunctionProto:
    nodes = [
        helper.make_node(
            callee,
            [f"t{i}" if i else "a"],
            [f"t{i + 1}" if i + 1 < calls else "b"],
            domain="f" if callee != "Relu" else "",
        )
        for i in range(calls)
    ]
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, ["a"], ["b"], nodes, imports)


def test_exponential_and_recursive_functions_are_refused() -> None:
    bomb = [function("F0", "Relu", 2), *(function(f"F{i}", f"F{i - 1}", 2) for i in range(1, 31))]
    call = helper.make_node("F30", ["x"], ["y"], domain="f")
    refused(build([call], functions=bomb), "SM-LOAD-005")
    refused(
        build([helper.make_node("F0", ["x"], ["y"], domain="f")], functions=[function("F0", "F0", 1)]), "SM-LOAD-005"
    )
    pair = [function("F0", "F1", 1), function("F1", "F0", 1)]
    refused(build([helper.make_node("F0", ["x"], ["y"], domain="f")], functions=pair), "SM-LOAD-005")
    deep = [function("F0", "Relu", 1), *(function(f"F{i}", f"F{i - 1}", 1) for i in range(1, 3000))]
    refused(build([helper.make_node("F2999", ["x"], ["y"], domain="f")], functions=deep), "SM-LOAD-005")


@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.full)])
def test_a_long_chain_loads(count: int) -> None:
    nodes = [relu(f"v{i - 1}" if i else "x", f"v{i}" if i + 1 < count else "y", f"n{i}") for i in range(count)]
    assert len(load_model(build(nodes)).graph) == count


def test_sparse_initializers_are_refused_not_dropped() -> None:
    proto = build([relu()])
    proto.graph.sparse_initializer.add()
    refused(proto, "SM-MODEL-004")


@pytest.mark.parametrize("places", [[4], [-1], [[2, 0]], [[0, 0, 0]], [0, 1]])
def test_indices_of_sparse_tensors_must_fit(places: list[object]) -> None:
    proto = build([relu()])
    values = onnx.numpy_helper.from_array(np.ones(1, np.float32), "w")
    indices = onnx.numpy_helper.from_array(np.array(places, np.int64), "i")
    proto.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [2, 2]))
    refused(proto, "SM-MODEL-004")


def test_a_small_sparse_tensor_does_not_become_a_large_one() -> None:
    proto = build([relu()])
    values = onnx.numpy_helper.from_array(np.ones(1, np.float32), "w")
    indices = onnx.numpy_helper.from_array(np.zeros(1, np.int64), "i")
    proto.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [1 << 30, 1 << 30]))
    refused(proto, "SM-LOAD-007")


def test_minus_one_is_an_unknown_dimension_and_less_is_refused() -> None:
    proto = build([relu()])
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    shape = load_model(proto).graph.inputs[0].shape
    assert shape is not None and shape.is_unknown_dim(0)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -7
    refused(proto, "SM-MODEL-004")


def test_a_dimension_without_a_name_is_unknown() -> None:
    proto = build([relu()])
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = ""
    shape = load_model(proto).graph.inputs[0].shape
    assert shape is not None and shape.is_unknown_dim(0)


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (helper.make_node("Add", ["x"], ["y"]), "Add has 1 inputs, 2 are expected"),
        (helper.make_node("Add", ["x", ""], ["y"]), "Add needs its input 'B'"),
        (helper.make_node("Relu", ["x"], ["y", "z"]), "Relu has 2 outputs, 1 are expected"),
        (helper.make_node("Cast", ["x"], ["y"]), "Cast needs its attribute 'to'"),
        (helper.make_node("Softmax", ["x"], ["y"], axis="1"), "attribute 'axis' as STRING, INT is expected"),
    ],
    ids=["few", "absent", "outputs", "required", "kind"],
)
def test_nodes_that_do_not_fit_their_operator_are_refused(node: onnx.NodeProto, words: str) -> None:
    with pytest.raises(ModelError, match=re.escape(words)) as caught:
        load_model(build([node]))
    assert caught.value.code == "SM-MODEL-009"


def test_the_standard_domain_has_one_name():
    """ONNX Runtime's optimized files import it as "ai.onnx"."""
    model = build([relu()])
    model.opset_import[0].domain = "ai.onnx"
    model.graph.node[0].domain = "ai.onnx"
    found = load_model(model)
    assert found.opset_imports[""] == 18 and "ai.onnx" not in found.opset_imports
    assert next(iter(found.graph)).domain == "" and model.opset_import[0].domain == "ai.onnx"
    assert load_model(ir.from_proto(model)).opset_imports[""] == 18


def test_nodes_of_onnx_runtime_need_no_import():
    """It takes them so, and files of its tools lack it."""
    found = load_model(build([helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")]))
    assert found.opset_imports["com.microsoft"] == 1
    assert "com.microsoft" not in load_model(build([relu()])).opset_imports
