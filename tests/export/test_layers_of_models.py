"""Layers of neural networks: normalization, convolution, pooling, attention, indexing."""

# ruff: noqa: E501  # a case per line
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from exported_programs import assert_same, run
from torch import ops

from smelt.export import ExportOptions, one_op

aten = ops.aten


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


X, IMAGE, SEQUENCE = floats(3, 4), floats(2, 6, 8, 8), floats(2, 3, 5, 4)
W, B = floats(6), floats(6)
INDEX = torch.tensor([[0, 2, 1], [1, 0, 2]])
MASK = torch.tensor([[True, False, True, True], [False, True, False, True], [True, True, True, False]])

HOLES = torch.tensor([[True] * 5, [False] * 5, [True, False, True, False, True], [True] * 5, [False] * 5])

CALLS: dict[str, tuple[Any, ...]] = {
    "layer_norm": (aten.layer_norm.default, X, [4], floats(4), floats(4)),
    "layer_norm without weight": (aten.layer_norm.default, X, [4]),
    "native_layer_norm": (aten.native_layer_norm.default, SEQUENCE, [5, 4], None, None, 1e-5),
    "rms_norm": (aten.rms_norm.default, X, [4], floats(4)),
    "group_norm": (aten.group_norm.default, IMAGE, 3, W, B),
    "native_group_norm": (aten.native_group_norm.default, IMAGE, W, B, 2, 6, 64, 2, 1e-5),
    "batch_norm": (aten.batch_norm.default, IMAGE, W, B, floats(6), floats(6).abs(), False, 0.1, 1e-5, True),
    "batch statistics": (aten._native_batch_norm_legit.no_stats, IMAGE, W, B, True, 0.1, 1e-5),
    "functional batch norm": (aten._native_batch_norm_legit_functional.default, IMAGE, W, B, floats(6), floats(6).abs(), True, 0.1, 1e-5),
    "instance_norm": (aten.instance_norm.default, IMAGE, W, B, None, None, True, 0.1, 1e-5, True),
    "linear": (aten.linear.default, SEQUENCE, floats(7, 4), floats(7)),
    "linear of a matrix": (aten.linear.default, X, floats(7, 4), floats(7)),
    "conv1d": (aten.conv1d.default, floats(2, 4, 9), floats(6, 2, 3), W, [2], [1], [1], 2),
    "conv2d": (aten.conv2d.default, IMAGE, floats(4, 6, 3, 3), None, [1], [1], [2]),
    "conv2d without batch": (aten.conv2d.default, IMAGE[0], floats(4, 6, 3, 3)),
    "conv2d same": (aten.conv2d.padding, IMAGE, floats(4, 6, 4, 3), None, [1], "same"),
    "conv3d": (aten.conv3d.default, floats(1, 2, 4, 4, 4), floats(3, 2, 2, 2, 2)),
    "conv_transpose2d": (aten.conv_transpose2d.input, IMAGE, floats(6, 2, 3, 3), None, [2], [1], [1], 2),
    "convolution": (aten.convolution.default, IMAGE, floats(4, 6, 3, 3), floats(4), [2, 1], [0, 1], [1, 1], False, [0, 0], 1),
    "max_pool2d": (aten.max_pool2d.default, IMAGE, [3, 2], [2, 2], [1, 1]),
    "max_pool2d ceil": (aten.max_pool2d.default, IMAGE, [3, 3], [2, 2], [0, 0], [1, 1], True),
    "max_pool2d_with_indices": (aten.max_pool2d_with_indices.default, IMAGE, [2, 2], [2, 2], [1, 1]),
    "avg_pool2d": (aten.avg_pool2d.default, IMAGE, [3, 3], [2, 2], [1, 1]),
    "avg_pool2d without padding": (aten.avg_pool2d.default, IMAGE, [3, 3], [2, 2], [1, 1], False, False),
    "adaptive_avg_pool2d": (aten.adaptive_avg_pool2d.default, IMAGE, [1, 1]),
    "attention": (aten.scaled_dot_product_attention.default, SEQUENCE, SEQUENCE * 2, SEQUENCE + 1),
    "causal attention": (aten.scaled_dot_product_attention.default, SEQUENCE, SEQUENCE * 2, SEQUENCE + 1, None, 0.0, True),
    "attention where a row masks everything": (aten.scaled_dot_product_attention.default, SEQUENCE, SEQUENCE * 2, SEQUENCE + 1, HOLES),
    "embedding": (aten.embedding.default, X, INDEX),
    "index_select": (aten.index_select.default, X, 1, INDEX[0]),
    "gather": (aten.gather.default, X, 0, INDEX),
    "index": (aten.index.Tensor, SEQUENCE, [None, INDEX[0], INDEX[1]]),
    "index first": (aten.index.Tensor, SEQUENCE, [INDEX[:, :1] * 0, INDEX[0]]),
    "index apart": (aten.index.Tensor, SEQUENCE, [INDEX[0] % 2, None, INDEX[1]]),
    "index one axis": (aten.index.Tensor, SEQUENCE, [None, None, INDEX]),
    "index by mask": (aten.index.Tensor, X, [MASK]),
    "masked_select": (aten.masked_select.default, X, MASK),
    "nonzero": (aten.nonzero.default, MASK),
    "scatter": (aten.scatter.src, X, 0, INDEX, floats(2, 3)),
    "scatter value": (aten.scatter.value, X, 1, INDEX, 2.5),
    "scatter_add of more than is read": (aten.scatter_add.default, X, 1, INDEX, floats(3, 4)),
    "index_put": (aten.index_put.default, X, [INDEX[0], INDEX[1]], floats(3)),
    "index_put row": (aten.index_put.default, X, [INDEX[0]], floats(4), True),
    "index_put behind an axis": (aten.index_put.default, SEQUENCE, [None, None, INDEX[0]], floats(2, 3, 3, 4)),
    "index_put by mask": (aten.index_put.default, X, [MASK], torch.tensor(7.0)),
    "index_add": (aten.index_add.default, X, 1, INDEX[0], floats(3, 3)),
    "index_copy": (aten.index_copy.default, X, 0, INDEX[0], floats(3, 4)),
    "select_scatter": (aten.select_scatter.default, X, floats(3), 1, -1),
    "slice_scatter": (aten.slice_scatter.default, X, floats(3, 2), 1, 1, 4, 2),
    "pad by reflection": (aten.pad.default, SEQUENCE[0], [2, 1], "reflect"),
    "pad by the edge": (aten.pad.default, SEQUENCE[0], [2, 1], "replicate"),
    "pad around": (aten.pad.default, SEQUENCE[0], [1, 2], "circular"),
    "topk": (aten.topk.default, X, 2, 1),
    "sort": (aten.sort.default, X, 0, True),
    "bucketize": (aten.bucketize.Tensor, X, torch.tensor([-1.0, 0.0, 1.0])),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_one_call_gives_what_eager_gives(name: str):
    target, *args = CALLS[name]
    program = one_op(target, tuple(args))
    expected = target(*args)
    tensors = [x for arg in args for x in (arg if isinstance(arg, list) else [arg]) if isinstance(x, torch.Tensor)]
    found = run(program, tensors)
    expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert [origin for counts in program.report.origins.values() for origin in counts] == ["table"]


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "item as a size": (lambda x: torch.zeros(torch.nonzero(x > 0).size(0), 2) + 1, (X,)),
}  # fmt: skip


def test_groups_of_rows_have_matrices_of_their_own():
    rows, weight = floats(8, 16).bfloat16(), floats(3, 16, 8).bfloat16()
    ends = torch.tensor([2, 2, 8], dtype=torch.int32)
    program = one_op(aten._grouped_mm.default, (rows, weight, ends), dynamic=False, options=ExportOptions(opset=20))
    assert sum(node.op_type == "MatMul" for node in program.model.graph) == 3
    kinds = {node.op_type for node in program.model.graph}
    assert {"Slice", "Concat"} <= kinds


def test_grouped_heads_share_keys():
    target = aten.scaled_dot_product_attention.default
    q, k = floats(2, 4, 5, 4), floats(2, 2, 5, 4)
    program = one_op(target, (q, k, k), {"enable_gqa": True}, dynamic=False)
    torch.testing.assert_close(run(program, [q, k, k])[0], target(q, k, k, enable_gqa=True))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_composed_calls(name: str):
    function, inputs = FUNCTIONS[name]
    assert_same(function, *inputs, rtol=1e-4, atol=1e-5)
