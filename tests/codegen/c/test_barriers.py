"""Barrier-free row-block fusion really runs: counted by a runtime whose ParallelFor is one barrier each."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tests.codegen.c.fake_ort import FakeRuntime

import smelt

TEXT = """<ir_version: 9, opset_import: ["" : 21]> g (float[s,64] x) => (float[s,64] y) {
    p = MatMul(x, w0) q = Add(p, b) r = Tanh(q) t = MatMul(r, w1) u = Add(t, x) v = Tanh(u)
    m = MatMul(v, w2) n = Add(m, v) o = Tanh(n) h = MatMul(o, w3) y = Add(h, o) }"""
ROWS = 192


class CountingRuntime(FakeRuntime):
    """`barriers` has the number of tasks of each ParallelFor; with `helped`, another thread runs every second task."""

    def __init__(self) -> None:
        self.barriers: list[int] = []
        self.helped = False
        super().__init__(newest=17, version=b"1.17.0")

    def _parallel(self, context: int, body: int, total: int, batches: int, data: int) -> None:
        self.barriers.append(total)
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)(body)
        mine, theirs = (range(0, total, 2), range(1, total, 2)) if self.helped else (range(total), range(0))
        helper = threading.Thread(target=lambda: [run(data, index) for index in theirs])
        helper.start()
        for index in mine:
            run(data, index)
        helper.join()


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model, random = onnx.parser.parse_model(TEXT), np.random.default_rng(3)
    for name in ("w0", "w1", "w2", "w3", "b"):
        shape = (64,) if name == "b" else (64, 64)
        model.graph.initializer.append(numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name))
    folder = tmp_path_factory.mktemp("fused") / "out"
    smelt.compile(model, folder, force=True, levels="v2", verify=False).close()
    return folder


def test_rows_pass_through_several_products_without_a_barrier(artifact: Path) -> None:
    """Alone on a machine a thread runs one product after the other; with a helper, blocks of rows go through all."""
    graph = onnx.load(artifact / "model.onnx").graph
    (node,) = graph.node
    x = np.random.default_rng(4).standard_normal((ROWS, 64)).astype(np.float32)
    values = {"x": x} | {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    (library,) = artifact.glob("*.so")
    runtime = CountingRuntime()
    assert runtime.register(ctypes.CDLL(str(library))) is None
    results, barriers = [], []
    for helped in (False, True):
        runtime.helped, runtime.barriers = helped, []
        assert runtime.compute(node.op_type, [np.ascontiguousarray(values[name]) for name in node.input]) is None
        results.append(runtime.outputs[0])
        barriers.append(len(runtime.barriers))
    # The first launch shows that there is a helper; the two behind it are one then.
    assert barriers == [3, 2]
    assert np.array_equal(*results)
