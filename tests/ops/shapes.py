"""Compares what the analysis says of every value of a model with what ONNX Runtime sees on real inputs; checks nodes
whose shapes depend on operands that are constants or known only at run time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cases
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import helper

from smelt.ir.kernel import Ix, Sym, of
from smelt.ir.kernel.index import evaluate
from smelt.ops import Facts, analyze

Arrays = Mapping[str, np.ndarray]
NUMPY = {"f32": "float32", "f64": "float64", "b": "bool", **{f"i{n}": f"int{n}" for n in (8, 16, 32, 64)},
         **{f"u{n}": f"uint{n}" for n in (8, 16, 32, 64)}}  # fmt: skip


def observe(model: onnx.ModelProto, inputs: Arrays) -> dict[str, np.ndarray]:
    """Every value of the main graph, by ONNX Runtime without optimizations."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    names = [n for node in copy.graph.node for n in node.output if n]
    del copy.graph.output[:]
    copy.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(copy.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return {**inputs, **dict(zip(names, session.run(names, dict(inputs)), strict=True))}


def symbol_values(facts: Facts, seen: Arrays, inputs: Sequence[ir.Value]) -> dict[str, int]:
    """Values of symbols: named sizes from the inputs, the others from the value that they are named after."""
    table: dict[str, int] = {}
    for value in (*inputs, *facts.by_value):
        if value not in facts.by_value or str(value.name) not in seen:
            continue
        for size, actual in zip(facts.by_value[value].shape, seen[str(value.name)].shape, strict=True):
            if len(size.atoms) == 1 and size == of(atom := next(iter(size.atoms))) and isinstance(atom, Sym):
                table.setdefault(atom.name, actual)
    for value, number in facts.ids.items():
        array = seen.get(str(value.name))
        if array is None:
            continue
        table.update({f"v{number}.{axis}": n for axis, n in enumerate(array.shape)})
        if array.dtype.kind in "iu" and array.size <= 256:
            table.update({f"v{number}[{k}]": int(n) for k, n in enumerate(array.reshape(-1))})
    return table


def compare_shapes(model: onnx.ModelProto, *samples: Arrays) -> Facts:
    """Every fact holds on every sample; returns the facts."""
    graph = ir.serde.deserialize_model(model)
    facts = analyze(graph)
    for inputs in samples:
        seen = observe(model, inputs)
        table = symbol_values(facts, seen, graph.graph.inputs)
        for value, fact in facts.by_value.items():
            array = seen.get(str(value.name))
            if array is None:
                continue
            where = f"{value.name} of {value.producer()}"
            assert str(array.dtype) == NUMPY[fact.dtype], where
            assert tuple(_number(s, table) for s in fact.shape) == array.shape, f"{where}: {fact.shape}, {array.shape}"
            if fact.contents is not None:
                assert [_number(c, table) for c in fact.contents] == array.reshape(-1).astype(int).tolist(), where
    return facts


def _number(size: Ix, table: Mapping[str, int]) -> int:
    return evaluate(size, table)


def run_time_symbols(facts: Facts) -> set[str]:
    """Symbols that stand for data rather than for an input's size."""
    atoms = {a for fact in facts.by_value.values() for s in fact.shape for a in s.atoms if isinstance(a, Sym)}
    return {a.name for a in atoms if not a.name.startswith("d:")}


def check_operands(op: str, inputs: Sequence[np.ndarray | None], operands: Sequence[int], **how: Any) -> None:
    """Like `cases.check_node`, with integer operands as constants, then as run-time inputs of known length.

    The other inputs' sizes are known, then free."""
    cases.check_node(op, inputs, constants=operands, **how)
    settings = {k: v for k, v in how.items() if k not in ("expected", "against", "tolerance")}
    fed = [a for a in inputs if a is not None]
    want = how.get("expected")
    if want is None:
        known = cases.node_model(op, inputs, **settings)
        answer = cases.by_ort(known, fed) if how.get("against") == ("ort",) else cases.reference(known, fed)
        assert answer is not None, "ORT does not run this"
        want = answer
    for free in (False, True):
        model = cases.node_model(op, inputs, free=free, **settings)
        for value in model.graph.input:
            position = int(value.name[1:])
            array = inputs[position]
            if position in operands and array is not None:
                for dim, size in zip(value.type.tensor_type.shape.dim, array.shape, strict=True):
                    dim.dim_value = size
        cases.compare(cases.evaluate(model, fed), want, how.get("tolerance"), f"expected (free={free})")
