"""Models of the ONNX suite with something broken: right as stock is, or a clear error; never a crash or a hang."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandbox import Answer, Sandbox

pytestmark = pytest.mark.full
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
CHANGES = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6)
SMALL_BYTES = 20_000
NUMBERS = (0, 1, -1, 2, 7, -5, 2**31, -(2**31), 2**62, -(2**63), 2**63 - 1)


@cache
def models() -> list[onnx.ModelProto]:
    """Every fifth node model of the suite that is small."""
    from suite import load_cases

    found = [case.model() for case in load_cases()[::5]]
    return [model for model in found if model.ByteSize() < SMALL_BYTES]


def never_dies(sandbox: Sandbox, model: onnx.ModelProto | bytes, what: str) -> Answer:
    answer = sandbox.submit(model, timeout_s=60)
    assert answer.status in ("compiled", "refused"), f"{what}: {answer}"
    assert not answer.debris, f"{what}: {answer}"
    return answer


def feeds_of(model: onnx.ModelProto, random: np.random.Generator) -> dict[str, np.ndarray] | None:
    """Inputs of the declared types and sizes, with numbers that are not kind; None where there is no such array."""
    feeds: dict[str, np.ndarray] = {}
    constants = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        kind = value.type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") else 3 for d in kind.shape.dim]
        if not 0 < kind.elem_type <= onnx.TensorProto.UINT64 or kind.elem_type == onnx.TensorProto.STRING:
            return None
        if any(d < 0 for d in dims) or np.prod(dims, dtype=float) > 10_000:
            return None
        if value.name not in constants:
            with np.errstate(all="ignore"):
                numbers = random.choice(np.array([0, 1, 2, -1, 3, 127, -128, 1e6]), dims)
                feeds[value.name] = np.asarray(numbers).astype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return feeds


def runs_without_dying(sandbox: Sandbox, model: onnx.ModelProto, random: np.random.Generator, what: str) -> None:
    """Only models that are all kernels are run: what ONNX Runtime dies of by itself says nothing about them."""
    feeds = feeds_of(model, random)
    if feeds is not None:
        answer = sandbox.submit(model, feeds, expected=[[]], timeout_s=60)
        assert answer.status == "compiled", f"{what}: {answer}"


@pytest.mark.timeout(1500)
@FUZZ
@given(which=st.integers(0, 10**6), changes=CHANGES)
def test_changed_bytes(sandbox: Sandbox, which: int, changes: list[tuple[int, int]]) -> None:
    every = models()
    data = bytearray(every[which % len(every)].SerializeToString())
    for place, value in changes:
        data[place % len(data)] = value
    never_dies(sandbox, bytes(data), f"{which} {changes}")


@pytest.mark.timeout(1500)
@FUZZ
@given(seed=st.integers(0, 2**32 - 1))
def test_changed_structure(sandbox: Sandbox, seed: int) -> None:
    random = np.random.default_rng(seed)
    every = models()
    model = copy.deepcopy(every[int(random.integers(len(every)))])
    for _ in range(int(random.integers(1, 4))):
        MUTATIONS[int(random.integers(len(MUTATIONS)))](model.graph, random)
    answer = never_dies(sandbox, model, f"seed {seed}")
    if answer.kernels and answer.kernels == answer.nodes:
        runs_without_dying(sandbox, model, random, f"seed {seed}")


# --- mutations -------------------------------------------------------------------------------------------------------


def pick(items: Any, random: np.random.Generator) -> Any:
    return items[int(random.integers(len(items)))] if len(items) else None


def change_integer(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    node = pick(graph.node, random)
    attribute = pick(node.attribute, random) if node else None
    if attribute is None:
        return
    if attribute.type == onnx.AttributeProto.INT:
        attribute.i = int(pick(NUMBERS, random))
    elif attribute.type == onnx.AttributeProto.INTS and attribute.ints:
        attribute.ints[int(random.integers(len(attribute.ints)))] = int(pick(NUMBERS, random))


def drop_attribute(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    node = pick(graph.node, random)
    if node and node.attribute:
        del node.attribute[int(random.integers(len(node.attribute)))]


def change_operator(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    node = pick(graph.node, random)
    other = pick(models(), random).graph.node[0]
    if node:
        node.op_type = other.op_type


def change_input(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    node = pick(graph.node, random)
    names = [*(v.name for v in graph.input), *(o for n in graph.node for o in n.output), "", "nowhere"]
    if node and node.input:
        node.input[int(random.integers(len(node.input)))] = pick(names, random)


def drop_input(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    node = pick(graph.node, random)
    if node and node.input:
        del node.input[int(random.integers(len(node.input)))]


def change_dimension(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    value = pick([*graph.input, *graph.output, *graph.value_info], random)
    dim = pick(value.type.tensor_type.shape.dim, random) if value is not None else None
    if dim is None:
        return
    if random.random() < 0.5:
        dim.dim_value = int(pick(NUMBERS, random))
    else:
        dim.dim_param = pick(["n", "m", "", "N*2", "%n"], random)


def drop_shape(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    value = pick([*graph.input, *graph.output], random)
    if value is not None:
        value.type.tensor_type.ClearField("shape")


def change_type(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    value = pick([*graph.input, *graph.output], random)
    if value is not None:
        value.type.tensor_type.elem_type = int(random.integers(0, 27))


def double_node(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    node = pick(graph.node, random)
    if node:
        graph.node.append(copy.deepcopy(node))


def constant_input(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    """An input becomes a constant with strange contents."""
    value = pick(graph.input, random)
    if value is None:
        return
    dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
    kind = value.type.tensor_type.elem_type
    count = int(np.prod(dims)) if dims else 1
    if (
        kind not in (onnx.TensorProto.FLOAT, onnx.TensorProto.INT64)
        or not 0 <= count < 1000
        or min(dims, default=0) < 0
    ):
        return
    made = [float("nan"), float("inf"), 0.0, -1.0, 1e30] if kind == onnx.TensorProto.FLOAT else list(NUMBERS)
    graph.initializer.append(
        onnx.helper.make_tensor(value.name, kind, dims, [pick(made, random) for _ in range(count)])
    )
    graph.input.remove(value)


MUTATIONS = (
    change_integer, change_integer, drop_attribute, change_operator, change_input, drop_input, change_dimension,
    change_dimension, drop_shape, change_type, double_node, constant_input, constant_input,
)  # fmt: skip
