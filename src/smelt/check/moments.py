"""Second moments of what the layers of a model multiply by their weights, for error feedback.

Input: a float32 model whose layers have names, calls. Output: for each product with a weight that is worth it, the sum
of x x^T over all rows x of its left operand. Invariant: they are computed by stock ONNX Runtime in a process of its
own, some at a time; a product whose moments are not finite, or that the model does not run for, has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from smelt.base.config import Config
from smelt.check.answers import Asked, ask
from smelt.check.calibration import Calls
from smelt.ir.save import save_model
from smelt.passes import weighted_products

Array = np.ndarray[Any, Any]
_BATCH_BYTES: Final = 256 << 20
_WIDEST: Final = 8192  # beyond, a matrix of moments takes too long


def second_moments(model: ir.Model, calls: Calls, folder: Path, config: Config) -> dict[str, Array]:
    """By the name of the product."""
    found: dict[str, Array] = {}
    layers = {name: depth for name, depth in weighted_products(model).items() if depth <= _WIDEST}
    for number, names in enumerate(_batches(layers)):
        copy = model.clone()
        _add_outputs(copy, names, layers)
        path = folder / f"moments{number}.onnx"
        save_model(copy, path, data_name=f"moments{number}.data")
        answers = ask(Asked(path, calls), folder / f"moments{number}", config)
        path.with_name(f"moments{number}.data").unlink(missing_ok=True)
        if isinstance(answers, str):
            continue
        for name in names:
            total = sum(call[_output(name)].astype(np.float64) for call in answers.calls)
            if isinstance(total, np.ndarray) and np.isfinite(total).all():
                found[name] = total
    return found


def _batches(layers: Mapping[str, int]) -> Iterator[list[str]]:
    """Names whose moments fit the memory together."""
    names, size = list[str](), 0
    for name, depth in layers.items():
        if names and size + depth * depth * 4 > _BATCH_BYTES:
            yield names
            names, size = [], 0
        names.append(name)
        size += depth * depth * 4
    if names:
        yield names


def _output(name: str) -> str:
    return f"smelt.moments.{name}"


def _add_outputs(model: ir.Model, names: Sequence[str], depths: Mapping[str, int]) -> None:
    """Moments are the model's only outputs then."""
    graph = model.graph
    outputs: list[ir.Value] = []
    for node in [node for node in graph if node.name in names]:
        name, depth = node.name or "", depths[node.name or ""]
        sizes = ir.Value(name=f"{_output(name)}.sizes", const_value=ir.tensor(np.array([-1, depth], np.int64)))
        graph.register_initializer(sizes)
        rows = ir.Node("", "Reshape", [node.inputs[0], sizes])
        transposed = ir.Node("", "Transpose", [rows.outputs[0]], [ir.AttrInt64s("perm", [1, 0])])
        made = ir.Value(name=_output(name), type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([depth, depth]))
        products = ir.Node("", "MatMul", [transposed.outputs[0], rows.outputs[0]], outputs=[made])
        for place, one in enumerate((rows, transposed)):
            one.outputs[0].name = f"{_output(name)}.{place}"
        graph.extend([rows, transposed, products])
        outputs.append(made)
    graph.outputs.clear()
    graph.outputs.extend(outputs)
