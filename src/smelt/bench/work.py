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

from smelt.ops import Declaration, Shapes, declarations
from smelt.ops.work import matmul_work
from smelt.runtime import SessionSettings, session_for

Array = np.ndarray[Any, Any]

_DECLARED: Final[dict[str, Declaration]] = {d.name: d for d in declarations()}
# The profile does not show the shapes of weights that a kernel has packed for itself.
_WITH_WEIGHT_SHAPES: Final = {"session.disable_prepacking": "1"}


@dataclass(frozen=True)
class Work:
    """`products` are the flops of matrix products and convolutions, `flops` all; `bytes` cross to memory once.
    `bytewise`: the products are of 8-bit numbers; `halved`: of bfloat16, by those who compute in it."""

    flops: float
    products: float
    bytes: float
    bytewise: bool = False
    halved: bool = False

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
    graph = _graph(model)
    nodes = _nodes(events, graph)
    products = sum(_flops(kind, node) for kind, node in nodes if _is_product(kind))
    others = sum(_flops(kind, node) for kind, node in nodes if not _is_product(kind))
    moved = sum(a.nbytes for a in feeds.values()) + sum(int(getattr(a, "nbytes", 0)) for a in outputs)
    return Work(products + others, products, moved + _weight_bytes(graph))


def _graph(model: Path) -> Any:
    import onnx

    return onnx.load(str(model), load_external_data=False).graph


def _nodes(events: Sequence[Mapping[str, Any]], graph: Any) -> list[tuple[str, Shapes]]:
    suffix = "_kernel_time"
    stated = {node.name: node for node in graph.node if node.name}
    found: list[tuple[str, Shapes]] = []
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") == "Node" and name.endswith(suffix):
            facts = cast("Mapping[str, Any]", event["args"])
            kind, node = str(facts.get("op_name", "")), stated.get(name.removesuffix(suffix))
            attributes = _attributes(node) if node is not None and node.op_type == kind else {}
            read, written = _shapes(facts, "input_type_shape"), _shapes(facts, "output_type_shape")
            found.append((kind, Shapes(read, written, attributes)))
    return found


def _attributes(node: Any) -> dict[str, Any]:
    from onnx import helper

    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _shapes(node: Mapping[str, Any], key: str) -> list[list[int]]:
    described = cast("list[dict[str, list[int]]]", node.get(key, []))
    return [shape for entry in described for shape in entry.values()]


def _flops(kind: str, node: Shapes) -> float:
    """As the op's declaration counts them; ops of one name in two domains are told apart by their shapes."""
    found = _DECLARED.get(kind)
    if found is None or not node.inputs or not node.outputs:
        return 0.0
    return found.work(node) if found.work is not None else found.flops * node.size()


def _is_product(kind: str) -> bool:
    found = _DECLARED.get(kind)
    return found is not None and (found.kind == "product" or found.work is matmul_work)


def _weight_bytes(graph: Any) -> float:
    """Weights that are read whole; of an embedding table only the looked-up rows are, and they are few."""
    import onnx

    used = {name for node in graph.node for name in node.input[1 if node.op_type == "Gather" else 0 :]}
    tensors = cast("Sequence[onnx.TensorProto]", graph.initializer)
    sizes = {
        t.name: float(np.prod(t.dims)) * onnx.helper.tensor_dtype_to_np_dtype(t.data_type).itemsize for t in tensors
    }
    return sum(size for name, size in sizes.items() if name in used)
