"""Tiny models and data sets. Models run stock unless a test is about compiling: what is tested is what lies around."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

WEIGHT = (np.arange(24, dtype=np.float32).reshape(8, 3) - 12) / 10


def save(
    path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], initializers: tuple[Any, ...] = ()
) -> Path:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def value(name: str, kind: int, shape: list[int | str] | None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def dense_model(folder: Path, batch: int | str = "n", name: str = "dense.onnx", scale: float = 1.0) -> Path:
    """y = tanh(x W) * scale, from 8 to 3."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [8, 3], WEIGHT.reshape(-1))
    factor = helper.make_tensor("f", TensorProto.FLOAT, [], [scale])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Tanh", ["h"], ["t"]),
        helper.make_node("Mul", ["t", "f"], ["y"]),
    ]
    shapes = value("x", TensorProto.FLOAT, [batch, 8]), value("y", TensorProto.FLOAT, [batch, 3])
    return save(folder / name, nodes, [shapes[0]], [shapes[1]], (weight, factor))


def token_model(folder: Path) -> Path:
    """mean of the tokens that the mask leaves, and each token's double."""
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["attention_mask"], ["m"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "m"], ["fm"]),
        helper.make_node("ReduceSum", ["fm", "one"], ["s"], keepdims=0),
        helper.make_node("ReduceSum", ["m", "one"], ["c"], keepdims=0),
        helper.make_node("Div", ["s", "c"], ["mean"]),
        helper.make_node("Add", ["f", "f"], ["twice"]),
    ]
    ids, mask = (value(name, TensorProto.INT64, ["b", "s"]) for name in ("input_ids", "attention_mask"))
    outputs = [value("mean", TensorProto.FLOAT, ["b"]), value("twice", TensorProto.FLOAT, ["b", "s"])]
    one = helper.make_tensor("one", TensorProto.INT64, [1], [1])
    return save(folder / "tokens.onnx", nodes, [ids, mask], outputs, (one,))


def rows(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((count, 8)).astype(np.float32)


def expected(x: Any) -> Any:
    return np.tanh(x @ WEIGHT)


def vectors(x: Any) -> Any:
    return pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), x.shape[1])


def write_parquet(path: Path, x: Any, group: int = 100, **columns: Any) -> Path:
    table = pa.table({"id": pa.array(np.arange(len(x))), "x": vectors(x), **columns})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=group)
    return path


def results(folder: Path, column: str = "y") -> Any:
    return np.array(pq.read_table(folder)[column].to_pylist(), np.float32)


def failures(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "_smelt" / "errors.jsonl").read_text().splitlines()]


def part_bytes(folder: Path) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}
    return {**found, "errors.jsonl": (folder / "_smelt" / "errors.jsonl").read_bytes()}
