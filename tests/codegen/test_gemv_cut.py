"""Products of few rows: cut by columns where two threads gain by it, and with the bits of one thread."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper
from region_check import assert_alike, stock

import smelt
from smelt.runtime import Executable, SessionSettings


def layers(rows: int | str, *widths: int) -> ModelProto:
    rng, nodes, weights, value = np.random.default_rng(0), [], [], "x"
    for place, (depth, columns) in enumerate(itertools.pairwise(widths)):
        drawn = {f"w{place}": (columns, depth), f"b{place}": (columns,)}
        weights += [numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(depth)).astype(np.float32), name)
                    for name, shape in drawn.items()]  # fmt: skip
        nodes.append(helper.make_node("Gemm", [value, *drawn], [f"g{place}"], transB=1))
        nodes.append(helper.make_node("Relu", [f"g{place}"], [value := f"r{place}"]))
    ends = [
        helper.make_tensor_value_info(name, 1, [rows, width]) for name, width in (("x", widths[0]), (value, widths[-1]))
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def forms(compiled: smelt.CompiledModel) -> list[str]:
    return [kernel["form"] for region in compiled.result.artifact.manifest["regions"] for kernel in region["kernels"]]


@pytest.mark.parametrize("rows", [1, 3, 4])
@pytest.mark.parametrize("columns", [16, 48, 100, 128, 200])
def test_threads_change_no_bits(rows: int, columns: int) -> None:
    made = layers(rows, 1536, columns, 128, 7)
    x = np.random.default_rng(1).standard_normal((rows, 1536)).astype(np.float32)
    with smelt.compile(made, force=True, verify=False) as compiled:
        folder = compiled.result.artifact.directory
        found = [Executable.open(folder, SessionSettings(threads=n)).run({"x": x})[0] for n in (1, 2, 4)]
    assert all(np.array_equal(one, found[0]) for one in found)
    assert_alike([found[0]], stock(made, [x]), f"{rows} x {columns}", 2e-5, 2e-6)


@pytest.mark.parametrize(("rows", "depth", "fused"), [(1, 1536, False), (64, 1536, True), (1, 64, True)])
def test_a_large_product_of_few_rows_is_no_part_of_the_next(rows: int, depth: int, fused: bool) -> None:
    with smelt.compile(layers(rows, depth, 128, 64), force=True, verify=False, threads=2) as compiled:
        assert any("back-to-back" in form or "fused MLP" in form for form in forms(compiled)) is fused
