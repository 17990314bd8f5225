"""A weight that is a table in one place and, transposed, a matrix in another is packed ahead of time."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from region_check import floats

import smelt
from smelt.ir.weights import mark_weight

WORDS, WIDE = 75, 24


def tied(perm):
    table = numpy_helper.from_array(floats(WORDS, WIDE) if perm == [1, 0] else floats(WIDE, WIDE), "table")
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"]),
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("Transpose", ["table"], ["head"], perm=perm),
        helper.make_node("MatMul", ["h", "head"], ["y"]),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "seq"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [ids], [y], [table])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


@pytest.mark.parametrize("perm", [[1, 0], [0, 1]])
def test_a_tied_head_is_packed_ahead_of_time(perm):
    ids = np.arange(10).reshape(2, 5)
    table = floats(WORDS, WIDE) if perm == [1, 0] else floats(WIDE, WIDE)
    with smelt.compile(tied(perm), force=True, verify=False) as compiled:
        (found,) = compiled.run({"ids": ids})
        kernels = [k for e in compiled.result.generated.source.entries for k in e.kernels]
    np.testing.assert_allclose(found, np.maximum(table[ids], 0) @ table.transpose(perm), rtol=1e-5, atol=1e-5)
    assert [k.kind for k in kernels] == ["loops", "gemm"]


def test_a_fed_head_that_another_region_transposes_is_taken_as_it_comes():
    """`NonZero` is left to stock: what follows it is a region of its own, and the transposition lies before it."""
    model = tied([1, 0])
    model.graph.node.extend([
        helper.make_node("NonZero", ["y"], ["found"]),
        helper.make_node("Cast", ["found"], ["places"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["places"], ["last"], keepdims=0),
        helper.make_node("Mul", ["h", "last"], ["h2"]),
        helper.make_node("MatMul", ["h2", "head"], ["y2"]),
    ])  # fmt: skip
    model.graph.ClearField("initializer")
    model.graph.input.append(helper.make_tensor_value_info("table", TensorProto.FLOAT, [WORDS, WIDE]))
    model.graph.output.append(helper.make_tensor_value_info("y2", TensorProto.FLOAT, None))
    fed = ir.from_proto(model)
    mark_weight(fed.graph.inputs[1])
    ids, table = np.arange(10).reshape(2, 5), floats(WORDS, WIDE)
    with smelt.compile(fed, force=True, verify=False, exclude=("NonZero",)) as compiled:
        found = compiled.run({"ids": ids, "table": table})
        assert [item.node.op_type for item in compiled.result.plan.fallbacks] == ["NonZero"]
        assert len(compiled.result.plan.regions) == 2
    h = np.maximum(table[ids], 0)
    np.testing.assert_allclose(found[0], h @ table.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1], np.max(np.nonzero(found[0])) * h @ table.T, rtol=1e-5, atol=1e-3)
