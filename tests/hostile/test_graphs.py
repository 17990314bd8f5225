"""Graphs that are broken, endless, too deep or too long, or that hold what smelt has no kernels for."""

from __future__ import annotations

import time

import numpy as np
import onnx
import pytest
from build import I64, B, F, model, node
from onnx import TensorProto, helper, numpy_helper
from sandbox import Sandbox

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
ONE = {"x": (F, ["m", "n"])}
OUT = {"y": (F, None)}


def chain(length: int, ops: tuple[str, ...] = ("Add", "Mul", "Sub")) -> onnx.ModelProto:
    nodes = [node(ops[i % len(ops)], f"v{i} c", f"v{i + 1}") for i in range(length)]
    return model(nodes, {"v0": (F, ["n", 4])}, {f"v{length}": (F, ["n", 4])}, {"c": np.full(4, 0.5, np.float32)})


BROKEN = {
    "cycle": [node("Add", "x b", "a"), node("Neg", "a", "b"), node("Exp", "b", "y")],
    "self": [node("Add", "x y", "y")],
    "twice": [node("Neg", "x", "y"), node("Exp", "x", "y")],
    "input_again": [node("Neg", "x", "x"), node("Exp", "x", "y")],
    "undefined": [node("Add", "x nowhere", "y")],
    "no_output": [node("Neg", "x", "z")],
    "arity": [node("Add", "x", "y")],
    "kind": [node("Softmax", "x", "y", axis="last")],
    "many": [node("Relu", "x x x", "y")],
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_graphs_are_refused_by_name(sandbox: Sandbox, name: str) -> None:
    answer = sandbox.submit(model(BROKEN[name], ONE, OUT))
    assert answer.status == "refused" and answer.code.startswith("SM-MODEL"), str(answer)
    assert "try:" in answer.message
    assert not answer.debris


def test_a_graph_that_is_out_of_order_is_sorted(sandbox: Sandbox) -> None:
    proto = model([node("Exp", "b", "y"), node("Neg", "a", "b"), node("Tanh", "x", "a")], ONE, OUT)
    answer = sandbox.submit(proto, {"x": X}, expected=[[np.exp(-np.tanh(X))]])
    assert answer.is_right(), str(answer)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_chain_of_a_hundred_thousand_nodes_compiles(sandbox: Sandbox) -> None:
    began = time.monotonic()
    answer = sandbox.submit(chain(100_000), {"v0": X}, timeout_s=600, expected=[[chained(100_000)]])
    assert answer.is_right(), str(answer)
    assert time.monotonic() - began < 400


def test_a_chain_of_thousands_of_nodes_compiles(sandbox: Sandbox) -> None:
    answer = sandbox.submit(chain(3_000), {"v0": X}, timeout_s=200, expected=[[chained(3_000)]])
    assert answer.is_right(), str(answer)


def chained(length: int) -> np.ndarray:
    made, c = X.copy(), np.float32(0.5)
    for i in range(length):
        made = made + c if i % 3 == 0 else made * c if i % 3 == 1 else made - c
    return made


@pytest.mark.full
def test_wide_graphs_compile(sandbox: Sandbox) -> None:
    """Two thousand outputs of one input, and one sum of them."""
    nodes = [node("Exp", "x", f"e{i}") if i % 2 else node("Neg", "x", f"e{i}") for i in range(2000)]
    nodes.append(node("Sum", [f"e{i}" for i in range(2000)], "y"))
    answer = sandbox.submit(model(nodes, ONE, OUT), {"x": X}, timeout_s=250)
    assert answer.is_right(), str(answer)


def test_values_that_double_at_every_step_do_not_explode(sandbox: Sandbox) -> None:
    nodes = [node("Add", f"v{i} v{i}", f"v{i + 1}") for i in range(60)]
    nodes += [node("Mul", f"v{i} v{i}", f"v{i + 1}") for i in range(60, 62)]
    proto = model(nodes, {"v0": (F, ["m", "n"])}, {"v62": (F, None)})
    answer = sandbox.submit(proto, {"v0": X})
    assert answer.is_right(), str(answer)


def doubling(depth: int) -> list[onnx.FunctionProto]:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    made = [helper.make_function("f", "f0", ["a"], ["b"], [node("Neg", "a", "b")], opsets)]
    for i in range(1, depth):
        inner = [node(f"f{i - 1}", "a", "t", domain="f"), node(f"f{i - 1}", "t", "b", domain="f")]
        made.append(helper.make_function("f", f"f{i}", ["a"], ["b"], inner, opsets))
    return made


@pytest.mark.parametrize("depth", [31, 5])
def test_functions_that_call_each_other_twice(sandbox: Sandbox, depth: int) -> None:
    proto = model([node(f"f{depth - 1}", "x", "y", domain="f")], ONE, OUT, functions=doubling(depth), domains=["f"])
    if depth > 20:  # stock ONNX Runtime hangs on it, so it is not asked
        answer = sandbox.submit(proto)
        assert answer.status == "refused" and answer.code == "SM-LOAD-005", str(answer)
    else:
        answer = sandbox.submit(proto, {"x": X})
        assert answer.is_right(), str(answer)


def test_functions_that_call_themselves_are_refused(sandbox: Sandbox) -> None:
    opsets = [helper.make_opsetid("f", 1)]
    one = helper.make_function("f", "one", ["a"], ["b"], [node("two", "a", "b", domain="f")], opsets)
    two = helper.make_function("f", "two", ["a"], ["b"], [node("one", "a", "b", domain="f")], opsets)
    proto = model([node("one", "x", "y", domain="f")], ONE, OUT, functions=[one, two], domains=["f"])
    assert sandbox.submit(proto).status == "refused"


def nested_if(depth: int) -> onnx.ModelProto:
    inner = [node("Exp", "x", "r0"), node("Neg", "r0", f"out{depth}")]
    for level in reversed(range(depth)):
        name = f"out{level}"
        result = [helper.make_tensor_value_info(f"out{level + 1}", F, None)]
        then = helper.make_graph(inner, f"t{level}", [], result)
        same = helper.make_tensor_value_info(f"e{level}", F, None)
        other = helper.make_graph([node("Identity", "x", f"e{level}")], "e", [], [same])
        inner = [helper.make_node("If", ["c"], [name], then_branch=then, else_branch=other)]
    return model(inner, {**ONE, "c": (B, [])}, {"out0": (F, None)})


@pytest.mark.parametrize("depth", [6, 25, 30])
def test_conditions_inside_conditions(sandbox: Sandbox, depth: int) -> None:
    answer = sandbox.submit(nested_if(depth), *({"x": X, "c": np.array(c)} for c in (True, False)))
    assert answer.is_right_or_refused(), str(answer)
    if depth < 10:
        assert answer.status == "compiled" and answer.kernels >= 2, str(answer)


def endless_loop() -> onnx.ModelProto:
    body = helper.make_graph(
        [node("Identity", "go", "again"), node("Tanh", "state", "t"), node("Neg", "t", "next")],
        "body",
        [helper.make_tensor_value_info(*v) for v in (("i", I64, []), ("go", B, []), ("state", F, None))],
        [helper.make_tensor_value_info(*v) for v in (("again", B, []), ("next", F, None))],
    )
    return model([helper.make_node("Loop", ["", "yes", "x"], ["y"], body=body)], ONE, OUT, {"yes": np.array(True)})


def test_a_loop_without_end_does_not_hang_the_compiler(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verification runs the model, so it has to give up in time; calling the model is the user's own choice."""
    sandbox.stop()
    monkeypatch.setenv("SMELT_VERIFY_TIMEOUT", "10")
    answer = sandbox.submit(endless_loop(), verify=True, timeout_s=180)
    sandbox.stop()
    assert answer.status in ("compiled", "refused"), str(answer)


def test_other_operators_and_types_are_left_to_the_runtime(sandbox: Sandbox) -> None:
    strings = model(
        [node("Equal", "s s", "e"), node("Cast", "e", "f", to=F), node("Add", "f one", "g"), node("Exp", "g", "y")],
        {"s": (TensorProto.STRING, ["n"])},
        OUT,
        {"one": np.ones(1, np.float32)},
        opset=19,
    )
    answer = sandbox.submit(strings)
    assert answer.status == "compiled" and answer.kernels >= 2, str(answer)
    sequence = model(
        [node("SequenceConstruct", "x x", "q"), node("ConcatFromSequence", "q", "a", axis=0), node("Exp", "a", "y")],
        ONE,
        OUT,
    )
    answer = sandbox.submit(sequence, {"x": X})
    assert answer.is_right() and answer.kernels == 1, str(answer)
    optional = model(
        [node("Optional", "x", "o"), node("OptionalGetElement", "o", "a"), node("Neg", "a", "y")], ONE, OUT
    )
    answer = sandbox.submit(optional, {"x": X})
    assert answer.is_right_or_refused(), str(answer)
    casts = [node("Cast", "x", "h", to=TensorProto.FLOAT16), node("Neg", "h", "e"), node("Cast", "e", "y", to=F)]
    half = model(casts, ONE, OUT)
    # Stock leaves out the pair of casts, which rounds: numbers that float16 has are the same either way.
    answer = sandbox.submit(half, {"x": X.astype(np.float16).astype(np.float32)})
    assert answer.is_right(), str(answer)


@pytest.mark.parametrize("dtype", [TensorProto.BFLOAT16, TensorProto.COMPLEX64, 17, 23, 99, -1])
def test_types_without_kernels(sandbox: Sandbox, dtype: int) -> None:
    proto = model([node("Add", "a a", "b"), node("Neg", "x", "y")], {**ONE, "a": (F, [2])}, {**OUT, "b": (F, [2])})
    for value in (proto.graph.input[1], proto.graph.output[1]):
        value.type.tensor_type.elem_type = dtype
    answer = sandbox.submit(proto)
    assert answer.status in ("compiled", "refused"), str(answer)
    assert not answer.debris


@pytest.mark.parametrize("version", [0, -1, 999, 2**62])
def test_opsets_that_do_not_exist_are_refused(sandbox: Sandbox, version: int) -> None:
    answer = sandbox.submit(model([node("Neg", "x", "y")], ONE, OUT, opset=version))
    assert answer.code == "SM-LOAD-006", str(answer)


@pytest.mark.parametrize("opset", [1, 6, 7, 9, 13, 21])
def test_old_opsets_are_right_or_refused(sandbox: Sandbox, opset: int) -> None:
    proto = model([node("Exp", "x", "a"), node("Softmax", "a", "b"), node("Neg", "b", "y")], ONE, OUT, opset=opset)
    answer = sandbox.submit(proto, {"x": X})
    assert answer.is_sound(), str(answer)


def test_sparse_constants_are_dense(sandbox: Sandbox) -> None:
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.ones(1, np.float32), "s"), numpy_helper.from_array(np.array([2]), "i"), [4]
    )
    proto = model([node("Constant", "", "c", sparse_value=sparse), node("Add", "x c", "y")], ONE, OUT)
    answer = sandbox.submit(proto, {"x": np.zeros((2, 4), np.float32)})
    assert answer.status == "compiled" and answer.is_sound(), str(answer)


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 100, b"\xff" * 100, b"not a model", b"\x0a\xff\xff\xff\xff\x7f"], ids=repr
)
def test_files_that_are_no_models(sandbox: Sandbox, data: bytes) -> None:
    answer = sandbox.submit(data)
    assert answer.status == "refused" and answer.code.startswith("SM-LOAD"), str(answer)
    assert not answer.debris
