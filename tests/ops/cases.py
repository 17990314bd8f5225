"""What the op tests share: run a model through its declared lowerings, and compare with ONNX's reference and with ORT.

`check_node("Add", [a, b])` builds a one-node model, with known and with free sizes, and compares every output.
`run_case(case)` does the same for a case of the ONNX backend suite; `backend_cases("Add", ...)` finds them.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from smelt.ir.kernel import Builder, Sym, Tensor, Unsupported
from smelt.ir.kernel.interpret import Interpreter
from smelt.ops import Facts, analyze, lower

OPSETS = range(7, 27)
LATEST = 26
FLOAT_TOLERANCE = {np.dtype(np.float32): 2e-5, np.dtype(np.float64): 1e-10}


# evaluation by lowering


def evaluate(model: onnx.ModelProto, inputs: Sequence[np.ndarray | None], *, fused: bool = False) -> list[np.ndarray]:
    """The outputs by the declared lowerings. Raises Unsupported for a node without one. `fused`: as one region."""
    graph = ir.serde.deserialize_model(model)
    facts = analyze(graph)
    arrays: dict[ir.Value, np.ndarray] = {
        v: np.asarray(v.const_value.numpy()) for v in graph.graph.initializers.values() if v.const_value is not None
    }
    arrays.update({v: a for v, a in zip(graph.graph.inputs, inputs, strict=False) if a is not None})
    symbols = _dimension_symbols(facts, arrays)
    _run_fused(facts, graph, arrays, symbols) if fused else _run_nodes(facts, graph, arrays, symbols)
    return [arrays[v] for v in graph.graph.outputs]


def _dimension_symbols(facts: Facts, arrays: dict[ir.Value, np.ndarray]) -> dict[str, int]:
    symbols: dict[str, int] = {}
    for value, array in arrays.items():
        fact = facts.by_value.get(value)
        if fact is None:
            continue
        for size, actual in zip(fact.shape, array.shape, strict=False):
            found = [a for m, _ in size.terms for a in m]
            if len(found) == 1 and isinstance(found[0], Sym) and size.terms[0][1] == 1:
                symbols[found[0].name] = actual
    return symbols


def _run_nodes(facts: Facts, graph: ir.Model, arrays: dict[ir.Value, np.ndarray], symbols: dict[str, int]) -> None:
    for node in graph.graph:
        builder = Builder()
        made = lower(facts, builder, node, None)
        interpreter = Interpreter({facts.name(v): a for v, a in arrays.items()}, symbols)
        _check_requirements(builder, interpreter)
        _store(facts, node, [m and m[0] for m in made], interpreter, arrays)
        symbols.update(_dimension_symbols(facts, {v: arrays[v] for v in node.outputs if v in arrays}))


def _run_fused(facts: Facts, graph: ir.Model, arrays: dict[ir.Value, np.ndarray], symbols: dict[str, int]) -> None:
    builder, inside = Builder(), dict[ir.Value, Tensor]()
    for node in graph.graph:
        for value, made in zip(node.outputs, lower(facts, builder, node, inside), strict=False):
            if made is not None:
                inside[value] = made[0]
    interpreter = Interpreter({facts.name(v): a for v, a in arrays.items()}, symbols)
    _check_requirements(builder, interpreter)
    for value in graph.graph.outputs:
        if value in inside:
            arrays[value] = interpreter.tensor(inside[value])


def _check_requirements(builder: Builder, interpreter: Interpreter) -> None:
    for left, right, why in builder.requirements:
        assert interpreter.number(left) == interpreter.number(right), f"requirement fails: {why}: {left} = {right}"


def _store(
    facts: Facts,
    node: ir.Node,
    made: Sequence[Tensor | None],
    interpreter: Interpreter,
    arrays: dict[ir.Value, np.ndarray],
) -> None:
    for value, tensor in zip(node.outputs, made, strict=False):
        if tensor is None or not value.name:
            continue
        result = arrays[value] = interpreter.tensor(tensor)
        fact = facts.by_value[value]
        assert tuple(interpreter.number(s) for s in fact.shape) == result.shape, f"{fact.shape} is not {result.shape}"
        if fact.contents is not None:
            known = np.array([interpreter.number(c) for c in fact.contents], np.int64).astype(result.dtype)
            assert np.array_equal(known, result.reshape(-1)), f"contents {known} are not {result}"


# one-node models


def node_model(
    op: str,
    inputs: Sequence[np.ndarray | None],
    *,
    opset: int = LATEST,
    domain: str = "",
    outputs: int | Sequence[bool] = 1,
    constants: Iterable[int] = (),
    free: bool | Collection[int] = False,
    out_types: Sequence[np.dtype[Any] | type | int] | None = None,
    attrs: dict[str, Any] | None = None,
) -> onnx.ModelProto:
    """A model of one node. `constants` are positions given as initializers; `free` leaves every size open,
    or those of the inputs at the given positions."""
    present = [True] * outputs if isinstance(outputs, int) else list(outputs)
    fixed = set(constants)
    names = ["" if a is None else f"x{i}" for i, a in enumerate(inputs)]
    made = [f"y{i}" if keep else "" for i, keep in enumerate(present)]
    node = helper.make_node(op, names, made, domain=domain, **(attrs or {}))
    graph = helper.make_graph(
        [node],
        "one",
        [
            _input(names[i], a, free if isinstance(free, bool) else i in free)
            for i, a in enumerate(inputs)
            if a is not None and i not in fixed
        ],
        [_output(n, i, out_types) for i, n in enumerate(made) if n],
        [numpy_helper.from_array(a, names[i]) for i, a in enumerate(inputs) if a is not None and i in fixed],
    )
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=opsets, ir_version=min(10, onnx.IR_VERSION))


def _input(name: str, array: np.ndarray, free: bool) -> onnx.ValueInfoProto:
    shape = [None] * array.ndim if free else list(array.shape)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)


def _output(name: str, position: int, out_types: Sequence[np.dtype[Any] | type | int] | None) -> onnx.ValueInfoProto:
    if out_types is None:
        return helper.make_empty_tensor_value_info(name)
    kind = out_types[position]
    element = kind if isinstance(kind, int) else helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    return helper.make_tensor_value_info(name, element, None)


def reference(model: onnx.ModelProto, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    names = [v.name for v in model.graph.input]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        made = ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=False)))
    return [np.asarray(y) for y in made]


def by_ort(model: onnx.ModelProto, inputs: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """ORT's answer, or None where it has no kernel for the types or rejects the model."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        session = onnxruntime.InferenceSession(copy.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [v.name for v in session.get_inputs()]
        return [np.asarray(y) for y in session.run(None, dict(zip(names, inputs, strict=False)))]
    except Exception:
        return None


def check_node(
    op: str,
    inputs: Sequence[np.ndarray | None],
    *,
    expected: Sequence[np.ndarray | None] | None = None,
    against: Sequence[str] = ("reference", "ort"),
    tolerance: float | None = None,
    free: bool | Collection[int] = True,
    **how: Any,
) -> list[np.ndarray]:
    """Compare a node's lowering, with known and with free sizes, to `expected` or to ONNX's reference, and to ORT.

    `against`: "reference", "ort" (where ORT runs the model), "ort!" (it must). `free` says which sizes are open.
    Further keywords go to `node_model` (opset, domain, outputs, constants, out_types, attrs). Returns the outputs."""
    fixed = set(how.get("constants", ()))
    fed = [a for i, a in enumerate(inputs) if a is not None and i not in fixed]
    results: list[np.ndarray] = []
    for sizes in (False, free):
        model = node_model(op, inputs, free=sizes, **how)
        results = evaluate(model, fed)
        if expected is not None:
            compare(results, expected, tolerance, "expected")
        elif "reference" in against:
            compare(results, reference(model, fed), tolerance, "reference")
        if {"ort", "ort!"} & set(against) and not sizes:
            answer = by_ort(model, fed)
            assert answer is not None or "ort!" not in against, "ORT does not run this model"
            if answer is not None:
                compare(results, answer, tolerance, "ORT")
    return results


def refuses(op: str, inputs: Sequence[np.ndarray | None], **how: Any) -> str:
    """The reason with which a node is refused; fails when it is not."""
    fixed = set(how.get("constants", ()))
    fed = [a for i, a in enumerate(inputs) if a is not None and i not in fixed]
    try:
        evaluate(node_model(op, inputs, **how), fed)
    except Unsupported as refusal:
        return str(refusal)
    raise AssertionError(f"{op} is not refused")


def compare(
    got: Sequence[np.ndarray], want: Sequence[np.ndarray | None], tolerance: float | None = None, name: str = "expected"
) -> None:
    assert len(got) == len(want), f"{len(got)} outputs, {name} has {len(want)}"
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if b is None:
            continue
        b = np.asarray(b)
        assert a.shape == b.shape, f"output {i}: shape {a.shape}, {name} {b.shape}"
        assert a.dtype == b.dtype, f"output {i}: dtype {a.dtype}, {name} {b.dtype}"
        if a.dtype.kind == "f":
            limit = tolerance or FLOAT_TOLERANCE[a.dtype]
            np.testing.assert_allclose(a, b, rtol=limit, atol=limit, err_msg=f"output {i} against {name}")
        else:
            np.testing.assert_array_equal(a, b, err_msg=f"output {i} against {name}")


# the ONNX backend suite


@dataclass(frozen=True)
class Case:
    """A node case of the ONNX backend suite."""

    name: str
    model: onnx.ModelProto
    data: tuple[tuple[tuple[Any, ...], tuple[Any, ...]], ...]
    rtol: float
    atol: float

    @property
    def opset(self) -> int:
        return next((o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx")), 0)

    @property
    def ops(self) -> frozenset[str]:
        return frozenset(n.op_type for n in self.model.graph.node)

    @property
    def types(self) -> frozenset[int]:
        """Element types of inputs and outputs; 0 for what is not a tensor."""
        values = (*self.model.graph.input, *self.model.graph.output)
        return frozenset(v.type.tensor_type.elem_type if v.type.HasField("tensor_type") else 0 for v in values)


SUPPORTED = frozenset({
    TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.BOOL, TensorProto.INT8, TensorProto.INT16, TensorProto.INT32,
    TensorProto.INT64, TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64,
})  # fmt: skip


@functools.cache
def all_cases() -> tuple[Case, ...]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    return tuple(
        Case(c.name, c.model, tuple((tuple(i), tuple(o)) for i, o in c.data_sets or ()), c.rtol, c.atol) for c in found
    )


def backend_cases(*ops: str, expanded: bool = False, opsets: Sequence[int] = OPSETS) -> list[Case]:
    """Cases made of the given ops only, opsets 7 to 26 unless told, with types of the vocabulary."""
    wanted = frozenset(ops)
    return [
        c
        for c in all_cases()
        if c.ops <= wanted
        and c.opset in opsets
        and c.types <= SUPPORTED
        and (expanded or not c.name.endswith("_expanded"))
    ]


def as_array(value: Any) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def run_case(case: Case, *, fused: bool = False) -> None:
    """Raises Unsupported when a node has no lowering, AssertionError when a result is wrong."""
    for inputs, outputs in case.data:
        got = evaluate(case.model, [as_array(a) for a in inputs], fused=fused)
        for a, b in zip(got, map(as_array, outputs), strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype, f"{a.dtype}{a.shape} is not {b.dtype}{b.shape}"
            np.testing.assert_allclose(a, b, rtol=max(case.rtol, 1e-5), atol=max(case.atol, 1e-7))


def summary(cases: Iterable[Case]) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Names that are right; refused ones with their reason; wrong ones with their error."""
    right, refused, wrong = list[str](), dict[str, str](), dict[str, str]()
    for case in cases:
        try:
            run_case(case)
            right.append(case.name)
        except Unsupported as refusal:
            refused[case.name] = str(refusal)
        except Exception as error:
            wrong[case.name] = f"{type(error).__name__}: {error}"
    return right, refused, wrong
