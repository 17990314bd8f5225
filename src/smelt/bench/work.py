"""What a model has to do at given inputs: flops and bytes.

Input: a model file and feeds. Output: `Work`. Invariant: sizes are those of a real run (ONNX Runtime's profile of the
graph as given, optimizers off); each input, output and weight is counted once, as if nothing in between touched
memory.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from smelt.runtime import SessionSettings, session_for

Array = np.ndarray[Any, Any]
Shape = Sequence[int]

# Multiply-adds that a float32 polynomial of full accuracy takes, as flops. The rest of element-wise nodes count one.
_FUNCTIONS: Final = {"Exp": 16, "Tanh": 24, "Erf": 24, "Sigmoid": 20, "Gelu": 28, "Softmax": 20, "Log": 20, "Pow": 40}
_NORMALIZATIONS: Final = {"LayerNormalization": 8, "RMSNormalization": 5, "InstanceNormalization": 8}
# The profile does not show the shapes of weights that a kernel has packed for itself.
_WITH_WEIGHT_SHAPES: Final = {"session.disable_prepacking": "1"}
_ONE_EACH: Final = frozenset(
    ("Add", "Sub", "Mul", "Div", "Sqrt", "Neg", "Abs", "Relu", "Max", "Min", "Where", "ReduceMean", "ReduceSum")
)


@dataclass(frozen=True)
class Work:
    """`products` are the flops of matrix products and convolutions, `flops` all; `bytes` cross to memory once."""

    flops: float
    products: float
    bytes: float

    def limit_s(self, fma: float, bandwidth: float) -> float:
        """The time that no code can beat: the slower of arithmetic and memory."""
        return max(self.flops / fma, self.bytes / bandwidth)


def count_work(model: Path, feeds: Mapping[str, Array]) -> Work:
    """Runs the model once under the profiler."""
    with tempfile.TemporaryDirectory(prefix="smelt-work-") as folder:
        settings = SessionSettings(
            threads=1, optimization="disable", profile_prefix=Path(folder) / "run", config=_WITH_WEIGHT_SHAPES
        )
        session = session_for(model, None, settings)
        outputs = session.run(None, feeds)
        events = cast("list[dict[str, Any]]", json.loads(Path(session.end_profiling()).read_bytes()))
    nodes = [e["args"] for e in events if e.get("cat") == "Node" and str(e.get("name", "")).endswith("_kernel_time")]
    products = sum(_product(node) for node in nodes)
    others = sum(_element_wise(node) for node in nodes)
    moved = sum(a.nbytes for a in feeds.values()) + sum(int(getattr(a, "nbytes", 0)) for a in outputs)
    return Work(products + others, products, moved + _weight_bytes(model))


def _shapes(node: Mapping[str, Any], key: str) -> list[list[int]]:
    described = cast("list[dict[str, list[int]]]", node.get(key, []))
    return [shape for entry in described for shape in entry.values()]


def _product(node: Mapping[str, Any]) -> float:
    op_type = str(node.get("op_name", ""))
    if op_type not in {"MatMul", "Gemm", "Conv", "FusedMatMul"}:
        return 0.0
    inputs, outputs = _shapes(node, "input_type_shape"), _shapes(node, "output_type_shape")
    if len(inputs) < 2 or not outputs:
        return 0.0
    size = float(np.prod(outputs[0]))
    if op_type == "Conv":
        return 2 * size * float(np.prod(inputs[1][1:]))
    if op_type == "Gemm":
        return 2 * size * float(np.prod(inputs[0])) / max(1, outputs[0][0])
    return 2 * size * inputs[0][-1]


def _element_wise(node: Mapping[str, Any]) -> float:
    op_type, outputs = str(node.get("op_name", "")), _shapes(node, "output_type_shape")
    each = _FUNCTIONS.get(op_type) or _NORMALIZATIONS.get(op_type) or (1 if op_type in _ONE_EACH else 0)
    if not each or not outputs:
        return 0.0
    shapes = _shapes(node, "input_type_shape") if op_type.startswith("Reduce") else outputs
    return each * float(np.prod(shapes[0]))


def _weight_bytes(model: Path) -> float:
    """Weights of products; of an embedding table only the looked-up rows are read, and they are few."""
    import onnx

    graph = onnx.load(str(model), load_external_data=False).graph
    tables = {node.input[0] for node in graph.node if node.op_type == "Gather"}
    used = {name for node in graph.node if node.op_type != "Gather" for name in node.input} - tables
    sizes = {
        t.name: float(np.prod(t.dims)) * onnx.helper.tensor_dtype_to_np_dtype(t.data_type).itemsize
        for t in graph.initializer
    }
    return sum(size for name, size in sizes.items() if name in used)
