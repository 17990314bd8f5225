"""A multi-layer perceptron, written by hand as ONNX: products with bias and activation, one kernel for every batch."""

import argparse
from itertools import pairwise

import numpy as np
import onnx
from _side_by_side import side_by_side
from onnx import TensorProto, helper, numpy_helper


def mlp(widths: list[int]) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    for place, (source, target) in enumerate(pairwise(widths)):
        weight = rng.standard_normal((source, target)).astype(np.float32) / np.sqrt(source)
        weights += [numpy_helper.from_array(weight.astype(np.float32), f"w{place}")]
        weights += [numpy_helper.from_array(rng.standard_normal(target).astype(np.float32), f"b{place}")]
        nodes.append(helper.make_node("Gemm", [x, f"w{place}", f"b{place}"], [f"h{place}"]))
        x = f"h{place}"
        if place < len(widths) - 2:
            nodes.append(helper.make_node("Relu", [x], [f"a{place}"]))
            x = f"a{place}"
    nodes.append(helper.make_node("Softmax", [x], ["y"]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", widths[0]])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", widths[-1]])]
    graph = helper.make_graph(nodes, "mlp", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--widths", default="64,128,128,10")
    widths = [int(width) for width in parser.parse_args().widths.split(",")]
    rng = np.random.default_rng(1)
    batches = (1, 7, 64)
    feeds = {f"batch {n}": {"x": rng.standard_normal((n, widths[0])).astype(np.float32)} for n in batches}
    side_by_side(mlp(widths), feeds)


if __name__ == "__main__":
    main()
