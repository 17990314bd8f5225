"""Calls through an Executable: right answers, and errors that say what to change."""

import concurrent.futures
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from smelt.base.errors import InputError, ModelError
from smelt.ir.records import Artifact
from smelt.runtime import Executable, FeedChecker, SessionSettings, disagreement, run_once, session_for

A = np.arange(12, dtype=np.float32).reshape(4, 3)
B = np.full((4, 3), 0.5, np.float32)


@pytest.fixture
def live(artifact: Path) -> Executable:
    return Executable.open(artifact, SessionSettings(threads=2, log_severity=4))


def refusal(live: Executable, feeds: object) -> InputError:
    with pytest.raises(InputError) as caught:
        live.run(feeds)
    return caught.value


def test_feeds_by_name_and_by_position_give_the_same(live: Executable) -> None:
    for feeds in ({"a": A, "b": B}, {"b": B, "a": A}, [A, B], (A, B)):
        (y,) = live.run(feeds)
        np.testing.assert_array_equal(y, A + B + B)


def test_the_stage_record_opens_as_its_folder_does(artifact: Path) -> None:
    np.testing.assert_array_equal(Executable.open(Artifact(artifact)).run([A, B])[0], A + 2 * B)


def test_inputs_and_outputs_are_described(live: Executable) -> None:
    assert [str(spec) for spec in live.inputs] == ["a: tensor(float)[n,3]", "b: tensor(float)[n,3]"]
    assert [spec.name for spec in live.outputs] == ["y"]


def test_any_memory_layout_is_taken(live: Executable) -> None:
    misaligned = np.frombuffer(b"\0" + A.tobytes(), np.uint8)[1:].view(np.float32).reshape(4, 3)
    layouts = [np.asfortranarray(A), np.repeat(A, 2, axis=1)[:, ::2], A[::-1][::-1], np.broadcast_to(A[:1], (4, 3))]
    for a in (*layouts, misaligned, A[:0]):
        np.testing.assert_array_equal(live.run([a, B[: len(a)]])[0], a + B[: len(a)] * 2)


def test_a_wrong_dtype_names_the_conversion(live: Executable) -> None:
    error = refusal(live, [A.astype(np.float64), B])
    assert error.code == "SM-INPUT-002"
    assert "'a' is float64, the model takes float32" in str(error)
    assert "astype('float32')" in str(error)
    assert refusal(live, [A.astype(">f4"), B]).code == "SM-INPUT-002"
    assert refusal(live, [A.tolist(), B]).code == "SM-INPUT-002"
    assert refusal(live, [[[1, 2], [3]], B]).code == "SM-INPUT-002"


@pytest.mark.parametrize(
    ("shape", "words"),
    [((4,), "rank 1, expected 2"), ((4, 3, 1), "rank 3, expected 2"), ((4, 5), "axis 1 is 5, expected 3")],
)
def test_a_wrong_shape_names_the_axis(live: Executable, shape: tuple[int, ...], words: str) -> None:
    error = refusal(live, [np.zeros(shape, np.float32), B])
    assert error.code == "SM-INPUT-003"
    assert words in str(error)


def test_inputs_that_do_not_fit_each_other_are_named(live: Executable) -> None:
    error = refusal(live, [A, B[:3]])
    assert error.code == "SM-INPUT-006"
    assert "'n' is 4 in input 'a' [4,3] and 3 in input 'b' [3,3]" in str(error)
    assert "same size" in str(error) and "ShapeInferenceError" not in str(error)


def test_a_failure_without_such_a_cause_stays_what_it_is_and_tells_the_inputs() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in "xy")
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, [None])
    graph = helper.make_graph([helper.make_node("Add", ["x", "y"], ["z"])], "g", [x, y], [z])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = session_for(model.SerializeToString())
    with pytest.raises(Exception, match="broadcast") as caught:
        run_once(session, {"x": np.ones(2, np.float32), "y": np.ones(3, np.float32)})
    assert not isinstance(caught.value, InputError)
    assert caught.value.__notes__ == ["inputs given: x: float32[2]; y: float32[3]"]


@given(
    dims=st.lists(st.lists(st.sampled_from(["n", "m", None, "", 3]), max_size=3), min_size=1, max_size=4),
    sizes=st.fixed_dictionaries({"n": st.integers(1, 5), "m": st.integers(1, 5)}),
    data=st.data(),
)
def test_a_disagreement_is_found_exactly_where_there_is_one(dims, sizes, data) -> None:
    declared = {f"i{k}": each for k, each in enumerate(dims)}
    shapes = {name: tuple(sizes.get(dim, dim or 1) for dim in each) for name, each in declared.items()}
    assert disagreement(declared, shapes) == ""
    places = [(name, axis) for name, each in declared.items() for axis, dim in enumerate(each) if dim in sizes]
    if not places:
        return
    name, axis = data.draw(st.sampled_from(places))
    dim = declared[name][axis]
    shapes[name] = (*shapes[name][:axis], 9, *shapes[name][axis + 1 :])
    alone = sum(d == dim for each in declared.values() for d in each) == 1
    assert bool(disagreement(declared, shapes)) is not alone


def test_missing_and_unknown_inputs_are_named(live: Executable) -> None:
    assert "missing: b" in str(refusal(live, {"a": A}))
    assert "unknown: c" in str(refusal(live, {"a": A, "b": B, "c": B}))
    assert "1 inputs given" in str(refusal(live, [A]))
    assert refusal(live, A).code == refusal(live, "ab").code == "SM-INPUT-001"


def test_a_misspelt_name_is_recognized(live: Executable) -> None:
    argument = SimpleNamespace(name="input_ids", type="tensor(int64)", shape=["n"])
    session = SimpleNamespace(get_inputs=lambda: [argument], get_overridable_initializers=list)
    with pytest.raises(InputError, match="Is 'inputs_ids' meant to be 'input_ids'"):
        FeedChecker(session)({"inputs_ids": np.zeros(3, np.int64)})


def test_a_failing_region_names_itself(live: Executable) -> None:
    with pytest.raises(Exception, match=re.escape("input 1 has shape [2,3]: axis 0 has size 2, expected 4")):
        live.session.run(None, {"a": A, "b": B[:2]})
    np.testing.assert_array_equal(live.run([A, B])[0], A + B + B)


def test_eight_threads_share_an_executable(live: Executable) -> None:
    def work(rows: int) -> None:
        a = np.full((rows, 3), rows, np.float32)
        for _ in range(100):
            np.testing.assert_array_equal(live.run([a, a])[0], a * 3)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, rows) for rows in range(8)]:
            done.result()


def scalar_model() -> bytes:
    """y = x * w with a scalar x and an initializer w that a caller may override."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [], [2.0])
    x, w, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in "xwy")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", [x, w], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def test_scalars_ort_values_and_overridable_initializers_pass() -> None:
    session = session_for(scalar_model())
    check = FeedChecker(session)
    assert session.run(None, check({"x": np.float32(3)}))[0] == 6
    assert session.run(None, check({"x": np.array(3, np.float32), "w": np.float32(5)}))[0] == 15
    value = ort.OrtValue.ortvalue_from_numpy(np.array(4, np.float32))
    assert session.run(None, check({"x": value}))[0] == 8


def test_bytes_find_their_external_data(tmp_path: Path) -> None:
    weight = np.arange(1000, dtype=np.float32)
    (tmp_path / "w.bin").write_bytes(weight.tobytes())
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1000], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1000]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    session = session_for(model, settings=SessionSettings(external_data_dir=tmp_path))
    np.testing.assert_array_equal(session.run(None, {"x": weight})[0], weight * 2)


@pytest.mark.parametrize(("level", "nodes"), [("disable", 3), ("all", 1)])
def test_the_optimization_level_reaches_onnxruntime(tmp_path: Path, level: str, nodes: int) -> None:
    import onnx

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    chain = [helper.make_node("Identity", [i], [o]) for i, o in (("x", "s"), ("s", "t"))]
    graph = helper.make_graph([*chain, helper.make_node("Relu", ["t"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    out = tmp_path / "optimized.onnx"
    session_for(model, settings=SessionSettings(optimization=level, optimized_path=out, log_severity=4))
    assert len(onnx.load(out).graph.node) == nodes


def test_a_model_that_no_runtime_takes_is_an_error_with_a_code(artifact: Path) -> None:
    proto = onnx.load(artifact / "model.onnx")
    proto.graph.node[1].op_type = "NoSuchOperator"
    onnx.save(proto, artifact / "model.onnx")
    with pytest.raises(ModelError, match=r"SM-MODEL-008.*NoSuchOperator"):
        Executable.open(artifact)
