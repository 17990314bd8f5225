"""A weight that is a table in one place and, transposed, a matrix in another is packed ahead of time."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from region_check import floats

import smelt

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
